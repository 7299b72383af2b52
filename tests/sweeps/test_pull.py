"""Registering and pulling by the real client, at a server of our own: whole, counted, cached, patient, never silent on
a gap; and tables and fits read what was pulled like any ledger, to the digit.
"""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.ledger.document import entries
from scaling.studies.plan import enter, plan
from scaling.sweeps.pull import STEP
from scaling.tables.study import question
from scaling.tables.table import read as read_table
from tests.serial import work
from tests.sweeps.conftest import WORDS, tree, until, write
from tests.training.conftest import Child
from tests.wandb_server.server import Request, Run, Server

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
    loss = 3.1 - 1e-3 * steps + 1e-5 * number
    one.summary = {
        "outcome": "finished",
        "loss": loss,
        "step": steps,
        "evaluate/loss": loss,
        "_step": len(one.rows) - 1,
    }
    for key, value in changes.items():
        setattr(one, key, value)
    server.world.runs[one.name] = one
    return one


def pull(*words: str) -> int:
    return main(["pull", "me/proj", "--to", "pulled", *words])


def table() -> list[dict[str, str]]:
    with Path("pulled/points.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def fetched() -> set[str]:
    """The runs that the copy has whole."""
    logs = Path("pulled").glob("store/*/log.jsonl")
    return {start["wandb"].rpartition("/")[2] for log in logs for start in entries(log) if start["kind"] == "start"}


def is_history(request: Request) -> bool:
    return "query RunParquetHistory" in request.query


def scanned(server: Server) -> list[str]:
    """The runs of which a page of the history was asked for."""
    return [json.loads(one.body)["variables"]["runName"] for one in list(server.requests) if is_history(one)]


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    output = capsys.readouterr().err
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if line.startswith("scaling: ")]
    return line


def test_a_project_comes_whole_and_once(client):
    for number in range(3):
        add(client, number, steps=1500)
    assert pull() == 0
    assert [float(row["loss"]) for row in table()] == [run.summary["loss"] for run in client.world.runs.values()]
    history = Ledger.open("pulled").history(f"{1:016x}")
    assert [entry["step"] for entry in history if entry["kind"] == "train"] == list(range(1, 1501))
    output = [(entry["step"], entry["loss"]) for entry in history if entry["kind"] == "evaluate"]
    assert output == [(step, 3.1 - 1e-3 * step + 1e-5) for step in range(5, 1501, 5)]
    pages = len(scanned(client))
    assert pull() == 0
    assert len(scanned(client)) == pages, "what is whole is not asked for again"
    add(client, 3)
    assert pull() == 0
    assert len(table()) == 4
    assert len(scanned(client)) == pages + 1


def test_what_is_missing_is_said_and_fetched_later(client, capsys):
    run = add(client, 0)
    row = run.rows.pop(7)
    run.lines = 24
    assert pull() == 1
    assert "not complete: me/proj/w0000000: 23 of 24 rows" in capsys.readouterr().out
    assert len(table()) == 1
    assert pull() == 1, "it is said again"
    run.rows[7] = row
    assert pull() == 0
    assert len(Ledger.open("pulled").attempts(f"{0:016x}")) == 1


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
    assert "the same command goes on" in one_line(capsys)
    before = fetched()
    assert before
    client.faults.clear()
    client.requests.clear()
    assert pull() == 0
    assert len(table()) == 6
    assert {*scanned(client)} == {f"w{number:07d}" for number in range(6)} - before


def test_a_pull_that_is_killed_goes_on(client):
    for number in range(12):
        add(client, number)
    client.fail("hang", seconds=60, times=4, matches=lambda one: is_history(one) and len(scanned(client)) > 8)
    process = Child(["me/proj", "--to", "pulled"], None, (), "pull")
    until(lambda: len(fetched()) >= 4)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    before = fetched()
    assert 4 <= len(before) < 12
    client.faults.clear()
    client.requests.clear()
    assert pull() == 0
    assert len(table()) == 12
    assert {*scanned(client)} == {f"w{number:07d}" for number in range(12)} - before


def test_a_fit_of_a_project_is_that_of_its_points_and_a_source_that_is_none_is_one_line(client, capsys):
    for number in range(6):
        run = add(client, number)
        run.config["point"]["value"] |= {"D": 1000 * 2**number}
        run.summary["loss"] = 2.0 + 30.0 * (1000 * 2**number) ** -0.5
    assert pull() == 0
    capsys.readouterr()
    law, documents = ("--law", "power_law_floor_d", "--intervals", "none", "--json"), []
    for source in ("pulled/points.csv", "wandb:me/proj", "wandb:https://wandb.ai/me/proj/workspace?nw=me"):
        assert main(["fit", source, *law]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0]["estimates"]["E"] == pytest.approx(2.0)
    assert [document["estimates"] for document in documents] == [documents[0]["estimates"]] * 3
    assert Path("runs/pulled/me-proj/points.csv").read_bytes() == Path("pulled/points.csv").read_bytes()
    for source, output in {"me/nowhere": "project", "me/proj/nosweep": "sweep", "a/b/c/d": "ENTITY/PROJECT"}.items():
        assert main(["pull", source]) == 2
        assert output in one_line(capsys)


