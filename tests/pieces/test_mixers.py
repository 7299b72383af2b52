"""Mixers against their papers' formulas, document by document in float64 numpy; what they keep, refuse and cost."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
import itertools
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from scaling.model.mixer import linear_attention
from scaling.model.mixer.linear_attention import Performer
from tests.command_line import refuses
from tests.pieces.formulas import affine, array, attended, context, draw, each_document, made, shape, sigmoid, softmax

ROWS, LENGTH, WIDTH = 3, 13, 8
SHAPE = shape(WIDTH, LENGTH, 2)
PACKED = torch.tensor([[1] * 4 + [2] * 9, [1] * 13, [0] * 2 + [1] * 8 + [0] * 3])
X = draw(ROWS, LENGTH, WIDTH)


# The formulas: of a piece, the vectors [t w] of one document, and whether the pattern looks ahead.


def windows(x: np.ndarray, kernel: int, after: int, dilation: int = 1) -> np.ndarray:
    """[t kernel w]: each token's neighbours, zeros beyond the ends."""
    padded = np.pad(x, ((dilation * (kernel - 1) - after, after), (0, 0)))
    return np.stack([padded[j * dilation : j * dilation + len(x)] for j in range(kernel)], 1)


def convolution(piece: Any, x: np.ndarray, ahead: bool, kernel: int) -> np.ndarray:
    kind, near = type(piece).__name__, partial(windows, kernel=kernel, after=kernel // 2 if ahead else 0)
    if kind == "Convolution":
        return affine(piece.out, near(x).reshape(len(x), -1))
    if kind == "GatedConvolution":
        flat = near(x).reshape(len(x), -1)
        return affine(piece.out, flat) * sigmoid(affine(piece.gate, flat))
    u = affine(piece.hidden, x) * sigmoid(affine(piece.gate, x))
    if kind == "LightweightConvolution":
        mixed = np.einsum("tkw,kw->tw", near(u), softmax(array(piece.taps), 0))
    else:
        mixed = np.einsum("tkw,tkw->tw", near(u), softmax(affine(piece.taps, u).reshape(len(x), kernel, WIDTH), 1))
    return affine(piece.out, affine(piece.pointwise, mixed + array(piece.shift)))


def dilated(piece: Any, x: np.ndarray, ahead: bool, dilation: int) -> np.ndarray:
    u = np.maximum(affine(piece.down, np.maximum(x, 0)), 0)
    near = windows(u, 3, dilation if ahead else 0, dilation).reshape(len(x), -1)
    return affine(piece.out, np.maximum(affine(piece.taps, near), 0))


def states(part: Any, x: np.ndarray) -> np.ndarray:
    """h of every token, by an LSTM or a GRU."""
    h, c, found = np.zeros(WIDTH), np.zeros(WIDTH), []
    for token in x:
        if hasattr(part, "shift"):
            i, f, o, g = np.split(affine(part.input, token) + affine(part.recurrent, h) + array(part.shift), 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        else:
            ours, theirs = np.split(affine(part.input, token), 3), np.split(affine(part.recurrent, h), 3)
            r, z = (sigmoid(one + other) for one, other in zip(ours[:2], theirs[:2], strict=True))
            h = (1 - z) * np.tanh(ours[2] + r * theirs[2]) + z * h
        found.append(h)
    return np.array(found).reshape(-1, WIDTH)


def recurrence(piece: Any, x: np.ndarray, ahead: bool) -> np.ndarray:
    h = states(piece.forwards, x)
    if piece.backwards is not None:
        h = np.concatenate([h, states(piece.backwards, x[::-1])[::-1]], -1)
    return affine(piece.out, h)


def projected(piece: Any, x: np.ndarray) -> list[np.ndarray]:
    return [affine(part, x) for part in (piece.query, piece.key, piece.value)]


def of_heads(piece: Any, x: np.ndarray) -> Any:
    return enumerate(zip(*(np.split(part, 2, -1) for part in projected(piece, x)), strict=True))


def phi(piece: Any, x: np.ndarray) -> np.ndarray:
    if not isinstance(piece, Performer):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    rows = array(linear_attention._orthogonal(10, x.shape[-1], 2, 0, 0))
    x = x / x.shape[-1] ** 0.25
    return np.exp(x @ rows.T - (x**2).sum(-1, keepdims=True) / 2) / np.sqrt(10)


def by_kernel(piece: Any, x: np.ndarray, ahead: bool) -> np.ndarray:
    heads = []
    for _, (q, k, v) in of_heads(piece, x):
        weights = phi(piece, q) @ phi(piece, k).T
        weights = weights if ahead else np.tril(weights)
        heads.append(weights / weights.sum(1, keepdims=True) @ v)
    return affine(piece.out, np.concatenate(heads, 1))


def linformer(piece: Any, x: np.ndarray, ahead: bool) -> np.ndarray:
    heads, maps = [], [array(piece.onto_keys.weight), array(piece.onto_values.weight)]
    for head, (q, k, v) in of_heads(piece, x):
        e, f = (part[head % len(part)][:, : len(x)] for part in maps)
        heads.append(softmax(q @ (e @ k).T / 2) @ (f @ v))
    return affine(piece.out, np.concatenate(heads, 1))


def memory_compressed(piece: Any, x: np.ndarray, ahead: bool, stride: int = 4) -> np.ndarray:
    q, k, v = projected(piece, x)
    compressed = []
    for part, by in ((k, piece.compress_keys), (v, piece.compress_values)):
        whole = np.concatenate([part, np.zeros((-len(x) % stride, WIDTH))]).reshape(-1, stride * WIDTH)
        compressed.append(np.concatenate([np.zeros((1, WIDTH)), affine(by, whole)]))
    ends = np.array([-1, *range(stride - 1, len(x) + stride - 1, stride)])
    return affine(piece.out, attended(q, *compressed, 2, ahead | (ends <= np.arange(len(x))[:, None]), 0.5))


def weighted(piece: Any, x: np.ndarray, ahead: bool) -> np.ndarray:
    """Each head is a branch with a weight of its own."""
    kappa, alpha = softmax(array(piece.kappa)), softmax(array(piece.alpha))
    heads = np.split(attended(*projected(piece.mixer, x), 2, ahead | (np.tri(len(x)) > 0), 0.5), 2, -1)
    inputs = [share * h @ own.T for share, h, own in zip(kappa, heads, np.split(array(piece.out.weight), 2, -1))]
    hidden = [np.maximum(affine(piece.channel.hidden, one), 0) for one in inputs]
    return np.sum([share * affine(piece.channel.out, h) for share, h in zip(alpha, hidden, strict=True)], 0)


def synthesizer(piece: Any, x: np.ndarray, ahead: bool, mix: str) -> np.ndarray:
    n, values, mixed = len(x), np.split(affine(piece.value, x), 2, -1), []
    for h in range(2):
        if hasattr(piece, "table"):
            logits = array(piece.table)[:n, h, :n]
        elif hasattr(piece, "rows"):
            logits = array(piece.rows)[:n, h] @ array(piece.columns)[:n, h].T
        else:
            logits = np.maximum(np.split(affine(piece.query, x), 2, -1)[h], 0) @ array(piece.columns.weight)[:n].T
        if mix != "none":
            q, k = (np.split(affine(part, x), 2, -1)[h] for part in (piece.query, piece.key))
            share = 0.5 if mix == "plus" else sigmoid(array(piece.share))
            logits = (share * logits + (1 - share) * q @ k.T / 2) * (2 if mix == "plus" else 1)
        mixed.append(softmax(np.where(ahead | (np.tri(n) > 0), logits, -np.inf)) @ values[h])
    return affine(piece.out, np.concatenate(mixed, -1))


SYNTHESIZERS = [f"{kind}Synthesizer" for kind in ("Dense", "Random", "Factorized")]
CONVOLUTIONS = [f"{kind}Convolution" for kind in ("", "Gated", "Lightweight", "Dynamic")]
DILATED = {"kind": "DilatedConvolution", "activation": "ReLU", "norm": "NoNorm"}
MIXERS: list[tuple[dict[str, Any], Any]] = [
    *(
        ({"kind": kind, "kernel": kernel}, partial(convolution, kernel=kernel))
        for kind, kernel in itertools.product(CONVOLUTIONS, (1, 4, 5, 30))
    ),
    *(({**DILATED, "dilations": [dilation]}, partial(dilated, dilation=dilation)) for dilation in (1, 3)),
    *(({"kind": kind}, recurrence) for kind in ("LSTM", "GRU", "BidirectionalLSTM", "BidirectionalGRU")),
    ({"kind": "LinearAttention"}, by_kernel),
    ({"kind": "Performer", "features": 10, "seed": 2}, by_kernel),
    *(({"kind": "Linformer", "projected": 7, "sharing": sharing}, linformer) for sharing in ("none", "headwise", "kv")),
    ({"kind": "MemoryCompressed", "stride": 4}, memory_compressed),
    *(
        ({"kind": kind, "mix": mix, "length": LENGTH + 3}, partial(synthesizer, mix=mix))
        for kind, mix in itertools.product(SYNTHESIZERS, ("none", "plus", "alpha"))
    ),
    ({"kind": "Weighted", "mixer": "Attention", "channel": {"kind": "Dense", "activation": "ReLU"}}, weighted),
]


@pytest.mark.parametrize(("line", "formula"), MIXERS, ids=[" ".join(map(str, line.values())) for line, _ in MIXERS])
def test_a_mixer_is_its_formula_in_every_document(line, formula, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 4)
    piece = made("mixer", line, SHAPE, 0.5)
    if line["kind"] == "Linformer":
        assert len(piece.onto_keys.weight) == (2 if line["sharing"] == "none" else 1)
        assert (piece.onto_keys is piece.onto_values) == (line["sharing"] == "kv")
    ahead_only = line["kind"] == "Linformer" or "Bidirectional" in line["kind"]
    for ahead, documents in itertools.product((True,) if ahead_only else (True, False), (None, PACKED)):
        now = context(SHAPE, "Bidirectional" if ahead else "Causal", rows=ROWS, documents=documents)
        each_document(piece(X, now), X, documents, lambda x, ahead=ahead: formula(piece, x, ahead))


def test_a_convolution_under_a_prefix_looks_ahead_within_it():
    piece, prefix = made("mixer", {"kind": "Convolution", "kernel": 3}, SHAPE), torch.tensor([2, 5, 0])
    found = array(piece(X, context(SHAPE, "Prefix", rows=ROWS, prefix=prefix)))
    for row, n in enumerate(prefix.tolist()):
        near = windows(array(X[row]), 3, 1)
        near[max(0, n - 1) :, 2] = 0  # what comes after it, from the last token of the prefix on
        np.testing.assert_allclose(found[row], affine(piece.out, near.reshape(LENGTH, -1)), atol=1e-12)


def test_training_draws_the_features_of_a_performer_anew_and_evaluation_uses_the_first():
    piece, now, found = Performer(SHAPE, features=6, redraw=10).double(), context(SHAPE, rows=ROWS), {}
    for step, trains in itertools.product((0, 9, 10), (True, False)):
        piece.train(trains).at_step(step)
        found[step, trains] = piece(X, now)
    assert torch.equal(found[0, True], found[9, True])
    assert not torch.equal(found[9, True], found[10, True])
    assert torch.equal(found[0, False], found[10, False])


@pytest.mark.parametrize("kind", [*SYNTHESIZERS, "Linformer"])
def test_a_sequence_beyond_the_positions_of_a_mixer_is_refused_and_padding_is_none(kind):
    line = {"kind": kind, **({"projected": 7} if kind == "Linformer" else {})}
    piece, x = made("mixer", line, SHAPE, None), draw(ROWS, LENGTH + 1, WIDTH)
    refuses("longer than the 13", piece, x, context(SHAPE, "Bidirectional", rows=ROWS, length=LENGTH + 1))
    padded = torch.tensor([[0] + [1] * LENGTH] * ROWS)  # one token more, and no position more
    assert piece(x, context(SHAPE, "Bidirectional", rows=ROWS, documents=padded, length=LENGTH + 1)).isfinite().all()


SEEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])  # source tokens that are not padding
SINGLE = {
    "additive": "AdditiveAttention",
    "general": "MultiplicativeAttention",
    "dot": {"kind": "MultiplicativeAttention", "score": "dot"},
    "context": {"kind": "MultiplicativeAttention", "output": "context"},
    "aligned": "Aligned",
}


