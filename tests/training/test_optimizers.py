"""Optimizers against their formulas, schedules against theirs, and the rates that a parametrization gives."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from scaling.config import schema
from scaling.ledger import run_id
from scaling.model.contract import CONSTANT
from scaling.model.parameters import Parameter, ParameterSpec, parameters
from scaling.training.module import FamilyModule
from scaling.training.parametrization import Standard
from scaling.training.schedule import warmup_steps
from tests.training.conftest import experiment

SHAPES = {
    ("hidden", "channel"): (6, 4),
    ("gain", "norm"): (4,),
    ("table", "embedding"): (10, 4),
    ("output", "head"): (10, 4),
}


def held() -> list[Parameter]:
    """A model's parameters of four roles, with gradients."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for (role, slot), shape in SHAPES.items():
        tensor = torch.randn(shape, generator=draw).requires_grad_()
        tensor.grad = torch.randn(shape, generator=draw)
        found.append(Parameter(ParameterSpec(slot, shape, role, slot, 4, 2, 2), tensor))  # type: ignore[arg-type]
    return found


def adam(w: Tensor, g: Tensor, t: int, state: list[Tensor], lr=0.01, betas=(0.9, 0.95), decay=0.1) -> Tensor:
    """θ ← θ − η (m̂/(√v̂ + ε) + λθ) in float64."""
    state[0] = betas[0] * state[0] + (1 - betas[0]) * g
    state[1] = betas[1] * state[1] + (1 - betas[1]) * g**2
    corrected = [one / (1 - beta**t) for one, beta in zip(state, betas)]
    return w - lr * (corrected[0] / (corrected[1].sqrt() + 1e-8) + decay * w)


def sgd(w: Tensor, g: Tensor, t: int, state: list[Tensor], decay: float) -> Tensor:
    """v ← μv + g, θ ← θ − ηv."""
    state[0] = g if t == 1 else 0.9 * state[0] + g
    return w - 0.01 * state[0]


FORMULAS: dict[str, Callable[..., Tensor]] = {
    "AdamW": adam,
    "Adam": lambda w, g, t, state, decay: adam(w, g, t, state, betas=(0.9, 0.999), decay=0.0),
    "SGD": sgd,
    "Muon": adam,  # of all but the hidden matrices
}


@pytest.mark.parametrize("kind", FORMULAS)
def test_an_optimizer_follows_its_formula(kind):
    """Weight decay spares vectors, and each parameter is held once."""
    parts = held()
    optimizers = schema.build("optimizer", {"kind": kind, "lr": 0.01}).make(parts, Standard().rate)
    tensors = [tensor for one in optimizers for group in one.param_groups for tensor in group["params"]]
    assert sorted(map(id, tensors)) == sorted(id(one.tensor) for one in parts)
    wanted = [one.tensor.detach().double() for one in parts]
    states = [[torch.zeros_like(tensor), torch.zeros_like(tensor)] for tensor in wanted]
    for step in (1, 2, 3):
        for one, tensor, state, number in zip(parts, wanted, states, range(4)):
            assert one.tensor.grad is not None
            decay = 0.0 if one.spec.role in CONSTANT else 0.1
            wanted[number] = FORMULAS[kind](tensor, one.tensor.grad.double(), step, state, decay=decay)
        before = parts[0].tensor.detach().clone()
        for one in optimizers:
            one.step()
    for one, tensor in list(zip(parts, wanted))[kind == "Muon" :]:
        torch.testing.assert_close(one.tensor.detach().double(), tensor, rtol=1e-5, atol=1e-6)
    if kind == "Muon":  # the hidden matrix moves by an orthogonal one, as far as AdamW does (Liu et al. 2025)
        moved = (before - parts[0].tensor.detach() - 0.001 * before) / 0.01
        values = torch.linalg.svdvals(moved / (0.2 * math.sqrt(6)))
        assert values.min() > 0.6
        assert values.max() < 1.3


