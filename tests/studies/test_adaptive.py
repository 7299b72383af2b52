"""An adaptive study: its decisions follow from results alone, come before their runs, and outlive every kill."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.cli import main
from scaling.laws.next_run import parse_goal
from scaling.ledger import Ledger
from scaling.reports.provenance import chosen
from scaling.studies import adaptive, estimate
from scaling.studies.adaptive import Decider, Field, decide, decider, decisions
from scaling.studies.plan import entered

SMALL = str(Path(__file__).parent / "small.yaml")
TRUTH = {"E": 1.9, "A": 20.0, "alpha": 0.5, "B": 400.0, "beta": 0.8}


def field(folder: Path, goal: str = "E ± 0.12") -> Field:
    return decider(SMALL, None, [f"runs={folder}"], parse_goal(goal), None, 1, ()).field


def decided(ledger: Ledger, name: str) -> list[dict]:
    """The decisions without their times."""
    return [{key: value for key, value in each.items() if key != "decided"} for each in decisions(ledger, name)]


class Pretended(Decider):
    """Runs that are `ended` have the losses of a law, with a little noise; nothing is trained."""

    ended: set[str]

    def _loss(self, row):
        N, D = (float(self.field.rows[row][name]) for name in ("N", "D"))
        loss = TRUTH["E"] + TRUTH["A"] * N ** -TRUTH["alpha"] + TRUTH["B"] * D ** -TRUTH["beta"]
        loss *= np.exp(0.002 * np.random.default_rng(row).standard_normal())
        return float(loss) if self.field.runs[row].run in self.ended else None


def worked(candidates: Field, workers: int = 1, order=min, kills=False, budget=None, ended=()) -> Decider:
    """A study to its conclusion; `order` picks which of the runs that go on ends first."""
    ledger, budget, study = candidates.plan.ledger(), budget or candidates.grid_cost, None
    done = set(ended)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adaptive, "settled", lambda ledger, run: run in done)
        for _ in range(80):
            if study is None or kills:
                study = Pretended(ledger, candidates, budget, workers)
                study.ended = done
            now = study()
            if "concluded" in decisions(ledger, study.name)[-1]:
                return study
            done.add(order(run.run for run in now.runs if run.run not in done))
    raise AssertionError("no end")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return worked(field(tmp_path_factory.mktemp("whole")))


def test_it_stops_once_two_looks_are_narrow_and_then_has_the_held_out_run(whole):
    *made, last = decisions(whole.ledger, whole.name)
    assert last["concluded"] == "reached"
    widths = [one["half_width"] or np.inf for one in (*made, last)]
    assert max(widths[-2:]) <= 0.12
    assert all(max(pair) > 0.12 for pair in pairwise(widths[:-1]))
    assert last["spent"] == pytest.approx(sum(one["flops"] for one in made)) < 0.6 * whole.field.grid_cost
    planned = entered(whole.ledger, whole.name)
    assert {run.run for run in planned.runs if not run.held_out} == {one["run"] for one in made}
    assert sum(run.held_out for run in planned.runs) == 1
    assert planned.command == ("study", "small.yaml", "--adaptive", "E ± 0.12")
    blocks: list[Any] = chosen([*made, last])  # of the page
    assert blocks[0].endswith("the last two looks were narrow enough.")
    assert len(blocks[1].rows) == len(made) + 1


def test_a_decision_does_not_depend_on_which_worker_is_faster_or_on_kills(tmp_path):
    slow, killed = (
        decided(study.ledger, study.name)
        for order, kills in ((min, False), (max, True))
        for study in [worked(field(tmp_path / order.__name__, "E ± 0.2"), 2, order, kills)]
    )
    assert slow == killed
    assert all(len(one["pending"]) == 1 for one in slow[1:-1])


def test_a_kill_between_a_decision_and_its_run_changes_nothing(tmp_path, whole):
    """The decision is on record, and no plan has its run; or the held-out run is planned, and nothing concluded."""
    expected, candidates = decided(whole.ledger, whole.name), field(tmp_path)
    ledger = candidates.plan.ledger()
    for count, document in enumerate(expected[:-2], start=1):
        decide(ledger, whole.name, count, {**document, "decided": "then"})
    again = worked(candidates)
    assert decided(ledger, again.name) == expected
    (ledger.study_folder(again.name) / "decisions" / f"{len(expected):04d}.json").unlink()
    worked(candidates, ended=[one["run"] for one in expected[:-1]])
    assert decided(ledger, again.name) == expected


def test_the_budget_ends_it_too(tmp_path):
    candidates = field(tmp_path, "E ± 0.0001")
    study = worked(candidates, budget=0.3 * candidates.grid_cost)
    last = decisions(study.ledger, study.name)[-1]
    assert last["concluded"] == "budget"
    assert last["spent"] <= 0.3 * candidates.grid_cost


def test_a_goal_that_cannot_be_read_or_reached_is_one_line(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(estimate, "calibrate", lambda _: None)  # nothing is timed
    file = tmp_path / "known.yaml"
    supposed = ", ".join(f"{name}: {value}" for name, value in TRUTH.items())
    file.write_text(f"{Path(SMALL).read_text()}suppose: {{{supposed}, noise: 0.002}}\n")
    for goal, *parts in (
        ("E", "expected a quantity"),
        ("Q ± 0.1", "chinchilla has no parameter 'Q'"),
        ("loss of b - a at N=1M D=2M ± 0.1", "compares no rows"),
        ("E ± 1e-5", "E ± 1e-5 is out of reach: all 27 candidates", "FLOPs, give ± 0.0"),
    ):
        assert main(["study", str(file), "--adaptive", goal, f"runs={tmp_path}"]) == 2
        error = capsys.readouterr().err
        assert all(part in error for part in parts)
        assert error.count("\n") == 1


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_with_the_same_decisions(tmp_path):
    name = "small-adaptive-E-0.3-budget-2e-08"
    command = [sys.executable, "-m", "scaling", "study", SMALL, "--adaptive", "E ± 0.3", "--budget", "2e8"]
    command += ["--workers", "1"]
    folder = tmp_path / "killed"
    for decided_by_then in (2, 4):
        process = subprocess.Popen([*command, f"runs={folder}"], stderr=subprocess.DEVNULL, start_new_session=True)
        while len(list(folder.glob(f"studies/{name}/decisions/*.json"))) < decided_by_then and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for runs in (folder, tmp_path / "whole"):
        subprocess.run([*command, f"runs={runs}"], capture_output=True, check=True)
    assert decided(Ledger.open(tmp_path / "whole"), name) == decided(Ledger.open(folder), name)
    assert "The decisions" in (folder / "studies" / name / "report" / "index.html").read_text()
