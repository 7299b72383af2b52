"""A sweep with no server: the runs that the real client would draw, each once, through warm workers and the ledger."""

from __future__ import annotations

import csv
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from tests.sweeps.conftest import tree, until, write
from tests.wandb_server import draw


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A small grid, run twice in one folder: what both left."""
    folder = tmp_path_factory.mktemp("local")
    before = os.getcwd()
    os.chdir(folder)
    try:
        path = write(folder / "small.yaml")
        codes = [main(["sweep", str(path), "--local", "--workers", "2", "--json"]) for _ in range(2)]
    finally:
        os.chdir(before)
    return folder, codes


def points(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.glob("runs/sweeps/*/points.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_the_runs_are_those_that_the_server_draws(done):
    folder, codes = done
    assert codes == [0, 0]
    ledger = Ledger.open(folder / "runs")
    ours = {(ledger.spec(run)["optimizer"]["lr"], ledger.spec(run)["seed"]) for run in ledger.runs()}
    theirs = {(cell["optimizer.lr"], cell["seed"]) for cell in draw.configs(tree(), random.Random(0))}
    assert ours == theirs


def test_each_run_is_trained_once(done):
    folder, _ = done
    ledger = Ledger.open(folder / "runs")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    table = points(folder)
    assert [row["status"] for row in table] == ["finished"] * 4
    assert {row["run"]: float(row["loss"]) for row in table} == {
        run: (ledger.result(run) or {})["loss"] for run in ledger.runs()
    }


def test_swept_keys_are_columns_of_the_points(tmp_path, monkeypatch):
    from scaling.laws.points import load_points

    monkeypatch.chdir(tmp_path)
    parameters = {
        "optimizer.weight_decay": {"values": [0.0, 0.1]},
        "seed": {"values": [3]},
        "size": {"values": [{"width": 8}]},
    }
    path = write(tmp_path / "decay.yaml", parameters=parameters)
    assert main(["sweep", str(path), "--local", "--workers", "1"]) == 0
    table = points(tmp_path)
    assert [(row["optimizer.weight_decay"], row["size.width"], row["seed"]) for row in table] == [
        ("0", "8", "3"),
        ("0.1", "8", "3"),
    ]
    (file,) = tmp_path.glob("runs/sweeps/*/points.csv")
    assert len(load_points(file, where=["optimizer.weight_decay=0.1"])) == 1


def test_what_hyperband_stops_ends_as_pruned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(
        tmp_path / "band.yaml",
        early_terminate={"type": "hyperband", "min_iter": 1, "eta": 2},
        parameters={"optimizer.lr": {"values": [0.03, 3e-4, 2e-4, 1e-4]}},
    )
    assert main(["sweep", str(path), "--local", "--workers", "1"]) == 0
    status = {row["name"]: row["status"] for row in points(tmp_path)}
    # The second is not yet worse than the better half of two.
    ends = {"0.03": "finished", "0.0003": "finished", "0.0002": "pruned", "0.0001": "pruned"}
    assert status == {f"lr={rate}": end for rate, end in ends.items()}
    ledger = Ledger.open(tmp_path / "runs")
    for run in ledger.runs():
        result = ledger.result(run)
        assert result is not None
        if result["outcome"] == "pruned":
            assert result["step"] < 12
            assert result["loss"] > 0


def command(path: Path) -> list[str]:
    return [sys.executable, "-m", "scaling", "sweep", str(path), "--local", "--workers", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_stopped_and_started_again_it_ends_the_same(number, tmp_path, done):
    path = write(tmp_path / "small.yaml")
    process = subprocess.Popen(command(path), cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until(lambda: list(tmp_path.glob("runs/store/*/log.jsonl")), process)
    process.send_signal(number)
    code = process.wait(1200)
    assert code == (-number if number == signal.SIGKILL else 128 + number)
    assert subprocess.run(command(path), cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert points(tmp_path) == points(done[0])
