"""Jobs: how many at a time, with what, on what; and what a study shows of them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rich.console import Console

from scaling.cli import main
from scaling.errors import ScalingError
from scaling.executors.executor import Resources
from scaling.executors.local import Local
from scaling.ledger import Ledger, Row
from scaling.studies import estimate as scale_choice
from scaling.studies import machine as size
from scaling.studies import progress as view
from scaling.studies.machine import Size, Speed, calibrate, resources, sized, threads
from scaling.studies.plan import enter, plan
from scaling.studies.progress import Active, Progress, Watch
from scaling.studies.question import Question, read
from scaling.studies.scheduler import train
from tests.studies.test_unfinished import lacking, write

SMALL = str(Path(__file__).parent / "small.yaml")


@pytest.fixture
def found(tmp_path):
    return plan(read(SMALL), [f"runs={tmp_path}"])


@pytest.mark.parametrize(("cores", "wanted", "expected"), [(2, None, (2, 1)), (64, None, (10, 6)), (8, 3, (3, 2))])
def test_cores_are_split_between_workers(found, cores, wanted, expected, monkeypatch):
    monkeypatch.setattr(size.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(size, "machine_memory", lambda: 10**12)
    assert sized(found, wanted) == Size(*expected)


def test_workers_of_small_runs_have_one_thread_on_a_machine_of_many_cores(tmp_path, monkeypatch):
    """Two runs on 64 cores are two workers, which could have 32 threads each."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic"}
    question = Question("x", "which?", "decoder", settings, {"trainer.max_steps": [20], "seed": [0, 1]})
    small = plan(question, [f"runs={tmp_path}"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    split = sized(small)
    assert (split.workers, split.threads) == (2, 32)
    assert threads(small, split.threads) == 1


def test_memory_bounds_the_workers(found, monkeypatch):
    monkeypatch.setattr(size.os, "sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(size, "machine_memory", lambda: 4 * 10**9)
    assert sized(found) == Size(3, 5)


def test_small_runs_share_gpus_and_a_run_too_large_for_one_takes_all(found, monkeypatch):
    class Card:
        total_memory = 80 * 10**9

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card)
    monkeypatch.setattr(size.os, "sched_getaffinity", lambda _: range(16))
    assert sized(found) == Size(8, 2, 2)
    Card.total_memory = 10**9
    assert sized(found) == Size(1, 16, 2)


def test_a_job_takes_what_its_memory_fills_or_the_devices_that_it_asks_for(found, monkeypatch):
    class Card:
        total_memory = 80 * 10**9

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card)
    job = found.runs[0]
    gpus = [resources(job, Size(workers, 2, 4), {}).gpus for workers in (16, 4, 2)]
    assert gpus == [0.25, 1.0, 1.0]
    Card.total_memory = 10**9  # less than the libraries take
    assert resources(job, Size(16, 2, 4), {}).gpus == 4
    job.experiment.config.tree["trainer"]["devices"] = 2
    assert resources(job, Size(16, 2, 4), {}).gpus == 2


def test_large_jobs_have_whole_gpus_and_small_ones_share(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    executor = Local(8, tmp_path / "log")

    def place(gpus: float) -> tuple[str, ...] | None:
        where = executor.place(gpus)
        if where is not None:
            busy: Any = SimpleNamespace(place=where, handle=SimpleNamespace(resources=Resources(1, gpus)))
            executor.workers.append(busy)
        return where

    assert [place(gpus) for gpus in (2, 0.5, 0.4, 0.3, 1)] == [("4", "5"), ("6",), ("6",), None, None]
    executor.workers.pop(0)
    assert place(0.3) == ("4",)
    assert place(1) == ("5",)


def test_workers_are_at_least_one(found):
    with pytest.raises(ScalingError, match="at least one"):
        sized(found, 0)


@pytest.mark.slow
def test_submitit_runs_a_study(tmp_path, capsys):
    """Its local executor, which starts processes as SLURM would."""
    file = write(tmp_path)
    words = ["--executor", "slurm", "--set", "cluster=local", "timeout_min=5", "--workers", "2"]
    assert main(["study", str(file), f"runs={tmp_path}", *words]) == 0
    assert lacking(tmp_path) == []
    assert len(list((tmp_path / "studies" / "few" / "slurm").glob("*_result.pkl"))) == 2, "three runs in two packs"


def test_slurm_where_there_is_none_is_one_line(tmp_path, capsys):
    assert main(["study", SMALL, f"runs={tmp_path}", "--executor", "slurm"]) == 2
    assert "submitit refuses" in capsys.readouterr().err


def finish(ledger: Ledger, run: str) -> None:
    attempt = ledger.claim(run)
    assert attempt is not None
    with attempt:
        attempt.finish("finished", {"loss": 1.0})


def test_a_study_that_is_done_starts_nobody(found):
    ledger, told = found.ledger(), []
    enter(ledger, "small", found)
    for one in found.runs:
        finish(ledger, one.run)
    train(ledger, "small", found, told.append, executor="slurm")
    assert [(now.settled, now.share) for now in told] == [(10, 1.0)]


def test_progress_counts_what_is_done(found):
    ledger = found.ledger()
    enter(ledger, "small", found)
    watch = Watch(ledger, found)
    assert watch.look() == Progress(10, 0, 0.0, [], trunks=3)
    for one in found.runs:
        finish(ledger, one.run)
    assert watch.look() == Progress(10, 10, 1.0, [])


def test_time_left_is_by_the_speed_of_each_model(found):
    """A step of a larger model costs more, but not as much more as its FLOPs say."""
    ledger = found.ledger()
    enter(ledger, "small", found)
    watch = Watch(ledger, found)
    assert watch.look().left is None
    tokens = found.runs[0].experiment.row_tokens * found.runs[0].experiment.size.size(0)
    lefts = []
    with contextlib.ExitStack() as claimed:
        for trunk, seconds in zip(found.trunks.values(), (1.0, 2.0)):  # of a step
            attempt = ledger.claim(trunk.run)
            assert attempt is not None
            claimed.enter_context(attempt)
            speed = tokens / seconds
            attempt.log.write(
                {"kind": "train", "step": 1, "steps": trunk.steps, "loss": 3.0, "tokens_per_second": speed}
            )
            now = watch.look()
            assert now.active[-1].left == pytest.approx((trunk.steps - 1) * seconds)
            lefts.append(now.left)
    steps = sum(one.steps - (one.trunk[1] if one.trunk else 0) for one in found.runs)
    steps += sum(one.steps for one in found.trunks.values())
    assert lefts[0] > steps * 0.9  # one worker, no step quicker than a second
    assert 0.9 * steps / 2 < lefts[1] < lefts[0]  # a second worker halves it, and has told what larger models cost


def test_a_model_has_one_speed_whatever_its_quotients_round_to(found):
    watch, job = Watch(found.ledger(), found), next(iter(found.trunks.values()))
    row = Row(run=job.run, name=None, state="running", step=1, steps=job.steps, tokens_per_second=1000.0)
    for each in (1.9999999999999996e9, 1.9999999999999998e9, 2e9):
        watch._heard(job, row, each)
    assert len(watch.timed) == 1


@pytest.mark.parametrize(("seconds", "scale"), [(1e-6, None), (1e3, "small")])
def test_a_slow_machine_gets_a_smaller_quickstart_and_is_told(seconds, scale, tmp_path, monkeypatch):
    monkeypatch.setattr(scale_choice, "calibrate", lambda *_: Speed(((1e9, seconds),)))
    found, why = scale_choice.choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
    assert found.question.at == scale
    assert found.question.name == "quickstart"
    assert (why is None) == (scale is None)
    enter(found.ledger(), "quickstart", found)
    # Faster or slower since: what was begun is gone on with.
    monkeypatch.setattr(scale_choice, "calibrate", lambda *_: Speed(((1e9, 1e3 if scale is None else 1e-6),)))
    again, _ = scale_choice.choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
    assert [one.run for one in again.runs] == [one.run for one in found.runs]


def test_a_calibration_is_kept_for_a_day_unless_the_machine_was_busy(found, tmp_path):
    experiments = [one.experiment for one in found.runs]
    cache = tmp_path / "calibration"
    assert calibrate(experiments, cache) is not None

    def rewritten(**values: float) -> None:
        for file in cache.iterdir():
            file.write_text(json.dumps({"seconds": 1e-9, "load": 0.0, "taken": time.time(), **values}))

    rewritten()
    kept = calibrate(experiments, cache)
    assert kept is not None
    assert {seconds for _, seconds in kept.timed} == {1e-9}
    assert not kept.busy
    rewritten(seconds=1e9, load=9.0)
    quicker = calibrate(experiments, cache)
    assert quicker is not None
    assert max(seconds for _, seconds in quicker.timed) < 1e9
    rewritten(taken=time.time() - 2 * 86400)
    again = calibrate(experiments, cache)
    assert again is not None
    assert min(seconds for _, seconds in again.timed) > 1e-9


def now(settled: int, share: float, *active: Active) -> Progress:
    return Progress(10, settled, share, active, left=3723.0)


def test_lines_are_few(capsys):
    lines = view.lines(lambda now: "a moment")
    for settled, share in ((0, 0.0), (0, 0.01), (0, 0.06), (1, 0.06), (1, 0.07), (10, 1.0)):
        lines(now(settled, share))
    err = capsys.readouterr().err.splitlines()
    assert [line.partition(",")[0] for line in err] == ["0 of 10 runs"] * 2 + ["1 of 10 runs", "10 of 10 runs"]


def test_a_line_says_what_the_first_runs_wait_for():
    waiting = view.summary(Progress(9, 0, 0.3, [], trunks=3))
    assert waiting == "0 of 9 runs (3 trunks to train first), 30% of the compute"
    waiting = view.summary(Progress(9, 0, 0.6, [], trunks=1))
    assert waiting == "0 of 9 runs (1 trunk to train first), 60% of the compute"
    assert view.summary(Progress(9, 1, 0.8, [])) == "1 of 9 runs, 80% of the compute"


def test_the_live_view_shows_every_run_under_way():
    row = Row(run="0" * 16, name=None, state="running", step=50, steps=100, loss=2.5, tokens_per_second=1000.0)
    drawn = Console(file=io.StringIO(), width=120)
    drawn.print(view.picture(now(3, 0.25, Active("width=16 [red]", row, 61.0)), "62.0 min left"))
    told = drawn.file.getvalue()  # type: ignore[attr-defined]
    for part in (
        "3 of 10 runs, 25% of the compute",
        "width=16 [red]",
        "50 of 100",
        "2.5000",
        "1,000",
        "61.0 s",
        "62.0 min left",
    ):
        assert part in told
