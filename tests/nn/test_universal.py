"""The Universal Transformer, its coordinates, its gates and its halting, against their formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from scaling.batch import Batch
from scaling.config import load
from scaling.nn.blocks import GRU, NoNorm
from scaling.nn.context import NOWHERE, Context, Mask, Places
from scaling.nn.stacks import ACT, _Coordinates
from scaling.shape import Shape
from scaling.training.parametrization import Standard, initialise

SHAPE = Shape.of({"width": 6, "layers": 5, "heads": 2, "vocabulary": 11, "length": 9})


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_coordinates_are_waves_of_place_and_step():
    x, positions = torch.zeros(1, 4, 6, dtype=torch.float64), torch.tensor([[0, 1, 5, 2]])
    found = _Coordinates(6, 3, time="sinusoidal", place="sinusoidal")(x, positions, step=1)
    for row, i in enumerate(positions[0].tolist()):
        for j in range(3):
            rate, t = 10000 ** (2 * j / 6), 2
            assert found[0, row, 2 * j].item() == pytest.approx(np.sin(i / rate) + np.sin(t / rate), abs=1e-12)
            assert found[0, row, 2 * j + 1].item() == pytest.approx(np.cos(i / rate) + np.cos(t / rate), abs=1e-12)


class _Said(torch.nn.Module):
    """A piece that needs no context."""

    def __init__(self, inner: torch.nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x, context):
        return self.inner(x)


def _context(rows: int, length: int) -> Context:
    places = Places.of(torch.zeros(rows, length, dtype=torch.long))
    return Context(places, places, Mask(), NOWHERE)


def test_gates_are_those_of_the_formula():
    piece: Any = torch.nn.Linear(6, 6).double()
    gated: Any = GRU(SHAPE, lambda: NoNorm(6), _Said(piece)).double()
    x = torch.randn(2, 3, 6, dtype=torch.float64)
    parts = {name: layer for name, layer in gated.gate.named_children() if name != "norm"}
    maps = {name: (p.weight.detach().numpy(), p.bias.detach().numpy()) for name, p in parts.items()}
    h, y = x.numpy(), piece(x).detach().numpy()

    def gate(name, a):
        weight, bias = maps[name]
        return sigmoid(np.concatenate([a, y], -1) @ weight.T + bias)

    u, r = gate("update", h), gate("reset", h)
    expected = h + (1 - u) * y + u * gate("candidate", r * h)
    np.testing.assert_allclose(gated(x, _context(2, 3)).detach().numpy(), expected, rtol=1e-12)


def graves(states, weight, bias, rest):
    """y = Σ p_n s_n and N + R of one position, by formulas 5 to 13 of the paper."""
    spent, mean = 0.0, np.zeros_like(states[0])
    for n, state in enumerate(states, 1):
        p = sigmoid(state @ weight + bias)
        if spent + p >= 1 - rest or n == len(states):
            return mean + (1 - spent) * state, n + 1 - spent
        spent, mean = spent + p, mean + p * state
    raise AssertionError


@pytest.mark.parametrize("bias", [-3.0, -1.0, 0.0, 3.0])
def test_halting_is_that_of_the_paper(bias):
    act = ACT(6, rest=0.05, cost=1.0).double()
    torch.nn.init.constant_(act.halt.bias, bias)
    states = [torch.randn(1, 4, 6, dtype=torch.float64) for _ in range(7)]
    x, pondered = torch.zeros_like(states[0]), None
    for step, state in enumerate(states):
        x, pondered = act(x, state, pondered, last=step == 6)
    context = _context(1, 4)
    assert pondered is not None
    found = act.answer(pondered, context)
    weight, offset = act.halt.weight.detach().numpy()[0], act.halt.bias.item()
    expected = [graves([s[0, i].numpy() for s in states], weight, offset, 0.05) for i in range(4)]
    np.testing.assert_allclose(found[0].detach().numpy(), np.stack([mean for mean, _ in expected]), rtol=1e-12)
    assert context.auxiliary["ponder"].item() == pytest.approx(np.mean([cost for _, cost in expected]), rel=1e-12)


def _halting_model(cost_of_a_step: float = 0.01) -> Any:
    stack = f"{{kind: Universal, norm: RMSNorm, halting: {{kind: ACT, cost: {cost_of_a_step}}}}}"
    config = load(
        "decoder", ["size={width: 16, layers: 4, heads: 2, vocabulary: 31, length: 12}", f"model.stack={stack}"]
    )
    with torch.device("meta"):
        model = config.build("model", config["size"])
    return initialise(model, Standard(head="normal"), 0).double()


def test_a_halted_position_answers_as_a_key_from_its_last_state():
    """What a block is given of a position that has halted is that position's last state."""
    torch.manual_seed(0)
    model = _halting_model()
    stack = model.decoder.stack
    torch.nn.init.normal_(stack.halting.halt.weight, std=2.0)
    seen: list[torch.Tensor] = []
    made: list[torch.Tensor] = []
    stack.coordinates.register_forward_pre_hook(lambda module, given: seen.append(given[0]))
    stack.blocks[0].register_forward_hook(lambda module, given, result: made.append(result))
    model(Batch(torch.randint(0, 31, (3, 8)), torch.zeros(3, 8, dtype=torch.long)))
    spent = torch.zeros(3, 8, dtype=torch.float64)
    running = torch.ones(3, 8, dtype=torch.bool)
    last = seen[0]
    for given, state in zip(seen, made, strict=True):
        assert torch.equal(given, last)
        last = torch.where(running[..., None], state, last)
        spent = spent + stack.halting.halt(state)[..., 0].sigmoid()
        running = running & (spent < 0.99)
    assert not running.all()
    assert running.any() or len(seen) == 4


def test_one_block_runs_for_every_layer():
    """h ← block(h + P_i + P_t), t = 1 … N, between two runs without coordinates."""
    config = load(
        "encoder",
        [
            "size={width: 16, layers: 3, heads: 2, vocabulary: 31, length: 12}",
            "model.stack={kind: Universal, norm: RMSNorm, before: 1, after: 1}",
        ],
    )
    stack: Any = config.build("model", config["size"]).encoder.stack.double()
    places, x = Places.of(torch.zeros(2, 5, dtype=torch.long)), torch.randn(2, 5, 16, dtype=torch.float64)

    def context() -> Context:
        return Context(places, places, Mask(), stack.position(0))

    i = np.arange(5)[:, None] / 10000 ** (np.arange(0, 16, 2) / 16)
    h = stack.blocks[0](x, context())
    for t in range(1, 4):
        at = t / 10000 ** (np.arange(0, 16, 2) / 16)
        waves = np.stack([np.sin(i) + np.sin(at), np.cos(i) + np.cos(at)], -1).reshape(5, 16)
        h = stack.blocks[0](h + torch.from_numpy(waves), context())
    expected = stack.norm(stack.blocks[0](h, context()))
    torch.testing.assert_close(stack(x, context()), expected, rtol=1e-10, atol=1e-12)
    assert stack.executions == 5
