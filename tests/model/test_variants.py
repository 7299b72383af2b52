"""Every piece of every slot in the families that run it otherwise: what must hold of any model, whatever it is made
of.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from string import Template
from typing import Any

import pytest
import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import Config, load
from scaling.config.schema import kinds
from scaling.model.context import Cache, Places
from scaling.model.tuned import blank, build_model
from scaling.training.parametrization import Standard, initialise

# What a kind asks for beyond its name. A new piece without required keys is tested unasked.
LINES = {
    ("head", "Transform"): "activation: GeLU, norm: LayerNorm",
    ("head", "Sequence"): "classes: 3, activation: Tanh",
    ("head", "NextSentence"): "activation: Tanh",
    ("head", "Classes"): "classes: 3, activation: Tanh",
    ("head", "Tokens"): "classes: 5",
    ("channel", "Dense"): "activation: GeLU",
    ("channel", "Gated"): "activation: Swish",
    # As many seats as positions: where something is dropped, documents packed into a row compete.
    ("channel", "MixtureOfExperts"): "activation: GeLU, experts: 4, capacity: 4.0",
    ("channel", "Switch"): "activation: GeLU, experts: 4, capacity: 4.0",
    ("channel", "ProductKeys"): "norm: LayerNorm, heads: 2, keys: 8, key_width: 8, nearest: 3",
    ("position", "Learned"): "length: 32",
    ("embedding", "Factorized"): "rank: 8",
    ("embedding", "Projected"): "width: 16",
    ("embedding", "Adaptive"): "cutoffs: [20, 40], widths: [32, 16, 8]",
    ("head", "AdaptiveSoftmax"): "cutoffs: [20, 40]",
    ("head", "MixtureOfSoftmaxes"): "softmaxes: 3",
    ("pattern", "Window"): "size: 3, pattern: Causal",
    ("pattern", "BlockLocal"): "size: 2, before: 1, pattern: Causal",
    ("pattern", "Global"): "tokens: 1, pattern: {'kind': 'Window', 'size': 2, 'pattern': 'Causal'}",
    ("pattern", "RandomBlocks"): "size: 2, blocks: 1, seed: 0, length: 24, "
    "pattern: {'kind': 'BlockLocal', 'size': 2, 'pattern': 'Causal'}",
    ("mixer", "Weighted"): "mixer: Attention, channel: {kind: Dense, activation: GeLU}",
    ("mixer", "DilatedConvolution"): "activation: ReLU, norm: LayerNorm",
    ("mixer", "BlockLocal"): "size: 2, before: 1",
    ("mixer", "Longformer"): "window: 2, dilation: 2",
    ("mixer", "BigBird"): "block: 1, seed: 0, blocks: 1, random: 1",
}
PATHS = {
    "activation": "model.block.channel.activation",
    "mixer": "model.block.mixer",
    "norm": "model.block.norm",
    "residual": "model.block.residual",
    "channel": "model.block.channel",
    "position": "model.position",
    "embedding": "model.embedding",
    "head": "model.head",
    "pattern": "model.pattern",
}
FAMILIES = ("decoder", "encoder", "encoder_decoder")
TASK_HEADS = tuple(name for name, kind in kinds("head").items() if kind.target == "labels")
# Mixers that know order by themselves, where a position with parameters would be idle, and those without logits.
CONVOLVING = ("Convolution", "DilatedConvolution", "DynamicConvolution", "GatedConvolution", "LightweightConvolution")
WITHOUT_POSITION = (*CONVOLVING, "GRU", "LSTM", "LinearAttention", "Performer")
CROSSES = ("AdditiveAttention", "Aligned", "MultiplicativeAttention")  # beside the default of every encoder-decoder
ELSEWHERE = (*CROSSES, "BidirectionalGRU", "BidirectionalLSTM", "CrossAttention", "Linformer")  # not in every stack
POSITIONLESS = "; model.position=NoPosition"
NORMLESS = "; model.block.norm=NoNorm; model.stack.norm=NoNorm"  # LayerNorm is blind to what Fixup adds to all alike
EVOLVED = "norm: LayerNorm, residual: Pre, mixer: Attention, channel: {kind: Dense, activation: Swish}"
SHORT = {
    "UNPLACED": POSITIONLESS,
    "WINDOW": "{kind: Window, size: 3, pattern: Causal}",
    "ADAPTIVE": "{kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}",
    "PROJECTED": "model.embedding={kind: Projected, width: 12, segments: 2, norm: LayerNorm}; "
    "model.head={kind: Transform, activation: GeLU, norm: LayerNorm, width: 12}",
    "WEIGHTED": "model.block.mixer={kind: Weighted, mixer: Attention, channel: {kind: Dense, activation: GeLU}}",
    "ACROSS": "{kind: Weighted, mixer: CrossAttention, channel: {kind: Dense, activation: GeLU}}",
    "EVOLVED_ENCODER": f"model.block={{kind: EvolvedEncoder, {EVOLVED}}}",
    "EVOLVED_DECODER": f"model.block={{kind: EvolvedDecoder, {EVOLVED}}}",
    "EVOLVED_CROSS": f"model.decoder.block={{kind: EvolvedDecoder, {EVOLVED}, cross: CrossAttention}}",
    "CHANNEL": "model.block.channel",
    "LORA": "tuning={kind: LoRA, rank: 2, targets: [all]}",
    "PREFIX": "tuning={kind: Prefix, length: 3}",
    "PROMPT": "tuning={kind: Prompt, length: 3}",
    "ADAPTERS": "tuning={kind: Adapters, bottleneck: 4, activation: GeLU}",
}
TUNINGS = (*(SHORT[name].removeprefix("tuning=") for name in ("LORA", "PREFIX", "PROMPT", "ADAPTERS")), "IA3")
FURTHER = """
elmo model.embedding.dropout=0; model.block.residual=Pre; model.tie=[decoder, head]
decoder model.tie=[decoder, head]
decoder size.key_heads=1
decoder size.value_width=12
decoder model.block.mixer.bias=true
decoder model.block.mixer.bias=qkv
decoder model.block.norm={kind: RMSNorm, gain: zero_centered}
encoder model.block.norm={kind: LayerNorm, gain: zero_centered}
encoder $PROJECTED; model.tie=[encoder, head]; model.position=Learned
encoder $PROJECTED; model.embedding.width=40; model.head.width=40; model.position=Sinusoidal
decoder model.block.mixer.norm=RMSNorm
decoder model.block.mixer={kind: DenseSynthesizer, mix: plus}
encoder_decoder model.block.mixer={kind: DenseSynthesizer, mix: alpha}
encoder_decoder model.block.mixer={kind: RandomSynthesizer, mix: plus}
decoder model.block.mixer={kind: RandomSynthesizer, mix: alpha}
encoder_decoder model.decoder.block.cross={kind: CrossAttention, heads_times: 0.5, head_width_times: 0.75}
encoder_decoder model.decoder.block.cross={kind: CrossAttention, norm: RMSNorm}
encoder model.block.mixer=BidirectionalGRU
encoder model.block.mixer=BidirectionalLSTM
encoder_decoder model.decoder.block.cross=AdditiveAttention
encoder_decoder model.decoder.block.cross=Aligned
encoder_decoder model.decoder.block.cross=MultiplicativeAttention
encoder_decoder model.decoder.block.cross={kind: MultiplicativeAttention, score: dot, output: context}
decoder model.position={kind: Rotary, part: 0.5}
encoder model.pattern={kind: Window, size: 4, pattern: Bidirectional}
encoder model.pattern={kind: Global, tokens: 2, pattern: {kind: Window, size: 3, pattern: Bidirectional}}
encoder model.block.mixer={kind: BlockLocal, size: 2, after: 1}; model.position=RelativeBias
encoder model.block.mixer={kind: BigBird, block: 1, seed: 3, blocks: 1, random: 2}; size.key_heads=2
encoder model.block.mixer={kind: Longformer, window: 3, tokens: 2}
decoder model.block.mixer={kind: LinearAttention, bias: true}; model.position=Rotary; size.key_heads=2
encoder model.block.mixer={kind: Performer, features: 5}; model.position=Learned; size.value_width=12
encoder model.block.mixer={kind: Linformer, projected: 5, sharing: none}$UNPLACED
encoder model.block.mixer={kind: Linformer, projected: 5, sharing: headwise}$UNPLACED
encoder model.block.mixer={kind: Linformer, projected: 5, sharing: kv}$UNPLACED
encoder model.block.mixer={kind: Linformer, projected: 5, sharing: none}; size.key_heads=2
encoder_decoder model.encoder.block.mixer={kind: Linformer, projected: 6}; model.encoder.position=Learned
encoder model.block.mixer={kind: MemoryCompressed, stride: 4}; model.position=RelativeBias
decoder model.block.mixer={kind: MemoryCompressed, bias: true}; model.position=Shaw; size.key_heads=2
decoder model.block.mixer={kind: MemoryCompressed, stride: 2}; model.position=ALiBi
decoder model.block.mixer=MemoryCompressed; model.pattern=$WINDOW
decoder model.block.mixer={kind: BlockLocal, size: 4}; model.blocks={every 2: {mixer: MemoryCompressed}}
encoder_decoder model.encoder.block.mixer={kind: Longformer, window: 3, dilation: 2, tokens: 1, norm: RMSNorm}
encoder_decoder model.pattern=$WINDOW; model.decoder.pattern=$WINDOW; model.position=Shaw
decoder model.stack.distinct=1
decoder model.stack.order=[0, 1, 0, 1]
decoder model.embedding.scale=sqrt_width
decoder model.embedding.norm=LayerNorm
decoder model.block.branches=[channel, mixer, channel]
encoder model.embedding.segments=2
encoder model.sentence={kind: NextSentence, activation: Tanh}
encoder model.head={kind: Sequence, classes: 3, activation: Tanh, weights: [0.5, 1, 2]}
encoder model.head={kind: Tokens, classes: 5, weights: [0.5, 1, 2, 1, 1]}
encoder model.head={kind: Options, activation: Tanh}
decoder model.head={kind: Sequence, classes: 3}; model.language=Linear
decoder model.head={kind: Number, added: true}; model.language=Linear; model.tie=[decoder, language]
encoder model.boundary={kind: Boundary, activation: GeLU, norm: LayerNorm}
encoder_decoder model.tie=[encoder, decoder]; model.embedding=$ADAPTIVE
encoder_decoder model.tie=[decoder, head]; model.embedding=$ADAPTIVE
encoder_decoder model.tie=[encoder, decoder, head]; model.embedding=$ADAPTIVE
encoder_decoder model.head={kind: AdaptiveSoftmax, cutoffs: [20, 40]}; model.embedding=$ADAPTIVE
decoder model.head={kind: AdaptiveSoftmax, cutoffs: [20, 40], widths: [32, 16, 8]}
encoder_decoder model.embedding={kind: Projected, width: 16}; model.tie=[encoder, decoder]
encoder_decoder model.tie=[]
encoder_decoder model.tie=[encoder, decoder]
encoder_decoder model.tie=[decoder, head]
encoder_decoder size.encoder.layers=1
encoder_decoder model.share=stacks
encoder_decoder model.encoder.stack.distinct=1
decoder model.block.kind=Parallel
encoder $EVOLVED_ENCODER
decoder $EVOLVED_DECODER
encoder_decoder $EVOLVED_ENCODER; $EVOLVED_CROSS
decoder model.blocks={every 2: {channel: {kind: Dense, activation: ReLU}}, 1: {norm: LayerNorm}}
encoder_decoder model.decoder.blocks={-2: {channel: {kind: Gated, activation: GeLU}}}
decoder model.stack={kind: Universal, norm: RMSNorm}
decoder model.stack={kind: Universal, norm: RMSNorm, halting: ACT}
encoder_decoder model.stack={kind: Universal, norm: RMSNorm, halting: ACT}
decoder model.stack={kind: Universal, norm: NoNorm, time: learned, place: none, before: 1, after: 2}
encoder_decoder model.memory=Transparent
encoder model.stack={kind: UpsampledFunnel, norm: RMSNorm}
encoder model.stack={kind: UpsampledFunnel, norm: RMSNorm}; model.position=Shaw
encoder_decoder model.encoder.stack={kind: Funnel, norm: RMSNorm}
encoder_decoder model.encoder.stack={kind: Funnel, norm: NoNorm}; model.block.residual=Post
encoder_decoder model.decoder.block.cross=$ACROSS
"""
TUNED = """
decoder $LORA
decoder $PREFIX
decoder $PROMPT
decoder $ADAPTERS
decoder tuning=IA3
encoder_decoder $LORA
encoder_decoder $PREFIX
encoder_decoder $PROMPT
encoder_decoder $ADAPTERS
encoder_decoder tuning=IA3
encoder model.position={kind: Learned, length: 24}; $PREFIX
encoder model.position={kind: Learned, length: 24}; $PROMPT
decoder model.position=RelativeBias; $PREFIX
decoder model.position=Shaw; $PROMPT
decoder model.position=TransformerXL; $PREFIX
decoder size.key_heads=1; size.value_width=12; $PREFIX
decoder model.block.mixer.norm=RMSNorm; $LORA
decoder model.block.mixer={kind: DenseSynthesizer, mix: plus}; model.position=Shaw; $PREFIX
decoder model.block.mixer={kind: RandomSynthesizer, mix: alpha}; $PREFIX
decoder $WEIGHTED; $PREFIX
decoder $WEIGHTED; $LORA
decoder model.pattern=$WINDOW; $PREFIX
decoder model.pattern=$WINDOW; $PROMPT
decoder model.pattern=Prefix; $PROMPT
decoder model.stack.distinct=1; $LORA
decoder model.block.mixer=Convolution$UNPLACED; $PROMPT
decoder model.block.mixer=LSTM$UNPLACED; $PROMPT
decoder model.block.mixer=LSTM$UNPLACED; $LORA
decoder model.block.mixer=Performer$UNPLACED; $LORA
decoder $CHANNEL={kind: ProductKeys, norm: LayerNorm, heads: 2, keys: 8, key_width: 8, nearest: 3}; $LORA
decoder $CHANNEL={kind: Switch, activation: GeLU, experts: 4, capacity: 4.0}; $PROMPT
encoder_decoder model.share=stacks; $LORA
encoder_decoder model.memory=Transparent; $PROMPT
encoder model.stack={kind: UpsampledFunnel, norm: RMSNorm}; $PREFIX
decoder $EVOLVED_DECODER; $PROMPT
decoder model.stack={kind: Universal, norm: RMSNorm, halting: ACT}; $PROMPT
encoder_decoder tuning={kind: Prefix, length: 3, slots: [mixer, cross]}
encoder_decoder tuning={kind: Adapters, bottleneck: 4, activation: GeLU, after: [cross, channel]}
"""


def flow(slot: str, kind: str) -> str:
    """A line that chooses a piece."""
    return "{" + ", ".join([f"kind: {kind}", *filter(None, [LINES.get((slot, kind))])]) + "}"


def cases() -> list[tuple[str, str]]:
    """The family, and what is changed in its config."""
    found = [(family, "") for family in FAMILIES]
    for slot, path in PATHS.items():
        for kind in kinds(slot):
            if kind in ELSEWHERE or (slot, kind) == ("pattern", "Bidirectional"):  # the encoders' default
                continue
            change = f"{path}={flow(slot, kind)}"
            change += POSITIONLESS if kind in WITHOUT_POSITION else NORMLESS if kind == "Fixup" else ""
            found.append(("decoder", change))
            if slot in ("mixer", "position") or kind in TASK_HEADS:  # which an encoder runs otherwise
                found.append(("encoder", change))
    return found + listed(FURTHER)


def listed(text: str) -> list[tuple[str, str]]:
    lines = Template(text).substitute(SHORT).strip().splitlines()
    return [(family, change) for family, _, change in (line.partition(" ") for line in lines)]


EVERY = [*cases(), *listed(TUNED)]


@cache
def configured(family: str, change: str) -> Config:
    overrides = ["size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"]
    if change.startswith("model.stack.order"):
        overrides.append("size.layers=4")
    if change == "model.block.kind=Parallel":
        change = (
            "model.block={kind: Parallel, branches: [mixer, channel], norm: LayerNorm, residual: Pre, "
            "mixer: Attention, channel: {kind: Dense, activation: GeLU}}"
        )
    return load(family, [*overrides, *(change.split("; ") if change else [])])


def build(family: str, change: str):
    """A model of one's own: to copy it takes a fifth of what making it takes."""
    return deepcopy(_built(family, change))


