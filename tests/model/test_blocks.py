"""Blocks that differ: which a key names, and what is laid over what."""

from __future__ import annotations

import pytest

from scaling.config.compose import load

SIZE = "size={width: 16, layers: 8, heads: 2, vocabulary: 61, length: 24}"
DENSE = "{channel: {kind: Dense, activation: ReLU}}"


def blocks(family: str, *overrides: str):
    """The blocks of each tower, and the names of their channels."""
    config = load(family, [SIZE, *overrides])
    model = config.build("model", config["size"])
    towers = [list(tower.stack.blocks) for tower in model.towers.values()]
    return [(tower, [type(block.branches["channel"].piece).__name__ for block in tower]) for tower in towers]


@pytest.mark.parametrize(
    ("key", "indices"),
    [("every 4", {3, 7}), ("every 9", {7}), ("1", {0}), ("8", {7}), ("-1", {7}), ("-8", {0})],
)
def test_a_key_names_blocks(key, indices):
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
    assert encoder[3].branches["channel"].piece.out.bias is not None
    assert decoder[3].branches["channel"].piece.out.bias is None
