"""Other loggers hear the log's own numbers, a person's among them, and none of them can change or fail a run."""

from __future__ import annotations

import csv
import importlib.util
import sqlite3

import pytest
from lightning.pytorch.loggers import CSVLogger, WandbLogger

import scaling
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import Log, entries
from scaling.training import loggers
from scaling.training.experiment import assemble
from tests.training.conftest import left, load, same, words
from tests.wandb_server.server import serving


def attempt(runs):
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return ledger.folder(run)


def of_csv(folder):
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert any(row["evaluate/loss"] for row in rows)
    return {int(row["step"]): float(row["train/loss"]) for row in rows if row["train/loss"]}


def of_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return {event.step: event.value for event in EventAccumulator(str(folder)).Reload().Scalars("train/loss")}


def of_mlflow(folder):
    with sqlite3.connect(folder.with_name("mlflow-001.db")) as store:
        return dict(store.execute("select step, value from metrics where key = 'train/loss'"))


@pytest.mark.parametrize(("name", "losses"), [("csv", of_csv), ("tensorboard", of_tensorboard), ("mlflow", of_mlflow)])
def test_a_logger_of_the_config_keeps_the_losses(name, losses, tmp_path, run, unbroken, monkeypatch):
    if name != "csv":
        pytest.importorskip(name)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run(log__loggers=f"[{name}]")
    same(left(tmp_path / "runs"), unbroken)
    trained = {step: loss for (step, kind), loss in unbroken.losses.items() if kind == "train"}
    assert losses(attempt(tmp_path / "runs") / f"{name}-001") == pytest.approx(trained, rel=1e-6)


def test_a_person_s_loggers_join_beside_our_own_run_of_wandb(tmp_path, unbroken, monkeypatch):
    import wandb

    table = CSVLogger(tmp_path, name="own", version="", flush_logs_every_n_steps=1)
    line = words(tmp_path / "runs", log__wandb="online")
    with serving() as server:
        for name, value in {**server.environment(), "WANDB_MODE": "online", "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        wandb.teardown()
        own = WandbLogger(project="mine", name="a person's", save_dir=tmp_path)
        try:
            scaling.train(*line, progress=False, logger=[own, table])
            wandb.finish()
        finally:
            wandb.teardown()  # a process forked from this one would speak to the service that was set up here
        runs = list(server.world.runs.values())
    same(left(tmp_path / "runs"), unbroken)
    trained = [loss for (_, kind), loss in unbroken.losses.items() if kind == "train"]
    assert list(of_csv(tmp_path / "own").values()) == pytest.approx(trained, rel=1e-6)
    shown = {
        run.given["displayName"]: [row["train/loss"] for _, row in sorted(run.rows.items()) if "train/loss" in row]
        for run in runs
    }
    assert shown == {"a person's": trained, Ledger.open(tmp_path / "runs").status(unbroken.result["run"]).name: trained}


def test_a_logger_that_fails_is_one_warning(tmp_path, run, unbroken, monkeypatch, caplog):
    class Full(CSVLogger):
        def log_metrics(self, *_):
            raise OSError("no room\nfor it")

    monkeypatch.setattr(loggers, "CSVLogger", Full)
    run(log__loggers="[csv]")
    same(left(tmp_path / "runs"), unbroken)
    line = [record.message for record in caplog.records if record.name == "scaling.training.wandb_settings"]
    assert line == ["Full: no room for it; the run goes on without it"]


def test_metrics_are_lines_of_the_log(tmp_path):
    log = Log(tmp_path / "log.jsonl")
    metrics = {"train/loss": 2.5, "train/tokens": 64, "epoch": 0, "evaluate/metrics": {"f1": 0.5}}
    loggers.JsonlLogger(log).log_metrics(metrics, step=3)
    log.close()
    lines = [{key: value for key, value in entry.items() if key != "crc"} for entry in entries(tmp_path / "log.jsonl")]
    assert lines == [
        {"kind": "train", "step": 3, "loss": 2.5, "tokens": 64},
        {"kind": "evaluate", "step": 3, "metrics": {"f1": 0.5}},
    ]


@pytest.mark.parametrize("name", ["tensorboard", "mlflow"])
def test_a_package_that_is_not_there(name, monkeypatch, tmp_path):
    from scaling.training import values

    found = importlib.util.find_spec
    monkeypatch.setattr(values, "find_spec", lambda module: None if module == name else found(module))
    with pytest.raises(ScalingError) as error:
        assemble(load(words(tmp_path, log__loggers=f"[csv, {name}]")))
    assert error.value.key == "log.loggers"
    assert str(error.value).endswith(f"pip install 'scaling[{name}]', or leave {name} out")


def test_a_logger_that_does_not_exist(tmp_path):
    with pytest.raises(ScalingError, match=r"log\.loggers.*csv"):
        assemble(load(words(tmp_path, log__loggers="[cvs]")))
