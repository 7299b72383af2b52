"""Sweeps here, by W&B's own client, and pulled: the same runs, each once; whole, counted, never silent on a gap."""

import csv
import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

import scaling
from scaling.laws.points import load_points
from scaling.ledger import Ledger
from scaling.ledger.document import entries
from scaling.studies.plan import plan
from scaling.sweeps.pull import STEP
from scaling.tables.study import question
from scaling.tables.table import read as read_table
from scaling.verbs.command_line import main
from tests import command_line
from tests.command_line import printed
from tests.serial import work
from tests.studies.test_unfinished import until
from tests.sweeps.conftest import PATIENT, WORDS, tree, write
from tests.wandb_server.server import KEY, Request, Run, Server


def table(folder: Path) -> bytes:
    (path,) = folder.rglob("points.csv")
    return path.read_bytes()


def points(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(table(folder).decode().splitlines()))


def test_each_cell_of_a_grid_is_trained_once_and_is_a_row_of_the_points(tmp_path, monkeypatch):
    """The command is given twice in one folder. Swept keys are columns."""
    monkeypatch.chdir(tmp_path)
    swept = {"optimizer.weight_decay": [0.0, 0.1], "seed": [1, 2], "size": [{"width": 8}]}
    path = write(tmp_path / "small.yaml", parameters={key: {"values": values} for key, values in swept.items()})
    for _ in range(2):
        assert main(["sweep", str(path), "--local", "--workers", "2"]) == 0
    ledger, rows = Ledger.open("runs"), points(tmp_path)
    cells = {(row["optimizer.weight_decay"], row["seed"], row["size.width"]) for row in rows}
    assert cells == {*itertools.product(("0", "0.1"), "12", "8")}
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs())
    ended = {run: ("finished", (ledger.result(run) or {})["loss"]) for run in ledger.runs()}
    assert {row["run"]: (row["status"], float(row["loss"])) for row in rows} == ended
    (ledger.folder(ledger.runs()[0]) / "result.json").unlink()
    assert main(["sweep", str(path), "--missing", "--workers", "1"]) == 0
    assert [len(ledger.attempts(run)) for run in ledger.runs()] == [2, 1, 1, 1]
    assert main(["sweep", str(path), "--local", "--count", "1", "--workers", "1"]) == 0  # the others stay
    (file,) = tmp_path.glob("runs/sweeps/*/points.csv")
    assert len(load_points(file, where=["optimizer.weight_decay=0.1"])) == 2


