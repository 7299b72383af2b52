"""Patterns pair by pair, what computes them in blocks, and mixers with patterns of their own."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scaling.config.schema import build, kinds
from scaling.model.context import Context
from scaling.model.mixer import attention as ways
from scaling.model.mixer.bands import blocks_of
from tests.pieces.formulas import affine, array, attended, context, draw, made, shape, with_gradients

ROWS, LENGTH, HEADS, WIDTH = 3, 29, 4, 6
SHAPE, SPARSE = shape(HEADS * WIDTH, LENGTH, HEADS, key_heads=2), shape(24, 21, HEADS)
DOCUMENTS = {
    "plain": None,
    "packed": torch.tensor([[1] * 11 + [2] * 18, [1] * 29, [0] * 5 + [1] * 21 + [0] * 3]),
    "padded": torch.tensor([[1] * 11 + [0] * 18, [1] * 29, [1] * 23 + [0] * 6]),
}
PREFIX = torch.tensor([2, 9, 0])
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


def now(line: Any, position: str = "NoPosition", documents: Tensor | None = None, **given: Any) -> Context:
    prefix = PREFIX if "Prefix" in str(line) else None
    return context(SHAPE, line, position=position, rows=ROWS, documents=documents, prefix=prefix, **given)


def inputs(width: int = WIDTH) -> list[Tensor]:
    return [draw(ROWS, LENGTH, heads, width, seed=heads + i) for i, heads in enumerate((HEADS, 2, 2))]


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
@pytest.mark.parametrize("name", lines("Causal"))
def test_a_pattern_is_what_the_paper_says_pair_by_pair_and_its_blocks_are_the_square(name, inner):
    assert set(kinds("pattern")) - set(INNER) == {line["kind"] for line in lines("Causal").values()}
    line, packed = lines(inner)[name], DOCUMENTS["packed"]
    here = now(line, documents=packed)
    drawing = innermost(here.mask.pattern)
    drawn = drawing.drawn(torch.arange(LENGTH)) if hasattr(drawing, "drawn") else torch.empty(0)
    for b, row in enumerate(packed.tolist()):
        starts = [row.index(document) for document in row]
        pairs = [
            row[s] == row[t] > 0 and sees(line, t - starts[t], s - starts[s], int(PREFIX[b]), drawn)
            for t, s in itertools.product(range(LENGTH), range(LENGTH))
        ]
        assert here.mask.allowed()[b].flatten().tolist() == pairs
    for rows, position in (*((rows, "NoPosition") for rows in DOCUMENTS), ("packed", "TransformerXL")):
        here, given = now(line, position, DOCUMENTS[rows]), [x.requires_grad_() for x in inputs()]
        found = with_gradients(ways.attend(*given, here, scale=0.3, dropout=0.0), given, here)
        expected = with_gradients(ways.WAYS["explicit"](*given, here, 0.3, 0.0), given, here)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
        if inner == "Causal" and rows != "packed":
            assert (blocks_of(here, LENGTH, LENGTH) is None) == (name == "nothing narrow")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "inner"), [("dilated", "Causal"), ("BigBird", "Prefix"), ("block-local", "Causal")])
def test_flex_attention_is_the_square(name, inner):
    """Number by number; compiled: on a GPU."""
    q, k, v = (x.float() for x in inputs(32))
    for documents in (None, DOCUMENTS["packed"]):
        here = now(lines(inner)[name], documents=documents)
        expected = ways.WAYS["explicit"](q, k, v, here, 0.3, 0.0)
        found = ways.attention_of(ways._flex_attention(False), q, k, v, ways.block_mask(here), 0.3)
        real = torch.ones(ROWS, LENGTH, dtype=torch.bool) if documents is None else documents > 0
        torch.testing.assert_close(found[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device on this machine")
@pytest.mark.parametrize("name", ["dilated", "BigBird", "block-local"])
def test_flex_attention_on_a_gpu_is_the_square_with_its_gradients(name):
    answers = []
    for device in ("cpu", "cuda"):
        given = [x.float().to(device).requires_grad_() for x in inputs(32)]
        with torch.device(device):
            here = now(lines("Causal")[name])
        if device == "cpu":
            mixed = ways.WAYS["explicit"](*given, here, 0.3, 0.0)
        else:
            assert ways.choose(ways.Setting.of(*given), here, 0.0) == "flex"
            mixed = ways.attend(*given, here, scale=0.3, dropout=0.0)
        mixed.square().sum().backward()
        answers.append([mixed.detach().cpu(), *(x.grad.cpu() for x in given if x.grad is not None)])
    torch.testing.assert_close(*answers, rtol=0, atol=2e-2)


@pytest.mark.parametrize("inner", ["Causal", "Bidirectional"])
def test_draws_differ_and_do_not_repeat(inner):
    def drawn(seed: int, count: int = 40) -> Tensor:
        line = {"kind": "RandomBlocks", "size": 2, "blocks": 3, "seed": seed, "length": 80, "skip": 2, "pattern": inner}
        return build("pattern", line).drawn(torch.arange(count))

    blocks = drawn(0)
    assert torch.equal(blocks, drawn(0))
    assert not torch.equal(blocks, drawn(1))
    assert torch.equal(blocks[:20], drawn(0, 20))
    for block, row in enumerate(blocks.tolist()):
        chosen = [number for number in row if number >= 0]
        allowed = [n for n in range(2, 40) if abs(n - block) > 1 and (inner == "Bidirectional" or n < block)]
        assert len(chosen) == min(3, len(allowed)) == len(set(chosen))
        assert set(chosen) <= set(allowed)
    assert blocks.unique().numel() > 25  # from everywhere


@pytest.mark.parametrize("documents", [[1] * 21, [1] * 17 + [0] * 4, [0] * 3 + [1] * 18])
def test_longformer_sees_windows_and_its_global_tokens_see_all_by_own_projections(documents):
    line = {"kind": "Longformer", "window": 3, "dilation": 2, "tokens": 2}
    mixer, x, real = made("mixer", line, SPARSE, None), draw(1, 21, 24), np.array(documents, dtype=bool)
    found = array(mixer(x, context(SPARSE, "Bidirectional", documents=torch.tensor([documents]))))[0]

    def masked(maps: Any, seen: np.ndarray) -> np.ndarray:
        qkv = (affine(part, array(x[0])) for part in (maps.query, maps.key, maps.value))
        return attended(*qkv, HEADS, seen & real | ~real[:, None], 6**-0.5)

    place = np.cumsum(real) - 1
    near = np.isin(place - place[:, None], [-2, 0, 2]) | (place < 2)
    whole = masked(mixer.own, np.ones((21, 21), dtype=bool))
    expected = affine(mixer.out, np.where((place < 2)[:, None], whole, masked(mixer, near)))
    np.testing.assert_allclose(found[real], expected[real], atol=1e-12)
