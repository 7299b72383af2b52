"""The real `wandb sweep` and `wandb agent`, `--local`, `--missing` and `pull`: one sweep, one table, to the digit."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from scaling.ledger import Ledger
from tests.sweeps.conftest import PATIENT, WORDS, until, write
from tests.wandb_server.server import Server

CANARY = "canary-51c0b7e2"
SCALING = str(Path(sys.executable).with_name("scaling"))
# The client's own agent, which looks at its run every five seconds, made to look more often.
AGENT = "import wandb.wandb_agent as a; a.Agent.POLL_INTERVAL = 0.2\nfrom wandb.cli.cli import cli; cli()"

Go = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def environment(server: Server, tmp_path: Path) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    secrets = {"SECRET_TOKEN": CANARY, "HOSTNAME": CANARY}
    return {**kept, **server.environment(), **PATIENT, **secrets, "HOME": str(tmp_path)}


@pytest.fixture
def go(environment: dict[str, str], tmp_path: Path) -> Go:
    def run(*words: str, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=1200, check=False
        )
        assert code is None or done.returncode == code, done.stderr[-3000:]
        return done

    return run


def small(folder: Path, steps: int = 12, **changes: object) -> Path:
    """The small sweep with a command that the shell of any machine finds, and a secret that a careless user left."""
    words = [word for word in WORDS if not word.startswith("trainer.max_steps")]
    command = [SCALING, "train", *words, f"trainer.max_steps={steps}", "${args_no_hyphens}"]
    parameters = {"optimizer.lr": {"values": [0.01, 0.02]}}
    return write(folder / "small.yaml", **{"command": command, "parameters": parameters, **changes})


def points(folder: Path) -> bytes:
    (path,) = folder.rglob("points.csv")
    return path.read_bytes()


@pytest.mark.slow
def test_from_the_clients_sweep_to_our_table(server, go, tmp_path):
    small(tmp_path)
    go(sys.executable, "-m", "wandb", "sweep", "small.yaml", "-p", "proj")
    go(sys.executable, "-c", AGENT, "agent", "me/proj/s0000000")
    runs = server.world.runs.values()
    assert [(run.state, run.summary["outcome"]) for run in runs] == [("finished", "finished")] * 2
    assert {run.config["optimizer.lr"]["value"] for run in runs} == {0.01, 0.02}

    go(SCALING, "pull", "me/proj/s0000000", "--to", "pulled")
    go(SCALING, "sweep", "small.yaml", "--local", "--workers", "1")
    ledger = Ledger.open(tmp_path / "runs")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs()), "--local found all of it done"
    assert points(tmp_path / "pulled") == points(tmp_path / "runs")
    rows = list(csv.DictReader(points(tmp_path / "pulled").decode().splitlines()))
    assert {row["run"]: float(row["loss"]) for row in rows} == {
        run: (ledger.result(run) or {})["loss"] for run in ledger.runs()
    }
    for run in runs:
        told = ledger.history(run.config["run"]["value"])
        shown = [row["evaluate/loss"] for _, row in sorted(run.rows.items()) if "evaluate/loss" in row]
        assert shown == [entry["loss"] for entry in told if entry["kind"] == "evaluate"]

    # A sweep of the same runs: none is trained again, and the server has every metric all the same.
    go(SCALING, "sweep", "small.yaml", code=0)
    go(sys.executable, "-c", AGENT, "agent", "me/proj/s0000001")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    again = [server.world.runs[name] for name in server.world.sweeps["s0000001"].runs]
    assert {run.summary["evaluate/loss"] for run in again} == {run.summary["loss"] for run in runs}

    sent = server.sent()
    assert CANARY.encode() not in sent
    assert str(tmp_path).encode() not in sent
    assert sys.executable.encode() not in sent


@pytest.mark.slow
def test_the_clients_agent_is_told_to_stop(server, environment, tmp_path):
    """Its SIGTERM comes before its client knows why; the run asks, and ends as pruned."""
    small(tmp_path, steps=200_000, parameters={"optimizer.lr": {"values": [0.01]}})
    server.world.upsert_sweep({"config": (tmp_path / "small.yaml").read_text(), "projectName": "proj"})
    words = [sys.executable, "-c", AGENT, "agent", "me/proj/s0000000"]
    process = subprocess.Popen(words, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    until(lambda: any(run.rows for run in list(server.world.runs.values())), process)
    server.world.runs["r0000000"].stopped = True
    process.wait(1200)
    ledger = Ledger.open(tmp_path / "runs")
    assert [(ledger.result(run) or {}).get("outcome") for run in ledger.runs()] == ["pruned"]


@pytest.mark.slow
def test_what_a_killed_agent_leaves_is_trained_here(server, environment, go, tmp_path):
    """W&B hands out no run a second time; the ledger shows which cells have no result, and `--missing` trains these."""
    path = small(tmp_path, steps=2_000, parameters={"seed": {"min": 1, "max": 4}})
    server.world.upsert_sweep({"config": path.read_text(), "projectName": "proj"})
    words = [sys.executable, "-c", AGENT, "agent", "me/proj/s0000000"]
    process = subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )

    def results() -> int:
        return len(list(tmp_path.glob("runs/store/*/result.json")))

    until(lambda: results() == 1 and len(list(tmp_path.glob("runs/store/*/log.jsonl"))) == 2, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert results() == 1
    told = go(SCALING, "sweep", "small.yaml", "--missing", "--workers", "2").stdout
    assert "4 finished" in told
    ledger = Ledger.open(tmp_path / "runs")
    ends = Counter(
        record.end["outcome"] for run in ledger.runs() for record in ledger.attempts(run) if record.end is not None
    )
    assert ends["finished"] == len(ledger.runs()) == 4, "each finished once"
