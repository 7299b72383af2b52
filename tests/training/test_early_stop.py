"""Early stopping: the best weights are the result, and a killed run ends as one that was not, to the bit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load

from scaling.cli import main
from scaling.errors import ScalingError
from scaling.interop.run import read
from scaling.ledger import Attempt, Ledger
from scaling.training.callbacks import Best
from scaling.training.checkpoints import FolderIO
from scaling.training.evaluation import Evaluation, evaluation_steps
from tests.training.conftest import Done, done, same, words
from tests.training.test_resume import after, die

# A learning rate that soon makes it worse again.
WORSE = {
    "trainer.max_steps": 40,
    "train.patience": 2,
    "evaluate.points": 20,
    "optimizer.lr": 0.3,
    "train.checkpoint_every": 7,
}


def the(runs: Path, run: str | None = None) -> Done:
    """What a run left, the only one unless it is named, with the weights that its result is of."""
    ledger = Ledger.open(runs)
    if run is None:
        (run,) = ledger.runs()
    found = done(ledger, run)
    tensors = read(run, runs).described.tensors
    return Done(found.result, found.losses, {**found.files, **{name: bytes(t.numpy()) for name, t in tensors.items()}})


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("stopped") / "runs"
    assert main(["train", *words(runs, **WORSE)]) == 0
    return runs


def test_a_run_ends_after_as_many_evaluations_without_improvement(stopped):
    ledger = Ledger.open(stopped)
    (run,) = ledger.runs()
    result = ledger.result(run)
    assert result is not None
    losses = {e["step"]: e["loss"] for e in ledger.history(run) if e["kind"] == "evaluate"}
    best = min(losses, key=lambda step: losses[step])
    assert result["outcome"] == "finished"
    assert (result["best_step"], result["loss"]) == (best, losses[best])
    assert result["step"] == max(losses) < 40
    assert sum(step > best for step in losses) == 2
    assert result["tokens"] == result["step"] * 4 * 16
    assert result["C"]["exact"] > 0
    assert set(losses) == {step for step in evaluation_steps(40, 20, True) if step <= result["step"]}


def test_the_command_states_the_best_step(stopped, capsys):
    assert main(["train", *words(stopped, **WORSE)]) == 0
    result = the(stopped).result
    assert f"best at step {result['best_step']} of {result['step']}, " in capsys.readouterr().out


def test_its_weights_are_the_best_ones(stopped):
    ledger = Ledger.open(stopped)
    (run,) = ledger.runs()
    result = ledger.result(run)
    assert result is not None
    saved = ledger.checkpoint(run, result["best_step"])
    assert saved is not None
    best, found = load((saved.folder / "weights.safetensors").read_bytes()), read(run, stopped)
    assert found.place == {"run": run, "step": result["best_step"]}
    assert all(torch.equal(best[name], tensor) for name, tensor in found.described.tensors.items())


def test_gc_keeps_the_best_weights_and_frees_the_last(stopped, tmp_path, capsys):
    import shutil

    runs = tmp_path / "runs"
    shutil.copytree(stopped, runs)
    assert main(["gc", f"runs={runs}", "--free", "--json"]) == 0
    kinds = {item["kind"] for item in json.loads(capsys.readouterr().out)["items"]}
    assert kinds == {"checkpoint"}
    assert the(runs).result == the(stopped).result
    (run,) = Ledger.open(runs).runs()
    assert read(run, runs).place["step"] == the(runs).result["best_step"]


def before_the_result() -> None:
    Attempt.finish = lambda self, outcome, result: die()  # type: ignore[method-assign, return-value]


def in_evaluation(number: int) -> Callable[[], None]:
    def prepare() -> None:
        Evaluation.measured = after(number, Evaluation.measured)

    return prepare


def in_save(number: int) -> Callable[[], None]:
    def prepare() -> None:
        FolderIO.save_checkpoint = after(number, FolderIO.save_checkpoint)

    return prepare


DEATHS = [
    in_evaluation(3),
    in_save(2),
    before_the_result,
    *(pytest.param(in_evaluation(n), marks=pytest.mark.slow) for n in (1, 2, 4, 5, 6)),
    *(pytest.param(in_save(n), marks=pytest.mark.slow) for n in (1, 3, 4, 5)),
]


@pytest.mark.parametrize("prepare", DEATHS)
def test_a_kill_changes_nothing(prepare, stopped, tmp_path, fork):
    runs = tmp_path / "runs"
    child = fork(words(runs, **WORSE), prepare)
    assert child.wait() != 0
    assert main(["train", *words(runs, **WORSE)]) == 0
    same(the(runs), the(stopped))


def test_with_patience_to_spare_the_best_weights_are_the_result_all_the_same(tmp_path, run):
    found = run(**{**WORSE, "train.patience": 100, "trainer.max_steps": 20})
    assert found["step"] == 20
    assert found["best_step"] < 20


def test_patience_and_its_evaluations_name_the_run(tmp_path, run):
    line = {**WORSE, "trainer.max_steps": 4}
    first = run(**line)
    assert run(**{**line, "evaluate.points": 4})["run"] != first["run"]
    assert run(**{**line, "train.patience": 3})["run"] != first["run"]
    assert run(**{**line, "train.patience": "null"})["run"] != first["run"]


def test_a_higher_score_is_better_and_a_lower_loss():
    best = Best()
    for step, loss in enumerate([3.0, 2.0, 2.5, math.nan], 1):
        best = best.after(step, {"loss": loss})
    assert (best.best_step, best.since) == (2, 2)
    best = Best()
    for step, score in enumerate([0.5, 0.7, 0.7], 1):
        best = best.after(step, {"loss": 1.0 / step, "score": score})
    assert (best.best_step, best.best, best.since) == (2, 0.7, 1)


def test_evaluations_that_are_compared_are_on_the_same_windows(tmp_path):
    from scaling.training.experiment import assemble
    from tests.training.conftest import load as config

    experiment = assemble(config(words(tmp_path / "runs", **WORSE)))
    assert len(set(experiment.evaluated.values())) == 1


@pytest.mark.parametrize("value", ["0", "-1", "soon", "1.5"])
def test_patience_is_a_number_of_evaluations(value, run):
    with pytest.raises(ScalingError, match=r"train\.patience="):
        run(train__patience=value)
