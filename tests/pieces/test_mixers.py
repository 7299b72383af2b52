"""Mixers against their papers' formulas, document by document in float64 numpy; what they keep, refuse and cost."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

import itertools
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
import torch

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.model.cost import cost
from scaling.model.mixer import Performer, linear_attention
from tests.pieces.formulas import affine, array, attended, context, draw, each_document, made, shape, sigmoid, softmax

ROWS, LENGTH, WIDTH = 3, 13, 8
SHAPE = shape(WIDTH, LENGTH, 2)
PACKED = torch.tensor([[1] * 4 + [2] * 9, [1] * 13, [0] * 2 + [1] * 8 + [0] * 3])
X = draw(ROWS, LENGTH, WIDTH)


def check(piece: Any, written: Any, pattern: str = "Bidirectional", documents: Any = None, **given: Any) -> None:
    """A mixer computes of every document what the formula does."""
    now = context(SHAPE, pattern, rows=ROWS, documents=documents, **given)
    each_document(piece(X, now), X, documents, written)


BOTH = pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
AHEAD = pytest.mark.parametrize("pattern", ["Causal", "Bidirectional"])


def windows(x: np.ndarray, kernel: int, ahead: bool, dilation: int = 1) -> np.ndarray:
    """[t kernel w]: each token's neighbours, zeros beyond the ends."""
    after = dilation * (kernel - 1) // 2 if ahead else 0
    if ahead and dilation == 1:
        after = kernel // 2
    padded = np.pad(x, ((dilation * (kernel - 1) - after, after), (0, 0)))
    return np.stack([padded[j * dilation : j * dilation + len(x)] for j in range(kernel)], 1)


def convolution(piece: Any, x: np.ndarray, kernel: int, ahead: bool) -> np.ndarray:
    kind = type(piece).__name__
    if kind == "Convolution":
        return affine(piece.out, windows(x, kernel, ahead).reshape(len(x), -1))
    if kind == "GatedConvolution":
        near = windows(x, kernel, ahead).reshape(len(x), -1)
        return affine(piece.out, near) * sigmoid(affine(piece.gate, near))
    u = affine(piece.hidden, x) * sigmoid(affine(piece.gate, x))
    if kind == "LightweightConvolution":
        mixed = np.einsum("tkw,kw->tw", windows(u, kernel, ahead), softmax(array(piece.taps), 0))
    else:
        weights = softmax(affine(piece.taps, u).reshape(len(x), kernel, WIDTH), 1)
        mixed = np.einsum("tkw,tkw->tw", windows(u, kernel, ahead), weights)
    return affine(piece.out, affine(piece.pointwise, mixed + array(piece.shift)))


@AHEAD
@pytest.mark.parametrize("kind", ["Convolution", "GatedConvolution", "LightweightConvolution", "DynamicConvolution"])
def test_a_convolution_is_its_formula(kind, pattern):
    for kernel, documents in ((4, None), (1, PACKED), (5, PACKED), (30, PACKED)):
        piece = made("mixer", {"kind": kind, "kernel": kernel}, SHAPE, 0.5)
        written = partial(convolution, piece, kernel=kernel, ahead=pattern == "Bidirectional")
        check(piece, written, pattern, documents)


def test_a_convolution_under_a_prefix_looks_ahead_within_it():
    piece, prefix = made("mixer", {"kind": "Convolution", "kernel": 3}, SHAPE), torch.tensor([2, 5, 0])
    found = array(piece(X, context(SHAPE, "Prefix", rows=ROWS, prefix=prefix)))
    for row, n in enumerate(prefix.tolist()):
        near = windows(array(X[row]), 3, True)
        near[max(0, n - 1) :, 2] = 0  # what comes after it, from the last token of the prefix on
        np.testing.assert_allclose(found[row], affine(piece.out, near.reshape(LENGTH, -1)), atol=1e-12)


