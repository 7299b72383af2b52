"""Sweeps with no server, and by the real `wandb sweep` and `wandb agent`: the same runs, each once; one table, to the
digit.
"""

from __future__ import annotations

import csv
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.laws.points import load_points
from scaling.ledger import Ledger
from tests.sweeps.conftest import PATIENT, WORDS, until, write

PARAMETERS = {
    "optimizer.weight_decay": {"values": [0.0, 0.1]},
    "seed": {"values": [1, 2]},
    "size": {"values": [{"width": 8}]},
}


def table(folder: Path) -> bytes:
    (path,) = folder.rglob("points.csv")
    return path.read_bytes()


def points(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(table(folder).decode().splitlines()))


def test_each_cell_of_a_grid_is_trained_once_and_is_a_row_of_the_points(tmp_path, monkeypatch):
    """The command is given twice in one folder. Swept keys are columns."""
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "small.yaml", parameters=PARAMETERS)
    for _ in range(2):
        assert main(["sweep", str(path), "--local", "--workers", "2"]) == 0
    ledger, rows = Ledger.open("runs"), points(tmp_path)
    cells = {(row["optimizer.weight_decay"], row["seed"], row["size.width"]) for row in rows}
    assert cells == {*itertools.product(("0", "0.1"), "12", "8")}
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    assert [row["status"] for row in rows] == ["finished"] * 4
    assert {row["run"]: float(row["loss"]) for row in rows} == {
        run: (ledger.result(run) or {})["loss"] for run in ledger.runs()
    }
    (ledger.folder(ledger.runs()[0]) / "result.json").unlink()
    assert main(["sweep", str(path), "--missing", "--workers", "1"]) == 0
    assert [len(ledger.attempts(run)) for run in ledger.runs()] == [2, 1, 1, 1]
    (file,) = tmp_path.glob("runs/sweeps/*/points.csv")
    assert len(load_points(file, where=["optimizer.weight_decay=0.1"])) == 2


def test_what_hyperband_stops_ends_as_pruned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule, rates = {"type": "hyperband", "min_iter": 1, "eta": 2}, {"optimizer.lr": {"values": [0.03, 3e-4, 2e-4, 1e-4]}}
    path = write(tmp_path / "band.yaml", early_terminate=rule, parameters=rates)
    assert main(["sweep", str(path), "--local", "--workers", "1"]) == 0
    # The second is not yet worse than the better half of two.
    ends = {"0.03": "finished", "0.0003": "finished", "0.0002": "pruned", "0.0001": "pruned"}
    assert {row["name"]: row["status"] for row in points(tmp_path)} == {f"lr={rate}": end for rate, end in ends.items()}
    ledger = Ledger.open("runs")
    for result in map(ledger.result, ledger.runs()):
        assert result is not None
        assert (result["step"] < 12) == (result["outcome"] == "pruned")
        assert result["loss"] > 0


# The client's own commands, at our server

CANARY = "canary-51c0b7e2"
SCALING = str(Path(sys.executable).with_name("scaling"))
# The client's own agent, which looks at its run every five seconds, made to look more often.
AGENT = "import wandb.wandb_agent as a; a.Agent.POLL_INTERVAL = 0.2\nfrom wandb.cli.cli import cli; cli()"


@pytest.fixture
def start(server, tmp_path) -> Callable[..., subprocess.Popen[str]]:
    """Start a command at our server, with secrets in its environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    secrets = {"SECRET_TOKEN": CANARY, "HOSTNAME": CANARY}
    environment = {**kept, **server.environment(), **PATIENT, **secrets, "HOME": str(tmp_path)}
    how: Any = {"cwd": tmp_path, "env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return lambda *words: subprocess.Popen(words, **how, text=True, start_new_session=True)


@pytest.fixture
def go(start) -> Callable[..., str]:
    """Give a command that ends well; what it printed."""

    def run(*words: str) -> str:
        process = start(*words)
        out, _ = process.communicate(timeout=1200)
        assert process.returncode == 0
        return out

    return run


def small(folder: Path, steps: int, **parameters: Any) -> Path:
    """The small sweep with a command that the shell of any machine finds."""
    words = [word for word in WORDS if not word.startswith("trainer.max_steps")]
    command = [SCALING, "train", *words, f"trainer.max_steps={steps}", "${args_no_hyphens}"]
    return write(folder / "small.yaml", command=command, parameters=parameters)


@pytest.mark.slow
def test_from_the_clients_sweep_to_our_table(server, go, tmp_path):
    small(tmp_path, 12, **{"optimizer.lr": {"values": [0.01, 0.02]}})
    go(sys.executable, "-m", "wandb", "sweep", "small.yaml", "-p", "proj")
    go(sys.executable, "-c", AGENT, "agent", "me/proj/s0000000")
    runs = [*server.world.runs.values()]
    assert [(run.state, run.summary["outcome"]) for run in runs] == [("finished", "finished")] * 2
    assert {run.config["optimizer.lr"]["value"] for run in runs} == {0.01, 0.02}
    go(SCALING, "pull", "me/proj/s0000000", "--to", "pulled")
    go(SCALING, "sweep", "small.yaml", "--local", "--workers", "1")
    ledger = Ledger.open(tmp_path / "runs")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs()), "--local found all of it done"
    assert table(tmp_path / "pulled") == table(tmp_path / "runs")
    for run in runs:
        output = ledger.history(run.config["run"]["value"])
        shown = [row["evaluate/loss"] for _, row in sorted(run.rows.items()) if "evaluate/loss" in row]
        assert shown == [entry["loss"] for entry in output if entry["kind"] == "evaluate"]

    # A sweep of the same runs: none is trained again, and the server has every metric all the same.
    go(SCALING, "sweep", "small.yaml")
    go(sys.executable, "-c", AGENT, "agent", "me/scaling/s0000001")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    again = [server.world.runs[name] for name in server.world.sweeps["s0000001"].runs]
    assert {run.summary["evaluate/loss"] for run in again} == {run.summary["loss"] for run in runs}
    sent = server.sent()
    for secret in (CANARY, str(tmp_path), sys.executable):
        assert secret.encode() not in sent


@pytest.mark.slow
def test_the_clients_agent_is_told_to_stop(server, start, tmp_path):
    """Its SIGTERM comes before its client knows why; the run asks, and ends as pruned."""
    path = small(tmp_path, 200_000, **{"optimizer.lr": {"values": [0.01]}})
    server.world.upsert_sweep({"config": path.read_text(), "projectName": "proj"})
    process = start(sys.executable, "-c", AGENT, "agent", "me/proj/s0000000")
    until(lambda: any(run.rows for run in list(server.world.runs.values())), process)
    server.world.runs["r0000000"].stopped = True
    process.wait(1200)
    ledger = Ledger.open(tmp_path / "runs")
    assert [(ledger.result(run) or {}).get("outcome") for run in ledger.runs()] == ["pruned"]
