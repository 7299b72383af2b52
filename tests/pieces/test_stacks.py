"""Stacks against their papers in float64: the Universal and the Funnel Transformer, and what a decoder reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.model.stacks import ACT, Transparent
from scaling.training.parametrization import Standard, initialise
from tests.pieces.formulas import affine, array, context, draw, shape, sigmoid


def built(family: str, *changes: str, layers: int = 6) -> Any:
    size = f"size={{width: 16, layers: {layers}, heads: 2, vocabulary: 31, length: 24}}"
    config = load(family, [size, *changes])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    return initialise(model, Standard(head="normal"), 0).double().eval()


def tokens(*sizes: int) -> torch.Tensor:
    return torch.randint(0, 31, sizes, generator=torch.Generator().manual_seed(0))


def waves(at: np.ndarray, width: int) -> np.ndarray:
    angle = at[..., None] / 10000 ** (np.arange(0, width, 2) / width)
    return np.stack([np.sin(angle), np.cos(angle)], -1).reshape(*at.shape, width)


def test_one_block_runs_for_every_layer():
    """h ← block(h + P_i + P_t), t = 1 … N, between two runs without coordinates."""
    stack = built(
        "encoder", "model.stack={kind: Universal, norm: RMSNorm, before: 1, after: 1}", layers=3
    ).encoder.stack
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
    assert pondered is not None
    found = act.answer(pondered, now)
    expected = [graves([array(s[0, i]) for s in states], act.halt, 0.05) for i in range(4)]
    np.testing.assert_allclose(array(found[0]), np.stack([mean for mean, _ in expected]), rtol=1e-12)
    assert now.notes.losses["ponder"].item() == pytest.approx(np.mean([cost for _, cost in expected]), rel=1e-12)


def test_a_stage_begins_with_pooled_queries_and_keys_at_full_length():
    """h ← pool(h) + softmax(q(pool(norm h)) k(norm h)ᵀ + B) v(norm h) W, B at the positions of both."""
    model = built("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: NoNorm, stages: 2}", layers=2)
    stack = model.encoder.stack
    entering: list[torch.Tensor] = []
    made: list[torch.Tensor] = []
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
        heads = []
        for i, parts in enumerate(zip(*(np.split(part, 2, -1) for part in (q, k, v)), strict=True)):
            weights = np.exp(parts[0] @ parts[1].T + bias[i])
            heads.append(weights / weights.sum(-1, keepdims=True) @ parts[2])
        expected = pooled[1] + affine(piece.out, np.concatenate(heads, -1))
        np.testing.assert_allclose(array(made[0])[row], expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        "model.position=RelativeBias",
        "model.position=TransformerXL",
        "model.encoder.pattern={kind: Window, size: 5, pattern: Bidirectional}",
        "model.encoder.block.branches=[channel, mixer, channel, mixer]",
        "model.encoder.block.mixer={kind: Weighted, mixer: Attention, channel: {kind: Dense, activation: GeLU}}",
    ],
)
def test_a_packed_batch_is_read_as_its_documents_alone(change):
    model = built("encoder_decoder", change, "model.encoder.stack={kind: Funnel, norm: RMSNorm}")
    documents = torch.tensor([[0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 0], [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]])
    source = tokens(2, 11)
    found = model.encoder(Batch(source, source, documents))
    for row in range(2):
        for document in range(1, int(documents[row].max()) + 1):
            text = source[row][documents[row] == document][None]
            alone = model.encoder(Batch(text, text)).hidden[0]
            there = found.hidden[row][found.documents[row] == document]
            torch.testing.assert_close(there, alone, rtol=0, atol=1e-12)


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
    for found, expected in zip(layers, [encoder.embedding.table[source], *streams[:-1], output.hidden], strict=True):
        assert torch.equal(found, expected)
    memory = Transparent(3, 2).double()
    torch.nn.init.normal_(memory.weight)
    shares = np.exp(array(memory.weight).reshape(2, 4))
    for share, found in zip(shares / shares.sum(1, keepdims=True), memory(layers), strict=True):
        expected = sum(weight * array(layer) for weight, layer in zip(share, layers, strict=True))
        np.testing.assert_allclose(array(found), expected, rtol=1e-12)