@pytest.mark.parametrize("execution", [0, 1, 2])
def test_a_dilated_convolution_looks_back_by_its_layers_dilation(execution):
    line = {"kind": "DilatedConvolution", "activation": "ReLU", "norm": "NoNorm", "dilations": [1, 3]}
    piece = made("mixer", line, SHAPE)

    def written(x: np.ndarray) -> np.ndarray:
        u = np.maximum(affine(piece.down, np.maximum(x, 0)), 0)
        near = windows(u, 3, False, (1, 3)[execution % 2]).reshape(len(x), -1)
        return affine(piece.out, np.maximum(affine(piece.taps, near), 0))

    check(piece, written, "Causal", execution=execution)


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


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "BidirectionalLSTM", "BidirectionalGRU"])
def test_a_recurrence_is_its_formula(kind):
    piece, both = made("mixer", kind, SHAPE), "Bidirectional" in kind

    def written(x: np.ndarray) -> np.ndarray:
        h = states(piece.forwards, x)
        if both:
            h = np.concatenate([h, states(piece.backwards, x[::-1])[::-1]], -1)
        return affine(piece.out, h)

    for documents in (None, PACKED):
        check(piece, written, documents=documents)
        if not both:
            check(piece, written, "Causal", documents)


def projected(piece: Any, x: np.ndarray) -> list[np.ndarray]:
    return [affine(part, x) for part in (piece.query, piece.key, piece.value)]


KERNELS: dict[str, dict[str, Any]] = {
    "LinearAttention": {"kind": "LinearAttention"},
    "Performer": {"kind": "Performer", "features": 10, "seed": 2},
}


def phi(name: str, x: np.ndarray) -> np.ndarray:
    if name == "LinearAttention":
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    rows = array(linear_attention._orthogonal(10, x.shape[-1], 2, 0, 0))
    x = x / x.shape[-1] ** 0.25
    return np.exp(x @ rows.T - (x**2).sum(-1, keepdims=True) / 2) / np.sqrt(10)


@BOTH
@AHEAD
@pytest.mark.parametrize("name", KERNELS)
def test_attention_by_a_kernel_is_the_formula(name, pattern, documents, monkeypatch):
    monkeypatch.setattr(linear_attention, "CHUNK", 4)
    piece = made("mixer", KERNELS[name], SHAPE, None)

    def written(x: np.ndarray) -> np.ndarray:
        heads = []
        for q, k, v in zip(*(np.split(part, 2, -1) for part in projected(piece, x)), strict=True):
            weights = phi(name, q) @ phi(name, k).T
            weights = np.tril(weights) if pattern == "Causal" else weights
            heads.append(weights / weights.sum(1, keepdims=True) @ v)
        return affine(piece.out, np.concatenate(heads, 1))

    check(piece, written, pattern, documents)


def test_the_error_of_a_performer_falls_with_the_root_of_its_features():
    # Longer vectors need many more features before the law of large numbers holds.
    q, k, v = (draw(1, 64, 1, 16, seed=seed) / 2 for seed in range(3))
    exact = (q[0, :, 0] @ k[0, :, 0].T / 4).softmax(-1) @ v[0, :, 0]
    own = shape(16, 64)
    now, counts, errors = context(own, "Bidirectional"), (32, 512), []
    for count in counts:
        squares = []
        for seed in range(16):
            piece = Performer(own, features=count, seed=seed).double()
            q_features, k_features = piece.features(q, k, now)
            weights = q_features[0, :, 0] @ k_features[0, :, 0].T
            found = weights / weights.sum(-1, keepdim=True) @ v[0, :, 0]
            squares.append((found - exact).square().mean().item())
        errors.append(np.sqrt(np.mean(squares)))
    assert np.polyfit(np.log(counts), np.log(errors), 1)[0] == pytest.approx(-0.5, abs=0.1)


def test_a_draw_is_a_function_of_the_step_and_evaluation_uses_the_first():
    piece, now = Performer(SHAPE, features=6, redraw=10).double(), context(SHAPE, rows=ROWS)

    def at(step: int, train: bool) -> torch.Tensor:
        piece.train(train).at_step(step)
        return piece(X, now)

    assert torch.equal(at(0, True), at(9, True))
    assert not torch.equal(at(9, True), at(10, True))
    again = at(57, True)
    assert torch.equal(at(3, False), at(57, False))
    assert torch.equal(at(57, True), again)
    fixed = Performer(SHAPE, features=6, redraw=None)
    fixed.at_step(1000)
    assert fixed.draw == 0