@pytest.mark.parametrize("line", SINGLE)
def test_cross_attention_of_one_head_and_by_place_is_its_formula(line):
    piece, memory, shown = made("cross", SINGLE[line], SHAPE), draw(ROWS, 5, WIDTH, seed=1), []
    now = context(SHAPE, rows=ROWS, memory=memory, memory_documents=SEEN, weights=shown.append)
    found = array(piece(X, now))
    for row, t in itertools.product(range(ROWS), range(LENGTH)):
        m, token = array(memory[row])[: int(SEEN[row].sum())], array(X[row, t])
        if line == "aligned":
            c = m[t] if t < len(m) else np.zeros(WIDTH)
        else:
            query = token if line == "dot" else affine(piece.query, token)
            if line == "additive":
                weights = softmax(np.tanh(query + affine(piece.key, m)) @ array(piece.score.weight)[0])
            else:
                weights = softmax(m @ query)
            np.testing.assert_allclose(array(shown[0])[row, 0, t, : len(weights)], weights, atol=1e-12)
            c = weights @ m
        expected = affine(piece.out, c if line in ("additive", "context") else np.concatenate([c, token]))
        expected = np.tanh(expected) if line in ("general", "dot") else expected
        np.testing.assert_allclose(found[row, t], expected, atol=1e-12)
