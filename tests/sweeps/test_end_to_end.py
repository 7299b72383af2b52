"""The real `wandb sweep` and `wandb agent`, our agent, our `--local` and `pull`: one sweep, one table, to the digit."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from scaling.ledger import Ledger
from scaling.sweeps.assignment import Assignment, Roster
from tests.sweeps.conftest import PATIENT, WORDS, tree, until, write
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


def ours(server: Server, *words: str) -> list[str]:
    return [SCALING, "agent", f"me/proj/{max(server.world.sweeps)}", *words]


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
    go(*ours(server))
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    again = [server.world.runs[name] for name in server.world.sweeps["s0000001"].runs]
    assert {run.summary["evaluate/loss"] for run in again} == {run.summary["loss"] for run in runs}

    sent = server.sent()
    assert CANARY.encode() not in sent
    assert str(tmp_path).encode() not in sent
    assert sys.executable.encode() not in sent


def lost(server: Server, roster: Roster) -> str:
    """A run that was handed to an agent of ours which died before it knew what it was to train."""
    agent = server.world.create_agent({"sweep": "s0000000"})["agent"]["id"]
    (command,) = json.loads(server.world.agent_heartbeat({"id": agent})["commands"])
    drawn = tuple(f"{key}={line['value']}" for key, line in command["args"].items())
    with roster.present():
        roster.take(Assignment(command["run_id"], "", drawn, ""))
    return command["run_id"]


@pytest.mark.slow
def test_our_agent_lives_through_faults_an_edit_and_a_stop(server, environment, tmp_path):
    """It takes over what another has left; the server fails, dies and comes back while that run trains, then stops it;
    the sweep is edited meanwhile, and what was edited holds for the next run.
    """
    lengths = {"trainer.max_steps": {"values": [200_000, 12]}}
    server.world.upsert_sweep({"config": small(tmp_path, parameters=lengths).read_text(), "projectName": "proj"})
    roster = Roster(tmp_path / "runs" / "sweeps" / "s0000000")
    left = lost(server, roster)
    server.fail("status", status=500, times=3)
    server.fail("status", status=429, headers={"Retry-After": "1"}, times=2)
    process = subprocess.Popen(ours(server), cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    (log,) = until(lambda: list(tmp_path.glob("runs/store/*/log.jsonl")), process)
    server.stop()
    size = log.stat().st_size
    until(lambda: log.stat().st_size > size, process)
    words = tree()["command"]
    edited = [word.replace("evaluate.points=4", "evaluate.points=2") for word in [SCALING, *words[1:]]]
    changed = small(tmp_path, command=edited, parameters=lengths).read_text()
    server.world.upsert_sweep({"id": "sweep:s0000000", "config": changed})
    server.world.runs[left].stopped = True
    server.start()
    _, told = process.communicate(timeout=1200)
    assert process.returncode == 0, told
    ledger = Ledger.open(tmp_path / "runs")
    ends = {
        (spec["trainer"]["max_steps"], spec["evaluate"]["points"]): (ledger.result(run) or {})["outcome"]
        for run in ledger.runs()
        for spec in [ledger.spec(run)]
    }
    assert ends == {(200_000, 4): "pruned", (12, 2): "finished"}
    assert server.world.runs[left].summary["outcome"] == "pruned"
    assert {one.run for one in roster.assigned()} == set(ledger.runs())


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
def test_requeued_by_slurm_the_run_goes_on(server, environment, tmp_path):
    small(tmp_path, steps=10_000, parameters={"optimizer.lr": {"values": [0.01]}})
    server.world.upsert_sweep({"config": (tmp_path / "small.yaml").read_text(), "projectName": "proj"})
    process = subprocess.Popen(ours(server), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL)
    logs = partial(tmp_path.glob, "runs/store/*/log.jsonl")
    until(lambda: any(b'"kind":"train"' in log.read_bytes() for log in logs()), process)  # a step to go on from
    process.send_signal(signal.SIGTERM)
    assert process.wait(1200) == 128 + signal.SIGTERM
    done = subprocess.run(ours(server), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    assert (ledger.result(run) or {})["circumstances"]["from_step"] > 0
    assert [run.state for run in server.world.runs.values()] == ["finished"]


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("count", "killed", "seeds"), [(4, 2, 6), (20, 5, 30)])
def test_agents_of_which_some_are_killed_lose_nothing_and_do_nothing_twice(
    server, environment, tmp_path, count, killed, seeds
):
    small(tmp_path, steps=200, parameters={"seed": {"min": 1, "max": seeds}})
    server.world.upsert_sweep({"config": (tmp_path / "small.yaml").read_text(), "projectName": "proj"})
    agents = [
        subprocess.Popen(ours(server), cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(count)
    ]
    chance = random.Random(5)

    def results() -> int:
        return len(list(tmp_path.glob("runs/store/*/result.json")))

    for victim in chance.sample(agents, killed):
        done = results()
        until(lambda done=done, victim=victim: results() > done or victim.poll() is not None)
        time.sleep(chance.uniform(0, 2))
        with contextlib.suppress(ProcessLookupError):  # all trials may be done before an agent's turn comes
            os.killpg(victim.pid, signal.SIGKILL)
    codes = Counter(agent.wait(1200) for agent in agents)
    assert codes[0] >= count - killed
    ledger = Ledger.open(tmp_path / "runs")
    assert [(ledger.result(run) or {}).get("outcome") for run in ledger.runs()] == ["finished"] * seeds
    exits = Counter(
        record.end["outcome"] for run in ledger.runs() for record in ledger.attempts(run) if record.end is not None
    )
    assert exits["finished"] == seeds, "each finished once"
    handed = Counter(name for _, name in server.world.claims)
    assert len(handed) == seeds
    assert set(handed.values()) == {1}
    shown = [run.summary.get("outcome") for run in server.world.runs.values()]
    assert shown == ["finished"] * seeds
