"""A run is finished when it was trained, and not where something swallowed its end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import scaling
from scaling import config
from scaling.data.batches import Batches
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import read, seal
from scaling.training.evaluation import Evaluation
from scaling.training.run import train
from tests.training.conftest import left, words

Run = Callable[..., dict[str, Any]]

# A feed-forward layer that does something else at one of its calls.
SABOTEUR = """
from torch import nn

class Saboteur(nn.Module):
    slot = "channel"

    def __init__(self, shape, *, error: str, call: int):
        super().__init__()
        self.layer = nn.Linear(shape.width, shape.width)
        self.error, self.call, self.calls = error, call, 0

    def forward(self, x, context):
        self.calls += x.device.type != "meta"  # where only shapes are counted
        if self.calls == self.call and x.device.type != "meta":
            exec(self.error)
        return self.layer(x)
"""


def sabotaged(folder: Path, error: str, call: int, **changes: Any) -> config.Config:
    extension = folder / "saboteur.py"
    extension.write_text(SABOTEUR)
    line = json.dumps({"kind": "Saboteur", "error": error, "call": call})
    name, *told = words(folder / "runs", **changes)
    scaling.extend(extension)
    return config.load(name, [*told, f"model.block.channel={line}"])


def ends(runs: Path) -> list[str]:
    """How the attempts at the only run ended, and that there is no result."""
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    assert ledger.result(run) is None
    return [record.end["outcome"] for record in ledger.attempts(run) if record.end]


@pytest.mark.parametrize("error", ["raise StopIteration", "next(iter(()))", "raise SystemExit(0)"])
@pytest.mark.parametrize("call", [1, 3])
def test_a_model_that_ends_its_training_fails(error: str, call: int, tmp_path: Path):
    with pytest.raises(RuntimeError, match=r"raised (StopIteration|SystemExit)"):
        train(sabotaged(tmp_path, error, call))
    assert ends(tmp_path / "runs") == ["failed"]


def test_a_model_that_ends_its_last_evaluation_fails(tmp_path: Path):
    # Call 1 is the first step, then come the batches of an evaluation, and so on to the end.
    calls = 12 + 2 * _evaluations(tmp_path)
    with pytest.raises(RuntimeError, match="raised StopIteration"):
        train(sabotaged(tmp_path, "raise StopIteration", calls))
    assert ends(tmp_path / "runs") == ["failed"]


def _evaluations(folder: Path) -> int:
    from scaling.training.experiment import assemble

    return assemble(sabotaged(folder, "pass", 0)).evaluation()[1]


def test_data_that_end_early_fail_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    batch = Batches.batch

    def ending(self: Batches, step: int, rank: int = 0, ranks: int = 1):
        if step == 5:
            raise StopIteration
        return batch(self, step, rank, ranks)

    monkeypatch.setattr(Batches, "batch", ending)
    with pytest.raises(RuntimeError, match="StopIteration"):
        run()
    assert ends(tmp_path / "runs") == ["failed"]


def test_a_loader_that_ends_early_fails_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from scaling.data.module import TrainingLoader

    monkeypatch.setattr(TrainingLoader, "__len__", lambda self: 5)
    with pytest.raises(Exception, match="updates applied: 5 instead of 12"):
        run()
    assert ends(tmp_path / "runs") == ["failed"]


def test_batches_that_are_short_fail_the_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    batch = Batches.batch
    short = lambda self, step, rank=0, ranks=1: batch(self, step, rank, ranks).micro(0, 3)  # noqa: E731
    monkeypatch.setattr(Batches, "batch", short)
    with pytest.raises(Exception, match="tokens of step 1: 48 instead of 64"):
        run()
    assert ends(tmp_path / "runs") == ["failed"]


@pytest.mark.parametrize("name", ["MAX_STEPS", "LIMIT_TRAIN_BATCHES", "FAST_DEV_RUN", "MAX_TIME"])
def test_no_variable_of_lightnings_shortens_a_run(
    name: str, run: Run, unbroken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"PL_TRAINER_{name}", "00:00:00:00" if name == "MAX_TIME" else "2")
    run()
    assert left(tmp_path / "runs").result == unbroken.result


def test_a_rate_that_moves_no_weight_is_refused(run: Run, tmp_path: Path):
    with pytest.raises(ScalingError, match=r"optimizer.lr=1e-50: none of the weights has changed in 12 updates"):
        run(optimizer__lr=1e-50)
    assert ends(tmp_path / "runs") == ["failed"]


def test_an_evaluation_without_targets_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    add = Evaluation.add

    def emptied(self: Evaluation, model: Any, batch: Any):
        batch.targets.fill_(-100)
        add(self, model, batch)

    monkeypatch.setattr(Evaluation, "add", emptied)
    with pytest.raises(ScalingError, match="no target"):
        run()
    assert ends(tmp_path / "runs") == ["failed"]


def test_a_model_that_breaks_at_its_last_update_has_diverged(run: Run, monkeypatch: pytest.MonkeyPatch):
    """The loss of each step is finite, that of the evaluation after them is not."""
    monkeypatch.setattr(Evaluation, "measured", lambda *_: {"loss": float("nan"), "targets": 1})
    result = run(evaluate__points=1)
    assert result["outcome"] == "diverged"
    assert result["loss"] is None
    assert result["reason"] == "the held-out loss is not finite at step 12"


def _resealed(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    manifest = read(path)
    assert manifest is not None
    manifest.pop("sha256", None)
    path.write_bytes(seal({**manifest, **changes}))


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """The checkpoint of step 8 of a run that was ended there."""
    with pytest.raises(RuntimeError):
        train(sabotaged(tmp_path, "raise StopIteration", 10 + _evaluations(tmp_path)))
    (attempt,) = (tmp_path / "runs").glob("store/*/checkpoints")
    assert sorted(path.name for path in attempt.iterdir()) == ["000000000004", "000000000008"]
    return attempt / "000000000008"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("000000000008", {"step": 10**9}),
        ("000000000008", {"step": 12}),
        ("000000000008", {"step": 4}),
        ("001000000000", {"step": 10**9}),
        ("000000000012", {"step": 12}),
        ("000000000012", {"step": 12, "note": {}}),
        ("001000000000", {"step": 10**9, "note": {"tokens": 64 * 10**9}}),
    ],
)
def test_a_checkpoint_of_another_step_is_not_used(
    name: str, changes: dict[str, Any], stopped: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    stopped = stopped.rename(stopped.with_name(name))
    _resealed(stopped, **changes)
    result = train(sabotaged(tmp_path, "raise StopIteration", 10 + _evaluations(tmp_path)))
    assert result["outcome"] == "finished"
    assert result["circumstances"]["from_step"] == 4
    assert f"{name} is damaged and not used" in caplog.text
