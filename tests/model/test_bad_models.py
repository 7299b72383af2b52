"""What is wrong with a model is one line with its place, its value and its fix, and exit code 2."""

from __future__ import annotations

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
    "no layers": ("decoder size.layers=0", "size.layers=0", "positive"),
    "half a layer": ("decoder size.layers=1.5", "size.layers=1.5", "whole number"),
    "an unknown size": ("decoder size=ladder/2M", "2M", "ladder/3M"),
    "an unknown family of sizes": ("decoder size=leader/1M", "leader", "ladder"),
    "an unknown model": ("decodr", "'decodr'", "'decoder'"),
    "cross-attention in an encoder": (
        "encoder model.block.branches=[mixer, cross, channel] model.block.cross=CrossAttention",
        "cross",
        "EncoderDecoder",
    ),
    "cross-attention in an encoder-decoder's encoder": (
        "encoder_decoder model.encoder.block.branches=[mixer, cross, channel] model.encoder.block.cross=CrossAttention",
        "encoder.block.branches",
        "decoder.block.branches",
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


def words(command: str) -> list[str]:
    """The command's words; lists and mappings keep their spaces."""
    parts, depth, word = [], 0, ""
    for letter in command:
        depth += (letter in "[{") - (letter in "]}")
        if letter == " " and depth == 0:
            parts.append(word)
            word = ""
        else:
            word += letter
    return [*parts, word]


@pytest.mark.parametrize("name", CASES)
def test_one_line(name, capsys):
    command, place, fix = CASES[name]
    code = main(["inspect", *words(command)])
    out, err = capsys.readouterr()
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "Traceback" not in err
    assert place in err
    assert fix in err
    assert err.startswith("scaling: ")
    assert "command line" in err or ".yaml" in err or "there is no model" in err
