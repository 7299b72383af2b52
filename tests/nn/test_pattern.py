"""Patterns written out pair by pair, and what renders them: the square, blocks, FlexAttention; and what they cost."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scaling.nn.context import Cache, Context, Places, render
from scaling.nn.mixer import attention as softmax
from scaling.nn.mixer.bands import blocks_of
from scaling.schema import build, kinds
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH = 3, 37, 4, 6
SHAPE = Shape.of(
    {"width": HEADS * WIDTH, "layers": 1, "heads": HEADS, "key_heads": 2, "vocabulary": 8, "length": LENGTH}
)
PACKED = torch.tensor([[1] * 14 + [2] * 23, [1] * 37, [0] * 5 + [1] * 29 + [0] * 3])
PADDED = torch.tensor([[1] * 14 + [0] * 23, [1] * 37, [1] * 31 + [0] * 6])
PREFIX = torch.tensor([2, 9, 0])
DOCUMENTS = {"plain": None, "packed": PACKED, "padded": PADDED}
INNER = ("Causal", "Bidirectional", "Prefix")


def lines(inner: str) -> dict[str, dict[str, Any]]:
    window = {"kind": "Window", "size": 4, "pattern": inner}
    blocks = {"kind": "BlockLocal", "size": 3, "before": 1, "after": 1, "pattern": inner}
    drawn = {"kind": "RandomBlocks", "size": 3, "blocks": 2, "seed": 1, "length": LENGTH}
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


def context(line: Any, position: str = "NoPosition", documents: Tensor | None = None, length: int = LENGTH) -> Context:
    pattern = build("pattern", line)
    prefix = PREFIX if "Prefix" in str(line) else None
    places = Places.of(torch.zeros(ROWS, length), documents=documents, prefix=prefix)
    torch.manual_seed(1)
    hooks = build("position", position, SHAPE, pattern).double()
    return Context(places, places, render(pattern, places, places), hooks)


def inputs(length: int = LENGTH) -> list[Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(HEADS, WIDTH), (2, WIDTH), (2, WIDTH)]
    return [torch.randn(ROWS, length, *shape, generator=draw, dtype=torch.float64).requires_grad_() for shape in shapes]


def sees(line: Any, t: int, s: int, prefix: int, drawn: Tensor) -> bool:
    """Whether the token at place t of a document sees that at place s, as the papers say it."""
    if isinstance(line, str):
        return {"Causal": s <= t, "Bidirectional": True, "Prefix": s <= t or s < prefix}[line]
    inner, limit = line["pattern"], str(line["pattern"])
    limit = next(name for name in INNER if name in limit)
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
    line = lines(inner)[name]
    now = context(line, documents=PACKED)
    drawing, drawn = innermost(now.mask.pattern), torch.empty(0)
    if hasattr(drawing, "drawn"):
        drawn = drawing.drawn(torch.arange(LENGTH))
    allowed = now.mask.allowed
    assert allowed is not None
    for b, row in enumerate(PACKED.tolist()):
        starts = [row.index(document) for document in row]
        expected = [
            [
                row[s] == row[t] > 0 and sees(line, t - starts[t], s - starts[s], int(PREFIX[b]), drawn)
                for s in range(LENGTH)
            ]
            for t in range(LENGTH)
        ]
        assert allowed[b].tolist() == expected


@pytest.mark.parametrize("position", ["NoPosition", "TransformerXL"])
@pytest.mark.parametrize("documents", DOCUMENTS.values(), ids=DOCUMENTS)
@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("name", NAMES)
def test_blocks_are_the_square(name, inner, documents, position):
    now = context(lines(inner)[name], position, documents)
    q, k, v = inputs()
    found = softmax.attend(q, k, v, now, scale=0.3, dropout=0.0)
    expected = softmax.WAYS["explicit"](q, k, v, now, 0.3, 0.0)
    real = torch.ones(1, LENGTH, 1, 1) if documents is None else (documents > 0)[:, :, None, None]
    torch.testing.assert_close(found * real, expected * real, rtol=0, atol=1e-12)
    upstream = torch.linspace(-1, 1, found.numel(), dtype=torch.float64).view_as(found) * real
    ours, square = (torch.autograd.grad(made, (q, k, v), upstream) for made in (found, expected))
    for one, other in zip(ours, square):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("documents", ["plain", "padded"])
def test_a_row_of_one_document_is_computed_in_blocks(name, documents):
    now = context(lines("Causal")[name], documents=DOCUMENTS[documents])
    assert (blocks_of(now, LENGTH, LENGTH) is None) == (name == "nothing narrow")


@pytest.mark.parametrize("steps", [(1,) * LENGTH, (16, 1, 20), (7, 7, 7, 7, 7, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_a_cache_changes_nothing(name, steps):
    now, (q, k, v) = context(lines("Causal")[name], "ALiBi"), inputs()
    whole, cache, start = softmax.attend(q, k, v, now, scale=0.3, dropout=0.0), Cache(), 0
    for length in steps:
        places = Places.of(torch.zeros(ROWS, length), start=start)
        keys = places.after(cache.places)
        mask = render(build("pattern", lines("Causal")[name]), places, keys)
        step = Context(places, keys, mask, now.position, cache=cache)
        cache.places, stop = keys, start + length
        found = softmax.attend(q[:, start:stop], k[:, :stop], v[:, :stop], step, scale=0.3, dropout=0.0)
        torch.testing.assert_close(found, whole[:, start:stop], rtol=0, atol=1e-12)
        start = stop


def differences_of_flex_attention() -> None:
    """Prints the greatest difference from the square, number by number and compiled, for some patterns."""
    cases = [("dilated", "Causal"), ("BigBird", "Prefix"), ("block-local", "Causal")]
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(ROWS, LENGTH, heads, 32, generator=draw) for heads in (HEADS, 2, 2))
    for (name, inner), documents in itertools.product(cases, (None, PACKED)):
        now = context(lines(inner)[name], documents=documents)
        expected = softmax.WAYS["explicit"](q, k, v, now, 0.3, 0.0)
        real = (-1 if documents is None else 0) < PACKED
        mask = softmax.block_mask(now)
        for compiled in (False, True) if name == "BigBird" else (False,):
            found = softmax.attention_of(softmax._flex_attention(compiled), q, k, v, mask, 0.3)
            print((found - expected)[real].abs().max().item())


@pytest.mark.slow
def test_flex_attention_is_the_square():
    """In a process of its own: the compiler cannot follow the functions whose types these tests check."""
    code = "import tests.nn.test_pattern as t; t.differences_of_flex_attention()"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    differences = [float(line) for line in out.split()]
    assert len(differences) == 8
    assert max(differences) < 1e-5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("name", ["dilated", "BigBird", "block-local"])
def test_flex_attention_on_a_gpu_is_the_square_with_its_gradients(name):
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(ROWS, LENGTH, heads, 32, generator=draw) for heads in (HEADS, 2, 2)]
    now, answers = context(lines("Causal")[name]), []
    for device, attend in (("cpu", softmax.WAYS["explicit"]), ("cuda", None)):
        q, k, v = (x.detach().to(device).requires_grad_() for x in inputs)
        if attend is None:
            places = Places.of(torch.zeros(ROWS, LENGTH, device=device))
            mask = render(build("pattern", lines("Causal")[name]), places, places)
            there = Context(places, places, mask, now.position)
            assert softmax.choose(softmax.Setting.of(q, k, v), there, 0.0) == "flex"
            mixed = softmax.attend(q, k, v, there, scale=0.3, dropout=0.0)
        else:
            mixed = attend(q, k, v, now, 0.3, 0.0)
        mixed.square().sum().backward()
        answers.append([mixed.detach().cpu(), *(x.grad.cpu() for x in (q, k, v) if x.grad is not None)])
    for one, other in zip(*answers, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-2)


def operations(name: str, inner: str, length: int) -> int:
    with torch.device("meta"):
        now = context(lines(inner)[name], length=length)
        q = torch.zeros(1, length, HEADS, WIDTH)
        with FlopCounterMode(display=False) as counter:
            softmax.attend(q, q, q, now, scale=1.0, dropout=0.0)
    return counter.get_total_flops()


@pytest.mark.parametrize("inner", ["Causal", "Bidirectional"])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "nothing narrow"])
def test_the_cost_grows_with_the_length(name, inner):
    once, twice = (operations(name, inner, length) for length in (1200, 2400))
    assert twice == 2 * once
    read = {"block-local": 4, "dilated": 7, "window and random": 18, "BigBird": 18}.get(name, 9)
    assert once <= 4 * 1200 * HEADS * WIDTH * (read + 3)


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
