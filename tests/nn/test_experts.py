"""Experts: routing and capacity by hand, the layers against their formulas in numpy, and what never touches them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scaling.nn.channels import MixtureOfExperts, ReLU, Switch, imbalance, seats
from scaling.nn.context import NOWHERE, Context, Mask, Places
from scaling.shape import Shape

ROWS, LENGTH, WIDTH, EXPERTS = 3, 10, 6, 4
SHAPE = Shape.of({"width": WIDTH, "layers": 1, "heads": 1, "vocabulary": 8, "length": LENGTH, "hidden": 16})
DOCUMENTS = torch.tensor([[1] * LENGTH, [0] * 3 + [1] * 7, [1] * 4 + [2] * 4 + [0] * 2])
KINDS = {"MixtureOfExperts": MixtureOfExperts, "Switch": Switch}


def context(documents: torch.Tensor | None = None, rows: int = ROWS, length: int = LENGTH) -> Context:
    places = Places.of(torch.zeros(rows, length, dtype=torch.long), documents=documents)
    return Context(places, places, Mask(), NOWHERE)


def layer(kind: str, **keys):
    torch.manual_seed(0)
    made = KINDS[kind](SHAPE, activation=ReLU, **{"experts": EXPERTS, **keys}).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


def x(seed: int = 1) -> torch.Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def transcribed(made, given: torch.Tensor, documents: torch.Tensor | None, capacity: int | None) -> np.ndarray:
    """The papers' layer, position by position, each going to its experts while they have seats in its row."""
    gate = made.gate.weight.detach().numpy()
    up, down = made.experts.hidden.weight.detach().numpy(), made.experts.out.weight.detach().numpy()
    found = np.zeros(given.shape)
    for row, vectors in enumerate(given.numpy()):
        taken = np.zeros(len(gate), int)
        for place, vector in enumerate(vectors):
            if documents is not None and documents[row, place] == 0:
                continue
            logits = gate @ vector
            chances = np.exp(logits - logits.max())
            chances /= chances.sum()
            chosen = np.argsort(-chances)[: made.choices]
            weights = chances[chosen] / (1 if made.choices == 1 else chances[chosen].sum())
            for expert, weight in zip(chosen, weights, strict=True):
                if capacity is None or taken[expert] < capacity:
                    found[row, place] += weight * down[expert] @ np.maximum(up[expert] @ vector, 0)
                taken[expert] += 1
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("documents", [None, DOCUMENTS], ids=["whole", "padded"])
@pytest.mark.parametrize("capacity", [0.4, 0.8, 1.2, 2.0, 4.0])
def test_it_equals_its_formula(kind, documents, capacity):
    made = layer(kind, capacity=capacity)
    each = max(1, int(capacity * LENGTH / EXPERTS))
    found = made(x(), context(documents)).detach().numpy()
    np.testing.assert_allclose(found, transcribed(made, x(), documents, each), rtol=1e-12, atol=1e-12)
    found = made.eval()(x(), context(documents)).detach().numpy()
    np.testing.assert_allclose(found, transcribed(made, x(), documents, None), rtol=1e-12, atol=1e-12)


def test_first_come_first_served():
    """One choice each, two experts of two seats: the third that wants expert 0 finds none."""
    found = seats(torch.tensor([[[0], [0], [1], [0], [1]]]), experts=2, capacity=2)
    assert found.seat.tolist() == [[0, 1, 2, 4, 3]]
    assert found.position.tolist() == [[0, 1, 2, 4]]


def test_two_choices_take_two_seats():
    """A position's second choice comes before the first choices of the positions after it."""
    found = seats(torch.tensor([[[0, 1], [1, 0], [1, 0]]]), experts=2, capacity=2)
    assert found.seat.tolist() == [[0, 2, 3, 1, 4, 4]]
    assert found.position.tolist() == [[0, 1, 0, 1]]


def test_a_dropped_position_adds_nothing():
    made = layer("Switch", capacity=0.4)  # one seat
    alike = x()[:, :1].expand(-1, LENGTH, -1)
    found = made(alike, context())
    assert found[:, 0].abs().sum() > 0
    assert torch.equal(found[:, 1:], torch.zeros_like(found[:, 1:]))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("capacity", [0.4, 0.8, 4.0])
