"""A size that changes nothing is refused, not taken in silence."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.config.compose import Config, load
from scaling.config.schema import kinds
from scaling.model.tuned import blank
from tests.model.test_variants import ELSEWHERE, LINES, POSITIONLESS, WITHOUT_POSITION, _flow

OWN = {"key_heads": 1, "value_width": 12, "head_width": 12, "hidden": 72}  # none is what follows from the others
PIECES = [
    *(("mixer", kind) for kind in kinds("mixer") if kind not in ELSEWHERE),
    *(("channel", kind) for kind in kinds("channel")),
]


def built(config: Config) -> dict[str, torch.Size]:
    with blank():
        model = config.build("model", config["size"])
    return {name: parameter.shape for name, parameter in model.named_parameters()}


@cache
def changes(slot: str, kind: str) -> tuple[list[str], dict[str, torch.Size]]:
    """The overrides that put a piece into a model, and the model's parameters."""
    line = f"model.block.{slot}={_flow(kind, LINES.get((slot, kind), {}))}"
    words = ["size={width: 32, layers: 1, heads: 4, vocabulary: 61, length: 24}", line]
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


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.block.mixer=DenseSynthesizer; size.key_heads=1", "own keys and values, and size.key_heads is 1"),
        (
            "model.position=TransformerXL; model.block.mixer={kind: DenseSynthesizer, mix: plus}; size.key_heads=1",
            "own keys and values, and size.key_heads is 1",
        ),
        ("model.block.mixer=LSTM; size.key_heads=1", "size.key_heads=1: no piece of the model reads it"),
        ("model.block.mixer=LSTM; model.position=Shaw; size.value_width=5", "size.value_width=5: no piece"),
        ("model.block.mixer=Convolution; size.times={key_heads: 0.5}", "size.key_heads=2: no piece"),
    ],
)
def test_what_is_wrong_with_a_size_is_told_in_one_line(change, told):
    config = load("decoder", ["size={width: 32, layers: 1, heads: 4, vocabulary: 61, length: 24}", *change.split("; ")])
    with pytest.raises(ScalingError) as failed:
        config.build("model", config["size"])
    said = str(config.place(failed.value))
    assert told in said
    assert "\n" not in said


def test_blocks_that_differ_may_leave_a_size_to_others():
    told = ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24, key_heads: 2}"]
    assert built(load("decoder", [*told, "model.blocks={1: {mixer: LSTM}}"]))
