"""A study from its YAML to its law, with real workers; what is killed or changed on the way."""

from __future__ import annotations

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.studies.points import rows
from scaling.studies.progress import Watch
from scaling.studies.question import read
from scaling.studies.scheduler import grow
from scaling.training.run import train_run
from tests.serial import work

SMALL = str(Path(__file__).parent / "small.yaml")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The small study, worked through in this process."""
    folder = tmp_path_factory.mktemp("runs")
    found = plan(read(SMALL), [f"runs={folder}"])
    ledger = found.ledger()
    enter(ledger, "small", found)
    work(ledger, found)
    return ledger, found


def test_branches_share_a_trunk_and_land_where_full_runs_land(done, tmp_path):
    ledger, found = done
    assert [len(ledger.attempts(one.run)) for one in found.runs] == [1] * 10
    assert len(found.trunks) == 3
    assert sum(one.trunk is not None for one in found.runs) == 9
    branch = next(one for one in found.runs if one.trunk)
    assert ledger.result(branch.run)["circumstances"]["from_step"] == branch.trunk[1]
    alone = Ledger.create(tmp_path)
    whole = train_run(branch.experiment, alone)
    assert whole is not None
    assert whole["circumstances"]["from_step"] == 0
    assert whole["loss"] == ledger.result(branch.run)["loss"]


def test_a_budget_that_is_added_below_its_trunks_is_trained_whole(tmp_path):
    question, size = read(SMALL), {"width": 8, "heads": 1}
    for budgets in (["4k", "8k"], ["2k", "4k", "8k"]):
        grid = {"size": [size], "train.tokens": budgets}
        asked = replace(question, name=f"of-{len(budgets)}", grid=grid, held_out={}, laws=())
        found = plan(asked, [f"runs={tmp_path}"])
        ledger = found.ledger()
        enter(ledger, asked.name, found)
        work(ledger, found)
    runs = sorted(found.runs, key=lambda one: one.experiment.steps)
    short, middle, long = (ledger.result(one.run)["circumstances"]["from_step"] for one in runs)
    assert short == 0 < middle < long


def test_a_trunk_that_has_grown_is_waited_for_no_more(tmp_path):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    ledger = found.ledger()
    enter(ledger, "small", found)
    watch = Watch(ledger, found)
    assert watch.look().trunks == 3
    grow(ledger, found, next(one for one in found.runs if one.trunk))
    now = watch.look()
    assert (now.trunks, now.settled) == (2, 0)


def test_a_planned_run_is_trained_alone_by_its_id(tmp_path, capsys):
    found = plan(read(SMALL), [f"runs={tmp_path}"])
    ledger, run = found.ledger(), found.runs[0]
    enter(ledger, "small", found)
    words = ["train", "study=small", f"runs={tmp_path}", "log.wandb=disabled"]
    assert main([*words, f"run={run.run}"]) == 0
    assert run.trunk is not None
    assert (ledger.result(run.run) or {})["circumstances"]["from_step"] == run.trunk.step
    for more, what in ((["run=abc"], "the study has no such run"), ([f"run={run.run}", "seed=7"], "the plan sets")):
        assert main([*words, *more]) == 2
        assert what in capsys.readouterr().err


def study(folder: Path) -> list[str]:
    """The small study's command, with a law that nine points bound: open intervals take longer than all the runs."""
    path = folder / "small.yaml"
    path.write_text(Path(SMALL).read_text().replace("law: chinchilla", "law: power_law_floor_d"))
    return [sys.executable, "-m", "scaling", "study", str(path), f"runs={folder / 'runs'}", "--workers", "2", "--json"]


def scientific(folder: Path) -> list[dict[str, str]]:
    with open(folder / "studies" / "small" / "report" / "points.csv", newline="") as file:
        return list(csv.DictReader(file))


def attempts(folder: Path) -> int:
    return sum(log.read_bytes().count(b'{"kind":"start"') for log in folder.glob("store/*/log.jsonl"))


@pytest.mark.slow
def test_killed_and_resumed_it_ends_in_the_same_points(done, tmp_path):
    chance, runs = random.Random(6), tmp_path / "runs"
    for _ in range(6):
        before = attempts(runs)
        process = subprocess.Popen(
            study(tmp_path), start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while process.poll() is None and attempts(runs) == before:
            time.sleep(0.05)
        time.sleep(chance.uniform(0, 2))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finished = subprocess.run(study(tmp_path), capture_output=True, text=True, timeout=300, check=False)
    assert finished.returncode == 0, finished.stderr
    document = json.loads(finished.stdout)
    assert document["law"] == "power_law_floor_d"
    assert document["points"]["used"] == 10
    assert document["entropy"]["known"] > 0
    ledger, found = done
    expected = [{key: "" if value is None else str(value) for key, value in row.items()} for row in rows(ledger, found)]
    assert scientific(runs) == expected
    report = runs / "studies" / "small" / "report"
    assert json.loads((report / "fit.json").read_text())["law"] == "power_law_floor_d"
    assert list(report.glob("*.png"))