@pytest.mark.parametrize("sharing", ["none", "headwise", "kv"])
def test_linformer_is_its_formula(sharing):
    piece = made("mixer", {"kind": "Linformer", "projected": 7, "sharing": sharing}, SHAPE, None)
    onto_keys, onto_values = array(piece.onto_keys.weight), array(piece.onto_values.weight)
    assert len(onto_keys) == (2 if sharing == "none" else 1)
    assert np.array_equal(onto_keys, onto_values) == (sharing == "kv")

    def written(x: np.ndarray) -> np.ndarray:
        heads = []
        for head, (q, k, v) in enumerate(zip(*(np.split(part, 2, -1) for part in projected(piece, x)), strict=True)):
            e, f = (part[head % len(part)][:, : len(x)] for part in (onto_keys, onto_values))
            heads.append(softmax(q @ (e @ k).T / 2) @ (f @ v))
        return affine(piece.out, np.concatenate(heads, 1))

    for documents in (None, PACKED):
        check(piece, written, documents=documents)


@BOTH
@AHEAD
def test_memory_compressed_attention_is_its_formula(pattern, documents):
    stride, piece = 4, made("mixer", {"kind": "MemoryCompressed", "stride": 4}, SHAPE, None)

    def written(x: np.ndarray) -> np.ndarray:
        q, k, v = projected(piece, x)
        compressed = []
        for part, by in ((k, piece.compress_keys), (v, piece.compress_values)):
            whole = np.concatenate([part, np.zeros((-len(x) % stride, WIDTH))]).reshape(-1, stride * WIDTH)
            compressed.append(np.concatenate([np.zeros((1, WIDTH)), affine(by, whole)]))
        ends = np.array([-1, *range(stride - 1, len(x) + stride - 1, stride)])
        seen = (ends <= np.arange(len(x))[:, None]) | (pattern != "Causal")
        return affine(piece.out, attended(q, *compressed, 2, seen, 0.5))

    check(piece, written, pattern, documents)


SYNTHESIZERS = [f"{kind}Synthesizer" for kind in ("Dense", "Random", "Factorized")]


@pytest.mark.parametrize("position", ["NoPosition", "RelativeBias"])
@pytest.mark.parametrize(("kind", "mix"), [*itertools.product(SYNTHESIZERS, ("none", "plus", "alpha"))])
def test_a_synthesizer_is_the_papers(kind, mix, position):
    piece = made("mixer", {"kind": kind, "mix": mix, "length": LENGTH + 3}, SHAPE, 0.5)
    pattern = "Bidirectional" if position == "NoPosition" else "Causal"
    now = context(SHAPE, pattern, position=position, rows=ROWS)

    def synthetic(x: np.ndarray, h: int) -> np.ndarray:
        """R of one head for tokens at positions 0 … n − 1."""
        n = len(x)
        if kind == "DenseSynthesizer":
            return np.maximum(np.split(affine(piece.query, x), 2, -1)[h], 0) @ array(piece.columns.weight)[:n].T
        if kind == "RandomSynthesizer":
            return array(piece.table)[:n, h, :n]
        return array(piece.rows)[:n, h] @ array(piece.columns)[:n, h].T

    def written(x: np.ndarray) -> np.ndarray:
        at, values, mixed = torch.arange(len(x))[None], np.split(affine(piece.value, x), 2, -1), []
        for h in range(2):
            logits = synthetic(x, h)
            if mix != "none":
                q, k = (np.split(affine(part, x), 2, -1)[h] for part in (piece.query, piece.key))
                share = 0.5 if mix == "plus" else sigmoid(array(piece.share))
                logits = (share * logits + (1 - share) * q @ k.T / 2) * (2 if mix == "plus" else 1)
            if position == "RelativeBias":
                logits = logits + array(now.position.score(X, X, at, at))[0, h]
            logits = np.where(np.tri(len(x)) > 0, logits, -np.inf) if pattern == "Causal" else logits
            mixed.append(softmax(logits) @ values[h])
        return affine(piece.out, np.concatenate(mixed, -1))

    for documents in (None, PACKED):
        check(piece, written, pattern, documents, position=position)


