"""What is wrong with a model is one line with its place, its value and its fix, and exit code 2."""

from __future__ import annotations

import re

import pytest

from scaling.cli import main

CASES = {
    "an unknown kind": ("decoder model.block.channel.kind=Gatd", "model.block.channel.kind='Gatd'", "'Gated'"),
    "an unknown key": ("decoder model.block.channel.biass=true", "model.block.channel.biass", "'bias'"),
    "a wrong type": ("decoder model.block.channel.bias=maybe", "model.block.channel.bias='maybe'", "true or false"),
    "a wrong choice": ("decoder model.block.mixer.scale=sqr", "model.block.mixer.scale='sqr'", "'sqrt'"),
    "a missing key": ("decoder model.block.channel=Dense", "model.block.channel.activation", "needs it"),
    "a width that heads do not divide": ("decoder size.heads=3", "size.heads=3", "take 2 heads"),
    "key heads that do not divide heads": (
        "decoder size=ladder/1M size.key_heads=3",
        "size.key_heads=3",
        "divisor of 8",
    ),
    "an odd head width under rotary": ("decoder size.head_width=5", "Rotary", "make size.head_width even"),
    "a window beyond learned positions": (
        "gpt2 model.position.length=512",
        "512 learned positions",
        "set position.length to 1024",
    ),
    "a negative size": ("decoder size.layers=-1", "size.layers=-1", "positive"),
    "half a layer": ("decoder size.layers=1.5", "size.layers=1.5", "whole number"),
    "an unknown size": ("decoder size=ladder/2M", "2M", "ladder/3M"),
    "an unknown model": ("decodr", "'decodr'", "'decoder'"),
    "cross-attention in an encoder": (
        "encoder model.block.branches=[mixer, cross, channel] model.block.cross=CrossAttention",
        "branches",
        "EncoderDecoder",
    ),
    "cross-attention in the place of self-attention": (
        "decoder model.block.mixer.kind=AdditiveAttention",
        "model.block.branches: AdditiveAttention reads an encoder",
        "EncoderDecoder",
    ),
    "cross-attention in an encoder-decoder's encoder": (
        "encoder_decoder model.encoder.block.branches=[mixer, cross, channel] model.encoder.block.cross=CrossAttention",
        "encoder.block.branches",
        "decoder.block.branches",
    ),
    "a piece of one tower that lacks a key": (
        "encoder_decoder model.decoder.block.channel.kind=Switch",
        "command line: model.decoder.block.channel.activation: Switch needs it",
        "write {kind: Switch, activation: …}",
    ),
    "a branch without a piece": ("decoder model.block.branches=[mixer, cross]", "block.cross", "write cross"),
    "an unknown branch": ("decoder model.block.branches=[mixer, chanel]", "'chanel'", "'channel'"),
    "an unknown part to tie": ("decoder model.tie=[decoder, hed]", "model.tie='hed'", "'head'"),
    "a tie of one": ("decoder model.tie=[head]", "model.tie", "two parts"),
    "stacks that differ and are to be one": (
        "encoder_decoder model.share=stacks size.encoder.layers=3",
        "model.share='stacks'",
        "the same layers",
    ),
    "a head without a table": (
        "encoder model.tie=[encoder, head] model.head={kind: Tokens, classes: 3}",
        "Tokens",
        "no table",
    ),
    "parallel post-norm": ("decoder model.block.kind=Parallel", "model.block", ""),
    "more blocks than layers": ("decoder model.stack.distinct=9", "model.stack.distinct=9", "between 1 and 2"),
    "an order with gaps": ("decoder model.stack.order=[0, 2]", "model.stack.order", "without gaps"),
    "different widths": ("encoder_decoder size.encoder.width=32", "size.encoder.width=32", "vectors of 16"),
    "buckets that do not halve": (
        "encoder_decoder model.position.buckets=7",
        "model.position.buckets=7",
        "multiple of 4",
    ),
}


SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
ADAPTIVE = "model.embedding={kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}"
NARROW = "model.embedding={kind: Projected, width: 6}"
FUNNEL, UPSAMPLED = "stack={kind: Funnel, norm: RMSNorm}", "model.stack={kind: UpsampledFunnel, norm: RMSNorm%s}"


def mixer(line: str) -> str:
    return f"model.block.mixer={{kind: {line}}}"


def channel(line: str) -> str:
    return f"model.block.channel={{kind: {line}}}"


def head(line: str) -> str:
    return f"model.head={{kind: {line}}}"


def universal(line: str) -> str:
    return f"model.stack={{kind: Universal, norm: RMSNorm, {line}}}"


