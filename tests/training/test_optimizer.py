"""Every optimizer trains, spares vectors from decay, and takes its rates from the parametrization."""

from __future__ import annotations

import pytest
import torch

from scaling import schema
from scaling.errors import ScalingError
from scaling.model.parameters import Parameter, ParameterSpec
from scaling.training.parametrization import Standard
from tests.training.conftest import load, words

KINDS = sorted(schema.kinds("optimizer"))


def parameters() -> list[Parameter]:
    draw = torch.Generator().manual_seed(0)
    shapes = {
        ("hidden", "channel"): (6, 4),
        ("gain", "norm"): (4,),
        ("table", "embedding"): (10, 4),
        ("output", "head"): (10, 4),
    }
    found = []
    for (role, slot), shape in shapes.items():
        tensor = torch.randn(shape, generator=draw).requires_grad_()
        tensor.grad = torch.randn(shape, generator=draw)
        found.append(Parameter(ParameterSpec(slot, shape, role, slot, 4, 2, 2), tensor))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_parameter_is_held_once_and_moves(kind):
    optimizer = schema.build("optimizer", kind)
    held = parameters()
    made = optimizer.make(held, Standard().rate)
    tensors = [tensor for one in made for group in one.param_groups for tensor in group["params"]]
    assert sorted(map(id, tensors)) == sorted(id(one.tensor) for one in held)
    before = [one.tensor.detach().clone() for one in held]
    for one in made:
        one.step()
    assert all(not torch.equal(one.tensor, was) for one, was in zip(held, before))


@pytest.mark.parametrize("kind", KINDS)
def test_weight_decay_spares_vectors(kind):
    held = parameters()
    vector = next(one.tensor for one in held if one.spec.role == "gain")
    for one in schema.build("optimizer", kind).make(held, Standard().rate):
        for group in one.param_groups:
            if any(tensor is vector for tensor in group["params"]):
                assert group["weight_decay"] == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_that_is_none_is_refused(kind, rate):
    with pytest.raises(ScalingError, match="lr"):
        schema.build("optimizer", {"kind": kind, "lr": rate})


def test_muon_takes_the_hidden_matrices():
    held = parameters()
    muon, rest = schema.build("optimizer", "Muon").make(held, Standard().rate)
    assert isinstance(muon, torch.optim.Muon)
    assert [tensor for group in muon.param_groups for tensor in group["params"]] == [held[0].tensor]
    assert sum(len(group["params"]) for group in rest.param_groups) == 3


def test_rates_of_maximal_update_reach_the_groups():
    from scaling.training.experiment import assemble

    config = load(words("unused", size__width=64, size__heads=2, parametrization="MuP", **{"parametrization.base": 16}))  # type: ignore[arg-type]
    experiment = assemble(config)
    from scaling.training.parametrization import initialise
    from scaling.training.precision import Weights

    weights = Weights(initialise(experiment.model(), experiment.parametrization, 0), "32-true")
    (adamw,) = experiment.optimizer.make(weights.parameters, experiment.rate)
    peaks = {id(tensor): group["peak"] for group in adamw.param_groups for tensor in group["params"]}
    for one in weights.parameters:
        share = 1 / 4 if one.spec.is_inner_matrix or one.spec.predicts else 1
        assert peaks[id(one.tensor)] == pytest.approx(experiment.optimizer.lr * share)


@pytest.mark.parametrize("kind", KINDS)
def test_it_trains_and_resumes(kind, tmp_path, run, fork):
    """Each kind's state is saved and read back whole: a run stopped midway ends as one that was not."""
    import os
    import signal

    from scaling.training.callbacks import Record
    from tests.training.conftest import left

    changes = {"optimizer.kind": kind, "trainer.max_steps": 6, "train.checkpoint_every": 3}
    result = run(runs=tmp_path / "whole", **changes)
    assert result["outcome"] == "finished"
    told = words(tmp_path / "broken", **changes)

    def at_four() -> None:
        before = Record.on_train_batch_end

        def fatal(self, trainer, module, outputs, *rest):
            before(self, trainer, module, outputs, *rest)
            if trainer.global_step == 4:
                os.kill(os.getpid(), signal.SIGKILL)

        Record.on_train_batch_end = fatal

    assert fork(told, at_four).wait() == -signal.SIGKILL
    assert fork(told).wait() == 0
    assert left(tmp_path / "broken") == left(tmp_path / "whole")