@pytest.mark.parametrize("kind", [*SYNTHESIZERS, "Linformer"])
def test_a_sequence_beyond_the_positions_of_a_mixer_is_refused_and_padding_is_none(kind):
    line = {"kind": kind, **({"projected": 7} if kind == "Linformer" else {})}
    piece, x = made("mixer", line, SHAPE, None), draw(ROWS, LENGTH + 1, WIDTH)
    with pytest.raises(ScalingError, match="longer than the 13"):
        piece(x, context(SHAPE, "Bidirectional", rows=ROWS, length=LENGTH + 1))
    padded = torch.tensor([[0] + [1] * LENGTH] * ROWS)  # one token more, and no position more
    assert piece(x, context(SHAPE, "Bidirectional", rows=ROWS, documents=padded, length=LENGTH + 1)).isfinite().all()


@pytest.mark.parametrize(
    ("kind", "pattern", "position", "words"),
    [
        ("LinearAttention", "Prefix", "NoPosition", "the pattern Prefix is neither"),
        ("LinearAttention", "Causal", "ALiBi", "model.position: ALiBi adds to logits of pairs, and LinearAttention"),
        ("RandomSynthesizer", "Causal", "Shaw", "Shaw reads queries and keys, and RandomSynthesizer has none"),
        ("BidirectionalGRU", "Causal", "NoPosition", "looks back only"),
    ],
)
def test_what_a_position_or_a_pattern_asks_for_and_a_mixer_has_not_is_one_line(kind, pattern, position, words):
    with pytest.raises(ScalingError, match=words):
        made("mixer", kind, SHAPE, None)(X, context(SHAPE, pattern, position=position, rows=ROWS))


SEEN = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 0, 0, 0]])  # source tokens that are no padding
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


def test_each_head_of_a_weighted_transformer_is_a_branch():
    channel = {"kind": "Dense", "activation": "ReLU"}
    piece = made("mixer", {"kind": "Weighted", "mixer": {"kind": "Attention"}, "channel": channel}, SHAPE)
    kappa, alpha = softmax(array(piece.kappa)), softmax(array(piece.alpha))

    def written(x: np.ndarray) -> np.ndarray:
        q, k, v = projected(piece.mixer, x)
        heads = np.split(attended(q, k, v, 2, True, 0.5), 2, -1)
        rows = np.split(array(piece.out.weight), 2, -1)
        inputs = [share * head @ own.T for share, head, own in zip(kappa, heads, rows, strict=True)]
        hidden = [np.maximum(affine(piece.channel.hidden, one), 0) for one in inputs]
        return sum(share * affine(piece.channel.out, h) for share, h in zip(alpha, hidden, strict=True))  # pyright: ignore

    check(piece, written)


@pytest.mark.parametrize(
    ("line", "most"),
    [
        ("{kind: Longformer, window: 64, tokens: 4}", 0.3),
        ("{kind: LinearAttention}", 0.3),
        ("{kind: Performer, features: 32}", 0.3),
        ("{kind: Linformer, projected: 32}", 0.3),
        ("{kind: MemoryCompressed, stride: 8}", None),
    ],
)
def test_operations_grow_with_the_length_and_less_than_those_of_the_square(line, most):
    short, long, square = flops(1024, line), flops(4096, line), flops(4096, "Attention")
    assert long == 4 * short if most else long < 0.4 * square
    assert long < (most or 0.4) * square


@cache
def flops(length: int, mixer: str) -> float:
    size = f"size={{width: 32, layers: 1, heads: 4, vocabulary: 61, length: {length}}}"
    found = cost(load("encoder", [size, f"model.block.mixer={mixer}", "model.position=NoPosition"]))
    return found.flops_train_by_slot["mixer"]


def test_layers_that_share_a_projection_of_linformer_have_one():
    def parameters(sharing: str) -> int:
        size = "size={width: 16, layers: 3, heads: 2, vocabulary: 11, length: 32}"
        line = f"model.block.mixer={{kind: Linformer, projected: 8, sharing: {sharing}}}"
        return cost(load("encoder", [size, line, "model.position=NoPosition"])).parameters

    none, headwise, kv = map(parameters, ("none", "headwise", "kv"))
    assert (none - headwise, headwise - kv) == (3 * 2 * 8 * 32, 3 * 8 * 32)
