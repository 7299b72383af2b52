"""Lines of a model: blocks that differ, sizes that nothing reads, and what is wrong: one line with its fix."""

from functools import cache
from pathlib import Path

import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.document import Config
from scaling.config.schema import kinds
from scaling.model.tuned import blank
from tests.command_line import refused
from tests.model.test_variants import ELSEWHERE, POSITIONLESS, SIZE, WITHOUT_POSITION, flow

DENSE = "{channel: {kind: Dense, activation: ReLU}}"


def blocks(family: str, *overrides: str):
    """The blocks of each tower, of eight layers, and the names of their channels."""
    config = load(family, [SIZE, "size.layers=8", *overrides])
    model = config.build("model", config["size"])
    towers = [list(tower.stack.blocks) for tower in model.towers.values()]
    return [(tower, [type(block.branches["channel"].piece).__name__ for block in tower]) for tower in towers]


def test_a_key_names_blocks():
    for key, indices in {"every 4": {3, 7}, "every 9": {7}, "1": {0}, "-1": {7}, "-8": {0}}.items():
        ((_, channels),) = blocks("decoder", f"model.blocks={{{key}: {DENSE}}}")
        assert {index for index, kind in enumerate(channels) if kind == "Dense"} == indices


def test_a_line_is_laid_over_the_block_s_a_later_one_over_it_and_a_tower_s_own_over_both():
    over = f"model.blocks={{every 2: {DENSE}, 4: {{channel: {{bias: false}}, norm: LayerNorm}}}}"
    (((_, second, _, fourth, *_), _),) = blocks("decoder", over)
    for block, norm, bias in ((second, "RMSNorm", True), (fourth, "LayerNorm", False)):
        branch = block.branches["channel"]
        assert (type(branch.piece).__name__, type(branch.norm).__name__) == ("Dense", norm)
        assert (branch.piece.hidden.bias is not None) == bias
    own = "model.decoder.blocks={every 4: {channel: {bias: false}}}"
    gated = "model.block.channel={kind: Gated, activation: Swish}"
    (encoder, names), (decoder, others) = blocks("encoder_decoder", f"model.blocks={{every 4: {DENSE}}}", own, gated)
    assert names == others == (["Gated"] * 3 + ["Dense"]) * 2
    blocks("decoder", "size.key_heads=2", "model.blocks={1: {mixer: LSTM}}")  # which may leave a size to others
    assert encoder[3].branches["channel"].piece.out.bias is not None
    assert decoder[3].branches["channel"].piece.out.bias is None


OWN = {"key_heads": 1, "value_width": 12, "head_width": 12, "hidden": 72}  # none is what follows from the others
PIECES = [(slot, kind) for slot in ("mixer", "channel") for kind in kinds(slot) if kind not in ELSEWHERE]


def built(config: Config) -> dict[str, torch.Size]:
    with blank():
        model = config.build("model", config["size"])
    return {name: parameter.shape for name, parameter in model.named_parameters()}


@cache
def changes(slot: str, kind: str) -> tuple[list[str], dict[str, torch.Size]]:
    """The overrides that put a piece into a model, and the model's parameters."""
    words = [SIZE, "size.layers=1", f"model.block.{slot}={flow(slot, kind)}"]
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


# The model, what is changed, the place that the line names, and the fix.
WRONG = [row.split("|") for row in Path(__file__).with_name("wrong_models.txt").read_text().splitlines()]


@pytest.mark.parametrize("row", WRONG, ids=lambda row: f"{row[0]}{row[1]}")
def test_what_is_wrong_is_one_line(row, capsys):
    family, changes, place, fix = (part.strip() for part in row)
    size = [] if "size=" in changes else [SIZE]
    err = refused(capsys, "inspect", family, *size, *filter(None, changes.split("; ")))
    assert place in err
    assert fix in err
    assert "command line" in err or ".yaml" in err or "there is no model" in err
