"""Residuals, experts, product keys and stacks against their papers in float64, and what a decoder reads."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.blocks import GRU, Fixup, LayerNorm, NoNorm, ReZero
from scaling.model.channels import imbalance
from scaling.model.parameters import parameters
from scaling.model.stacks import ACT, Transparent
from scaling.training.parametrization import T5, Standard, initialise
from tests.model.test_variants import tokens
from tests.pieces.formulas import affine, array, attended, context, draw, made, shape, sigmoid

SHAPE = shape(8, 8)
BARE = ["model.block.norm=NoNorm", "model.stack.norm=NoNorm"]
ROWS, LENGTH, EXPERTS = 3, 10, 4
EXPERT = shape(6, LENGTH, hidden=16)
ROUTED = torch.tensor([[1] * LENGTH, [0] * 3 + [1] * 7, [1] * 4 + [2] * 4 + [0] * 2])
X = draw(2, 8, 8)


class Piece(nn.Module):
    """A piece that needs no context."""

    def __init__(self, function: Any = lambda x: 2 * x**2):
        super().__init__()
        self.function = function

    def forward(self, x, context):
        return self.function(x)


def test_rezero_fixup_and_the_gates_of_a_universal_transformer_are_their_formulas():
    rezero, fixup = (kind(SHAPE, lambda: LayerNorm(8), Piece()).double() for kind in (ReZero, Fixup))
    now = context(SHAPE, rows=2)
    assert torch.equal(rezero(X, now), X)
    torch.testing.assert_close(fixup(X, now), X + 2 * fixup.norm(X) ** 2)
    for parameter, value in ((rezero.alpha, 0.3), (fixup.shift, 0.1), (fixup.scale, 0.7), (fixup.offset, -0.2)):
        parameter.data.fill_(value)
    torch.testing.assert_close(rezero(X, now), X + 0.3 * 2 * rezero.norm(X) ** 2)
    torch.testing.assert_close(fixup(X, now), X + 0.7 * 2 * (fixup.norm(X) + 0.1) ** 2 - 0.2)
    piece: Any = nn.Linear(8, 8).double()
    gated: Any = GRU(SHAPE, lambda: NoNorm(8), Piece(piece)).double()
    h, y = array(X), affine(piece, array(X))
    u, r = (sigmoid(affine(part, np.concatenate([h, y], -1))) for part in (gated.gate.update, gated.gate.reset))
    candidate = sigmoid(affine(gated.gate.candidate, np.concatenate([r * h, y], -1)))
    np.testing.assert_allclose(array(gated(X, now)), h + (1 - u) * y + u * candidate, rtol=1e-12)


def built(family: str, *changes: str, layers: int = 6, start: Any = None) -> Any:
    size = f"size={{width: 16, layers: {layers}, heads: 2, vocabulary: 61, length: 24}}"
    config = load(family, [size, *changes])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    return initialise(model, start or Standard(head="normal"), 0).double().eval()


def test_the_rules_of_fixup_act():
    """Of a branch of m matrices in a model of L, all but the last are scaled by L^(-1/(2m − 2)); the last is zero."""
    fixup, plain = (
        {spec.name: p for spec, p in parameters(built("encoder_decoder", *each, "model.tie=[]", layers=3, start=T5()))}
        for each in ([*BARE, "model.block.residual=Fixup"], BARE)
    )
    for name, parameter in fixup.items():
        kind = name.split(".")[-2]
        if kind == "out" or name == "head.weight":
            assert not parameter.any(), name
        elif parameter.ndim > 1:
            power = {"query": -1 / 6, "key": -1 / 6, "value": -1 / 6, "hidden": -1 / 2}.get(kind, 0)
            torch.testing.assert_close(parameter, plain[name] * (3 * 2 + 3 * 3) ** power)
    # A gated channel has three matrices; a shared block counts each of its runs.
    line = ["model.block.channel={kind: Gated, activation: Swish}", "model.stack.distinct=1"]
    model = built("decoder", *BARE, "model.block.residual=Fixup", *line, layers=3, start=Standard())
    start = {spec.name.split(".")[-2]: spec.start for spec, _ in parameters(model) if ".channel.piece." in spec.name}
    assert start == {"gate": 6 ** (-1 / 4), "hidden": 6 ** (-1 / 4), "out": 0.0}


def transcribed(piece: Any, given: torch.Tensor, capacity: int | None) -> np.ndarray:
    """The papers' layer, position by position, each going to its experts while they have seats in its row."""
    gate, up, down = (array(p) for p in (piece.gate.weight, piece.experts.hidden.weight, piece.experts.out.weight))
    found = np.zeros(given.shape)
    for row, vectors in enumerate(given.numpy()):
        taken = np.zeros(len(gate), int)
        for place, vector in enumerate(vectors):
            if ROUTED[row, place] == 0:
                continue
            chances = np.exp(gate @ vector)
            chances /= chances.sum()
            chosen = np.argsort(-chances)[: piece.choices]
            weights = chances[chosen] / (1 if piece.choices == 1 else chances[chosen].sum())
            for expert, weight in zip(chosen, weights, strict=True):
                if capacity is None or taken[expert] < capacity:
                    found[row, place] += weight * down[expert] @ np.maximum(up[expert] @ vector, 0)
                taken[expert] += 1
    return found


