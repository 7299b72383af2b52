"""Pulling by the real client from a server of our own: whole, counted, cached, patient, and never silent on a gap."""

from __future__ import annotations

import csv
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.ledger.document import entries
from scaling.sweeps.pull import STEP, spec
from scaling.sweeps.pull import entries as rows_as_entries
from tests.sweeps.conftest import until
from tests.wandb_server.server import Request, Server
from tests.wandb_server.world import Run

POINT = {"N": 1000, "D": 2000, "C": 1.2e7, "N_total": 1500, "S": 20, "B": 100, "lr": 0.01, "seed": 1}


def add(server: Server, number: int, steps: int = 20, run: int | None = None, **changes: Any) -> Run:
    """A finished run of ours, logged as the mirror does: a row a step, and one more for every fifth's evaluation."""
    one = Run("proj", f"w{number:07d}", number, state="finished")
    told = {"run": f"{number if run is None else run:016x}", "attempt": 1, "point": POINT | {"seed": number}}
    one.config = {key: {"value": value} for key, value in told.items()}
    for step in range(1, steps + 1):
        logged = [{"train/loss": 3.0 - 1e-3 * step}]
        if step % 5 == 0:
            logged.append({"evaluate/loss": 3.1 - 1e-3 * step + 1e-5 * number})
        for values in logged:
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


def asked(server: Server, what: str) -> int:
    return sum(what in request.query for request in server.requests)


def fetched() -> set[str]:
    """The runs that the copy has whole."""
    logs = Path("pulled").glob("store/*/log.jsonl")
    return {start["wandb"].rpartition("/")[2] for log in logs for start in entries(log) if start["kind"] == "start"}


def scanned(server: Server) -> set[str]:
    """The runs of which a page of the history was asked for; one that hangs may be asked for again."""
    asking = [request for request in list(server.requests) if "query RunParquetHistory" in request.query]
    return {json.loads(request.body)["variables"]["runName"] for request in asking}


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    told = capsys.readouterr().err
    assert "Traceback" not in told
    (line,) = [line for line in told.splitlines() if line.startswith("scaling: ")]
    return line


def test_a_project_comes_whole_and_once(client):
    for number in range(3):
        add(client, number, steps=1500)
    assert pull() == 0
    assert [float(row["loss"]) for row in table()] == [run.summary["loss"] for run in client.world.runs.values()]
    history = Ledger.open("pulled").history(f"{1:016x}")
    assert [entry["step"] for entry in history if entry["kind"] == "train"] == list(range(1, 1501))
    told = [(entry["step"], entry["loss"]) for entry in history if entry["kind"] == "evaluate"]
    assert told == [(step, 3.1 - 1e-3 * step + 1e-5) for step in range(5, 1501, 5)]
    pages = asked(client, "query RunParquetHistory")
    assert pull() == 0
    assert asked(client, "query RunParquetHistory") == pages, "what is whole is not asked for again"
    add(client, 3)
    assert pull() == 0
    assert len(table()) == 4
    assert asked(client, "query RunParquetHistory") == pages + 1


def test_what_is_missing_is_said_and_fetched_later(client, capsys):
    run = add(client, 0)
    whole = run.page
    run.page = lambda *asked: [row for row in whole(*asked) if json.loads(row)["_step"] != 7]  # type: ignore[method-assign]
    assert pull() == 1
    assert "not complete: me/proj/w0000000: 23 of 24 rows" in capsys.readouterr().out
    assert len(table()) == 1
    assert pull() == 1, "it is said again"
    run.page = whole  # type: ignore[method-assign]
    assert pull() == 0
    assert len(Ledger.open("pulled").attempts(f"{0:016x}")) == 1


def history_of(name: str):
    return lambda request: "ParquetHistory" in request.query and f'"{name}"' in request.body.decode()


def test_a_busy_server_is_waited_for(client):
    add(client, 0)
    client.fail("status", status=429, headers={"Retry-After": "1"}, matches=history_of("w0000000"))
    client.fail("status", status=500, matches=lambda request: "query Runs" in request.query)
    client.fail("status", status=503, matches=lambda request: "query Project" in request.query)
    client.fail("cut", matches=lambda request: "ParquetHistory" in request.query)
    begun = time.monotonic()
    assert pull() == 0
    assert time.monotonic() - begun >= 1
    assert len(table()) == 1


