"""The ways to attend against softmax written out in float64, long rows in parts, scales and relative positions, and
what a cache keeps.
"""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from scaling.config.schema import build, kinds
from scaling.kernels.compiled import absent
from scaling.model.context import ROOM, Cache, Context, State
from scaling.model.mixer import attention as ways
from tests.pieces.formulas import context, draw, made, shape, with_gradients

ROWS, LENGTH, HEADS, WIDTH, VALUE = 3, 9, 4, 6, 5
SHAPE = shape(HEADS * WIDTH, LENGTH, HEADS, value_width=VALUE)
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 7])
PREFIX = torch.tensor([2, 5, 0])
POSITIONS = sorted(kinds("position"))
WAYS = {"explicit": (torch.float64, 1e-12), "sdpa": (torch.float64, 1e-12)}
if absent() is None:
    WAYS["kernel"] = (torch.float32, 1e-5)
LOW = [(way, dtype, 1e-5 if dtype == torch.float32 else 6e-2)
       for way in ("explicit", "sdpa") for dtype in (torch.float32, torch.bfloat16)]  # fmt: skip


def now(pattern: Any = "Causal", position: str = "NoPosition", documents: Tensor | None = None) -> Context:
    prefix = PREFIX if "Prefix" in str(pattern) else None
    return context(SHAPE, pattern, position=position, rows=ROWS, documents=documents, prefix=prefix)


def inputs(dtype: torch.dtype, key_heads: int = HEADS) -> list[Tensor]:
    sizes = [(HEADS, WIDTH), (key_heads, WIDTH), (key_heads, VALUE)]
    return [draw(ROWS, LENGTH, *size, seed=seed).to(dtype).requires_grad_() for seed, size in enumerate(sizes)]


def written(q: Tensor, k: Tensor, v: Tensor, here: Context, scale: float) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = scale * torch.einsum("bthd,bshd->bhts", q, k)
    position, places = here.position, here.places.seen_by(here.position)
    if position.adds_score:
        score = position.score(q, k, places, places)
        logits = logits + (scale * score if position.reads_content else score)
    if (allowed := here.mask.allowed()) is not None:
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1)
    mixed = torch.einsum("bhts,bshe->bthe", weights, v)
    return mixed + position.value(weights, places, places).transpose(1, 2) if position.mixes_values else mixed


def agree(way: str, here: Context, dtype: torch.dtype, tolerance: float, key_heads: int = HEADS) -> None:
    given = inputs(dtype, key_heads)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    own = here.position.named_parameters() if here.position.adds_score else ()
    table = [parameter for name, parameter in own if name != "depth"]  # which is read where a stack begins
    found = with_gradients(ways.WAYS[way](*given, here, 0.3, 0.0), [*given, *table], here)
    here.notes.made.clear()
    expected = with_gradients(written(*exact, here, 0.3), [*exact, *table], here)
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), truth.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_softmax_written_out_under_every_pattern_and_position(way):
    for pattern, documents in itertools.product(("Causal", "Bidirectional", "Prefix"), (None, PACKED)):
        agree(way, now(pattern, documents=documents), *WAYS[way])
    for position in POSITIONS:
        here = now(position=position, documents=PACKED)
        if way == "explicit" or not here.position.mixes_values:
            agree(way, here, *WAYS[way])
    for key_heads in (2, 1):
        agree(way, now(), *WAYS[way], key_heads)


@pytest.mark.parametrize(("way", "dtype", "tolerance"), LOW)
def test_a_way_is_softmax_in_narrow_numbers_too(way, dtype, tolerance):
    agree(way, now(), dtype, tolerance)


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


# Long rows in parts

LONG_PACKED = torch.tensor([[1] * 9 + [2] * 2 + [3] * 12 + [4] * 17, [0] * 3 + [1] * 30 + [0] * 7])


def run(length: int, position: str, pattern: str, documents: Any, kind: str) -> Any:
    """The output, and the gradients of all that bears on it."""
    own = shape(24, length, HEADS)
    mixer = made("mixer", kind, own, None)
    x = draw(2, length, 24).requires_grad_()
    here = context(own, pattern, position=position, rows=2, documents=documents)
    y = mixer(x, here)
    real = slice(None) if documents is None else documents > 0
    (y * draw(2, length, 24, seed=1))[real].sum().backward()
    return y[real], x.grad, *(p.grad for p in (*mixer.parameters(), *here.position.parameters()))