def test_maximal_update_gives_rates_by_role():
    """Inner matrices and the head learn at η·base/width, tables and vectors at η."""
    changes = {"size.width": 64, "size.heads": 2, "parametrization": "{kind: MuP, base: 16}"}
    module = FamilyModule(experiment(**changes, **{"model.block.mixer.scale": "width"}))
    (adamw,) = module.torch_optimizers
    peaks = {id(tensor): group["peak"] for group in adamw.param_groups for tensor in group["params"]}
    found = {spec.name: peaks[id(tensor)] / 3e-3 for spec, tensor in parameters(module.model)}
    assert found.pop("decoder.embedding.table") == pytest.approx(1)
    for name, rate in found.items():
        assert rate == pytest.approx(1 if ".norm." in name else 1 / 4), name


# Schedules

# Steps 0, 4, 9, 10, 30, 55, 80, 99 of 100, with 10 of warmup.
AT = [0, 4, 9, 10, 30, 55, 80, 99]
SHAPES_OF_SCHEDULES = {
    "Constant": [0.1, 0.5, 1, 1, 1, 1, 1, 1],
    "Cosine": [0.1, 0.5, 1, 1, 0.8947, 0.55, 0.2053, 0.1003],
    "Linear": [0.1, 0.5, 1, 1, 0.7778, 0.5, 0.2222, 0.0111],
    "InverseSquareRoot": [0.1, 0.5, 1, 0.9535, 0.568, 0.4226, 0.3514, 0.3162],
    "WSD": [0.1, 0.5, 1, 1, 1, 1, 0.9524, 0.0476],
    "{kind: WSD, decay: 20}": [0.1, 0.5, 1, 1, 1, 1, 0.9524, 0.0476],
    "{kind: WSD, decay: 1000}": [0.1, 0.5, 1, 0.989, 0.7692, 0.4945, 0.2198, 0.011],  # as long as the run allows
    "{kind: WSD, shape: sqrt}": [0.1, 0.5, 1, 1, 1, 1, 0.7818, 0.0241],
    "{kind: InverseSquareRoot, rise: flat}": [1, 1, 1, 0.9535, 0.568, 0.4226, 0.3514, 0.3162],
}


@pytest.mark.parametrize("line", SHAPES_OF_SCHEDULES)
def test_a_schedule_has_the_shape_of_its_formula(line):
    schedule = experiment(schedule=line, **{"schedule.warmup": 10, "trainer.max_steps": 100}).schedule
    assert [round(schedule.factor(step, 100), 4) for step in AT] == SHAPES_OF_SCHEDULES[line]


# Warmups that are fractions of the run


def scheduled(steps: int, **changes: object):
    return experiment(**{"trainer.max_steps": steps, "schedule.warmup": "absent", **changes})


@pytest.mark.parametrize(
    ("steps", "line", "warmup"),
    [
        *((steps, "auto", warmup) for steps, warmup in ((9, 0), (500, 50), (5000, 100))),
        *((200, fraction, 10) for fraction in ("0.05", "5%")),
    ],
)
def test_a_warmup_is_a_tenth_of_the_run_and_at_most_100_steps_or_a_fraction(steps, line, warmup):
    one = scheduled(steps, **{"schedule.warmup": line})
    assert warmup_steps(one.schedule, one.steps) == warmup
    assert one.spec["schedule"] == {"kind": "Cosine", "warmup": warmup}


def test_equal_warmups_are_one_run_however_they_are_written():
    ids = {run_id(scheduled(1000, **{"schedule.warmup": line}).spec) for line in ("100", "10%", "auto")}
    assert len(ids) == 1
    assert run_id(scheduled(990).spec) != run_id(scheduled(990, **{"schedule.warmup": 100}).spec)
    for steps, schedule in ((1000, {"kind": "trunk"}), (500, {"kind": "trunk", "warmup": 50})):
        trunk, _ = scheduled(steps, **{"schedule.kind": "WSD"}).trunk() or pytest.fail("no trunk")
        assert trunk.spec["schedule"] == schedule