def test_neither_rows_nor_later_positions_nor_padding_matter(kind, capacity):
    made = layer(kind, capacity=capacity)
    found = made(x(), context(DOCUMENTS))
    order = torch.tensor([2, 0, 1])
    close = partial(torch.testing.assert_close, rtol=0, atol=1e-12)
    close(made(x()[order], context(DOCUMENTS[order])), found[order])
    close(made(x()[:1], context(DOCUMENTS[:1], 1)), found[:1])
    later = torch.cat([x()[:, :6], x(7)[:, 6:]], 1)
    close(made(later, context(DOCUMENTS))[:, :6], found[:, :6])
    assert not torch.allclose(made.eval()(later, context(DOCUMENTS)), made(x(), context(DOCUMENTS)))
    made.train()
    padding = torch.where(DOCUMENTS[..., None] > 0, x(), x(7))
    close(made(padding, context(DOCUMENTS)), found)


def test_the_loss_of_balance():
    even = torch.full((1, 4, 4), 0.25)
    everything = torch.ones(1, 4, dtype=torch.bool)
    assert imbalance(even, torch.tensor([[0, 1, 2, 3]]), everything) == 1
    one = torch.zeros(1, 4, 4).index_fill(2, torch.tensor([2]), 1.0)
    assert imbalance(one, torch.full((1, 4), 2), everything) == 4
    # f = (3/4, 1/4, 0, 0), P = (.4, .3, .2, .1): 4 (.3 + .075)
    uneven = torch.tensor([0.4, 0.3, 0.2, 0.1]).expand(1, 4, 4)
    assert imbalance(uneven, torch.tensor([[0, 0, 1, 0]]), everything).item() == pytest.approx(1.5)
    # The last position is padding: f = (2/3, 1/3, 0, 0).
    real = torch.tensor([[True, True, True, False]])
    found = imbalance(uneven, torch.tensor([[0, 0, 1, 3]]), real).item()
    assert found == pytest.approx(4 * (0.4 * 2 / 3 + 0.3 / 3))
    nobody = imbalance(even, torch.zeros(1, 4, dtype=torch.long), torch.zeros(1, 4, dtype=torch.bool))
    assert nobody == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_joins_the_others_and_evens_out(kind):
    made = layer(kind, capacity=4.0, balance=1.0)
    optimizer = torch.optim.SGD(made.gate.parameters(), lr=0.1)
    losses = []
    for _ in range(60):
        here = context()
        made(x(), here)
        losses.append(here.auxiliary["balance"])
        optimizer.zero_grad()
        losses[-1].backward()
        optimizer.step()
    assert losses[-1] < losses[0] - 0.05
    made.balance, here, once = 0.5, context(), context()
    made(x(), once)
    made(x(), here)
    made(x(), here)
    assert here.auxiliary["balance"] == 2 * once.auxiliary["balance"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("training", [True, False])
def test_the_cost_does_not_grow_with_experts(kind, training):
    def flops(experts: int) -> int:
        made = layer(kind, experts=experts, capacity=2.0).train(training)
        given = torch.randn(2, 64, WIDTH, dtype=torch.float64)
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            made(given, context(rows=2, length=64))
        return counter.get_total_flops() - 2 * given.numel() * experts  # without the gate

    assert flops(4) == flops(16) == flops(32) > 0


def test_what_mesh_tensorflow_counts():
    """12 + 12 layers of width 768, every fourth a mixture of 32: the published counts, from the baseline's 11.073T."""
    base = Shape.of({"width": 768, "layers": 12, "heads": 12, "vocabulary": 8, "length": 512})
    inputs, targets = 128 * 512, 128 * 114

    def more(kind, encoder: float, decoder: float, **keys) -> float:
        total = 0.0
        for tokens, capacity in ((inputs, encoder), (targets, decoder)):
            with torch.device("meta"):
                made = KINDS[kind](base, activation=ReLU, capacity=capacity, **keys)
            total += 3 * (made.mesh_operations(tokens) - tokens * 2 * 768 * 3072)
        return total / 1e12

    assert 11.073 + more("MixtureOfExperts", 2.0, 1.25, hidden_times=0.5) == pytest.approx(11.710, rel=2e-4)
    assert 11.073 + more("Switch", 1.2, 1.25) == pytest.approx(11.751, rel=2e-4)
