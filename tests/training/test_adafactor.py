"""Stacked Adafactor is torch's: the same updates, and a state that either goes on from."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from scaling.training import adafactor
from scaling.training.adafactor import StackedAdafactor, stacks

SHAPES = [(6, 4), (4,), (6, 4), (), (3, 6, 4), (4,), (6, 4), (), (2, 3, 6, 4), (4, 6), (7,)]
GROUPS = [{"lr": 0.5, "weight_decay": 0.1}, {"lr": 0.02, "weight_decay": 0.0}]
STEPS = 6


def made(kind: type[torch.optim.Adafactor]) -> tuple[list[Tensor], torch.optim.Adafactor]:
    """Parameters of many shapes in two groups, in turn."""
    draw = torch.Generator().manual_seed(0)
    parameters = [torch.randn(shape, generator=draw).requires_grad_() for shape in SHAPES]
    groups = [{"params": parameters[place::2], **told} for place, told in enumerate(GROUPS)]
    return parameters, kind(groups, beta2_decay=-0.7, d=1.5)


def stepped(parameters: list[Tensor], optimizer: torch.optim.Adafactor, steps: range) -> None:
    """Gradients of very different lengths, and none where a parameter had no part in a step."""
    for step in steps:
        draw = torch.Generator().manual_seed(step + 1)
        for place, parameter in enumerate(parameters):
            gradient = torch.randn(parameter.shape, generator=draw) * 10.0 ** (step % 3 * 3 - 4)
            parameter.grad = None if (place + step) % 4 == 0 else gradient
        optimizer.step()


def near(ours: list[Tensor], theirs: list[Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("together", [1, 50, adafactor.TOGETHER])
def test_it_is_torchs(together, monkeypatch):
    monkeypatch.setattr(adafactor, "TOGETHER", together)
    ours, theirs = made(StackedAdafactor), made(torch.optim.Adafactor)
    start = [one.detach().clone() for one in ours[0]]
    for one in (ours, theirs):
        stepped(*one, range(STEPS))
    near(ours[0], theirs[0])
    assert all(not torch.equal(one, was) for one, was in zip(ours[0], start, strict=True))
    for mine, its in zip(ours[0], theirs[0], strict=True):
        near(list(ours[1].state[mine].values()), list(theirs[1].state[its].values()))
        assert ours[1].state[mine].keys() == theirs[1].state[its].keys()


@pytest.mark.parametrize(
    "kinds", [(StackedAdafactor, torch.optim.Adafactor), (torch.optim.Adafactor, StackedAdafactor)]
)
def test_either_goes_on_from_the_others_state(kinds):
    whole, first, second = made(kinds[0]), made(kinds[0]), made(kinds[1])
    stepped(*whole, range(STEPS))
    stepped(*first, range(STEPS // 2))
    second[1].load_state_dict(first[1].state_dict())
    for mine, its in zip(second[0], first[0], strict=True):
        mine.data.copy_(its)
    stepped(*second, range(STEPS // 2, STEPS))
    near(second[0], whole[0])


def test_what_is_large_moves_alone(monkeypatch):
    monkeypatch.setattr(adafactor, "TOGETHER", 50)
    found = [[tuple(one.shape) for one in stack] for stack in stacks([torch.empty(shape) for shape in SHAPES])]
    assert sorted(map(len, found)) == [1, 1, 1, 1, 1, 2, 2, 2]
    assert all(len(set(stack)) == 1 for stack in found)
    assert all(len(stack) == 1 or len(stack) * torch.Size(stack[0]).numel() <= 50 for stack in found)