def test_runs_of_others_and_running_ones_are_counted_and_attempts_of_one_run_become_one(client, capsys):
    killed, later = add(client, 0, run=7, state="crashed", summary={"_step": 11}), add(client, 1, run=7)
    killed.rows = {row: values for row, values in killed.rows.items() if row <= 11}
    later.rows = {row: values for row, values in later.rows.items() if row >= 6}
    add(client, 2, run=7, summary={**later.summary, "loss": 9.5})
    add(client, 3, config={"learning_rate": {"value": 1}})
    add(client, 4, state="running", summary={"loss": 4.0})
    assert pull() == 0
    output = capsys.readouterr().out
    for line in (
        *("1 not ours", "1 still running"),
        "another result: loss is 3.08001 in me/proj/w0000001 and 9.5 in me/proj/w0000002",
    ):
        assert line in output
    assert {row["run"]: row["status"] for row in table()} == {f"{7:016x}": "finished", f"{4:016x}": "missing"}
    assert [float(row["loss"]) for row in table() if row["loss"]] == [later.summary["loss"]]
    ledger = Ledger.open("pulled")
    ends = [one.end["outcome"] for one in ledger.attempts(f"{7:016x}") if one.end]
    assert ends == ["stopped", "finished", "finished"]
    steps = [entry["step"] for entry in ledger.history(f"{7:016x}") if entry["kind"] == "train"]
    assert steps == list(range(1, 21))
    client.world.runs["w0000004"].state = "finished"
    client.world.runs["w0000004"].summary = {"outcome": "diverged", "step": 9}
    assert pull() == 0
    assert {row["status"] for row in table()} == {"diverged", "finished"}


def test_a_table_of_what_was_pulled_is_the_ledgers(client, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "online")
    base, *settings = (word for word in WORDS if word != "data=synthetic")
    rows = {"SwiGLU": {}, "GeLU": {"model.block.channel": {"kind": "Dense", "activation": "GeLU"}}}
    document = {"base": base, "data.kind": "Synthetic", "rows": rows, "table": {"baseline": "SwiGLU"}}
    document |= {key: yaml.safe_load(value) for key, value in (word.split("=", 1) for word in settings)}
    Path("rows.yaml").write_text(json.dumps(document))
    found = plan(question(read_table("rows.yaml")))
    enter(found.ledger(), found)
    work(found.ledger(), found)
    assert {run.summary["outcome"] for run in client.world.runs.values()} == {"finished"}
    assert main(["pull", "me/scaling", "--table", "rows.yaml", "--to", "pulled"]) == 0
    tables = []
    for source in ("runs", "pulled", "wandb:me/scaling"):
        capsys.readouterr()
        assert main(["table", "rows.yaml", "--from", source, "--json"]) == 0
        tables.append(json.loads(capsys.readouterr().out))
    assert tables[0]["rows"]
    assert tables == [tables[0]] * 3
    for run in Ledger.open("runs").runs():
        one, two = (Ledger.open(folder).history(run) for folder in ("runs", "pulled"))
        held_out = [{key: each[key] for key in each if each[key] is not None} for each in one]
        assert [each for each in two if each["kind"] == "evaluate"] == [e for e in held_out if e["kind"] == "evaluate"]
        assert main(["show", run, "runs=pulled"]) == 0


# Registering


def test_the_server_has_the_file_as_it_stands(client, capsys):
    path = str(write(Path("small.yaml")))
    assert main(["sweep", path]) == 0
    assert "registered as me/scaling/s0000000" in capsys.readouterr().out
    assert client.world.sweeps["s0000000"].config == tree()
    assert main(["sweep", path, "--count", "3"]) == 0
    assert client.world.sweeps["s0000001"].config == tree(run_cap=3)


REFUSED = {
    "a wrong key": "check the key",
    "no key": "no W&B key: nothing was sent",
    "no right": "may the key write to me/",
}
REFUSED |= {"seed=1": "seed=1: a registered sweep's agents read the file alone", "--workers": "add --local"}


@pytest.mark.parametrize("trouble", REFUSED)
def test_a_refusal_is_one_line_and_nothing_is_registered(trouble, client, capsys, monkeypatch):
    if trouble == "a wrong key":
        monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    elif trouble == "no key":
        monkeypatch.delenv("WANDB_API_KEY")
    client.fail("status", status=403, times=100, matches=lambda request: "UpsertSweep" in request.query)
    words = {"seed=1": ["seed=1"], "--workers": ["--workers", "2"]}.get(trouble, [])
    assert main(["sweep", str(write(Path("small.yaml"))), *words]) == 2
    assert REFUSED[trouble] in one_line(capsys)
    assert not client.world.sweeps
    assert trouble in ("a wrong key", "no right") or not client.requests