class Largest(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return found


def in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("NEAR_KEYS", 0), ("SQUARE", 7 * 40), ("PART", 7 * 40)):
        monkeypatch.setattr(ways, name, value)


@pytest.mark.parametrize(
    ("position", "pattern", "kind", "documents"),
    [
        ("RelativeBias", "Bidirectional", "Attention", LONG_PACKED),
        ("Shaw", "Causal", "Attention", None),
        ("TransformerXL", "Causal", "Attention", LONG_PACKED),
        ("ALiBi", "Causal", "MemoryCompressed", LONG_PACKED),
    ],
)
def test_parts_are_the_whole_and_no_tensor_is_the_square(position, pattern, kind, documents, monkeypatch):
    whole = run(40, position, pattern, documents, kind)
    in_parts(monkeypatch)
    with Largest() as seen:
        parts = run(40, position, pattern, documents, kind)
    for found, expected in zip(parts, whole, strict=True):
        assert (found is None) == (expected is None)
        if expected is not None:
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert seen.numbers < 2 * HEADS * 40 * 40 / 2


def test_dropout_draws_the_same_in_both_passes(monkeypatch):
    """Where it did not, the gradient by the values would not be that of the output, which is linear in them."""
    in_parts(monkeypatch)
    q, k, v = (draw(1, 40, 2, 8, seed=seed) for seed in range(3))
    v.requires_grad_()
    torch.manual_seed(3)
    y = ways.attend(q, k, v, context(shape(16, 40, 2)), scale=0.3, dropout=0.4)
    y.sum().backward()
    assert (v.grad * v).sum().item() == pytest.approx(y.sum().item(), rel=1e-9)


# Relative positions


@pytest.mark.parametrize("scale", ["sqrt", "width"])
@pytest.mark.parametrize("position", ["Shaw", "TransformerXL"])
@torch.no_grad()
def test_relative_logits_are_the_papers_under_every_scale(position, scale):
    """softmax(s (q·k + q·a)) of Shaw et al., s (q·k + u·k + (q + v)·W R) of Dai et al., query by query."""
    here, x = context(SHAPE, position=position), draw(1, LENGTH, SHAPE.width)
    hooks, piece = here.position, made("mixer", {"kind": "Attention", "scale": scale}, SHAPE, 0.5)
    for parameter in hooks.parameters():
        parameter.normal_(0, 0.5)
    q, k, v = (part(x[0]).unflatten(-1, (HEADS, -1)) for part in (piece.query, piece.key, piece.value))
    mixed, s = torch.zeros(LENGTH, HEADS, VALUE, dtype=torch.float64), {"sqrt": WIDTH**-0.5, "width": 1 / WIDTH}[scale]

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


def test_rotary_tables_of_a_pass_without_gradients_serve_one_with():
    rotary, x = build("position", "Rotary", shape(16, 8, 2), build("pattern", "Causal")), draw(2, 5, 2, 8)
    here = torch.arange(5)[None]
    with torch.inference_mode():
        rotary.rotate(x, x, here, here)
    q = x.clone().requires_grad_()
    rotary.rotate(q, q, here, here)[0].sum().backward()
    assert q.grad is not None


@torch.inference_mode()
def test_a_cache_holds_what_was_appended_and_chosen_and_its_copies_go_on_by_themselves():
    """Against tensors that are put together anew at each step."""
    cache, chance = Cache(states={"piece": State()}), random.Random(0)
    pairs = [(cache, torch.empty(3, 0, 2))]
    for step in range(3 * ROOM):
        if step in (5, 2 * ROOM):
            pairs.append((pairs[0][0].copy(), pairs[0][1]))
        for number, (one, expected) in enumerate(pairs):
            new = torch.randn(len(expected), chance.choice((1, 1, 1, ROOM)), 2)
            expected = torch.cat([expected, new], 1)
            assert torch.equal(one.states["piece"].append("key", new), expected)
            if chance.random() < 0.3:
                rows = torch.tensor([chance.randrange(len(expected)) for _ in range(chance.choice((2, 3, 5)))])
                one.select(rows)
                expected = expected[rows]
            if chance.random() < 0.1:  # a piece may keep something else in its place
                expected = expected[:, expected.shape[1] // 2 :]
                one.states["piece"]["key"] = one.states["piece"]["key"][:, -expected.shape[1] :]
            pairs[number] = one, expected
