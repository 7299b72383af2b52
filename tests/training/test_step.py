"""One update: accumulation, precision, divergence, the families."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load as tensors_of

from scaling.ledger import Ledger
from scaling.training import module
from scaling.training.evaluation import Evaluation
from scaling.training.experiment import assemble
from tests.training.conftest import evaluate, held_out, left, load, words

STILL = {"model.block.mixer.dropout": 0}
SENTENCES = {"data": "synthetic_pairs", "data.symbols": "absent", "objective": "Sequence"}


def logged(runs) -> list[float]:
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return [entry["loss"] for entry in ledger.history(run) if entry.get("kind") == "train"]


# Experts drop the same positions however a batch is split; masked rows hold different numbers of targets, over which
# the loss is the mean.
SPLIT = [
    ("decoder", 1, {}),
    ("decoder", 2, {}),
    ("decoder", 1, {"model.block.channel": "{kind: Switch, activation: ReLU, experts: 4, capacity: 0.7}"}),
    ("encoder", 1, {"size.length": 32}),
]


@pytest.mark.parametrize(("name", "rows", "changes"), SPLIT)
def test_accumulation_is_the_whole_batch(name, rows, changes, tmp_path, run):
    run(name, runs=tmp_path / "whole", **STILL, **changes)
    run(name, runs=tmp_path / "parts", train__micro_batch=rows, **STILL, **changes)
    assert logged(tmp_path / "parts") == pytest.approx(logged(tmp_path / "whole"), rel=2e-5)


@pytest.mark.parametrize("precision", ["bf16-true", "bf16-mixed"])
def test_a_low_precision_is_near_float32(precision, tmp_path, run):
    plain = run(runs=tmp_path / "32-true", trainer__max_steps=30, **STILL)
    low = run(runs=tmp_path / precision, trainer__max_steps=30, trainer__precision=precision, **STILL)
    assert low["loss"] == pytest.approx(plain["loss"], rel=5e-3)
    assert low["loss"] != plain["loss"]


def test_master_weights_are_saved_in_float32(tmp_path, run):
    run(trainer__precision="bf16-true")
    weights = tensors_of(left(tmp_path / "runs").files["weights.safetensors"])
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}


@pytest.mark.parametrize("train", ["32-true", "bf16-mixed", "bf16-true"])
@pytest.mark.parametrize("scored", ["32-true", "bf16-mixed", "bf16-true"])
def test_held_out_losses_are_scored_in_the_precision_asked_whatever_trained(train, scored, tmp_path, run):
    """The checkpoint's float32 weights, evaluated here in that precision, give the result's loss."""
    told = {"trainer__precision": train, **({} if scored == "32-true" else {"evaluate__precision": scored})}
    result = run(**told, **STILL)
    assert result["evaluation_precision"] == scored
    experiment = assemble(load(words(tmp_path / "runs", **told, **STILL)))
    model = experiment.model()
    model = model.to_empty(device="cpu")
    weights = tensors_of(left(tmp_path / "runs").files["weights.safetensors"])
    for name, parameter in model.named_parameters():
        parameter.data.copy_(weights[name])
    model = model.to(torch.bfloat16) if scored == "bf16-true" else model
    with torch.autocast("cpu", torch.bfloat16, enabled=scored == "bf16-mixed"):
        batches = held_out(experiment)
        alone = evaluate(model, batches, Evaluation(experiment.held_out))
    assert result["loss"] == pytest.approx(alone["loss"], rel=1e-9)


@pytest.mark.parametrize("train", ["32-true", "bf16-mixed", "bf16-true"])
def test_runs_that_were_scored_so_before_keep_their_names(train):
    """Only runs trained in bf16 were evaluated in it: asked for, it is what they were; else they are other runs."""
    before = "bf16-true" if train == "bf16-true" else "32-true"
    for scored in ("32-true", "bf16-mixed", "bf16-true"):
        told = {"trainer__precision": train, "evaluate__precision": scored}
        spec = assemble(load(words(Path("unused"), **told))).spec
        assert ("precision" in spec["evaluate"]) == (scored != before)


# By step, and by how the update is computed.
WHERE = [
    *((step, {}) for step in (0, 1, 3, 7, 11)),
    *(pytest.param(step, {}, marks=pytest.mark.slow) for step in (2, 5, 9)),
    *(
        pytest.param(step, how, marks=pytest.mark.slow)
        for how in ({"train__micro_batch": 1}, {"trainer__precision": "bf16-true"})
        for step in range(0, 12, 1 if "train__micro_batch" in how else 2)
    ),
]


@pytest.mark.parametrize(("step", "how"), WHERE)
@pytest.mark.parametrize("what", ["the loss", "the gradient"])
def test_nan_is_caught_before_the_update(step, how, what, tmp_path, run, monkeypatch):
    """The weights at the end are those of the step before, and the run is a result."""
    held = {}

    def poisoned(self: module.FamilyModule, batch, *rest, before=module.FamilyModule._backward):
        loss = before(self, batch, *rest)
        at = held.setdefault("calls", 0)
        held["calls"] += 1
        held["module"] = self
        if at == step:
            held["before"] = [tensor.detach().clone() for tensor in tensors(self)]
            if what == "the loss":
                return loss * float("nan")
            self.weights.masters[0].grad[0] = float("inf")  # type: ignore[index]
        return loss

    def tensors(trained: module.FamilyModule) -> list[torch.Tensor]:
        return [*trained.model.parameters(), *trained.weights.masters]

    monkeypatch.setattr(module.FamilyModule, "_backward", poisoned)
    result = run(**how)
    assert result["outcome"] == "diverged"
    assert result["step"] == step
    assert what in result["reason"]
    for tensor, before in zip(tensors(held["module"]), held["before"], strict=True):
        assert torch.equal(tensor, before)
    assert run(**how)["already"]


FAMILIES = {
    "decoder": {},
    "encoder": {},
    "encoder_decoder": {"size.length": 24},
    "decoder Prefix": {"objective": "Prefix"},
    "encoder_decoder Sequence": {**SENTENCES, "size.length": 32, "data.validation": 64, "data.pairs": 500},
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_learns(family, tmp_path, run):
    result = run(family.split()[0], trainer__max_steps=30, train__batch=8, **FAMILIES[family])
    losses = logged(tmp_path / "runs")
    assert result["outcome"] == "finished"
    assert sum(losses[-5:]) < sum(losses[:5])
    assert result["tokens"] > 0


def test_dropout_repeats_by_step_and_differs_between_steps(tmp_path, run):
    run(runs=tmp_path / "one")
    run(runs=tmp_path / "two")
    run(runs=tmp_path / "none", **STILL)
    assert logged(tmp_path / "one") == logged(tmp_path / "two") != logged(tmp_path / "none")


def test_the_batch_may_grow(tmp_path, run):
    result = run(**{"train.batch": "{0: 2, 6: 4}"})
    assert result["tokens"] == (6 * 2 + 6 * 4) * 16


def test_a_spike_is_recorded(tmp_path, run, monkeypatch):
    def jumped(self, batch, before=module.FamilyModule._backward):
        loss = before(self, batch)
        return loss + 5 if module_step(self) == 120 else loss

    def module_step(self) -> int:
        return self.trainer.fit_loop.batch_idx

    monkeypatch.setattr(module.FamilyModule, "_backward", jumped)
    run(trainer__max_steps=140, log__every=50)
    ledger = Ledger.open(tmp_path / "runs")
    spikes = [entry for entry in ledger.history(ledger.runs()[0]) if entry["kind"] == "spike"]
    assert [entry["step"] for entry in spikes] == [121]
    assert 4 < spikes[0]["above"] < 6


@pytest.mark.slow
def test_a_compiled_model_learns_the_same(tmp_path, run):
    """In a process of its own: the tests' checks of shapes cannot be compiled."""
    plain = run(runs=tmp_path / "plain", trainer__max_steps=3, **STILL)
    told = words(tmp_path / "compiled", trainer__max_steps=3, train__compile="true", **STILL)
    subprocess.run([sys.executable, "-m", "scaling", "train", *told], check=True, capture_output=True)
    assert left(tmp_path / "compiled").result["loss"] == pytest.approx(plain["loss"], rel=1e-4)