@pytest.mark.parametrize("kind", ["MixtureOfExperts", "Switch"])
@pytest.mark.parametrize("capacity", [0.4, 1.2, 4.0])
def test_experts_are_their_formula_and_their_loss_of_balance_is_added_by_its_weight(kind, capacity):
    """In training each expert has so many seats in a row."""
    line = {"kind": kind, "activation": "ReLU", "experts": EXPERTS, "capacity": capacity, "balance": 1.0}
    piece, given = made("channel", line, EXPERT), draw(ROWS, LENGTH, 6, seed=1)
    once, twice, last = (context(EXPERT, "Bidirectional", rows=ROWS, documents=ROUTED) for _ in range(3))
    seats = max(1, int(capacity * LENGTH / EXPERTS))
    for each, found in ((seats, piece(given, once)), (None, piece.eval()(given, last))):
        np.testing.assert_allclose(array(found), transcribed(piece, given, each), rtol=1e-12, atol=1e-12)
    piece.train().balance = 0.5
    piece(given, twice)
    assert twice.notes.losses["balance"] == once.notes.losses["balance"] / 2
    piece(given, twice)
    assert twice.notes.losses["balance"] == once.notes.losses["balance"]


def test_the_loss_of_balance():
    """f = (3/4, 1/4, 0, 0), P = (.4, .3, .2, .1): 4 (.3 + .075); where the last is padding f = (2/3, 1/3, 0, 0)."""
    uneven, there = torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(1, 4, 4), torch.tensor([[True, True, True, False]])
    assert imbalance(torch.full((1, 4, 4), 0.25), torch.tensor([[0, 1, 2, 3]]), there | True) == 1
    assert imbalance(uneven, torch.tensor([[0, 0, 1, 0]]), there | True).item() == pytest.approx(1.5)
    found = imbalance(uneven, torch.tensor([[0, 0, 1, 3]]), there).item()
    assert found == pytest.approx(4 * (0.4 * 2 / 3 + 0.3 / 3))
    assert imbalance(uneven, torch.tensor([[0, 0, 1, 3]]), there & False) == 0


