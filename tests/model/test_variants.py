"""Every piece of every slot in the families that run it otherwise: what must hold of any model, whatever it is made
of, and the golden trace of what it computes, which changes only together with its `version`.

`pytest tests/model/test_variants.py -k every_variant --golden` writes traces that are new or of another version, and
refuses what changed under the same one.
"""

import json
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.config.document import Config
from scaling.config.schema import kinds, versions
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
SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
FAMILIES = ("decoder", "encoder", "encoder_decoder")
TASK_HEADS = tuple(name for name, kind in kinds("head").items() if kind.target == "labels")
# Mixers that know order by themselves, where a position with parameters would be idle, and those without logits.
CONVOLVING = ("Convolution", "DilatedConvolution", "DynamicConvolution", "GatedConvolution", "LightweightConvolution")
WITHOUT_POSITION = (*CONVOLVING, "GRU", "LSTM", "LinearAttention", "Performer")
CROSSES = ("AdditiveAttention", "Aligned", "MultiplicativeAttention")  # beside the default of every encoder-decoder
ELSEWHERE = (*CROSSES, "BidirectionalGRU", "BidirectionalLSTM", "CrossAttention", "Linformer")  # not in every stack
POSITIONLESS = "; model.position=NoPosition"
NORMLESS = "; model.block.norm=NoNorm; model.stack.norm=NoNorm"  # LayerNorm is blind to what Fixup adds to all alike
GOLDEN = Path(__file__).parents[1] / "golden" / "traces.json"
TRACES = json.loads(GOLDEN.read_text())


def flow(slot: str, kind: str) -> str:
    """A line that chooses a piece."""
    return "{" + ", ".join([f"kind: {kind}", *filter(None, [LINES.get((slot, kind))])]) + "}"


def cases() -> list[tuple[str, str]]:
    """The family, and what is changed in its config: for every kind, and what the golden traces name besides. A further
    one is added there, by its name and {}.
    """
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
    named = set(map(case_name, found))
    for family, _, changes in (name.partition(" ") for name in TRACES if name not in named):
        parts = changes.split("; ")
        found.append((family, "; ".join(p if p.startswith(("size.", "tuning=")) else f"model.{p}" for p in parts)))
    return found


def case_name(case: tuple[str, str]) -> str:
    return " ".join(case).replace("model.", "")


EVERY = cases()


@cache
def configured(family: str, change: str) -> Config:
    return load(family, [SIZE, *(change.split("; ") if change else [])])


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


@pytest.mark.parametrize("case", EVERY, ids=case_name)
def test_it_computes_its_trace_learns_everywhere_and_sees_no_other_text_no_padding_and_nothing_later(case):
    model = build(*case)
    check_gradients(model)
    model = model.double()
    if (stored := TRACES.get(case_name(case))) is not None:
        assert_same(stored, trace(model, case))
        model.train()
    with torch.no_grad():
        check_documents(model)
        if case[0] != "encoder":
            check_writing(model.eval(), torch.tensor([3, 3, 3]) if "Prefix" in case[1] else None)


def trace(model, case: tuple[str, str]) -> dict[str, Any]:
    """The loss and the length of its gradient on one batch, in float64, beside the versions of the pieces."""
    model.eval().zero_grad()
    loss = model.loss(batch_for(model)).total
    loss.backward()
    gradient = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None)
    return {"loss": loss.item(), "gradient": gradient**0.5, "versions": versions(configured(*case).tree)}


def assert_same(stored: dict[str, Any], found: dict[str, Any]) -> None:
    """What a piece computes changes only together with its `version`, which is a part of a run's identity."""
    assert stored.get("versions") == found["versions"], "another version: write its trace: -k every_variant --golden"
    for key in ("loss", "gradient"):  # weights are drawn in float32: the last digit depends on the processor
        what = "it computes something else: raise `version` in the class that was fixed"
        assert found[key] == pytest.approx(stored[key], rel=3e-6), what


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
    found, expected = model(packed(plain)).hidden, model(plain).hidden
    there = torch.stack([found[0, 2:9], found[0, 9:16], found[1, :7]])
    torch.testing.assert_close(there, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(model(plain.micro(1, 2)).hidden, expected[1:2], rtol=0, atol=1e-10)


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

    rows = lay(batch.tokens, 7), lay(batch.targets, IGNORE)
    read = {"source": lay(batch.source, 7), "source_documents": numbered(batch.source)}
    return Batch(*rows, documents=numbered(batch.tokens), segments=lay(batch.segments), **read)


def check_writing(model, prefix: Tensor | None) -> None:
    """A token sees none that comes after it, and goes on from a cache, with padding and without."""
    before = replace(batch_for(model), segments=None, prefix=prefix)
    changed = before.tokens.clone()
    changed[:, 7] = (changed[:, 7] + 1) % 61
    whole = model(before).hidden
    difference = (whole - model(replace(before, tokens=changed)).hidden).abs().amax((0, 2))
    assert difference[:7].max() < 1e-13 < 1e-6 < difference[7]  # experts round by how many tokens choose them

    padding = torch.ones_like(before.tokens)
    padding[0, :3] = padding[2, :1] = 0
    padded = replace(before, documents=padding, prefix=None)
    padded = replace(padded, positions=Places.of(padded).positions)
    for batch, expected, real, ends in (
        (before, whole, slice(None), (5, 6, 12)),
        (padded, model(padded).hidden, padding > 0, (6, 12)),
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
    here = model(batch).hidden
    there = model.cuda()(batch.to("cuda")).hidden
    torch.testing.assert_close(there.cpu(), here, rtol=0, atol=1e-9)


def test_every_variant_has_a_trace_and_one_of_the_same_versions_is_not_written_anew(request):
    first = {change: family for family, change in reversed(EVERY)}
    traced = {case_name(case): case for case in EVERY if case_name(case) in TRACES or first[case[1]] == case[0]}
    if request.config.getoption("--golden"):  # machines differ in the last digit: what is still true stands as it is
        found = {name: trace(build(*case).double(), case) for name, case in traced.items()}
        kept = {n: TRACES[n] for n in TRACES.keys() & found if TRACES[n].get("versions") == found[n]["versions"]}
        for name, stored in kept.items():
            assert_same(stored, found[name])
        GOLDEN.write_text(json.dumps(found | kept, indent=1, sort_keys=True) + "\n")
        return
    assert TRACES.keys() == traced.keys(), "write the traces of new variants: --golden"