def test_what_hyperband_stops_ends_as_pruned(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rule, rates = {"type": "hyperband", "min_iter": 1, "eta": 2}, {"optimizer.lr": {"values": [0.03, 3e-4, 2e-4, 1e-4]}}
    path = write(tmp_path / "band.yaml", early_terminate=rule, parameters=rates)
    assert main(["sweep", str(path), "--local", "--workers", "1"]) == 0
    ledger = Ledger.open("runs")
    ends = {row["name"]: (row["status"], ledger.result(row["run"])["step"] < 12) for row in points(tmp_path)}
    finished, pruned = ("finished", False), ("pruned", True)
    # The second is not yet worse than the better half of two.
    assert ends == {"lr=0.03": finished, "lr=0.0003": finished, "lr=0.0002": pruned, "lr=0.0001": pruned}


CANARY = "canary-51c0b7e2"
SCALING = str(Path(sys.executable).with_name("scaling"))
# The client's own agent, which looks at its run every five seconds, made to look more often.
AGENT = "import wandb.wandb_agent as a; a.Agent.POLL_INTERVAL = 0.2\nfrom wandb.cli.cli import cli; cli()"


def small(folder: Path, steps: int, rates: list[float]) -> Path:
    """The small sweep with a command that the shell of any machine finds."""
    words = [f"trainer.max_steps={steps}" if word.startswith("trainer.max_steps") else word for word in WORDS]
    command = [SCALING, "train", *words, "${args_no_hyphens}"]
    return write(folder / "small.yaml", command=command, parameters={"optimizer.lr": {"values": rates}})


@pytest.fixture
def start(server, tmp_path) -> Callable[..., subprocess.Popen[Any]]:
    """Start a command at our server, with secrets in its environment."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    secrets = {"SECRET_TOKEN": CANARY, "HOSTNAME": CANARY}
    environment = {**kept, **server.environment(), **PATIENT, **secrets, "HOME": str(tmp_path)}
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    return lambda *words: subprocess.Popen(words, cwd=tmp_path, env=environment, **quiet)


@pytest.mark.slow
def test_from_the_clients_sweep_to_our_table(server, start, tmp_path):
    def go(*words: str) -> None:
        assert start(*words).wait(1200) == 0

    small(tmp_path, 12, [0.01, 0.02])
    go(sys.executable, "-m", "wandb", "sweep", "small.yaml", "-p", "proj")
    go(sys.executable, "-c", AGENT, "agent", "me/proj/s0000000")
    runs = [*server.world.runs.values()]
    assert [(run.state, run.summary["outcome"]) for run in runs] == [("finished", "finished")] * 2
    assert {run.config["optimizer.lr"]["value"] for run in runs} == {0.01, 0.02}
    go(SCALING, "pull", "me/proj/s0000000", "--to", "pulled")
    go(SCALING, "sweep", "small.yaml", "--local", "--workers", "1")
    ledger = Ledger.open(tmp_path / "runs")
    assert table(tmp_path / "pulled") == table(tmp_path / "runs")
    for run in runs:
        output = ledger.history(run.config["run"]["value"])
        shown = [row["evaluate/loss"] for _, row in sorted(run.rows.items()) if "evaluate/loss" in row]
        assert shown == [entry["loss"] for entry in output if entry["kind"] == "evaluate"]
    # A sweep of the same runs: none is trained again, and the server has every metric all the same.
    go(SCALING, "sweep", "small.yaml")
    go(sys.executable, "-c", AGENT, "agent", "me/scaling/s0000001")
    assert all(len(ledger.attempts(run)) == 1 for run in ledger.runs()), "--local found all of it done too"
    again = [server.world.runs[name] for name in server.world.sweeps["s0000001"].runs]
    assert {run.summary["evaluate/loss"] for run in again} == {run.summary["loss"] for run in runs}
    sent = server.sent()
    assert [secret for secret in (CANARY, str(tmp_path), sys.executable) if secret.encode() in sent] == []


@pytest.mark.slow
def test_the_clients_agent_is_told_to_stop(server, start, tmp_path):
    """Its SIGTERM comes before its client knows why; the run asks, and ends as pruned."""
    path = small(tmp_path, 200_000, [0.01])
    server.world.upsert_sweep({"config": path.read_text(), "projectName": "proj"})
    process = start(sys.executable, "-c", AGENT, "agent", "me/proj/s0000000")
    until(lambda: any(run.rows for run in list(server.world.runs.values())), process, 900)
    server.world.runs["r0000000"].stopped = True
    process.wait(1200)
    ledger = Ledger.open(tmp_path / "runs")
    assert [(ledger.result(run) or {}).get("outcome") for run in ledger.runs()] == ["pruned"]


POINT = {"N": 1000, "D": 2000, "C": 1.2e7, "N_total": 1500, "S": 20, "B": 100, "lr": 0.01, "seed": 1}


def add(server: Server, number: int, steps: int = 20, run: int | None = None, **changes: Any) -> Run:
    """A finished run of ours, logged as the mirror does: a row a step, and one more for every fifth's evaluation."""
    one = Run("proj", f"w{number:07d}", state="finished")
    output = {"run": f"{number if run is None else run:016x}", "attempt": 1, "point": POINT | {"seed": number}}
    one.config = {key: {"value": value} for key, value in output.items()}
    for step in range(1, steps + 1):
        held_out = [{"evaluate/loss": 3.1 - 1e-3 * step + 1e-5 * number}] if step % 5 == 0 else []
        for values in ({"train/loss": 3.0 - 1e-3 * step}, *held_out):
            row = len(one.rows)
            one.rows[row] = {"_step": row, "_timestamp": 1.0, STEP: step, "tokens": 100 * step, **values}
    loss, last = 3.1 - 1e-3 * steps + 1e-5 * number, len(one.rows) - 1
    one.summary = {"outcome": "finished", "loss": loss, "step": steps, "evaluate/loss": loss, "_step": last}
    server.world.runs[one.name] = replace(one, **changes)
    return server.world.runs[one.name]


refused = partial(command_line.refused, but="^(?!scaling: )")  # lines of W&B's client


def pulled() -> list[dict[str, str]]:
    return points(Path("pulled"))


def pull(*words: str) -> int:
    return main(["pull", "me/proj", "--to", "pulled", *words])


def fetched() -> set[str]:
    """The runs that the copy has whole."""
    logs = Path("pulled").glob("store/*/log.jsonl")
    return {start["wandb"].rpartition("/")[2] for log in logs for start in entries(log) if start["kind"] == "start"}


def is_history(request: Request) -> bool:
    return "query RunParquetHistory" in request.query


def scanned(server: Server) -> list[str]:
    """The runs of which a page of the history was asked for."""
    return [json.loads(one.body)["variables"]["runName"] for one in list(server.requests) if is_history(one)]


def test_a_project_comes_whole_and_once_and_what_is_missing_is_said_and_fetched_later(client, capsys):
    for number in range(3):
        add(client, number, steps=1500)
    assert pull() == 0
    assert [float(row["loss"]) for row in pulled()] == [run.summary["loss"] for run in client.world.runs.values()]
    history = Ledger.open("pulled").history(f"{1:016x}")
    assert [entry["step"] for entry in history if entry["kind"] == "train"] == list(range(1, 1501))
    output = [(entry["step"], entry["loss"]) for entry in history if entry["kind"] == "evaluate"]
    assert output == [(step, 3.1 - 1e-3 * step + 1e-5) for step in range(5, 1501, 5)]
    client.requests.clear()
    run = add(client, 3)
    for step, lines, what in ((7, 24, "23 of 24 rows"), (23, None, "its rows end at 22, and W&B's at 23")):
        row, run.lines = run.rows.pop(step), lines
        assert pull() == 1
        assert f"not complete: me/proj/w0000003: {what}" in capsys.readouterr().out
        assert len(pulled()) == 4
        run.rows[step] = row
    assert pull() == 0
    assert scanned(client) == ["w0000003"] * 3, "what is whole is not asked for again"
    assert len(Ledger.open("pulled").attempts(f"{3:016x}")) == 1


def test_a_busy_server_is_waited_for_and_a_broken_one_ends_in_one_line_and_loses_nothing(client, capsys):
    for number in range(6):
        add(client, number)
    client.fail("status", status=429, headers={"Retry-After": "1"}, matches=is_history)
    client.fail("status", status=500, matches=lambda request: "query Runs" in request.query)
    client.fail("cut", matches=is_history)
    client.fail("status", times=10**6, status=500, matches=lambda one: is_history(one) and b'"w0000004"' in one.body)
    begun = time.monotonic()
    assert pull() == 1
    assert time.monotonic() - begun >= 1
    error = capsys.readouterr().err
    assert ("the same command goes on" in error, "Traceback" in error) == (True, False)
    before = fetched()
    assert before
    client.faults.clear()
    client.requests.clear()
    assert pull() == 0
    assert len(pulled()) == 6
    assert {*scanned(client)} == {f"w{number:07d}" for number in range(6)} - before


def test_a_fit_of_a_project_is_that_of_its_points_and_a_source_that_is_none_is_one_line(client, capsys):
    for number in range(6):
        run = add(client, number)
        run.config["point"]["value"] |= {"D": 1000 * 2**number}
        run.summary["loss"] = 2.0 + 30.0 * (1000 * 2**number) ** -0.5
    assert pull() == 0
    first, *others = (
        scaling.fit(source, law="power_law_floor_d", intervals="none").estimates
        for source in ("pulled/points.csv", "wandb:me/proj", "wandb:https://wandb.ai/me/proj/workspace?nw=me")
    )
    assert first["E"] == pytest.approx(2.0)
    assert others == [first, first]
    assert Path("runs/pulled/me-proj/points.csv").read_bytes() == Path("pulled/points.csv").read_bytes()
    for source, output in {"me/nowhere": "project", "me/proj/nosweep": "sweep", "a/b/c/d": "ENTITY/PROJECT"}.items():
        assert output in refused(capsys, "pull", source)


def test_runs_of_others_and_running_ones_are_counted_and_attempts_of_one_run_become_one(client, capsys):
    killed, later = add(client, 0, run=7, state="crashed", summary={"_step": 11}), add(client, 1, run=7)
    killed.rows = {row: values for row, values in killed.rows.items() if row <= 11}
    later.rows = {row: values for row, values in later.rows.items() if row >= 6}
    add(client, 2, run=7, summary={**later.summary, "loss": 9.5})
    add(client, 3, config={"learning_rate": {"value": 1}})
    running = add(client, 4, state="running", summary={"loss": 4.0})
    best = {"score": 0.7, "evaluate/score": 0.4, "evaluate/losses.a": 3.5, "evaluate/losses.b": 2.5}
    add(client, 5, summary={**later.summary, **best}, sweep="gone")
    assert pull() == 0
    output = capsys.readouterr().out
    another = "another result: loss is 3.08001 in me/proj/w0000001 and 9.5 in me/proj/w0000002"
    assert all(line in output for line in ("1 not ours", "1 still running", another))
    assert {int(row["run"], 16): row["status"] for row in pulled()} == {7: "finished", 4: "missing", 5: "finished"}
    assert [float(row["loss"]) for row in pulled() if row["loss"]] == [later.summary["loss"]] * 2
    ledger = Ledger.open("pulled")
    result = ledger.result(f"{5:016x}")
    assert (result["score"], result["losses"]) == (0.7, {"a": 3.5, "b": 2.5})
    ends = [one.end["outcome"] for one in ledger.attempts(f"{7:016x}") if one.end]
    assert ends == ["stopped", "finished", "finished"]
    steps = [entry["step"] for entry in ledger.history(f"{7:016x}") if entry["kind"] == "train"]
    assert steps == list(range(1, 21))
    running.state, running.summary = "finished", {"outcome": "diverged", "step": 9}
    assert pull() == 0
    assert {row["status"] for row in pulled()} == {"diverged", "finished"}


def test_a_table_of_what_was_pulled_is_the_ledgers(client, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "online")
    base, *settings = (word for word in WORDS if word != "data=synthetic")
    rows = {"SwiGLU": {}, "GeLU": {"model.block.channel": {"kind": "Dense", "activation": "GeLU"}}}
    document = {"base": base, "data.kind": "Synthetic", "rows": rows, "table": {"baseline": "SwiGLU"}}
    document |= {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in settings)}
    Path("rows.yaml").write_text(json.dumps(document))
    found = plan(question(read_table("rows.yaml")))
    work(found.ledger(), found)
    assert {run.summary["outcome"] for run in client.world.runs.values()} == {"finished"}
    assert main(["pull", "me/scaling", "--table", "rows.yaml", "--to", "pulled"]) == 0
    first, *others = (scaling.table("rows.yaml", source=source) for source in ("runs", "pulled", "wandb:me/scaling"))
    assert first.document["rows"]
    assert [other.to_json() for other in others] == [first.to_json()] * 2
    for run in Ledger.open("runs").runs():
        one, two = (
            [entry for entry in Ledger.open(folder).history(run) if entry["kind"] == "evaluate"]
            for folder in ("runs", "pulled")
        )
        assert two == [{key: value for key, value in entry.items() if value is not None} for entry in one]
        assert main(["show", run, "runs=pulled"]) == 0


