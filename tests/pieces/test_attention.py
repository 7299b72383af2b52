"""The ways to attend against softmax written out in float64, for every mask, position and scale; patterns pair by pair,
what computes them in blocks, and mixers with patterns of their own.
"""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from scaling.base.errors import ScalingError
from scaling.config.schema import build, keys, kinds
from scaling.kernels import operations
from scaling.kernels.compiled import absent
from scaling.model.context import ROOM, Cache, Context, State
from scaling.model.mixer import attention as ways
from scaling.model.mixer.attention import scale_of
from scaling.model.mixer.bands import blocks_of
from tests.model.test_variants import batch_for, hidden
from tests.model.test_variants import build as built
from tests.pieces.formulas import affine, array, attended, context, draw, made, shape

ROWS, LENGTH, HEADS, WIDTH, VALUE = 3, 9, 4, 6, 5
SHAPE = shape(HEADS * WIDTH, LENGTH, HEADS, value_width=VALUE)
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 7])
PREFIX = torch.tensor([2, 5, 0])
KERNELS = {name: (ways.WAYS[name], torch.float64, 1e-12) for name in ("explicit", "sdpa")}
if absent() is None:
    KERNELS["kernel"] = (ways.WAYS["kernel"], torch.float32, 1e-5)
EVERY_WAY = pytest.mark.parametrize(("kernel", "dtype", "tolerance"), KERNELS.values(), ids=KERNELS)
POSITIONS = sorted(kinds("position"))


def now(pattern: Any = "Causal", position: str = "NoPosition", documents: Tensor | None = None) -> Context:
    prefix = PREFIX if "Prefix" in str(pattern) else None
    return context(SHAPE, pattern, position=position, rows=ROWS, documents=documents, prefix=prefix)


def inputs(dtype: torch.dtype, key_heads: int = HEADS) -> list[Tensor]:
    sizes = [(HEADS, WIDTH), (key_heads, WIDTH), (key_heads, VALUE)]
    return [draw(ROWS, LENGTH, *size, seed=seed).to(dtype).requires_grad_() for seed, size in enumerate(sizes)]


def written(q: Tensor, k: Tensor, v: Tensor, here: Context, scale: float) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = torch.einsum("bthd,bshd->bhts", q, k) * scale
    position, places = here.position, here.places.seen_by(here.position)
    if position.adds_score:
        score = position.score(q, k, places, places)
        logits = logits + (scale * score if position.reads_content else score)
    if (allowed := here.mask.allowed()) is not None:
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1)
    mixed = torch.einsum("bhts,bshe->bthe", weights, v)
    return mixed + position.value(weights, places, places).transpose(1, 2) if position.mixes_values else mixed


def with_gradients(mixed: Tensor, learned: Sequence[Tensor], here: Context) -> list[Tensor]:
    """What padding attends to bears no loss, so nothing comes down to it."""
    documents = here.places.documents
    seen = torch.ones(1, dtype=torch.bool) if documents is None else (documents > 0)[:, :, None, None]
    upstream = torch.linspace(-1, 1, mixed.numel(), dtype=torch.float64).view_as(mixed).to(mixed.dtype)
    return [mixed * seen, *torch.autograd.grad(mixed, learned, upstream * seen)]


def agree(kernel: Any, here: Context, dtype: torch.dtype, tolerance: float, key_heads: int = HEADS) -> None:
    given = inputs(dtype, key_heads)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    own = here.position.named_parameters() if here.position.adds_score else ()
    table = [parameter for name, parameter in own if name != "depth"]  # which is read where a stack begins
    found = with_gradients(kernel(*given, here, 0.3, 0.0), [*given, *table], here)
    here.notes.made.clear()
    expected = with_gradients(written(*exact, here, 0.3), [*exact, *table], here)
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), truth.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", ["explicit", "sdpa"])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 6e-2)]
)
@pytest.mark.parametrize("key_heads", [HEADS, 2, 1])
def test_number_types_and_shared_keys(name, dtype, tolerance, key_heads):
    agree(ways.WAYS[name], now(), dtype, tolerance, key_heads)


