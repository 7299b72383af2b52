"""Optimizers against their formulas, schedules against theirs, and the rates that a parametrization gives."""

from __future__ import annotations

import math

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

ROLES = {("hidden", "channel"): (6, 4), ("gain", "norm"): (4,), ("table", "embedding"): (10, 4)}


def update(kind: str, w: Tensor, g: Tensor, t: int, state: list[Tensor], decay: float) -> Tensor:
    """θ ← θ − η (m̂/(√v̂ + ε) + λθ), or v ← μv + g, θ ← θ − ηv, in float64 with η = 0.01."""
    if kind == "SGD":
        state[0] = 0.9 * state[0] + g
        return w - 0.01 * state[0]
    betas = (0.9, 0.999) if kind == "Adam" else (0.9, 0.95)
    state[0] = betas[0] * state[0] + (1 - betas[0]) * g
    state[1] = betas[1] * state[1] + (1 - betas[1]) * g**2
    m, v = (one / (1 - beta**t) for one, beta in zip(state, betas))
    return w - 0.01 * (m / (v.sqrt() + 1e-8) + (0.0 if kind == "Adam" else decay) * w)


@pytest.mark.parametrize("kind", ["AdamW", "Adam", "SGD", "Muon"])
def test_an_optimizer_follows_its_formula(kind):
    """Weight decay spares vectors, and each parameter is held once."""
    draw, parts = torch.Generator().manual_seed(0), list[Parameter]()
    for (role, slot), shape in ROLES.items():
        tensor = torch.randn(shape, generator=draw).requires_grad_()
        tensor.grad = torch.randn(shape, generator=draw)
        parts.append(Parameter(ParameterSpec(slot, shape, role, slot, 4, 2, 2), tensor))  # type: ignore[arg-type]
    optimizers = schema.build("optimizer", {"kind": kind, "lr": 0.01}).make(parts, Standard().rate)
    tensors = [tensor for one in optimizers for group in one.param_groups for tensor in group["params"]]
    assert sorted(map(id, tensors)) == sorted(id(one.tensor) for one in parts)
    wanted = [one.tensor.detach().double() for one in parts]
    states, before = [[torch.zeros_like(tensor)] * 2 for tensor in wanted], parts[0].tensor.detach().clone()
    for step in (1, 2, 3):
        for number, (one, state) in enumerate(zip(parts, states)):
            assert one.tensor.grad is not None
            decay = 0.0 if one.spec.role in CONSTANT else 0.1
            wanted[number] = update(kind, wanted[number], one.tensor.grad.double(), step, state, decay)
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


# Steps 0, 4, 9, 10, 30, 55, 80, 99 of 100, with 10 of warmup.
AT = [0, 4, 9, 10, 30, 55, 80, 99]
SHAPES = {
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


@pytest.mark.parametrize("line", SHAPES)
def test_a_schedule_has_the_shape_of_its_formula(line):
    schedule = experiment(schedule=line, **{"schedule.warmup": 10, "trainer.max_steps": 100}).schedule
    assert [round(schedule.factor(step, 100), 4) for step in AT] == SHAPES[line]


WARMUPS = [(9, "auto", 0), (500, "auto", 50), (5000, "auto", 100), (200, "0.05", 10), (200, "5%", 10)]


def test_a_warmup_is_a_tenth_of_the_run_and_at_most_100_steps_or_a_fraction():
    """Equal warmups are one run, however they are written; a trunk has its branch's in steps."""

    def one(steps: int, warmup: str, **changes: str):
        return experiment(**{"trainer.max_steps": steps, "schedule.warmup": warmup, **changes})

    for steps, line, warmup in WARMUPS:
        found = one(steps, line)
        assert warmup_steps(found.schedule, found.steps) == warmup
        assert found.spec["schedule"] == {"kind": "Cosine", "warmup": warmup}
    assert len({run_id(one(1000, line).spec) for line in ("100", "10%", "auto")}) == 1
    assert run_id(one(990, "auto").spec) != run_id(one(990, "100").spec)
    for steps, schedule in ((1000, {"kind": "trunk"}), (500, {"kind": "trunk", "warmup": 50})):
        trunk, step = one(steps, "absent", **{"schedule.kind": "WSD"}).trunk() or pytest.fail("no trunk")
        assert (trunk.spec["schedule"], step) == (schedule, 0.8 * steps)
