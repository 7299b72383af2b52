"""A run that cannot be trained is given up after a few tries, and its reason is named; what one study has damaged stops
no other.
"""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.executors import scheduler
from scaling.ledger import Ledger
from scaling.ledger.document import seal
from scaling.studies.machine import Size
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.question import read
from scaling.studies.scheduler import Runs
from tests.serial import Serial, work
from tests.studies.test_unfinished import SET, ended, lacking, scaling, write


def planned(folder: Path, runs: Path, name: str = "few", **changes: object) -> tuple[Ledger, Plan]:
    found = plan(read(str(write(folder, **changes))), [f"runs={runs}"])
    ledger = found.ledger()
    enter(ledger, name, found)
    return ledger, found


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(scheduler, "WAIT", 0.05)


def reseal(path: Path, **changes: object) -> None:
    document = {**json.loads(path.read_text()), **changes}
    document.pop("sha256")
    path.write_bytes(seal(document))


def test_a_refused_run_is_given_up_and_the_others_are_trained(tmp_path, impatient, capsys):
    ledger, found = planned(tmp_path, tmp_path / "runs")
    refused = found.runs[0].run
    reseal(ledger.folder(refused) / "spec.json", spec={"of": "another run"})
    missing = work(ledger, found)
    assert missing is not None
    assert missing.code == 1
    assert f"run {refused} was entered with another spec" in str(missing)
    assert "tried 3 times" in str(missing)
    err = capsys.readouterr().err
    assert (err.count("it is tried again"), err.count("given up")) == (2, 1)
    assert "Traceback" not in err
    assert lacking(ledger.root) == [refused]


def test_a_damaged_plan_blocks_no_other_study_and_leaves_no_attempt(tmp_path, caplog):
    ledger, found = planned(tmp_path, tmp_path / "runs")
    other = ledger.study_folder("other")
    other.mkdir()
    (other / "plan.json").write_text('{"torn')
    (ledger.study_folder("strange")).mkdir()
    (ledger.study_folder("strange") / "plan.json").write_bytes(seal({"runs": 5}))
    work(ledger, found)
    assert lacking(ledger.root) == []
    assert all(len(ledger.attempts(one.run)) == 1 for one in found.runs)
    assert "study other" in caplog.text


def test_a_plan_that_grows_takes_its_trunk_further(tmp_path):
    """As an adaptive study does, which decides for a longer branch of a trunk once the shorter one is done."""
    settings = {**SET, "schedule": {"kind": "WSD", "warmup": 2, "decay": 0.25}}
    ledger, whole = planned(tmp_path, tmp_path / "runs", set=settings, grid={"trainer.max_steps": [8, 24]})
    short, _ = sorted(whole.runs, key=lambda run: run.flops)
    first, (trunk,) = replace(whole, runs=(short,)), whole.trunks

    def look() -> float:
        assert len(ledger.attempts(trunk)) < 5
        return 0.0

    jobs = scheduler.Scheduler(Serial())
    jobs.work(
        Runs(ledger, jobs, Size(1), first, lambda: first if ledger.result(short.run) is None else whole),
        look,
    )
    assert lacking(ledger.root) == [trunk]
    assert len(ledger.attempts(trunk)) == 2


def test_troubles_that_are_not_the_runs_own_end_the_study(tmp_path, impatient, monkeypatch, capsys):
    ledger, found = planned(tmp_path, tmp_path / "runs", grid={"seed": list(range(12))})
    tries = []

    def train_run(experiment, *_):
        tries.append(experiment.seed)
        raise RuntimeError("no such network interface")

    monkeypatch.setattr("scaling.training.run.train_run", train_run)
    assert str(work(ledger, found)).count("no such network interface") == scheduler.IN_A_ROW
    assert len(tries) == scheduler.IN_A_ROW
    assert "no such network interface" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("stop", [False, True])
def test_ranks_that_die_before_they_claim_are_given_up_and_sigterm_ends_them(stop, tmp_path):
    runs = tmp_path / "runs"
    settings = {**SET, "train": {"batch": 8}, "trainer": {"max_steps": 8, "devices": 2}}
    file = write(tmp_path, grid={"seed": [0]}, set=settings)
    process = scaling("study", file, f"runs={runs}", GLOO_SOCKET_IFNAME="nosuch0")
    if stop:
        time.sleep(20)
        process.send_signal(signal.SIGTERM)
    code, err = ended(process, 600)
    assert code == (143 if stop else 1), err
    assert stop or "tried 3 times" in err
    assert not Ledger.open(runs).attempts(Ledger.open(runs).runs()[0])
