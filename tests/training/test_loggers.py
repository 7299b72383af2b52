"""Other loggers listen: what they keep is the log's, and none of them can change or fail a run."""

from __future__ import annotations

import csv
import importlib.util
import sqlite3
import time

import pytest

from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.training import background, loggers
from scaling.training.experiment import assemble
from tests.training.conftest import left, load, words


def folder(runs):
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return ledger.folder(run)


def losses(runs) -> dict[int, float]:
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return {entry["step"]: entry["loss"] for entry in ledger.history(run) if entry.get("kind") == "train"}


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    from scaling.training.run import train

    runs = tmp_path_factory.mktemp("without") / "runs"
    train(load(words(runs)))
    return left(runs)


def test_csv(tmp_path, run, without):
    run(log__loggers="[csv]")
    assert left(tmp_path / "runs") == without
    with (folder(tmp_path / "runs") / "csv-001" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    found = {int(row["step"]): float(row["train/loss"]) for row in rows if row["train/loss"]}
    assert found == losses(tmp_path / "runs")
    assert any(row["evaluate/loss"] for row in rows)


def test_tensorboard(tmp_path, run, without):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run(log__loggers="[tensorboard]")
    assert left(tmp_path / "runs") == without
    events = EventAccumulator(str(folder(tmp_path / "runs") / "tensorboard-001")).Reload()
    found = {event.step: event.value for event in events.Scalars("train/loss")}
    assert found == pytest.approx(losses(tmp_path / "runs"), rel=1e-6)


def test_mlflow(tmp_path, run, without, monkeypatch):
    pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run(log__loggers="[mlflow]")
    assert left(tmp_path / "runs") == without
    with sqlite3.connect(folder(tmp_path / "runs") / "mlflow-001.db") as store:
        found = dict(store.execute("select step, value from metrics where key = 'train/loss'"))
    assert found == pytest.approx(losses(tmp_path / "runs"), rel=1e-6)


def test_one_that_fails_and_one_that_hangs(tmp_path, run, without, monkeypatch, caplog):
    def fails(*_):
        raise OSError("no room\nfor it")

    monkeypatch.setattr(loggers, "PATIENCE", 0.5)
    monkeypatch.setattr(background, "MOST", 3)
    monkeypatch.setitem(loggers.LOGGERS, "tensorboard", (fails, None))
    monkeypatch.setitem(loggers.LOGGERS, "mlflow", (lambda *_: time.sleep(60), None))
    run(log__loggers="[tensorboard, mlflow, csv]")
    assert left(tmp_path / "runs") == without
    told = [record.message for record in caplog.records if record.name == "scaling.training.background"]
    assert "tensorboard: no room for it; the run goes on without it" in told
    assert "mlflow did not finish in time; the ledger has everything" in told
    assert any(line.startswith("mlflow was too slow for ") for line in told)


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_package_that_is_not_there(name, monkeypatch, tmp_path):
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None if module == name else found(module))
    with pytest.raises(ScalingError) as error:
        assemble(load(words(tmp_path, log__loggers=f"[csv, {name}]")))
    assert error.value.key == "log.loggers"
    assert str(error.value).endswith(f"pip install 'scaling[{name}]', or leave {name} out")


def test_a_logger_that_does_not_exist(tmp_path):
    with pytest.raises(ScalingError, match="did you mean 'csv'"):
        assemble(load(words(tmp_path, log__loggers="[cvs]")))