DRAWN = "{kind: RandomBlocks, size: 5, blocks: 1, length: 24, pattern: {kind: BlockLocal, size: 3, pattern: Causal}%s}"
LINES = [  # the family, the changes at SIZE, the place, the fix
    ("encoder_decoder", [ADAPTIVE, head("AdaptiveSoftmax, cutoffs: [10, 30]")], "head.cutoffs=[10", "take [20, 40]"),
    (
        "encoder_decoder",
        [ADAPTIVE, head("AdaptiveSoftmax, cutoffs: [20, 40], widths: [32, 16, 8]")],
        "model.head.widths",
        "leave them out",
    ),
    ("encoder_decoder", [head("AdaptiveSoftmax, cutoffs: [20, 400]")], "model.head.cutoffs=400", "61"),
    ("encoder_decoder", [head("AdaptiveSoftmax, cutoffs: [40, 20]")], "model.head.cutoffs=[40", "rising"),
    ("encoder_decoder", [ADAPTIVE.replace(", 8]", "]")], "model.embedding.widths=[32", "3 widths"),
    ("encoder_decoder", ["model.embedding={kind: Factorized, rank: 32}"], "model.embedding.rank=32", "Token"),
    ("encoder_decoder", [ADAPTIVE.replace("model.", "model.encoder.")], "model.tie", "shapes"),
    ("encoder", ["model.embedding={kind: Projected, width: 32}"], "embedding.width=32", "take Token"),
    ("encoder", ["model.embedding={kind: Projected, width: 2.5}"], "width=2.5", "or a fraction below 1"),
    ("encoder", [NARROW, "model.tie=[encoder, head]"], "model.tie", "take {kind: Transform, width: 6"),
    ("decoder", [channel("MixtureOfExperts, activation: ReLU, choices: 1")], "channel.choices=1", "2"),
    ("decoder", [channel("MixtureOfExperts, activation: ReLU, experts: 4, choices: 5")], "choices=5", "2 to 4"),
    ("decoder", [channel("Switch, activation: ReLU, capacity: .nan")], "channel.capacity='.nan'", "above 0"),
    ("decoder", [channel("ProductKeys, norm: LayerNorm, keys: 4, nearest: 8")], "channel.nearest=8", "4 or fewer"),
    ("decoder", [channel("ProductKeys, norm: LayerNorm, key_width: 7")], "channel.key_width=7", "even"),
    ("decoder", ["model." + FUNNEL], "model.stack.kind='Funnel'", "take Sequential"),
    ("decoder", ["model.pattern=Prefix", UPSAMPLED % ""], "model.stack.kind", "pools"),
    ("encoder_decoder", ["model." + FUNNEL], "model.stack.kind='Funnel'", "take Sequential"),
    ("encoder_decoder", ["model.decoder." + FUNNEL], "model.decoder.stack.kind", "take Sequential"),
    ("encoder", ["model." + FUNNEL], "model.stack.kind='Funnel'", "UpsampledFunnel"),
    ("encoder", ["size.layers=1", UPSAMPLED % ""], "model.stack.stages=3", "size.layers=2"),
    ("encoder", [mixer("Convolution"), UPSAMPLED % ""], "model.block.kind", "Attention"),
    ("encoder_decoder", ["model.memory=Transparent", "model.encoder." + FUNNEL], "model.memory.kind", "take Last"),
    ("decoder", [universal("halting: {kind: ACT, rest: 1.5}")], "model.stack.halting.rest=1.5", "below 1"),
    ("decoder", [universal("halting: ATC")], "model.stack.halting", "'ACT'"),
    (
        "decoder",
        [mixer("Weighted, mixer: LightweightConvolution, channel: {kind: Dense, activation: ReLU}")],
        "model.block.mixer.mixer.kind",
        "CrossAttention",
    ),
    ("decoder", [mixer("BlockLocal, size: 25")], "mixer.size=25", "a block of 25 tokens in texts of 24"),
    ("decoder", [mixer("Longformer, window: 30")], "mixer.window=30", "at most 24"),
    ("decoder", [mixer("Longformer, window: 4, tokens: 25")], "tokens=25", "25 global tokens in texts of 24"),
    ("decoder", [mixer("BigBird, block: 9, seed: 0")], "mixer.window=3", "a window of 27 tokens"),
    ("decoder", [mixer("BigBird, block: 4, blocks: 7, seed: 0")], "blocks=7", "28 global tokens"),
    ("encoder", [mixer("Linformer, projected: 8, length: 12")], "model.block.mixer.length=12", "size.length to 12"),
    ("encoder", [mixer("Linformer, projected: 25")], "model.block.mixer.projected=25", "at most 24"),
    ("decoder", [mixer("Linformer, projected: 8")], "model.pattern", "take Bidirectional"),
    ("decoder", ["model.pattern=" + DRAWN % ""], "model.pattern.seed", "needs it"),
    ("decoder", ["model.pattern=" + DRAWN % ", seed: 1"], "model.pattern.size=5", "the same size"),
]


def words(command: str) -> list[str]:
    """The command's words; lists and mappings keep their spaces."""
    return re.split(r" (?![^\[{]*[\]}])", command)


WRONG = [
    *(pytest.param(words(command), place, fix, id=name) for name, (command, place, fix) in CASES.items()),
    *(pytest.param([family, SIZE, *changes], place, fix, id=changes[-1]) for family, changes, place, fix in LINES),
]


@pytest.mark.parametrize(("command", "place", "fix"), WRONG)
def test_one_line(command, place, fix, capsys):
    code = main(["inspect", *command])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert place in err
    assert fix in err
    assert err.startswith("scaling: ")
    assert "command line" in err or ".yaml" in err or "there is no model" in err
