"""Every piece of every slot in every family that can hold it: what must hold of any model, whatever it is made of."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import Config, load
from scaling.config.schema import kinds
from scaling.model.context import Cache, Places
from scaling.model.tuned import blank, build_model
from scaling.training.parametrization import Standard, initialise

WEIGHTED = {"mixer": "Attention", "channel": "{kind: Dense, activation: GeLU}"}
CLUSTERS = {"cutoffs": "[20, 40]", "widths": "[32, 16, 8]"}
# What a kind asks for beyond its name. A new piece without required keys is tested unasked.
LINES = {
    ("head", "Transform"): {"activation": "GeLU", "norm": "LayerNorm"},
    ("head", "Sequence"): {"classes": 3, "activation": "Tanh"},
    ("head", "NextSentence"): {"activation": "Tanh"},
    ("head", "Classes"): {"classes": 3, "activation": "Tanh"},
    ("head", "Tokens"): {"classes": 5},
    ("channel", "Dense"): {"activation": "GeLU"},
    ("channel", "Gated"): {"activation": "Swish"},
    # As many seats as positions: where something is dropped, documents packed into a row compete.
    ("channel", "MixtureOfExperts"): {"activation": "GeLU", "experts": 4, "capacity": 4.0},
    ("channel", "Switch"): {"activation": "GeLU", "experts": 4, "capacity": 4.0},
    ("channel", "ProductKeys"): {"norm": "LayerNorm", "heads": 2, "keys": 8, "key_width": 8, "nearest": 3},
    ("position", "Learned"): {"length": 32},
    ("embedding", "Factorized"): {"rank": 8},
    ("embedding", "Projected"): {"width": 16},
    ("embedding", "Adaptive"): CLUSTERS,
    ("head", "AdaptiveSoftmax"): {"cutoffs": "[20, 40]"},
    ("head", "MixtureOfSoftmaxes"): {"softmaxes": 3},
    ("pattern", "Window"): {"size": 3, "pattern": "Causal"},
    ("pattern", "BlockLocal"): {"size": 2, "before": 1, "pattern": "Causal"},
    ("pattern", "Global"): {"tokens": 1, "pattern": {"kind": "Window", "size": 2, "pattern": "Causal"}},
    ("pattern", "RandomBlocks"): {
        "size": 2,
        "blocks": 1,
        "seed": 0,
        "length": 24,
        "pattern": {"kind": "BlockLocal", "size": 2, "pattern": "Causal"},
    },
    ("mixer", "Weighted"): WEIGHTED,
    ("mixer", "DilatedConvolution"): {"activation": "ReLU", "norm": "LayerNorm"},
    ("mixer", "BlockLocal"): {"size": 2, "before": 1},
    ("mixer", "Longformer"): {"window": 2, "dilation": 2},
    ("mixer", "BigBird"): {"block": 1, "seed": 0, "blocks": 1, "random": 1},
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
EVOLVED = {"norm": "LayerNorm", "residual": "Pre", "mixer": "Attention", "channel": "{kind: Dense, activation: Swish}"}
FAMILIES = ("decoder", "encoder", "encoder_decoder")
TASK_HEADS = tuple(name for name, kind in kinds("head").items() if kind.target == "labels")
# Mixers that know order by themselves, where a position with parameters would be idle, and those without logits.
CONVOLVING = ("Convolution", "DilatedConvolution", "DynamicConvolution", "GatedConvolution", "LightweightConvolution")
WITHOUT_POSITION = (*CONVOLVING, "GRU", "LSTM", "LinearAttention", "Performer")
CROSSES = ("AdditiveAttention", "Aligned", "MultiplicativeAttention")  # beside the default of every encoder-decoder
ELSEWHERE = (
    "BidirectionalGRU",
    "BidirectionalLSTM",
    "CrossAttention",
    "Linformer",
    *CROSSES,
)  # not in a block of every stack
POSITIONLESS = "; model.position=NoPosition"
NORMLESS = "; model.block.norm=NoNorm; model.stack.norm=NoNorm"  # LayerNorm is blind to what Fixup adds to all alike


def _flow(kind: str, keys: dict) -> str:
    return "{" + ", ".join(f"{key}: {value}" for key, value in {"kind": kind, **keys}.items()) + "}"


TIES = ("[encoder, decoder]", "[decoder, head]", "[encoder, decoder, head]")
ADAPTIVE = _flow("Adaptive", CLUSTERS)
WINDOW = "{kind: Window, size: 3, pattern: Causal}"
AROUND = "{kind: Window, size: 3, pattern: Bidirectional}"
BIGBIRD = {"block": 1, "seed": 3, "blocks": 1, "random": 2}
PROJECTED = (
    "model.embedding={kind: Projected, width: 12, segments: 2, norm: LayerNorm}; "
    "model.head={kind: Transform, activation: GeLU, norm: LayerNorm, width: 12}"
)
LORA = "{kind: LoRA, rank: 2, targets: [all]}"
PREFIX = "{kind: Prefix, length: 3}"
PROMPT = "{kind: Prompt, length: 3}"
ADAPTERS = "{kind: Adapters, bottleneck: 4, activation: GeLU}"
TUNINGS = (LORA, PREFIX, PROMPT, ADAPTERS, "IA3")
EVOLVED_ENCODER = f"model.block={_flow('EvolvedEncoder', EVOLVED)}"
EVOLVED_DECODER = f"model.block={_flow('EvolvedDecoder', EVOLVED)}"
EVOLVED_CROSS = f"model.decoder.block={_flow('EvolvedDecoder', {**EVOLVED, 'cross': 'CrossAttention'})}"


def cases() -> list[tuple[str, str]]:
    found = [(family, "") for family in FAMILIES]
    for slot, path in PATHS.items():
        for kind in kinds(slot):
            if slot == "pattern" and kind == "Bidirectional":
                continue  # the encoders' default
            if kind in ELSEWHERE:
                continue  # of a decoder with an encoder, or of stacks that look ahead
            for family in FAMILIES[:1] if slot in ("activation", "norm", "pattern") else FAMILIES:
                if slot == "head" and kind in TASK_HEADS and family == "encoder_decoder":
                    continue
                change = f"{path}={_flow(kind, LINES.get((slot, kind), {}))}"
                change += POSITIONLESS if kind in WITHOUT_POSITION else NORMLESS if kind == "Fixup" else ""
                if kind == "Projected" and family == "encoder_decoder":
                    change += "; model.tie=[encoder, decoder]"  # a linear head reads vectors of the stream's width
                found.append((family, change))
    found += [
        ("elmo", "model.embedding.dropout=0; model.block.residual=Pre; model.tie=[decoder, head]"),
        ("decoder", "model.tie=[decoder, head]"),
        ("decoder", "size.key_heads=1"),
        ("decoder", "size.value_width=12"),
        ("decoder", "model.block.mixer.bias=true"),
        ("decoder", "model.block.mixer.bias=qkv"),
        ("decoder", "model.block.norm={kind: RMSNorm, gain: zero_centered}"),
        ("encoder", "model.block.norm={kind: LayerNorm, gain: zero_centered}"),
        ("encoder", f"{PROJECTED}; model.tie=[encoder, head]; model.position=Learned"),
        ("encoder", f"{PROJECTED}; model.embedding.width=40; model.head.width=40; model.position=Sinusoidal"),
        ("decoder", "model.block.mixer.norm=RMSNorm"),
        ("decoder", "model.block.mixer={kind: DenseSynthesizer, mix: plus}"),
        ("encoder_decoder", "model.block.mixer={kind: DenseSynthesizer, mix: alpha}"),
        ("encoder_decoder", "model.block.mixer={kind: RandomSynthesizer, mix: plus}"),
        ("decoder", "model.block.mixer={kind: RandomSynthesizer, mix: alpha}"),
        (
            "encoder_decoder",
            "model.decoder.block.cross={kind: CrossAttention, heads_times: 0.5, head_width_times: 0.75}",
        ),
        ("encoder_decoder", "model.decoder.block.cross={kind: CrossAttention, norm: RMSNorm}"),
        ("encoder", "model.block.mixer=BidirectionalGRU"),
        ("encoder", "model.block.mixer=BidirectionalLSTM"),
        *(("encoder_decoder", f"model.decoder.block.cross={kind}") for kind in CROSSES),
        ("encoder_decoder", "model.decoder.block.cross={kind: MultiplicativeAttention, score: dot, output: context}"),
        ("decoder", "model.position={kind: Rotary, part: 0.5}"),
        ("encoder", "model.pattern={kind: Window, size: 4, pattern: Bidirectional}"),
        ("encoder", f"model.pattern={{kind: Global, tokens: 2, pattern: {AROUND}}}"),
        ("encoder", f"model.block.mixer={_flow('BlockLocal', {'size': 2, 'after': 1})}; model.position=RelativeBias"),
        ("encoder", f"model.block.mixer={_flow('BigBird', BIGBIRD)}; size.key_heads=2"),
        ("encoder", "model.block.mixer={kind: Longformer, window: 3, tokens: 2}"),
        ("decoder", "model.block.mixer={kind: LinearAttention, bias: true}; model.position=Rotary; size.key_heads=2"),
        ("encoder", "model.block.mixer={kind: Performer, features: 5}; model.position=Learned; size.value_width=12"),
        *(
            ("encoder", f"model.block.mixer={{kind: Linformer, projected: 5, sharing: {sharing}}}{POSITIONLESS}")
            for sharing in ("none", "headwise", "kv")
        ),
        ("encoder", "model.block.mixer={kind: Linformer, projected: 5, sharing: none}; size.key_heads=2"),
        (
            "encoder_decoder",
            "model.encoder.block.mixer={kind: Linformer, projected: 6}; model.encoder.position=Learned",
        ),
        ("encoder", "model.block.mixer={kind: MemoryCompressed, stride: 4}; model.position=RelativeBias"),
        ("decoder", "model.block.mixer={kind: MemoryCompressed, bias: true}; model.position=Shaw; size.key_heads=2"),
        ("decoder", "model.block.mixer={kind: MemoryCompressed, stride: 2}; model.position=ALiBi"),
        ("decoder", f"model.block.mixer=MemoryCompressed; model.pattern={WINDOW}"),
        ("decoder", "model.block.mixer={kind: BlockLocal, size: 4}; model.blocks={every 2: {mixer: MemoryCompressed}}"),
        (
            "encoder_decoder",
            "model.encoder.block.mixer={kind: Longformer, window: 3, dilation: 2, tokens: 1, norm: RMSNorm}",
        ),
        ("encoder_decoder", f"model.pattern={WINDOW}; model.decoder.pattern={WINDOW}; model.position=Shaw"),
        ("decoder", "model.stack.distinct=1"),
        ("decoder", "model.stack.order=[0, 1, 0, 1]"),
        ("decoder", "model.embedding.scale=sqrt_width"),
        ("decoder", "model.embedding.norm=LayerNorm"),
        ("decoder", "model.block.branches=[channel, mixer, channel]"),
        ("encoder", "model.embedding.segments=2"),
        ("encoder", "model.sentence={kind: NextSentence, activation: Tanh}"),
        ("encoder", "model.head={kind: Sequence, classes: 3, activation: Tanh, weights: [0.5, 1, 2]}"),
        ("encoder", "model.head={kind: Tokens, classes: 5, weights: [0.5, 1, 2, 1, 1]}"),
        ("encoder", "model.head={kind: Options, activation: Tanh}"),
        ("decoder", "model.head={kind: Sequence, classes: 3}; model.language=Linear"),
        ("decoder", "model.head={kind: Number, added: true}; model.language=Linear; model.tie=[decoder, language]"),
        ("encoder", "model.boundary={kind: Boundary, activation: GeLU, norm: LayerNorm}"),
        *(("encoder_decoder", f"model.tie={tie}; model.embedding={ADAPTIVE}") for tie in TIES),
        ("encoder_decoder", f"model.head={{kind: AdaptiveSoftmax, cutoffs: [20, 40]}}; model.embedding={ADAPTIVE}"),
        ("decoder", f"model.head={_flow('AdaptiveSoftmax', CLUSTERS)}"),
        ("encoder_decoder", "model.tie=[]"),
        ("encoder_decoder", "model.tie=[encoder, decoder]"),
        ("encoder_decoder", "model.tie=[decoder, head]"),
        ("encoder_decoder", "size.encoder.layers=1"),
        ("encoder_decoder", "model.share=stacks"),
        ("encoder_decoder", "model.encoder.stack.distinct=1"),
        ("decoder", "model.block.kind=Parallel"),
        ("encoder", EVOLVED_ENCODER),
        ("decoder", EVOLVED_ENCODER),
        ("decoder", EVOLVED_DECODER),
        ("encoder_decoder", f"{EVOLVED_ENCODER}; {EVOLVED_CROSS}"),
        ("decoder", "model.blocks={every 2: {channel: {kind: Dense, activation: ReLU}}, 1: {norm: LayerNorm}}"),
        ("encoder_decoder", "model.decoder.blocks={-2: {channel: {kind: Gated, activation: GeLU}}}"),
        *((family, "model.stack={kind: Universal, norm: RMSNorm}") for family in FAMILIES),
        *((family, "model.stack={kind: Universal, norm: RMSNorm, halting: ACT}") for family in FAMILIES),
        ("decoder", "model.stack={kind: Universal, norm: NoNorm, time: learned, place: none, before: 1, after: 2}"),
        ("encoder_decoder", "model.memory=Transparent"),
        ("encoder", "model.stack={kind: UpsampledFunnel, norm: RMSNorm}"),
        ("encoder", "model.stack={kind: UpsampledFunnel, norm: RMSNorm}; model.position=Shaw"),
        ("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: RMSNorm}"),
        ("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: NoNorm}; model.block.residual=Post"),
        ("encoder_decoder", f"model.decoder.block.cross={_flow('Weighted', {**WEIGHTED, 'mixer': 'CrossAttention'})}"),
    ]
    return found


def tuned_cases() -> list[tuple[str, str]]:
    """Every tuning in every family, and beside pieces that it must respect."""
    found = [(family, f"tuning={line}") for line in TUNINGS for family in FAMILIES]
    found += [("encoder", f"model.position={{kind: Learned, length: 24}}; tuning={line}") for line in (PREFIX, PROMPT)]
    for position in ("RelativeBias", "Shaw", "TransformerXL"):
        found += [("decoder", f"model.position={position}; tuning={line}") for line in (PREFIX, PROMPT)]
    for change, tuning in (
        ("size.key_heads=1", PREFIX),
        ("size.value_width=12", PREFIX),
        ("model.block.mixer.norm=RMSNorm", LORA),
        ("model.block.mixer={kind: DenseSynthesizer, mix: plus}; model.position=Shaw", PREFIX),
        ("model.block.mixer={kind: RandomSynthesizer, mix: alpha}", PREFIX),
        (f"model.block.mixer={_flow('Weighted', WEIGHTED)}", PREFIX),
        (f"model.block.mixer={_flow('Weighted', WEIGHTED)}", LORA),
        (f"model.pattern={WINDOW}", PREFIX),
        ("model.stack.distinct=1", LORA),
        (f"model.block.mixer=Convolution{POSITIONLESS}", PROMPT),
        (f"model.block.mixer=LSTM{POSITIONLESS}", PROMPT),
        (f"model.block.mixer=LSTM{POSITIONLESS}", LORA),
        (f"model.block.mixer=Performer{POSITIONLESS}", LORA),
    ):
        found.append(("decoder", f"{change}; tuning={tuning}"))
    found += [
        ("decoder", f"model.pattern={WINDOW}; tuning={PROMPT}"),
        ("decoder", f"model.pattern=Prefix; tuning={PROMPT}"),
        ("decoder", f"model.block.channel={_flow('ProductKeys', LINES['channel', 'ProductKeys'])}; tuning={LORA}"),
        ("decoder", f"model.block.channel={_flow('Switch', LINES['channel', 'Switch'])}; tuning={PROMPT}"),
        ("decoder", f"model.block.channel={_flow('Switch', LINES['channel', 'Switch'])}; tuning={ADAPTERS}"),
        ("encoder_decoder", f"model.share=stacks; tuning={LORA}"),
        ("encoder_decoder", f"model.memory=Transparent; tuning={PROMPT}"),
        ("encoder_decoder", f"model.encoder.stack={{kind: Funnel, norm: RMSNorm}}; tuning={LORA}"),
        ("encoder", f"model.stack={{kind: UpsampledFunnel, norm: RMSNorm}}; tuning={PREFIX}"),
        ("encoder", f"{EVOLVED_ENCODER}; tuning={LORA}"),
        ("decoder", f"{EVOLVED_DECODER}; tuning={PROMPT}"),
        ("decoder", f"model.stack={{kind: Universal, norm: RMSNorm, halting: ACT}}; tuning={PROMPT}"),
        ("decoder", f"model.block.residual=Fixup{NORMLESS}; tuning={ADAPTERS}"),
        ("encoder_decoder", "tuning={kind: Prefix, length: 3, slots: [mixer, cross]}"),
        ("encoder_decoder", "tuning={kind: Adapters, bottleneck: 4, activation: GeLU, after: [cross, channel]}"),
    ]
    return found


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


def tokens(rows: int, length: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 61, (rows, length), generator=torch.Generator().manual_seed(seed))


def batch_for(model, rows: int = 3, length: int = 12) -> Batch:
    source = tokens(rows, 9, 1) if hasattr(model, "encode") else None
    targets = tokens(rows, length, 2)
    targets[0, :2] = IGNORE
    segments = torch.arange(length).expand(rows, -1).ge(length // 2).long()
    read = torch.tensor([[0, length // 2, length - 1], [length // 2, 1, -1]])[torch.arange(rows) % 2]
    batch = Batch(tokens(rows, length), targets, labels=labels_for(model, rows, length), source=source)
    language = torch.full((rows,), 0.5) if getattr(model, "language", None) is not None else None
    return replace(batch, segments=segments, language=language, reads=read if reads_several(model) else None)


def labels_for(model, rows: int, length: int) -> torch.Tensor:
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


def reads_several(model) -> bool:
    """Whether the head makes one prediction of several vectors of a row."""
    return model.head.answer in ("classes", "options") or getattr(model.head, "added", False)


def hidden(model, batch: Batch) -> torch.Tensor:
    return model(batch).hidden


EVERY = pytest.mark.parametrize("case", [*cases(), *tuned_cases()], ids=case_name)


@EVERY
def test_gradients_reach_every_parameter_and_nobody_sees_padding_or_another_row_or_document(case):
    model = build(*case)
    check_gradients(model)
    model = model.double()
    plain = batch_for(model)
    expected = hidden(model, plain)
    torch.testing.assert_close(hidden(model, plain.micro(0, 1)), expected[:1], rtol=0, atol=1e-10)  # nor another row
    for left in (False, True):
        check_padding(model, plain, expected, (5, 0) if left else (0, 5))
    check_packing(model)


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


def check_padding(model, plain: Batch, expected: torch.Tensor, width: tuple[int, int]) -> None:
    def pad(tensor: torch.Tensor | None, fill: int = 0) -> Any:  # None of None
        return None if tensor is None else torch.nn.functional.pad(tensor, width, value=fill)

    padded = Batch(
        pad(plain.tokens, 7),
        pad(plain.targets, IGNORE),
        documents=pad(torch.ones_like(plain.tokens)),
        segments=pad(plain.segments),
        source=pad(plain.source, 7),
        source_documents=None if plain.source is None else pad(torch.ones_like(plain.source)),
    )
    found = hidden(model, padded)[:, width[0] :][:, : expected.shape[1]]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def check_packing(model) -> None:
    a, b = batch_for(model, 1, 7), replace(batch_for(model, 1, 5), tokens=tokens(1, 5, 9))

    def join(name: str) -> Any:  # None of None
        parts = [getattr(batch, name) for batch in (a, b)]
        return None if parts[0] is None else torch.cat(parts, 1)

    packed = Batch(
        *map(join, ("tokens", "targets")),
        documents=torch.tensor([[1] * 7 + [2] * 5]),
        segments=join("segments"),
        source=join("source"),
        source_documents=None if a.source is None else torch.tensor([[1] * 9 + [2] * 9]),
    )
    expected = torch.cat([hidden(model, a), hidden(model, b)], 1)
    torch.testing.assert_close(hidden(model, packed), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("case", [case for case in [*cases(), *tuned_cases()] if case[0] != "encoder"], ids=case_name)
def test_what_writes_sees_nothing_later_and_goes_on_from_a_cache(case):
    model = build(*case).double()
    before = batch_for(model)
    changed = before.tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 61
    prefix = torch.tensor([3, 3, 3]) if "Prefix" in case[1] else None
    pair = [hidden(model, replace(before, tokens=each, prefix=prefix)) for each in (before.tokens, changed)]
    difference = (pair[0] - pair[1]).abs().amax((0, 2))
    assert difference[:7].max() == 0
    assert difference[7] > 0

    model.eval()
    padded = torch.ones_like(before.tokens)
    padded[0, :3] = padded[2, :1] = 0
    for documents in (None, padded):
        whole = replace(before, documents=documents, segments=None)
        positions = None if documents is None else Places.of(replace(before, documents=documents)).positions
        here = {"tokens": before.tokens, "documents": documents, "positions": positions}
        cache, memory, parts = Cache(), model.encode(whole), []
        for start, stop in ((0, 5), (5, 6), (6, 12)):
            own = {name: None if tensor is None else tensor[:, start:stop] for name, tensor in here.items()}
            parts.append(model.decode(replace(whole, **own), memory, cache).hidden)
        difference = (torch.cat(parts, 1) - hidden(model, whole)).abs().amax(-1)
        assert difference[padded > 0 if documents is not None else slice(None)].max() < 1e-10


@EVERY
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
def test_both_devices_agree(case):
    model = build(*case).double()
    batch = batch_for(model)
    here = hidden(model, batch)
    there = hidden(model.cuda(), batch.to("cuda"))
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-9)