@EVERY_WAY
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional", "Prefix"])
def test_patterns_and_documents(kernel, dtype, tolerance, pattern, documents):
    agree(kernel, now(pattern, documents=documents), dtype, tolerance)


@EVERY_WAY
@pytest.mark.parametrize("position", POSITIONS)
def test_positions_and_what_their_tables_learn(kernel, dtype, tolerance, position):
    here = now(position=position, documents=PACKED)
    if kernel is ways.WAYS["explicit"] or not here.position.mixes_values:
        agree(kernel, here, dtype, tolerance)


@EVERY_WAY
def test_one_query_against_a_cache(kernel, dtype, tolerance):
    """The last row of the whole equals a query that comes alone, its keys from before."""
    q, k, v = inputs(dtype)
    whole = kernel(q, k, v, now(), 0.3, 0.0)
    cache = Cache(places=context(SHAPE, rows=ROWS, length=LENGTH - 1).places)
    alone = context(SHAPE, rows=ROWS, length=1, start=LENGTH - 1, cache=cache)
    found = kernel(q[:, -1:], k, v, alone, 0.3, 0.0)
    torch.testing.assert_close(found, whole[:, -1:], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", ["explicit", "sdpa"])
def test_dropout_drops_weights_and_keeps_their_mean(name):
    q, k, _ = inputs(torch.float32)
    ones, here = torch.ones(ROWS, LENGTH, HEADS, VALUE), now("Bidirectional")
    torch.manual_seed(0)
    draws = torch.stack([ways.WAYS[name](q, k, ones, here, 0.3, 0.5) for _ in range(200)])
    assert draws.std() > 0.1
    torch.testing.assert_close(draws.mean(), torch.tensor(1.0), atol=0.02, rtol=0)


@pytest.mark.parametrize(
    ("setting", "line", "way"),
    [
        ({"keys": 1025, "kernel": True}, {}, "kernel"),
        ({"keys": 1025, "kernel": True}, {"dropout": 0.1}, "sdpa"),
        ({"keys": 1025, "kernel": True}, {"position": "Shaw"}, "explicit"),
        ({"keys": 1025, "kernel": True, "queries": 1}, {}, "sdpa"),
        ({"keys": 256}, {}, "explicit"),
        ({"keys": 257}, {}, "sdpa"),
        ({"keys": 257}, {"shown": True}, "explicit"),
        ({"keys": 1024, "dtype": torch.bfloat16}, {}, "explicit"),
        ({"keys": 1025, "dtype": torch.bfloat16}, {}, "sdpa"),
        ({"keys": 256, "device": "meta"}, {}, "sdpa"),
        ({"keys": 4096}, {"position": "ALiBi"}, "parts"),
        ({"keys": 4096, "device": "meta"}, {"position": "ALiBi"}, "counted"),
        ({"keys": 4096, "device": "cuda"}, {"position": "ALiBi"}, "sdpa"),
    ],
)
def test_the_way_follows_the_setting(setting, line, way):
    usual = {"device": "cpu", "dtype": torch.float32, "width": 8, "value_width": 8, "kernel": False}
    here = now(position=line.get("position", "NoPosition"))
    here.weights = (lambda weights: None) if line.get("shown") else None
    setting = ways.Setting(**{**usual, "queries": setting["keys"], **setting})
    assert ways.choose(setting, here, line.get("dropout", 0.0)) == way


@pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")
def test_kernels_take_no_tensors_that_are_cast_or_watched():
    given = inputs(torch.float32)
    assert ways.Setting.of(*given).kernel is operations.attention_pays()
    with torch.autocast("cpu", torch.bfloat16):
        assert not ways.Setting.of(*given).kernel
    with FlopCounterMode(display=False):
        assert not ways.Setting.of(*given).kernel


# Long rows in parts

LONG_PACKED = torch.tensor([[1] * 9 + [2] * 2 + [3] * 12 + [4] * 17, [0] * 3 + [1] * 30 + [0] * 7])


def run(length: int, position: str, pattern: str, documents: Any, dropout: float = 0.0, kind: str = "Attention") -> Any:
    """The output, and the gradients of all that bears on it."""
    own = shape(24, length, HEADS)
    mixer = made("mixer", {"kind": kind, "dropout": dropout}, own, None)
    x = draw(2, length, 24).requires_grad_()
    here = context(own, pattern, position=position, rows=2, documents=documents)
    torch.manual_seed(0)
    y = mixer(x, here)
    real = slice(None) if documents is None else documents > 0
    (y * draw(2, length, 24, seed=1))[real].sum().backward()
    return y[real], x.grad, *(p.grad for p in (*mixer.parameters(), *here.position.parameters()))


@pytest.mark.parametrize("documents", [None, LONG_PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize(
    ("position", "pattern", "kind"),
    [
        ("NoPosition", "Causal", "Attention"),
        ("RelativeBias", "Bidirectional", "Attention"),
        ("Shaw", "Causal", "Attention"),
        ("TransformerXL", "Causal", "Attention"),
        ("ALiBi", "Causal", "MemoryCompressed"),
    ],
)
def test_parts_are_the_whole(position, pattern, kind, documents, monkeypatch):
    whole = run(40, position, pattern, documents, kind=kind)
    for name, value in (("NEAR_KEYS", 0), ("SQUARE", 7 * 40), ("PART", 7 * 40)):
        monkeypatch.setattr(ways, name, value)
    for found, expected in zip(run(40, position, pattern, documents, kind=kind), whole, strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_dropout_draws_the_same_in_both_passes(monkeypatch):
    """Where it did not, the gradient by the values would not be that of the output, which is linear in them."""
    for name, value in (("NEAR_KEYS", 0), ("SQUARE", 7 * 40), ("PART", 7 * 40)):
        monkeypatch.setattr(ways, name, value)
    q, k, v = (draw(1, 40, 2, 8, seed=seed) for seed in range(3))
    v.requires_grad_()
    torch.manual_seed(3)
    y = ways.attend(q, k, v, context(shape(16, 40, 2)), scale=0.3, dropout=0.4)
    y.sum().backward()
    assert v.grad is not None
    assert (v.grad * v).sum().item() == pytest.approx(y.sum().item(), rel=1e-9)


class _Largest(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return found


@pytest.mark.parametrize(("position", "dropout"), [("RelativeBias", 0.0), ("ALiBi", 0.1)])
def test_no_tensor_grows_with_the_square(position, dropout, monkeypatch):
    monkeypatch.setattr(ways, "SQUARE", 1 << 13)
    monkeypatch.setattr(ways, "PART", 1 << 13)

    def largest(length: int) -> int:
        with _Largest() as seen:
            run(length, position, "Causal", torch.ones(2, length, dtype=torch.long), dropout)
        return seen.numbers

    assert largest(512) <= 2.1 * largest(256)


# Scales

# Every mixer with a `scale` that some position acts on, and a line that leaves it queries and keys.
SCALED = {
    "Attention": {},
    "DenseSynthesizer": {"mix": "plus"},
    "RandomSynthesizer": {"mix": "plus"},
    "FactorizedSynthesizer": {"mix": "plus"},
    "BigBird": {"block": 1, "seed": 0, "blocks": 1, "random": 1},
    "BlockLocal": {"size": 2, "before": 1},
    "Longformer": {"window": 3, "dilation": 2},
    "MemoryCompressed": {"stride": 2},
}


def test_no_mixer_with_a_scale_is_left_out():
    scaled = {name for name, kind in kinds("mixer").items() if "scale" in keys(kind)}
    assert scaled - {"CrossAttention"} == set(SCALED)  # cross-attention knows no positions


@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("kind", SCALED)
def test_a_scale_is_one_factor_on_products_and_on_the_scores_that_read_content(kind, position):
    def mixed(scale: str, times: float = 1.0) -> Tensor:
        """The output where q·k, and all that a position adds to it, are multiplied by `times`."""
        piece = made("mixer", {"kind": kind, "scale": scale, **SCALED[kind]}, SHAPE, 0.5)
        here = now("Causal", position, PACKED)
        with torch.no_grad():
            for parameter in here.position.parameters():
                parameter.normal_(0, 0.5)
            piece.key.weight *= times
        if here.position.reads_content:
            own = here.position.score
            here.position.score = lambda q, k, *places: times * own(q, k / times, *places)
        return piece(draw(ROWS, LENGTH, SHAPE.width), here)

    for scale in ("sqrt", "width"):
        factor = scale_of(scale, SHAPE.head_width)
        torch.testing.assert_close(mixed(scale), mixed("none", factor), rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", ["sqrt", "width", "none"])
@pytest.mark.parametrize("position", ["Shaw", "TransformerXL"])
def test_relative_logits_are_the_papers_under_every_scale(position, scale):
    """softmax(s (q·k + q·a)) of Shaw et al., s (q·k + u·k + (q + v)·W R) of Dai et al., query by query."""
    here, x = context(SHAPE, position=position), draw(1, LENGTH, SHAPE.width)
    hooks, piece = here.position, made("mixer", {"kind": "Attention", "scale": scale}, SHAPE, 0.5)
    with torch.no_grad():
        for parameter in hooks.parameters():
            parameter.normal_(0, 0.5)
    q, k, v = (part(x[0]).unflatten(-1, (HEADS, -1)) for part in (piece.query, piece.key, piece.value))
    mixed, s = torch.zeros(LENGTH, HEADS, VALUE, dtype=torch.float64), scale_of(scale, WIDTH)

    def beside(t: int, j: int, h: int) -> Tensor:
        """What the paper adds to q·k."""
        if position == "Shaw":
            return q[t, h] @ hooks.key[max(-16, j - t) + 16]
        angle = (t - j) / 10000 ** (torch.arange(0, 24, 2, dtype=torch.float64) / 24)
        row = (hooks.relative.weight @ torch.cat([angle.sin(), angle.cos()])).unflatten(0, (HEADS, WIDTH))[h]
        return hooks.content[h] @ k[j, h] + (q[t, h] + hooks.distance[h]) @ row

    for h, t in itertools.product(range(HEADS), range(LENGTH)):
        logits = torch.stack([q[t, h] @ k[j, h] + beside(t, j, h) for j in range(t + 1)])
        weights = (s * logits).softmax(0)
        mixed[t, h] = weights @ v[: t + 1, h]
        if position == "Shaw":
            mixed[t, h] += sum(weights[j] * hooks.table[max(-16, j - t) + 16] for j in range(t + 1))
    torch.testing.assert_close(piece(x, here), piece.out(mixed.flatten(1))[None], rtol=0, atol=1e-10)


def test_rotary_pairs_turn_by_their_own_positions_each_time():
    rotary, x = build("position", "Rotary", shape(16, 8, 2), build("pattern", "Causal")), draw(2, 5, 2, 8)
    here, there = torch.arange(5)[None], torch.tensor([[0, 1, 0, 1, 2], [3, 4, 5, 6, 7]])
    for q_pos, k_pos in ((here, here), (there, here), (there, there), (here, there)):
        for found, positions in zip(rotary.rotate(x, x, q_pos, k_pos), (q_pos, k_pos), strict=True):
            angle = positions[..., None].double() / 10000 ** (torch.arange(4).double() / 4)
            turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)[:, :, None]
            torch.testing.assert_close(found, torch.cat([turned.real, turned.imag], -1), rtol=0, atol=1e-12)
    assert not rotary.state_dict()
    with torch.inference_mode():  # a pass with gradients may read the table that one without them made
        rotary.rotate(x, x, here, here)
    q = x.clone().requires_grad_()
    rotary.rotate(q, q, here, here)[0].sum().backward()
    assert q.grad is not None


# Patterns

LONG = 37
WIDE = shape(HEADS * WIDTH, LONG, HEADS, key_heads=2)
DOCUMENTS = {
    "plain": None,
    "packed": torch.tensor([[1] * 14 + [2] * 23, [1] * 37, [0] * 5 + [1] * 29 + [0] * 3]),
    "padded": torch.tensor([[1] * 14 + [0] * 23, [1] * 37, [1] * 31 + [0] * 6]),
}
LONG_PREFIX = torch.tensor([2, 9, 0])
INNER = ("Causal", "Bidirectional", "Prefix")


def lines(inner: str) -> dict[str, dict[str, Any]]:
    window = {"kind": "Window", "size": 4, "pattern": inner}
    blocks = {"kind": "BlockLocal", "size": 3, "before": 1, "after": 1, "pattern": inner}
    drawn = {"kind": "RandomBlocks", "size": 3, "blocks": 2, "seed": 1, "length": LONG}
    return {
        "window": {"kind": "Window", "size": 5, "pattern": inner},
        "dilated": {"kind": "Window", "size": 4, "dilation": 3, "pattern": inner},
        "block-local": {"kind": "BlockLocal", "size": 4, "pattern": inner},
        "blocks": blocks,
        "window and global": {"kind": "Global", "tokens": 2, "pattern": window},
        "dilated and global": {"kind": "Global", "tokens": 2, "pattern": {**window, "dilation": 2}},
        "window and random": {**drawn, "pattern": window},
        "BigBird": {"kind": "Global", "tokens": 3, "pattern": {**drawn, "skip": 1, "pattern": blocks}},
        "nothing narrow": {"kind": "Global", "tokens": 3, "pattern": {**drawn, "pattern": inner}},
    }


NAMES = list(lines("Causal"))


def wide(line: Any, position: str = "NoPosition", documents: Tensor | None = None, **given: Any) -> Context:
    prefix = LONG_PREFIX if "Prefix" in str(line) else None
    return context(WIDE, line, position=position, rows=ROWS, documents=documents, prefix=prefix, **given)


def long_inputs(width: int = WIDTH) -> list[Tensor]:
    return [draw(ROWS, LONG, heads, width, seed=heads + i) for i, heads in enumerate((HEADS, 2, 2))]


def sees(line: Any, t: int, s: int, prefix: int, drawn: Tensor) -> bool:
    """Whether the token at place t of a document sees that at place s, as the papers say it."""
    if isinstance(line, str):
        return {"Causal": s <= t, "Bidirectional": True, "Prefix": s <= t or s < prefix}[line]
    inner = line["pattern"]
    limit = next(name for name in INNER if name in str(inner))
    within, looks_ahead = sees(limit, t, s, prefix, drawn), limit != "Causal"
    match line["kind"]:
        case "Window":
            size, step = line["size"], line.get("dilation", 1)
            places = range(-(size - 1 - size // 2), size // 2 + 1) if looks_ahead else range(-(size - 1), 1)
            return s - t in [place * step for place in places] and sees(inner, t, s, prefix, drawn)
        case "BlockLocal":
            apart, after = s // line["size"] - t // line["size"], line.get("after", 0) if looks_ahead else 0
            return -line.get("before", 0) <= apart <= after and sees(inner, t, s, prefix, drawn)
        case "Global":
            return sees(inner, t, s, prefix, drawn) or (within and min(t, s) < line["tokens"])
    far = s // line["size"] in drawn[t // line["size"]].tolist()
    return sees(inner, t, s, prefix, drawn) or (within and far)


def innermost(pattern: Any) -> Any:
    return pattern if not hasattr(pattern, "pattern") or hasattr(pattern, "drawn") else innermost(pattern.pattern)


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", NAMES)
def test_a_pattern_is_what_the_paper_says_pair_by_pair(name, inner):
    line, packed = lines(inner)[name], DOCUMENTS["packed"]
    here = wide(line, documents=packed)
    drawing, drawn = innermost(here.mask.pattern), torch.empty(0)
    if hasattr(drawing, "drawn"):
        drawn = drawing.drawn(torch.arange(LONG))
    for b, row in enumerate(packed.tolist()):
        starts = [row.index(document) for document in row]
        expected = [
            [
                row[s] == row[t] > 0 and sees(line, t - starts[t], s - starts[s], int(LONG_PREFIX[b]), drawn)
                for s in range(LONG)
            ]
            for t in range(LONG)
        ]
        assert here.mask.allowed()[b].tolist() == expected


@pytest.mark.parametrize(
    ("rows", "position"), [*((rows, "NoPosition") for rows in DOCUMENTS), ("packed", "TransformerXL")]
)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_the_square(name, inner, rows, position):
    here = wide(lines(inner)[name], position, DOCUMENTS[rows])
    given = [x.requires_grad_() for x in long_inputs()]
    found = with_gradients(ways.attend(*given, here, scale=0.3, dropout=0.0), given, here)
    expected = with_gradients(ways.WAYS["explicit"](*given, here, 0.3, 0.0), given, here)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    if inner == "Causal" and rows != "packed":
        assert (blocks_of(here, LONG, LONG) is None) == (name == "nothing narrow")


@pytest.mark.parametrize("steps", [(1, 1, 14, 1, 20), (7, 7, 7, 7, 7, 2)], ids=["ones", "sevens"])
@pytest.mark.parametrize("name", NAMES)
def test_a_cache_changes_nothing(name, steps):
    here, (q, k, v) = wide(lines("Causal")[name], "ALiBi"), long_inputs()
    whole, cache, start = ways.attend(q, k, v, here, scale=0.3, dropout=0.0), Cache(), 0
    for length in steps:
        step = wide(lines("Causal")[name], "ALiBi", length=length, start=start, cache=cache)
        cache.places, stop = step.keys, start + length
        found = ways.attend(q[:, start:stop], k[:, :stop], v[:, :stop], step, scale=0.3, dropout=0.0)
        torch.testing.assert_close(found, whole[:, start:stop], rtol=0, atol=1e-12)
        start = stop


def differences_of_flex_attention() -> None:
    """Prints the greatest difference from the square, number by number and compiled, for some patterns."""
    q, k, v = (x.float() for x in long_inputs(32))
    cases = [("dilated", "Causal"), ("BigBird", "Prefix"), ("block-local", "Causal")]
    for (name, inner), documents in itertools.product(cases, (None, DOCUMENTS["packed"])):
        here = wide(lines(inner)[name], documents=documents)
        expected = ways.WAYS["explicit"](q, k, v, here, 0.3, 0.0)
        real = torch.ones(ROWS, LONG, dtype=torch.bool) if documents is None else documents > 0
        mask = ways.block_mask(here)
        for compiled in (False, True) if name == "BigBird" else (False,):
            found = ways.attention_of(ways._flex_attention(compiled), q, k, v, mask, 0.3)
            print((found - expected)[real].abs().max().item())


@pytest.mark.slow
def test_flex_attention_is_the_square():
    """In a process of its own: the compiler cannot follow the functions whose types these tests check."""
    code = "import tests.pieces.test_attention as t; t.differences_of_flex_attention()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    differences = [float(line) for line in out.split()]
    assert len(differences) == 8
    assert max(differences) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("name", ["dilated", "BigBird", "block-local"])
def test_flex_attention_on_a_gpu_is_the_square_with_its_gradients(name):
    answers = []
    for device in ("cpu", "cuda"):
        given = [x.float().to(device).requires_grad_() for x in long_inputs(32)]
        with torch.device(device):
            here = wide(lines("Causal")[name])
        if device == "cpu":
            mixed = ways.WAYS["explicit"](*given, here, 0.3, 0.0)
        else:
            assert ways.choose(ways.Setting.of(*given), here, 0.0) == "flex"
            mixed = ways.attend(*given, here, scale=0.3, dropout=0.0)
        mixed.square().sum().backward()
        answers.append([mixed.detach().cpu(), *(x.grad.cpu() for x in given if x.grad is not None)])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-2)


@pytest.mark.parametrize("inner", ["Causal", "Bidirectional"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nothing narrow"])
def test_the_cost_of_a_pattern_grows_with_the_length(name, inner):
    def operations(length: int) -> int:
        with torch.device("meta"), FlopCounterMode(display=False) as counter:
            q = torch.zeros(1, length, HEADS, WIDTH)
            ways.attend(q, q, q, wide(lines(inner)[name], length=length), scale=1.0, dropout=0.0)
        return counter.get_total_flops()

    once, twice = operations(600), operations(1200)
    assert twice == 2 * once
    read = {"block-local": 4, "dilated": 7, "window and random": 18, "BigBird": 18}.get(name, 9)
    assert once <= 4 * 600 * HEADS * WIDTH * (read + 3)


def test_draws_differ_and_do_not_repeat():
    def drawn(seed: int, inner: str, count: int = 40) -> Tensor:
        line = {"kind": "RandomBlocks", "size": 2, "blocks": 3, "seed": seed, "length": 80, "skip": 2, "pattern": inner}
        return build("pattern", line).drawn(torch.arange(count))

    for inner in ("Causal", "Bidirectional"):
        blocks = drawn(0, inner)
        assert torch.equal(blocks, drawn(0, inner))
        assert not torch.equal(blocks, drawn(1, inner))
        assert torch.equal(blocks[:20], drawn(0, inner, 20))
        for block, row in enumerate(blocks.tolist()):
            chosen = [number for number in row if number >= 0]
            allowed = [n for n in range(2, 40) if abs(n - block) > 1 and (inner == "Bidirectional" or n < block)]
            assert len(chosen) == min(3, len(allowed)) == len(set(chosen))
            assert set(chosen) <= set(allowed)
    assert drawn(0, "Bidirectional").unique().numel() > 30  # from everywhere


def test_every_pattern_is_tried():
    assert set(kinds("pattern")) - set(INNER) == {line["kind"] for line in lines("Causal").values()}


# Mixers with a pattern of their own

SPARSE = shape(24, 21, HEADS)


def sparse(line: dict[str, Any], pattern: str, documents: Any = None) -> tuple[Any, np.ndarray, np.ndarray]:
    mixer, x = made("mixer", line, SPARSE, None), draw(1, 21, 24)
    documents = None if documents is None else torch.tensor([documents])
    return mixer, array(x[0]), array(mixer(x, context(SPARSE, pattern, documents=documents)))[0]


def masked(maps: Any, x: np.ndarray, seen: np.ndarray) -> np.ndarray:
    return attended(*(affine(part, x) for part in (maps.query, maps.key, maps.value)), HEADS, seen, 6**-0.5)


@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])
@pytest.mark.parametrize("kind", ["BlockLocal", "BigBird"])
def test_attention_in_blocks_sees_its_blocks_the_first_ones_and_those_that_are_drawn(kind, pattern):
    keys = {"BlockLocal": {"size": 4, "before": 1}, "BigBird": {"block": 2, "blocks": 1, "random": 2, "seed": 5}}
    mixer, x, found = sparse({"kind": kind, **keys[kind]}, pattern)
    t, s, both = np.arange(21)[:, None], np.arange(21), pattern == "Bidirectional"
    if kind == "BlockLocal":
        allowed = (s // 4 <= t // 4) & (s // 4 >= t // 4 - 1)
    else:
        drawn, apart = mixer.pattern(lambda: build("pattern", pattern)).pattern.drawn(torch.arange(11)), s // 2 - t // 2
        near = (np.abs(apart) <= 1) if both else (apart <= 0) & (apart >= -2)
        far = np.array([[bool((drawn[i // 2] == j // 2).any()) for j in range(21)] for i in range(21)])
        assert far.any()
        assert not (far & near).any()
        allowed = near | far | (s < 2) | (t < 2)
    expected = affine(mixer.out, masked(mixer, x, allowed & ((s <= t) | both)))
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("documents", [None, [1] * 17 + [0] * 4, [0] * 3 + [1] * 18], ids=["plain", "padded", "behind"])
def test_longformer_sees_windows_and_its_global_tokens_see_all_by_own_projections(documents):
    line = {"kind": "Longformer", "window": 3, "dilation": 2, "tokens": 2}
    mixer, x, found = sparse(line, "Bidirectional", documents)
    real = np.array(documents or [1] * 21, dtype=bool)
    place = np.cumsum(real) - 1
    near = np.isin(place - place[:, None], [-2, 0, 2]) | (place < 2)
    local = masked(mixer, x, near & real | ~real[:, None])
    whole = masked(mixer.own, x, real[None] | ~real[:, None])
    expected = affine(mixer.out, np.where((place < 2)[:, None], whole, local))
    np.testing.assert_allclose(found[real], expected[real], atol=1e-12)


def test_a_longformer_of_one_dilation_and_no_global_tokens_is_attention_under_a_window():
    own = built("decoder", "model.block.mixer={kind: Longformer, window: 5}")
    plain = built("decoder", "model.pattern.kind=Window; model.pattern.size=5; model.pattern.pattern=Causal")
    assert torch.equal(hidden(own, batch_for(own)), hidden(plain, batch_for(plain)))
    with pytest.raises(ScalingError, match="tokens=2: a stack that looks back only has no tokens that see the whole"):
        sparse({"kind": "Longformer", "window": 3, "tokens": 2}, "Causal")


# What a cache keeps


def grown(state: State, tokens: int, rows: int = 3) -> Tensor:
    """What is appended one token after another."""
    new = torch.randn(rows, tokens, 2)
    for at in range(tokens):
        state.append("key", new[:, at : at + 1])
    return new


@pytest.mark.parametrize("tokens", [1, 2, ROOM, ROOM + 1, 3 * ROOM])
@torch.inference_mode()
def test_appended_tokens_stand_in_their_order(tokens):
    state = State()
    new, more = grown(state, tokens), torch.randn(3, ROOM, 2)
    assert torch.equal(state["key"], new)
    assert torch.equal(state.append("key", more), torch.cat([new, more], 1))
    state["key"] = state["key"][:, 1:]  # a piece may keep something else in its place
    assert torch.equal(state.append("key", more), torch.cat([new[:, 1:], more, more], 1))


@pytest.mark.parametrize("rows", [[2, 0, 0], [1], [0, 1, 2, 2, 1], [0, 1, 2]], ids=str)
@torch.inference_mode()
def test_rows_are_chosen_again_and_again(rows):
    state = State()
    expected = grown(state, 5)
    for _ in range(3):
        chosen = torch.tensor(rows).clamp(max=len(expected) - 1)
        state.select(chosen)
        new = torch.randn(len(rows), 1, 2)
        expected = torch.cat([expected[chosen], new], 1)
        assert torch.equal(state.append("key", new), expected)


@torch.inference_mode()
def test_copies_of_a_cache_go_on_by_themselves():
    cache = Cache()
    new = grown(cache.states.setdefault("piece", State()), 5)
    other = cache.copy()
    for each in (cache, other, cache, other):
        each.states["piece"].append("key", torch.full((3, 1, 2), float(each is other)))
        each.select(torch.tensor([2, 1, 0]))
    for each in (cache, other):
        tail = torch.full((3, 2, 2), float(each is other))
        assert torch.equal(each.states["piece"]["key"], torch.cat([new, tail], 1))
