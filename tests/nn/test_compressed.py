"""Linformer and memory-compressed attention against their formulas in float64 numpy, document by document."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.config import load
from scaling.cost import cost
from scaling.errors import ScalingError
from scaling.model.tuned import build_model
from scaling.nn.context import Context, Places, render
from scaling.schema import build
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH = 3, 23, 2, 12
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": LENGTH})
PACKED = torch.tensor([[1] * 9 + [2] * 2 + [3] * 12, [1] * 23, [0] * 2 + [1] * 17 + [0] * 4])


def context(pattern: str, documents: torch.Tensor | None) -> Context:
    sees = build("pattern", pattern)
    places = Places.of(torch.zeros(ROWS, LENGTH), documents=documents)
    return Context(places, places, render(sees, places, places), build("position", "NoPosition", SHAPE, sees))


def made(line: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    return build("mixer", line, SHAPE).double()


def inputs() -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def array(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().numpy()


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def check(piece: Any, pattern: str, documents: torch.Tensor | None, written: Any) -> None:
    x = inputs()
    found = array(piece(x, context(pattern, documents)))
    numbers = np.ones((ROWS, LENGTH)) if documents is None else documents.numpy()
    for row, own in enumerate(numbers):
        for document in set(own) - {0}:
            places = own == document
            np.testing.assert_allclose(found[row][places], written(x[row].numpy()[places]), atol=1e-10)


def projections(piece: Any, x: np.ndarray) -> list[np.ndarray]:
    return [x @ array(part.weight).T for part in (piece.query, piece.key, piece.value)]


@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])
def test_linformer_is_its_formula(sharing, documents):
    piece = made({"kind": "Linformer", "projected": 7, "sharing": sharing})
    onto_keys, onto_values = array(piece.onto_keys.weight), array(piece.onto_values.weight)
    assert len(onto_keys) == (HEADS if sharing == "none" else 1)
    assert np.array_equal(onto_keys, onto_values) == (sharing == "kv")

    def written(x: np.ndarray) -> np.ndarray:
        q, k, v = projections(piece, x)
        heads = []
        for head, own in enumerate(np.split(np.arange(WIDTH), HEADS)):
            e, f = (part[head % len(part)][:, : len(x)] for part in (onto_keys, onto_values))
            weights = softmax(q[:, own] @ (e @ k[:, own]).T / np.sqrt(WIDTH / HEADS))
            heads.append(weights @ (f @ v[:, own]))
        return np.concatenate(heads, 1) @ array(piece.out.weight).T

    check(piece, "Bidirectional", documents, written)


@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])
def test_memory_compressed_attention_is_its_formula(pattern, documents):
    stride = 4
    piece = made({"kind": "MemoryCompressed", "stride": stride})

    def written(x: np.ndarray) -> np.ndarray:
        q, k, v = projections(piece, x)
        compressed = []
        for part, by in ((k, piece.compress_keys), (v, piece.compress_values)):
            whole = np.concatenate([part, np.zeros((-len(x) % stride, WIDTH))])
            rows = [whole[start : start + stride].reshape(-1) for start in range(0, len(whole), stride)]
            compressed.append(np.stack([np.zeros(WIDTH), *(array(by.weight) @ row for row in rows)]))
        ends = np.array([-1, *(start + stride - 1 for start in range(0, len(x), stride))])
        hidden = (ends > np.arange(len(x))[:, None]) & (pattern == "Causal")
        heads = []
        for own in np.split(np.arange(WIDTH), HEADS):
            logits = q[:, own] @ compressed[0][:, own].T / np.sqrt(WIDTH / HEADS)
            heads.append(softmax(np.where(hidden, -np.inf, logits)) @ compressed[1][:, own])
        return np.concatenate(heads, 1) @ array(piece.out.weight).T

    check(piece, pattern, documents, written)


def test_layers_that_share_a_projection_have_one():
    def parameters(sharing: str) -> int:
        line = f"{{kind: Linformer, projected: 8, sharing: {sharing}}}"
        size = "{width: 16, layers: 3, heads: 2, vocabulary: 11, length: 32}"
        config = load("encoder", [f"size={size}", f"model.block.mixer={line}", "model.position=NoPosition"])
        assert cost(config).parameters == sum(p.numel() for p in build_model(config.tree).parameters())
        return cost(config).parameters

    one = 8 * 32
    counts = {sharing: parameters(sharing) for sharing in ("none", "headwise", "kv")}
    assert counts["none"] - counts["headwise"] == 3 * 2 * one
    assert counts["headwise"] - counts["kv"] == 3 * one


def test_a_longer_text_is_refused():
    piece = made({"kind": "Linformer", "projected": 4})
    places = Places.of(torch.zeros(1, LENGTH + 1))
    pattern = build("pattern", "Bidirectional")
    longer = Context(places, places, render(pattern, places, places), build("position", "NoPosition", SHAPE, pattern))
    with pytest.raises(ScalingError, match="longer than the 23 that are projected"):
        piece(torch.zeros(1, LENGTH + 1, WIDTH, dtype=torch.float64), longer)


@pytest.mark.parametrize("line", ["{kind: Linformer, projected: 32}", "{kind: MemoryCompressed, stride: 8}"])
def test_operations_between_tokens_are_fewer(line):
    def of_mixers(mixer: str, length: int) -> float:
        size = f"{{width: 64, layers: 1, heads: 4, vocabulary: 11, length: {length}}}"
        config = load("encoder", [f"size={size}", f"model.block.mixer={mixer}", "model.position=NoPosition"])
        return cost(config).flops_forward_by_slot["mixer"] / length

    dense = of_mixers("Attention", 4096) - of_mixers("Attention", 2048)
    found = of_mixers(line, 4096) - of_mixers(line, 2048)
    assert found <= (0 if "Linformer" in line else dense / 8)