def test_a_server_that_stays_broken_ends_in_one_line_and_loses_nothing(client, capsys):
    for number in range(6):
        add(client, number)
    client.fail("status", times=10**6, status=500, matches=history_of("w0000004"))
    assert pull() == 1
    assert "the same command goes on" in one_line(capsys)
    before = fetched()
    assert before
    client.faults.clear()
    client.requests.clear()
    assert pull() == 0
    assert len(table()) == 6
    assert scanned(client) == {f"w{number:07d}" for number in range(6)} - before


@pytest.mark.parametrize(
    ("source", "told"),
    [("me/nowhere", "no such project"), ("me/proj/nosweep", "no such sweep"), ("a/b/c/d", "ENTITY/PROJECT")],
)
def test_a_source_that_is_none_is_one_line(client, source, told, capsys):
    add(client, 0)
    assert main(["pull", source]) == 2
    assert told in one_line(capsys)


def test_a_fit_of_a_project_is_that_of_its_points(client, capsys):
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
    assert main(["fit", "wandb:me/nowhere", *law]) == 2
    assert "no such project" in one_line(capsys)


def test_runs_of_others_and_running_ones_are_counted_and_left_out(client, capsys):
    add(client, 0)
    add(client, 1, config={"learning_rate": {"value": 1}})
    add(client, 2, state="running", summary={"loss": 4.0})
    assert pull() == 0
    told = capsys.readouterr().out
    assert "1 not ours" in told
    assert "1 still running" in told
    assert [row["status"] for row in table()] == ["finished", "missing"]
    client.world.runs["w0000002"].state = "finished"
    client.world.runs["w0000002"].summary = {"outcome": "diverged", "step": 9}
    assert pull() == 0
    assert [row["status"] for row in table()] == ["finished", "diverged"]


def test_attempts_of_one_run_become_one(client, capsys):
    killed = add(client, 0, run=7, state="crashed", summary={"_step": 11})
    for row in [row for row in killed.rows if row > 11]:
        del killed.rows[row]
    later = add(client, 1, run=7)
    for row in [row for row in later.rows if row < 6]:
        del later.rows[row]
    add(client, 2, run=7, summary={**later.summary, "loss": 9.5})
    assert pull() == 0
    assert "another result: loss is 3.08001 in me/proj/w0000001 and 9.5 in me/proj/w0000002" in capsys.readouterr().out
    (row,) = table()
    assert float(row["loss"]) == later.summary["loss"]
    ledger = Ledger.open("pulled")
    assert [one.end["outcome"] for one in ledger.attempts(f"{7:016x}") if one.end] == [
        "stopped",
        "finished",
        "finished",
    ]
    steps = [entry["step"] for entry in ledger.history(f"{7:016x}") if entry["kind"] == "train"]
    assert steps == list(range(1, 21))


def test_a_pull_that_is_killed_goes_on(client, tmp_path):
    for number in range(12):
        add(client, number)
    client.fail("hang", seconds=60, times=4, matches=lambda request: after(client, request))
    words = [sys.executable, "-m", "scaling", "pull", "me/proj", "--to", "pulled"]
    process = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: len(fetched()) >= 4, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    before = fetched()
    assert 4 <= len(before) < 12
    client.faults.clear()
    client.requests.clear()
    assert pull() == 0
    assert len(table()) == 12
    assert scanned(client) == {f"w{number:07d}" for number in range(12)} - before


def after(server: Server, request: Request, count: int = 8) -> bool:
    """A request for a history after `count` others."""
    return "ParquetHistory" in request.query and asked(server, "ParquetHistory") > count


def test_a_w_and_b_run_is_a_spec_and_entries_of_a_log():
    config = {"trainer.devices": 2, "trainer": {"max_steps": 9}, "size.width": 8, "seed": 1}
    assert spec(config) == {"trainer": {"max_steps": 9}, "size": {"width": 8}, "seed": 1}
    config = {"run": "a" * 16, "point": POINT, "row": "GeLU", "seed.x": 1, "seed": {"x": 1}, "_wandb": {}}
    assert spec(config) == {"seed": {"x": 1}}
    history = [
        {"_step": 0, STEP: 1, "tokens": 64.0, "train/loss": 3.5, "train/mfu": "NaN", "flops": 1.0},
        {"_step": 1, STEP: 1, "tokens": 64.0, "evaluate/loss": 3.25},
    ]
    one, two = rows_as_entries(history)
    assert math.isnan(one.pop("mfu"))
    assert one == {"kind": "train", "step": 1, "tokens": 64, "loss": 3.5}
    assert two == {"kind": "evaluate", "step": 1, "tokens": 64, "loss": 3.25}