@cache
def _built(family: str, change: str):
    config = configured(family, change)
    with blank():
        model = build_model(config.tree)
    return awake(initialise(model, Standard(head="normal"), seed=0))


@torch.no_grad()
def awake(model):
    """What starts at zero (ReZero, Fixup) would hide all that stands behind it."""
    draw = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        if not parameter.any():
            parameter.normal_(0, 0.2, generator=draw)
    return model


def case_name(case: tuple[str, str]) -> str:
    return " ".join(case).replace("model.", "")


def tokens(rows: int, length: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


def batch_for(model, rows: int = 3, length: int = 12) -> Batch:
    source = tokens(rows, 9, 1) if hasattr(model, "encode") else None
    targets = tokens(rows, length, 2)
    targets[0, :2] = IGNORE
    segments = torch.arange(length).expand(rows, -1).ge(length // 2).long()
    read = torch.tensor([[0, length // 2, length - 1], [length // 2, 1, -1]])[torch.arange(rows) % 2]
    batch = Batch(tokens(rows, length), targets, labels=labels_for(model, rows, length), source=source)
    language = torch.full((rows,), 0.5) if getattr(model, "language", None) is not None else None
    # Whether the head makes one prediction of several vectors of a row.
    several = model.head.answer in ("classes", "options") or getattr(model.head, "added", False)
    return replace(batch, segments=segments, language=language, reads=read if several else None)


def labels_for(model, rows: int, length: int) -> Tensor:
    """Labels for the model's head that differ from row to row, none of them missing."""
    rising = torch.arange(rows)
    if model.learns_previous:
        return tokens(rows, length, 3)
    match model.head.answer:
        case "tags":
            return tokens(rows, length, 2) % 5
        case "span":
            return torch.stack([rising % 2, rising % 2 + 1], 1)
        case "classes":
            return (rising[:, None] + torch.arange(model.head.classes)) % 2
        case "number":
            return rising - 0.5
    return rising % 2


def hidden(model, batch: Batch) -> Tensor:
    return model(batch).hidden


@pytest.mark.parametrize("case", EVERY, ids=case_name)
def test_gradients_arrive_nobody_sees_another_text_or_padding_and_what_writes_nothing_later(case):
    model = build(*case)
    check_gradients(model)
    model = model.double()
    with torch.no_grad():
        check_documents(model)
        if case[0] != "encoder":
            check_writing(model.eval(), torch.tensor([3, 3, 3]) if "Prefix" in case[1] else None)


def check_gradients(model) -> None:
    batch = batch_for(model)
    if getattr(model.head, "reads", None) == "text" and batch.reads is None:
        # The last vector: the first of a causal decoder attends to itself alone, whatever its queries and keys are.
        batch = replace(batch, reads=torch.full((len(batch.tokens), 1), batch.tokens.shape[1] - 1))
    loss = model.loss(batch).total
    assert loss.isfinite()
    loss.backward()
    untouched = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    # What moves all of a softmax's logits alike has no gradient in exact arithmetic: a key's bias, a span's.
    alike = ("key.bias", "head.out.bias") if model.head.answer in ("span", "options") else "key.bias"
    assert [name for name in untouched if not name.endswith(alike)] == []


def check_documents(model) -> None:
    """No token sees another row, another document of its row, or padding on either side."""
    plain = batch_for(model, 3, 7)
    found, expected = hidden(model, packed(plain)), hidden(model, plain)
    there = torch.stack([found[0, 2:9], found[0, 9:16], found[1, :7]])
    torch.testing.assert_close(there, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(hidden(model, plain.micro(1, 2)), expected[1:2], rtol=0, atol=1e-10)


def packed(batch: Batch) -> Batch:
    """The rows a, b and c as documents of two rows: padding, a, b; and c, padding."""

    def lay(rows: Tensor | None, fill: int = 0) -> Any:  # None of None
        if rows is None:
            return None
        a, b, c = rows
        before, behind = (a.new_full((count,), fill) for count in (2, len(a) + 2))
        return torch.stack([torch.cat([before, a, b]), torch.cat([c, behind])])

    def numbered(rows: Tensor | None) -> Any:
        return None if rows is None else lay(torch.arange(1, 4)[:, None].expand_as(rows))

    return Batch(
        lay(batch.tokens, 7),
        lay(batch.targets, IGNORE),
        documents=numbered(batch.tokens),
        segments=lay(batch.segments),
        source=lay(batch.source, 7),
        source_documents=numbered(batch.source),
    )


def check_writing(model, prefix: Tensor | None) -> None:
    """A token sees none that comes after it, and goes on from a cache, with padding and without."""
    before = replace(batch_for(model), segments=None, prefix=prefix)
    changed = before.tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 61
    whole = hidden(model, before)
    difference = (whole - hidden(model, replace(before, tokens=changed))).abs().amax((0, 2))
    assert difference[:7].max() < 1e-13 < 1e-6 < difference[7]  # experts round by how many tokens choose them

    padding = torch.ones_like(before.tokens)
    padding[0, :3] = padding[2, :1] = 0
    padded = replace(before, documents=padding, prefix=None)
    padded = replace(padded, positions=Places.of(padded).positions)
    for batch, expected, real, ends in (
        (before, whole, slice(None), (5, 6, 12)),
        (padded, hidden(model, padded), padding > 0, (6, 12)),
    ):
        cache, memory, parts = Cache(), model.encode(batch), []
        for start, stop in zip((0, *ends), ends, strict=False):
            own = {name: getattr(batch, name) for name in ("tokens", "documents", "positions")}
            own = {name: None if tensor is None else tensor[:, start:stop] for name, tensor in own.items()}
            parts.append(model.decode(replace(batch, **own), memory, cache).hidden)
        assert (torch.cat(parts, 1) - expected).abs().amax(-1)[real].max() < 1e-10


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("case", EVERY, ids=case_name)
def test_both_devices_agree(case):
    model = build(*case).double()
    batch = batch_for(model)
    here = hidden(model, batch)
    there = hidden(model.cuda(), batch.to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-9)
