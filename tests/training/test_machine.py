"""A small run has one thread, on however many cores; steps count subnormal numbers as zero; a peak is stated where it
is known.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest
import torch

from scaling import cli
from scaling.config import load
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.studies.machine import sized, threads
from scaling.studies.plan import plan
from scaling.studies.question import Question
from scaling.training import machine
from scaling.training.experiment import assemble
from scaling.training.machine import VARIABLES, flushed, flushes, suited
from scaling.training.module import FamilyModule
from scaling.training.run import train
from tests.training.conftest import words as tiny

DATA = ("data=synthetic", "size.vocabulary=null", "trainer.max_steps=20")


@pytest.fixture
def two_threads(monkeypatch):
    """As a person's shell leaves torch: nothing in the environment, and several threads."""
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("model", ["decoder", "encoder_decoder"])
def test_a_small_run_trains_with_one_thread_and_leaves_torch_as_it_was(model, run, two_threads):
    assert run(model, trainer__max_steps=2, schedule__warmup=0)["circumstances"]["threads"] == 1
    assert torch.get_num_threads() == 2


def test_threads_that_a_person_asks_for_count(run, two_threads, monkeypatch):
    short = {"trainer__max_steps": 2, "schedule__warmup": 0}
    if (os.cpu_count() or 1) > 1:
        assert run(**short, train__threads=2, seed=1)["circumstances"]["threads"] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run(**short, seed=2)["circumstances"]["threads"] == 2
    assert run(**short, seed=3, train__threads=1)["circumstances"]["threads"] == 1


def test_a_caller_that_has_set_fewer_threads_keeps_them(run, two_threads):
    torch.set_num_threads(1)
    assert run(trainer__max_steps=2, schedule__warmup=0)["circumstances"]["threads"] == 1


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        (("size=tiny",), 1),
        (("size=ladder/100k", "train.batch=16"), 1),
        (("size=ladder/10M",), 16),
        (("size=ladder/10M", "train.micro_batch=1"), 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else str(value),
)
def test_threads_grow_with_what_is_computed_at_once(words, threads):
    assert suited(assemble(load("decoder", [*DATA, *words])), 16) == threads


def test_threads_are_no_part_of_a_runs_identity():
    one, other = (assemble(load("decoder", [*DATA, *words])) for words in ((), ("train.threads=1",)))
    assert run_id(one.spec) == run_id(other.spec)


def test_more_threads_than_cores_are_refused(monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(ScalingError, match=r"train.threads=3: there are 2 cores; take fewer, or auto"):
        assemble(load("decoder", [*DATA, "train.threads=3"]))


def test_workers_of_small_runs_have_one_thread_on_a_machine_of_many_cores(tmp_path, monkeypatch):
    """Two runs on 64 cores are two workers, which could have 32 threads each."""
    settings = {"size": "tiny", "size.vocabulary": None, "data": "synthetic"}
    question = Question("x", "which?", "decoder", settings, {"trainer.max_steps": [20], "seed": [0, 1]})
    found = plan(question, [f"runs={tmp_path}"])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    size = sized(found)
    assert (size.workers, size.threads) == (2, 32)
    assert threads(found, size.threads) == 1


def test_doctor_does_not_praise_every_core(monkeypatch, tmp_path, capsys):
    for variable in VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.chdir(tmp_path)
    cli.main(["doctor", "--json"])
    (finding,) = (one for one in json.loads(capsys.readouterr().out) if one["topic"] == "threads")
    assert finding["what"] == "OMP_NUM_THREADS is not set: the size of a run's model decides"


FAULTS = """
import resource
import torch
from scaling.training.machine import keep_freed

if {kept}:
    keep_freed()
faults = []
for _ in range(30):
    torch.ones(1 << 24)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[9])  # the first blocks find the heap too short
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_what_a_step_freed_is_not_cleared_again():
    def faults(kept: bool) -> int:
        code = FAULTS.format(kept=kept)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)

    assert faults(True) < 100 < 1000 < faults(False)


@pytest.fixture
def able():
    """A processor that can count subnormal numbers as zero."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("able")
def test_steps_count_subnormal_numbers_as_zero_and_what_follows_does_not(tmp_path, monkeypatch):
    seen, loss = [], FamilyModule._loss
    monkeypatch.setattr(FamilyModule, "_loss", lambda *given: (seen.append(flushes()), loss(*given))[1])
    train(load("decoder", tiny(tmp_path)[1:]))
    assert set(seen) == {True}
    assert not flushes()


@pytest.mark.usefixtures("able")
def test_whoever_flushed_before_flushes_after():
    with flushed():
        with flushed():
            pass
        assert flushes()
    assert not flushes()


@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
def test_a_peak_is_told_only_where_it_is_known(precision, monkeypatch):
    monkeypatch.setattr(machine.torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(machine.torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    assert machine.peak(precision) == (989e12 if precision == "bf16-true" else None)
