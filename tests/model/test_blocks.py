"""Blocks that differ: which a key names, what is laid over what, and keys that name none."""

from __future__ import annotations

import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load

SIZE = "size={width: 16, layers: 8, heads: 2, vocabulary: 61, length: 24}"


def blocks(family: str, *overrides: str):
    config = load(family, [SIZE, *overrides])
    model = config.build("model", config["size"])
    return {name: list(tower.stack.blocks) for name, tower in model.named_children() if hasattr(tower, "stack")}


def channels(found) -> list[str]:
    return [type(block.branches["channel"].piece).__name__ for block in found]


DENSE = "{channel: {kind: Dense, activation: ReLU}}"


@pytest.mark.parametrize(
    ("key", "indices"),
    [
        ("every 4", {3, 7}),
        ("every 9", {7}),
        ("every 1", set(range(8))),
        ("1", {0}),
        ("8", {7}),
        ("-1", {7}),
        ("-8", {0}),
        ("-2", {6}),
    ],
)
def test_a_key_names_blocks(key, indices):
    found = channels(blocks("decoder", f"model.blocks={{{key}: {DENSE}}}")["decoder"])
    assert {index for index, kind in enumerate(found) if kind == "Dense"} == indices


def test_a_line_is_laid_over_the_block_s_and_a_later_one_over_it():
    over = f"model.blocks={{every 2: {DENSE}, 4: {{channel: {{bias: false}}, norm: LayerNorm}}}}"
    (found,) = blocks("decoder", over).values()
    fourth = found[3].branches["channel"]
    assert (type(fourth.piece).__name__, fourth.piece.hidden.bias) == ("Dense", None)
    assert type(fourth.norm).__name__ == "LayerNorm"
    assert type(found[1].branches["channel"].norm).__name__ == "RMSNorm"
    assert found[1].branches["channel"].piece.hidden.bias is not None


def test_towers_share_them_and_lay_their_own_over():
    over = [f"model.blocks={{every 4: {DENSE}}}", "model.decoder.blocks={every 4: {channel: {bias: false}}}"]
    found = blocks("encoder_decoder", *over, "model.block.channel={kind: Gated, activation: Swish}")
    assert channels(found["encoder"]) == channels(found["decoder"]) == (["Gated"] * 3 + ["Dense"]) * 2
    assert found["encoder"][3].branches["channel"].piece.out.bias is not None
    assert found["decoder"][3].branches["channel"].piece.out.bias is None


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.blocks={9: {}}", "blocks.9"),
        ("model.blocks={-9: {}}", "blocks.-9"),
        ("model.blocks={0: {}}", "blocks"),
        ("model.blocks={every: {}}", "blocks"),
        ("model.blocks={every 0: {}}", "blocks"),
        ("model.blocks={2: {chanel: Dense}}", "blocks.2.chanel"),
        ("model.blocks={2: {channel: Dense}}", "blocks.2.channel.activation"),
        ("model.blocks={2: {channel: {kind: Switch, activation: ReLU, experts: 1}}}", "blocks.2.channel.experts"),
    ],
)
def test_keys_that_name_none(change, told):
    with pytest.raises(ScalingError) as error:
        blocks("decoder", change)
    assert error.value.key.removeprefix("model.") == told
    assert "\n" not in str(error.value)


def test_a_shared_block_is_one_block():
    with pytest.raises(ScalingError, match="no block 4"):
        blocks("decoder", "model.stack.distinct=2", f"model.blocks={{4: {DENSE}}}")