@pytest.mark.parametrize(("nearest", "norm"), [(1, "NoNorm"), (3, "LayerNorm")])
def test_product_keys_equal_a_search_of_every_pair(nearest, norm):
    own, heads, keys, half = shape(6, 5), 2, 7, 4
    line = {"kind": "ProductKeys", "norm": norm, "heads": heads, "keys": keys, "key_width": 8, "nearest": nearest}
    piece, given = made("channel", line, own), draw(2, 5, 6)
    table, values = array(piece.keys), array(piece.out.weight)
    expected = np.zeros((2, 5, 6))
    for place in itertools.product(range(2), range(5)):
        query = affine(piece.query, array(given[place])).reshape(heads, 2, half)
        for head in range(heads):
            parts = array(piece.norm(torch.from_numpy(query[head])))
            pairs = itertools.product(range(keys), range(keys))
            scores = {(a, b): parts[0] @ table[head, 0, a] + parts[1] @ table[head, 1, b] for a, b in pairs}
            best = sorted(scores, key=lambda pair: -scores[pair])[:nearest]
            weights = np.exp([scores[pair] - scores[best[0]] for pair in best])
            for pair, weight in zip(best, weights / weights.sum(), strict=True):
                expected[place] += weight * values[pair]
    found = array(piece(given, context(own, "Bidirectional", rows=2)))
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def waves(at: np.ndarray, width: int) -> np.ndarray:
    angle = at[..., None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(*at.shape, width)


def test_one_block_runs_for_every_layer():
    """h ← block(h + P_i + P_t), t = 1 … N, between two runs without coordinates."""
    line = "model.stack={kind: Universal, norm: RMSNorm, before: 1, after: 1}"
    stack = built("encoder", line, layers=3).encoder.stack
    x, of = draw(2, 5, 16), shape(16, 5, 2)

    def now() -> Any:
        pass_ = context(of, "Bidirectional", rows=2)
        pass_.position = stack.position(0)
        return pass_

    h = stack.blocks[0](x, now())
    for t in range(1, 4):
        both = waves(np.arange(5), 16) + waves(np.array(t), 16)
        h = stack.blocks[0](h + torch.from_numpy(both), now())
    expected = stack.norm(stack.blocks[0](h, now()))
    torch.testing.assert_close(stack(x, now()), expected, rtol=1e-10, atol=1e-12)
    assert stack.executions == 5


def graves(states: list[np.ndarray], halt: Any, rest: float) -> tuple[np.ndarray, float]:
    """y = Σ p_n s_n and N + R of one position, by formulas 5 to 13 of the paper."""
    spent, mean = 0.0, np.zeros_like(states[0])
    for n, state in enumerate(states, 1):
        p = sigmoid(affine(halt, state))[0]
        if spent + p >= 1 - rest or n == len(states):
            return mean + (1 - spent) * state, n + 1 - spent
        spent, mean = spent + p, mean + p * state
    raise AssertionError


@pytest.mark.parametrize("bias", [-3.0, 0.0, 3.0])
def test_halting_is_that_of_the_paper(bias):
    act = ACT(6, rest=0.05, cost=1.0).double()
    torch.nn.init.constant_(act.halt.bias, bias)
    states = [draw(1, 4, 6, seed=seed) for seed in range(7)]
    x, pondered = torch.zeros_like(states[0]), None
    for step, state in enumerate(states):
        x, pondered = act(x, state, pondered, last=step == 6)
    now = context(shape(6, 4))
    found = act.answer(pondered, now)
    expected = [graves([array(s[0, i]) for s in states], act.halt, 0.05) for i in range(4)]
    np.testing.assert_allclose(array(found[0]), np.stack([mean for mean, _ in expected]), rtol=1e-12)
    assert now.notes.losses["ponder"].item() == pytest.approx(np.mean([cost for _, cost in expected]), rel=1e-12)


def test_a_stage_begins_with_pooled_queries_and_keys_at_full_length():
    """h ← pool(h) + softmax(q(pool(norm h)) k(norm h)ᵀ + B) v(norm h) W, B at the positions of both."""
    model = built("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: NoNorm, stages: 2}", layers=2)
    stack = model.encoder.stack
    entering, made = [], []
    branch = stack.blocks[1].branches["mixer"]
    branch.register_forward_pre_hook(lambda module, inputs: entering.append(inputs[0]))
    branch.register_forward_hook(lambda module, inputs, output: made.append(output))
    model.encoder(Batch(tokens(2, 7), tokens(2, 7)))
    at = torch.arange(0, 7, 2)[None], torch.arange(7)[None]
    bias = array(stack.positions[0].score(torch.zeros(1, 4, 2, 8), torch.zeros(1, 7, 2, 8), *at))[0]
    for row, h in enumerate(array(entering[0])):
        mean = h.mean(-1, keepdims=True)
        norm, piece = branch.norm, branch.piece
        n = (h - mean) / np.sqrt(h.var(-1, keepdims=True) + norm.eps) * array(norm.gain) + array(norm.bias)
        pooled = [np.stack([x[i : i + 2].mean(0) for i in range(0, 7, 2)]) for x in (n, h)]
        q, k, v = affine(piece.query, pooled[0]), affine(piece.key, n), affine(piece.value, n)
        expected = pooled[1] + affine(piece.out, attended(q, k, v, 2, True, 1.0, bias))
        np.testing.assert_allclose(array(made[0])[row], expected, rtol=1e-9, atol=1e-12)


def test_upsampling_repeats_and_adds_the_first_stage():
    for layers, expected in ((5, [2, 2, 1]), (2, [1, 1]), (3, [1, 1, 1])):  # the first stages take what is over
        line = "model.stack={kind: UpsampledFunnel, norm: NoNorm, decoder: 0}"
        model = built("encoder", line, "model.tie=[]", layers=layers)
        assert [len(stage) for stage in model.encoder.stack.stages] == expected
    made: list[torch.Tensor] = []
    for block in model.encoder.stack.blocks:
        block.register_forward_hook(lambda module, inputs, output: made.append(output))
    found = model(Batch(tokens(2, 7), tokens(2, 7))).hidden
    first, _, last = made
    assert [x.shape[1] for x in made] == [7, 4, 2]
    assert torch.equal(found, first + last.repeat_interleave(4, 1)[:, :7])


def test_each_reader_of_a_transparent_encoder_reads_its_own_mean_of_the_embedding_and_all_layers():
    encoder = built("encoder_decoder", "model.memory=Transparent", layers=3).encoder
    streams: list[torch.Tensor] = []
    for block in encoder.stack.blocks:
        block.register_forward_hook(lambda module, given, made: streams.append(made))
    source, layers = tokens(2, 6), []
    output = encoder(Batch(source, source), layers=layers)
    expected = [encoder.embedding.table[source], *streams[:-1], output.hidden]
    torch.testing.assert_close(layers, expected, rtol=0, atol=0)
    memory = Transparent(3, 2).double()
    torch.nn.init.normal_(memory.weight)
    shares = np.exp(array(memory.weight).reshape(2, 4))
    for share, found in zip(shares / shares.sum(1, keepdims=True), memory(layers), strict=True):
        expected = sum(weight * array(layer) for weight, layer in zip(share, layers, strict=True))
        np.testing.assert_allclose(array(found), expected, rtol=1e-12)