def test_the_server_has_the_file_as_it_stands(client, capsys):
    output = printed(capsys, "sweep", write(Path("small.yaml")), "--count", "3")
    assert "registered as me/scaling/s0000000" in output
    assert client.world.sweeps["s0000000"].config == tree(run_cap=3)


@pytest.mark.parametrize(
    ("key", "words", "what"),
    [
        (KEY, [], "may the key write to me/"),
        ("0" * 40, [], "check the key"),
        (None, [], "no W&B key: nothing was sent"),
        (KEY, ["seed=1"], "seed=1: a registered sweep's agents read the file alone"),
        (KEY, ["--workers", "2"], "add --local"),
        (KEY, ["--local", "optimizer.lr=0.5"], "the sweep gives optimizer.lr its values"),
    ],
)
def test_a_refusal_is_one_line_and_nothing_is_registered(key, words, what, client, capsys, monkeypatch):
    monkeypatch.delenv("WANDB_API_KEY") if key is None else monkeypatch.setenv("WANDB_API_KEY", key)
    client.fail("status", status=403, times=100, matches=lambda request: "UpsertSweep" in request.query)
    assert what in refused(capsys, "sweep", write(Path("small.yaml")), *words)
    assert not client.world.sweeps
    assert not client.requests or (key and not words)


def test_a_sweep_that_a_server_sends_runs_no_code_and_an_own_file_may(client, tmp_path, capsys):
    Path("evil.py").write_text("open('ran', 'w')")
    path = write(Path("small.yaml"))
    *command, arguments = tree()["command"]
    document = tree(command=[*command, "--extend", "evil.py", arguments])
    client.world.upsert_sweep({"config": yaml.safe_dump(document), "projectName": "proj"})
    add(client, 0, sweep="s0000000")
    assert pull() == 0
    assert not Path("ran").exists()
    path.write_text(yaml.safe_dump(document))
    main(["sweep", str(path), "--dry-run"])
    assert Path("ran").exists()
