"""A study in this process: its trunks, its progress, and what is made of runs that cannot be trained."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from scaling.cli import main
from scaling.executors import scheduler
from scaling.ledger import Ledger
from scaling.ledger.document import seal
from scaling.studies.machine import Size
from scaling.studies.plan import Plan, enter, plan
from scaling.studies.progress import Progress, Watch
from scaling.studies.question import read
from scaling.studies.scheduler import Runs, grow, train
from tests.serial import Serial, work
from tests.studies.test_unfinished import SET, lacking, write

SMALL = str(Path(__file__).parent / "small.yaml")


def small(runs: Path) -> tuple[Ledger, Plan]:
    found = plan(read(SMALL), [f"runs={runs}"])
    ledger = found.ledger()
    enter(ledger, found)
    return ledger, found


def test_progress_counts_what_is_done_and_a_study_that_is_done_starts_nobody(tmp_path):
    ledger, found = small(tmp_path)
    watch, heard = Watch(ledger, found), []
    assert watch.look() == Progress(10, 0, 0.0, trunks=3)
    grow(ledger, found, next(one for one in found.runs if one.trunk))
    now = watch.look()
    assert (now.trunks, now.settled) == (2, 0)
    assert 0 < now.share < 0.5
    for one in found.runs:
        with ledger.claim(one.run) as attempt:
            attempt.finish("finished", {"loss": 1.0})
    assert watch.look() == Progress(10, 10, 1.0)
    train(ledger, found, heard.append, executor="slurm")
    assert [(now.settled, now.share) for now in heard] == [(10, 1.0)]


def test_a_planned_run_is_trained_alone_by_its_id(tmp_path, capsys):
    ledger, found = small(tmp_path)
    run = found.runs[0]
    words = ["train", "study=small", f"runs={tmp_path}", "log.wandb=disabled"]
    assert main([*words, f"run={run.run}"]) == 0
    assert ledger.result(run.run)["circumstances"]["from_step"] == run.trunk.step
    for more, what in ((["run=abc"], "the study has no such run"), ([f"run={run.run}", "seed=7"], "the plan sets")):
        assert main([*words, *more]) == 2
        assert what in capsys.readouterr().err


# Runs that cannot be trained


def planned(folder: Path, **changes: object) -> tuple[Ledger, Plan]:
    found = plan(read(str(write(folder, **changes))), [f"runs={folder / 'runs'}"])
    ledger = found.ledger()
    enter(ledger, found)
    return ledger, found


def test_a_refused_run_is_given_up_and_the_others_are_trained(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scheduler, "WAIT", 0.05)
    ledger, found = planned(tmp_path)
    refused = found.runs[0].run
    spec = ledger.folder(refused) / "spec.json"
    altered = {**json.loads(spec.read_text()), "spec": {"of": "another run"}}
    del altered["sha256"]
    spec.write_bytes(seal(altered))
    missing = work(ledger, found)
    assert missing.code == 1
    assert f"run {refused} was entered with another spec" in str(missing)
    assert "tried 3 times" in str(missing)
    err = capsys.readouterr().err
    assert (err.count("it is tried again"), err.count("given up")) == (2, 1)
    assert "Traceback" not in err
    assert lacking(ledger.root) == [refused]


def test_troubles_that_are_not_the_runs_own_end_the_study(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(scheduler, "WAIT", 0.05)
    ledger, found = planned(tmp_path, grid={"seed": list(range(12))})
    tries = []

    def fails(experiment, *_):
        tries.append(experiment.seed)
        raise RuntimeError("no such network interface")

    monkeypatch.setattr("scaling.training.run.train_run", fails)
    assert str(work(ledger, found)).count("no such network interface") == scheduler.IN_A_ROW
    assert len(tries) == scheduler.IN_A_ROW
    assert "no such network interface" in capsys.readouterr().err


def test_a_damaged_plan_blocks_no_other_study_and_leaves_no_attempt(tmp_path, caplog):
    ledger, found = planned(tmp_path)
    for name, content in (("other", b'{"torn'), ("strange", seal({"runs": 5}))):
        ledger.study_folder(name).mkdir()
        (ledger.study_folder(name) / "plan.json").write_bytes(content)
    work(ledger, found)
    assert lacking(ledger.root) == []
    assert all(len(ledger.attempts(one.run)) == 1 for one in found.runs)
    assert "study other" in caplog.text


def test_a_plan_that_grows_takes_its_trunk_further(tmp_path, monkeypatch):
    """As an adaptive study does, which decides for a longer branch of a trunk once the shorter one is done."""
    settings = {**SET, "schedule": {"kind": "WSD", "warmup": 2, "decay": 0.25}}
    ledger, whole = planned(tmp_path, set=settings, grid={"trainer.max_steps": [8, 24]})
    short, _ = sorted(whole.runs, key=lambda run: run.flops)
    first, (trunk,) = replace(whole, runs=(short,)), whole.trunks

    def look() -> float:
        assert len(ledger.attempts(trunk)) < 5
        return 0.0

    runs = Runs(Serial(), ledger, Size(1), first, decided=lambda: whole if ledger.result(short.run) else first)
    monkeypatch.setattr(runs, "look", look)
    runs.work()
    assert lacking(ledger.root) == [trunk]
    assert len(ledger.attempts(trunk)) == 2
