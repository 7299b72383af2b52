"""What is wrong with a model is one line with its place, its value and its fix, and exit code 2."""

from __future__ import annotations

from string import Template

import pytest

from scaling.cli import main

SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
SHORT = {
    "MIXER": "model.block.mixer",
    "CHANNEL": "model.block.channel",
    "ADAPTIVE": "{kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}",
    "FUNNEL": "stack={kind: Funnel, norm: RMSNorm}",
    "UPSAMPLED": "model.stack={kind: UpsampledFunnel, norm: RMSNorm}",
    "UNIVERSAL": "model.stack={kind: Universal, norm: RMSNorm, halting",
    "BRANCHES": "block.branches=[mixer, cross, channel]",
    "DRAWN": "model.pattern={kind: RandomBlocks, size: 5, blocks: 1, length: 24, "
    "pattern: {kind: BlockLocal, size: 3, pattern: Causal}",
}
WRONG = """
decodr | | 'decodr' | 'decoder'
decoder | $CHANNEL.kind=Gatd | model.block.channel.kind='Gatd' | 'Gated'
decoder | $CHANNEL.biass=true | model.block.channel.biass | 'bias'
decoder | $CHANNEL=Dense | model.block.channel.activation | needs it
decoder | size.layers=-1 | size.layers=-1 | positive
decoder | size.heads=3 | size.heads=3 | take 2 heads
decoder | size.key_heads=3 | size.key_heads=3 | divisor of 4
decoder | size.head_width=5 | Rotary | make size.head_width even
gpt2 | model.position.length=16 | 16 learned positions | set position.length to 24
encoder_decoder | model.position.buckets=7 | model.position.buckets=7 | multiple of 4
encoder_decoder | size.encoder.width=16 | size.encoder.width=16 | vectors of 32
decoder | model.block.branches=[mixer, cross] | block.cross | write cross
decoder | model.block.branches=[mixer, chanel] | 'chanel' | 'channel'
decoder | model.block.kind=Parallel | model.block |
encoder | model.$BRANCHES; model.block.cross=CrossAttention | branches | EncoderDecoder
decoder | $MIXER.kind=AdditiveAttention | model.block.branches: AdditiveAttention reads an encoder | EncoderDecoder
encoder_decoder | model.encoder.$BRANCHES; model.encoder.block.cross=Aligned | encoder.block.branches | decoder.block
encoder_decoder | model.decoder.block.channel.kind=Switch | decoder.block.channel.activation: Switch | {kind: Switch
decoder | model.tie=[decoder, hed] | model.tie='hed' | 'head'
decoder | model.tie=[head] | model.tie | two parts
encoder | model.tie=[encoder, head]; model.head={kind: Tokens, classes: 3} | Tokens | no table
encoder_decoder | model.encoder.embedding=$ADAPTIVE | model.tie | shapes
encoder_decoder | model.share=stacks; size.encoder.layers=3 | model.share='stacks' | the same layers
decoder | model.stack.distinct=9 | model.stack.distinct=9 | between 1 and 2
decoder | model.stack.order=[0, 2] | model.stack.order | without gaps
decoder | model.blocks={9: {}} | blocks.9 | set size.layers
decoder | model.blocks={2: {chanel: Dense}} | blocks.2.chanel | 'channel'
decoder | model.blocks={2: {channel: {kind: Switch, activation: ReLU, experts: 1}}} | blocks.2.channel.experts=1 | 2
decoder | model.stack.distinct=1; model.blocks={2: {norm: LayerNorm}} | model.blocks.2 | a shared block is one block
encoder_decoder | model.embedding=$ADAPTIVE; model.head={kind: AdaptiveSoftmax, cutoffs: [10, 30]} | [10 | take [20, 40]
encoder_decoder | model.head={kind: AdaptiveSoftmax, cutoffs: [40, 20]} | model.head.cutoffs=[40 | rising
encoder_decoder | model.embedding={kind: Factorized, rank: 32} | model.embedding.rank=32 | Token
encoder | model.embedding={kind: Projected, width: 6}; model.tie=[encoder, head] | model.tie | Transform, width: 6
decoder | $CHANNEL={kind: MixtureOfExperts, activation: ReLU, experts: 4, choices: 5} | choices=5 | 2 to 4
decoder | $CHANNEL={kind: Switch, activation: ReLU, capacity: .nan} | channel.capacity='.nan' | above 0
decoder | $CHANNEL={kind: ProductKeys, norm: LayerNorm, keys: 4, nearest: 8} | channel.nearest=8 | 4 or fewer
encoder_decoder | model.decoder.$FUNNEL | model.decoder.stack.kind | take Sequential
encoder | model.$FUNNEL | model.stack.kind='Funnel' | UpsampledFunnel
encoder | size.layers=1; $UPSAMPLED | model.stack.stages=3 | size.layers=2
encoder | $MIXER={kind: Convolution}; $UPSAMPLED | model.block.kind | Attention
encoder_decoder | model.memory=Transparent; model.encoder.$FUNNEL | model.memory.kind | take Last
decoder | $UNIVERSAL: {kind: ACT, rest: 1.5}} | model.stack.halting.rest=1.5 | below 1
decoder | $MIXER={kind: Weighted, mixer: LSTM, channel: {kind: Dense, activation: ReLU}} | mixer.kind | CrossAttention
decoder | $MIXER={kind: BlockLocal, size: 25} | mixer.size=25 | a block of 25 tokens in texts of 24
encoder | $MIXER={kind: Linformer, projected: 8, length: 12} | mixer.length=12 | size.length to 12
decoder | $MIXER={kind: Linformer, projected: 8} | model.pattern | take Bidirectional
decoder | $DRAWN, seed: 1} | model.pattern.size=5 | the same size
"""
ROWS = [row.split("|") for row in Template(WRONG).substitute(SHORT).strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}{row[1]}")
def test_one_line(row, capsys):
    family, changes, place, fix = (part.strip() for part in row)
    size = [] if "size=" in changes else [SIZE]
    assert main(["inspect", family, *size, *filter(None, changes.split("; "))]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "Traceback" not in err
    assert place in err
    assert fix in err
    assert err.startswith("scaling: ")
    assert "command line" in err or ".yaml" in err or "there is no model" in err
