"""Tied tables stay one table, however a model comes by its memory."""

from __future__ import annotations

import pytest
import torch

from scaling.config import load
from scaling.schema import build
from scaling.training.parametrization import Standard, initialise

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 32, "length": 16}


@pytest.mark.parametrize("model", ["gpt2", "bert", "t5", "t5_v1_1", "vaswani"])
def test_a_model_made_on_meta_has_the_ties_of_one_that_was_not(model: str) -> None:
    line = load(model)["model"]
    with torch.device("meta"):
        empty = build("model", line, SIZE)
    filled = initialise(empty, Standard(), seed=0)
    tied = [name for name, _ in build("model", line, SIZE).named_parameters()]
    assert [name for name, _ in filled.named_parameters()] == tied
    assert not any(parameter.is_meta for parameter in filled.parameters())
