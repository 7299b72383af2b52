"""Jobs: how many at a time, with what, on what; and what a study shows of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.executors.executor import Resources
from scaling.executors.local import Local
from scaling.studies import estimate as scale_choice
from scaling.studies import machine
from scaling.studies.machine import Size, Speed, resources, sized
from scaling.studies.plan import enter, plan
from scaling.studies.progress import Progress, Watch
from scaling.studies.question import read
from scaling.studies.scheduler import train
from tests.studies.test_unfinished import lacking, write

SMALL = str(Path(__file__).parent / "small.yaml")


@pytest.fixture
def found(tmp_path):
    return plan(read(SMALL), [f"runs={tmp_path}"])


@pytest.mark.parametrize(
    ("cores", "memory", "workers", "given", "expected"),
    [
        (2, 1000, None, {}, (2, 1)),
        (64, 1000, None, {}, (10, 6)),  # of ten runs
        (8, 1000, 3, {}, (3, 2)),
        (16, 4, None, {}, (3, 5)),  # memory bounds them
        (16, 4, None, {"memory": 1.8}, (2, 8)),
        (16, 1000, None, {"threads": 4}, (4, 4)),
    ],
)
def test_cores_and_memory_are_split_between_workers(tmp_path, cores, memory, workers, given, expected, monkeypatch):
    source = {**yaml.safe_load(Path(SMALL).read_text()), "resources": given}
    found = plan(read(source), [f"runs={tmp_path}"])
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(cores))
    monkeypatch.setattr(machine, "machine_memory", lambda: memory * 10**9)
    assert sized(found, workers) == Size(*expected)
    job = resources(found.runs[0], Size(*expected), found.question.resources)
    assert (job.threads, job.memory) == (given.get("threads", expected[1]), given.get("memory", 2.0))
    with pytest.raises(ScalingError, match="at least one"):
        sized(found, 0)


def test_small_runs_share_gpus_and_a_run_takes_what_its_memory_fills_or_what_it_asks_for(found, monkeypatch):
    class Card:
        total_memory = 80 * 10**9

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Card)
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: range(16))
    assert sized(found) == Size(10, 1, 4)
    job = found.runs[0]
    gpus = [resources(job, Size(workers, 2, 4), {}).gpus for workers in (16, 4, 2)]
    assert gpus == [0.25, 1.0, 1.0]
    assert resources(job, Size(16, 2, 4), {"gpus": 0.1, "minutes": 5}) == Resources(2, 0.1, None, 5)
    Card.total_memory = 10**9  # less than the libraries take: a run takes all
    assert sized(found) == Size(1, 16, 4)
    assert resources(job, Size(16, 2, 4), {}).gpus == 4
    on_two = plan(read(SMALL), [f"runs={job.root}", "trainer.devices=2"]).runs[0]
    assert resources(on_two, Size(16, 2, 4), {}).gpus == 2


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


@pytest.mark.slow
def test_submitit_runs_a_study(tmp_path, capsys):
    """Its local executor, which starts processes as SLURM would."""
    file = write(tmp_path)
    words = ["--executor", "slurm", "--set", "cluster=local", "timeout_min=5", "--workers", "2"]
    assert main(["study", str(file), f"runs={tmp_path}", *words]) == 0
    assert lacking(tmp_path) == []
    assert len(list((tmp_path / "studies" / "few" / "slurm").glob("*_result.pkl"))) == 2, "three runs in two packs"


def test_progress_counts_what_is_done_and_a_study_that_is_done_starts_nobody(found):
    ledger, heard = found.ledger(), []
    enter(ledger, "small", found)
    watch = Watch(ledger, found)
    assert watch.look() == Progress(10, 0, 0.0, trunks=3)
    for one in found.runs:
        attempt = ledger.claim(one.run)
        assert attempt is not None
        with attempt:
            attempt.finish("finished", {"loss": 1.0})
    assert watch.look() == Progress(10, 10, 1.0)
    train(ledger, "small", found, heard.append, executor="slurm")
    assert [(now.settled, now.share) for now in heard] == [(10, 1.0)]


@pytest.mark.parametrize(("seconds", "scale"), [(1e-6, None), (1e3, "small")])
def test_a_slow_machine_gets_a_smaller_quickstart(seconds, scale, tmp_path, monkeypatch):
    monkeypatch.setattr(scale_choice, "calibrate", lambda *_: Speed(((1e9, seconds),)))
    found, why = scale_choice.choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
    assert (found.question.name, found.question.at, why is None) == ("quickstart", scale, scale is None)
    enter(found.ledger(), "quickstart", found)
    # Faster or slower since: a study keeps the scale that it started with.
    monkeypatch.setattr(scale_choice, "calibrate", lambda *_: Speed(((1e9, 1e3 if scale is None else 1e-6),)))
    again, _ = scale_choice.choose_scale("quickstart", None, [f"runs={tmp_path}"], None)
    assert [one.run for one in again.runs] == [one.run for one in found.runs]
