"""Windows: what the pattern allows, written out; attention in blocks of the band against the square; and its cost."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scaling.errors import ScalingError
from scaling.nn.context import Cache, Context, Places
from scaling.nn.mixer import softmax
from scaling.nn.patterns import render
from scaling.schema import build, kinds
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH = 3, 17, 4, 6
SHAPE = Shape.of(
    {"width": HEADS * WIDTH, "layers": 1, "heads": HEADS, "key_heads": 2, "vocabulary": 8, "length": LENGTH}
)
PACKED = torch.tensor([[1] * 4 + [2] * 13, [1] * 17, [0] * 2 + [1] * 12 + [0] * 3])
PREFIX = torch.tensor([2, 9, 0])


def window(size: int, inner: str):
    return build("pattern", {"kind": "Window", "size": size, "pattern": inner})


def context(size: int, inner: str, position: str = "NoPosition", documents: Tensor | None = None) -> Context:
    pattern = window(size, inner)
    prefix = PREFIX if inner == "Prefix" else None
    places = Places.of(torch.zeros(ROWS, LENGTH), documents=documents, prefix=prefix)
    torch.manual_seed(1)
    hooks = build("position", position, SHAPE, pattern).double()
    return Context(places, places, render(pattern, places, places), hooks)


def inputs() -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(HEADS, WIDTH), (2, WIDTH), (2, WIDTH)]
    return [torch.randn(ROWS, LENGTH, *shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("size", [1, 2, 5, 40])
@pytest.mark.parametrize("inner", ["Causal", "Bidirectional", "Prefix"])
def test_a_token_sees_its_neighbours(size, inner):
    allowed = context(size, inner, documents=PACKED).mask.allowed
    assert allowed is not None
    for b, row in enumerate(PACKED.tolist()):
        for t in range(LENGTH):
            seen = []
            for s in range(LENGTH):
                near = -(size - 1) <= s - t <= 0 if inner == "Causal" else -(size - 1 - size // 2) <= s - t <= size // 2
                known = s <= t or inner == "Bidirectional" or s - row.index(row[s]) < PREFIX[b]
                seen.append(near and row[s] == row[t] > 0 and (known if inner == "Prefix" else True))
            assert allowed[b, t].tolist() == seen


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("inner", ["Causal", "Bidirectional", "Prefix"])
@pytest.mark.parametrize("position", sorted(kinds("position")))
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
def test_blocks_are_the_square(size, inner, position, documents):
    now = context(size, inner, position, documents)
    q, k, v = inputs()
    found = softmax.attend(q, k, v, now, scale=0.3, dropout=0.0)
    expected = softmax._explicit(q, k, v, now, 0.3, 0.0)
    real = torch.ones(1, LENGTH, 1, 1) if documents is None else (documents > 0)[:, :, None, None]
    torch.testing.assert_close(found * real, expected * real, rtol=0, atol=1e-12)
    upstream = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found) * real
    ours, square = (torch.autograd.grad(made, (q, k, v), upstream) for made in (found, expected))
    for one, other in zip(ours, square):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("steps", [(1,) * LENGTH, (6, 1, 10)])
def test_a_cache_changes_nothing(steps):
    now, (q, k, v) = context(3, "Causal", "ALiBi"), inputs()
    whole, cache, start = softmax.attend(q, k, v, now, scale=0.3, dropout=0.0), Cache(), 0
    for length in steps:
        places = Places.of(torch.zeros(ROWS, length), start=start)
        keys = places.after(cache.places)
        step = Context(places, keys, render(window(3, "Causal"), places, keys), now.position, cache=cache)
        cache.places, stop = keys, start + length
        found = softmax.attend(q[:, start:stop], k[:, :stop], v[:, :stop], step, scale=0.3, dropout=0.0)
        torch.testing.assert_close(found, whole[:, start:stop], rtol=0, atol=1e-12)
        start = stop


def operations(pattern, length: int) -> int:
    with torch.device("meta"):
        places = Places.of(torch.zeros(1, length))
        q = torch.zeros(1, length, HEADS, WIDTH)
        now = Context(places, places, render(pattern, places, places), build("position", "NoPosition", SHAPE, pattern))
        with FlopCounterMode(display=False) as counter:
            softmax.attend(q, q, q, now, scale=1.0, dropout=0.0)
    return counter.get_total_flops()


@pytest.mark.parametrize("inner", ["Causal", "Bidirectional"])
def test_the_cost_grows_with_length_times_window(inner):
    square = operations(build("pattern", inner), 1024)
    assert operations(window(64, inner), 1024) <= 2 * square * 64 / 1024
    assert operations(window(64, inner), 2048) == 2 * operations(window(64, inner), 1024)


def test_a_window_holds_a_token():
    with pytest.raises(ScalingError, match="size=0: expected a positive whole number"):
        window(0, "Causal")
