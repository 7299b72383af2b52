"""A size that changes nothing is refused, not taken in silence."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.config.compose import Config, load
from scaling.config.schema import kinds
from scaling.model.tuned import blank
from tests.model.test_variants import ELSEWHERE, POSITIONLESS, WITHOUT_POSITION, flow

SIZE = "size={width: 32, layers: 1, heads: 4, vocabulary: 61, length: 24}"
OWN = {"key_heads": 1, "value_width": 12, "head_width": 12, "hidden": 72}  # none is what follows from the others
PIECES = [(slot, kind) for slot in ("mixer", "channel") for kind in kinds(slot) if kind not in ELSEWHERE]


def built(config: Config) -> dict[str, torch.Size]:
    with blank():
        model = config.build("model", config["size"])
    return {name: parameter.shape for name, parameter in model.named_parameters()}


@cache
def changes(slot: str, kind: str) -> tuple[list[str], dict[str, torch.Size]]:
    """The overrides that put a piece into a model, and the model's parameters."""
    words = [SIZE, f"model.block.{slot}={flow(slot, kind)}"]
    words += [POSITIONLESS.removeprefix("; ")] if kind in WITHOUT_POSITION else []
    return words, built(load("decoder", words))


@pytest.mark.parametrize("size", OWN)
@pytest.mark.parametrize(("slot", "kind"), PIECES)
def test_a_size_changes_the_model_or_is_refused(slot, kind, size):
    words, plain = changes(slot, kind)
    config = load("decoder", [*words, f"size.{size}={OWN[size]}"])
    try:
        assert built(config) != plain
    except ScalingError as error:
        said = str(config.place(error))
        assert "size.key_heads" in said if size == "key_heads" else f"size.{size}={OWN[size]}" in said
        assert "leave" in said


def test_a_size_by_a_factor_is_refused_too_and_blocks_that_differ_may_leave_one_to_others():
    config = load("decoder", [SIZE, "model.block.mixer=Convolution", "size.times={key_heads: 0.5}"])
    with pytest.raises(ScalingError, match=r"size\.key_heads=2: no piece"):
        config.build("model", config["size"])
    assert built(load("decoder", [SIZE, "size.layers=2", "size.key_heads=2", "model.blocks={1: {mixer: LSTM}}"]))
