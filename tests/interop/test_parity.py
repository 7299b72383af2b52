"""The same weights give the same logits and gradients as transformers' implementations (docs/parity.md)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from scaling.config.shape import Shape
from scaling.model.embeddings import RelativeBias
from scaling.model.patterns import Bidirectional, Causal
from tests.interop import parity

pytest.importorskip("transformers")

COMPARED = [*parity.MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in parity.VARIANTS)]


@pytest.mark.parametrize("dtype", parity.BOUNDS, ids=str)
@pytest.mark.parametrize("model", COMPARED)
def test_logits_and_gradients_agree(model: str, dtype: torch.dtype) -> None:
    both = parity.pair(model, dtype)
    for case in (case for case in parity.cases(model) if case.dtype == dtype):
        assert parity.difference(case, both) < parity.BOUNDS[dtype], case
        if case.reading == "whole" and (dtype == torch.float64 or case.padding == "none"):
            assert parity.gradient_difference(case, both) < parity.BOUNDS[dtype], case


def test_the_buckets_of_the_relative_bias_are_t5s() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    shape = Shape.of({"width": 8, "layers": 1, "heads": 2, "vocabulary": 8, "length": 8})
    offset, place = torch.arange(-700, 701), torch.zeros(1, 1, dtype=torch.long)
    for pattern in (Bidirectional(), Causal()):
        for buckets, distance in ((32, 128), (16, 40), (64, 1000)):
            bias = RelativeBias(shape, pattern, buckets=buckets, distance=distance)
            bias.table.data = torch.arange(buckets).float()[:, None].expand(-1, 2)  # each bucket adds its number
            ours = bias.score(torch.zeros(1), torch.zeros(1), place, offset[None])[0, 0, 0].long()
            assert torch.equal(ours, T5Attention._relative_position_bucket(offset, pattern.ahead, buckets, distance))


def test_the_document_holds_every_comparison_within_its_bound() -> None:
    text = (Path(__file__).parents[2] / "docs" / "parity.md").read_text()
    for model in parity.COMPARED:
        for padding in {case.padding for case in parity.cases(model)}:
            (row,) = re.findall(rf"^\| {model} \| {padding} \|(.*)\|$", text, re.MULTILINE)
            for cell, bound in zip(row.split("|"), [1e-4] * 3 + [1e-9] * 3, strict=True):
                assert cell.strip() == "–" or float(cell) < bound
