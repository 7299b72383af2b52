"""A run that was interrupted, at whatever moment and however often, ends as the run that never was: to the bit."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import DISK
from scaling.ledger import Ledger, run_id
from scaling.training.run import train_run
from tests.disk import fill
from tests.training.conftest import at, at_file_operation, die, ends, experiment, left, same, send, train, words

slow = pytest.mark.slow


def resumed_from(runs: Path) -> list[int | None]:
    """The steps from which the attempts at the only run went on."""
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    return [entry["from_step"] for entry in ledger.history(run) if entry["kind"] == "resume"]


# Kills

MOMENTS = [
    *(("setup", 0), ("on_validation_start", 1), ("on_save_checkpoint", 8), ("on_validation_end", 12)),
    *(pytest.param("on_train_batch_end", step, marks=slow) for step in (1, 3, 4, 12)),
    pytest.param("on_save_checkpoint", 4, marks=slow),
]


@pytest.mark.parametrize(("hook", "step"), MOMENTS)
def test_a_kill_at_a_step(hook, step, tmp_path, fork, unbroken):
    line = words(tmp_path / "runs")
    assert fork(line, None, (at(hook, step, die),)).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


FILES = [
    (".writing-000000000008", 7),
    *((".writing-result.json", number) for number in (1, 3)),  # in the writing, and after it is published
    *(pytest.param(".writing-000000000008", n, marks=slow) for n in (1, 4, 9, 11, 13)),
]


@pytest.mark.parametrize(("file", "number"), FILES)
def test_a_kill_at_a_file_operation_of_a_save_or_of_the_publication(file, number, tmp_path, fork, unbroken):
    line = words(tmp_path / "runs")
    assert fork(line, at_file_operation(file, number)).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=slow) for seed in range(1, 12))])
def test_a_kill_at_a_random_moment(seed, tmp_path, fork, unbroken):
    line = words(tmp_path / "runs")
    child = fork(line)
    while child.is_alive() and not list(tmp_path.glob("runs/store/*/log.jsonl")):
        time.sleep(0.002)
    time.sleep(random.Random(seed).uniform(0, 0.4))
    child.kill()
    child.wait()
    assert fork(line).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


def test_three_kills_in_one_run(tmp_path, fork, unbroken):
    """No attempt does more again than one interval between checkpoints, and the history has each step once."""
    line = words(tmp_path / "runs")
    for step in (2, 5, 9):
        assert fork(line, None, (at("on_train_batch_end", step, die),)).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    same(left(tmp_path / "runs"), unbroken)
    assert resumed_from(tmp_path / "runs") == [None, None, 4, 8]
    ledger = Ledger.open(tmp_path / "runs")
    steps = [entry["step"] for entry in ledger.history(ledger.runs()[0]) if entry["kind"] == "train"]
    assert steps == list(range(1, 13))


# Kinds of runs. The default is AdamW on Causal, in float32.

PERFORMER = {"model.block.mixer": "{kind: Performer, features: 8, redraw: 3}", "model.position": "NoPosition"}
PAIRS = {"data": "synthetic_pairs", "data.symbols": "absent", "objective": "Sequence", "size.length": 32}
PATIENT = {"trainer.max_steps": 40, "train.patience": 2, "evaluate.points": 20, "optimizer.lr": 0.3}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("decoder", {"optimizer": name}) for name in ("Adafactor", "Muon", "SGD")},
    "an encoder-decoder": ("encoder_decoder", {"objective": "SpanCorruption"}),
    "pairs": ("encoder_decoder", {**PAIRS, "data.validation": 64, "data.pairs": 500}),
    "a teacher": ("decoder", {"objective": "{kind: Distil, objective: Causal, teacher: BASE, weight: 0.5}", "seed": 1}),
    "a growing batch": ("decoder", {"train.batch": "{0: 2, 6: 4}", "train.micro_batch": 1}),
    "redrawn features": ("decoder", {**PERFORMER, "model.block.mixer.dropout": "absent"}),
    "early stopping": ("decoder", {**PATIENT, "train.checkpoint_every": 7}),
    "a frozen part in bfloat16": (
        "decoder",
        {"start.run": "BASE", "train.parts": "head", "trainer.precision": "bf16-true"},
    ),
    "rates by layer": ("decoder", {"start.run": "BASE", "train.parts": "{last: 1}", "train.layer_decay": 0.5}),
    "LoRA": ("decoder", {"start.run": "BASE", "tuning": "{kind: LoRA, rank: 2, targets: [all], dropout: 0.1}"}),
}


FAST = ("Muon", "pairs", "a teacher", "a growing batch", "early stopping", "a frozen part in bfloat16", "LoRA")


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=() if kind in FAST else slow) for kind in KINDS])
def test_every_kind_of_run_resumes(kind, base, tmp_path, fork):
    name, changes = KINDS[kind]
    changes = {key: str(value).replace("BASE", base[1]) for key, value in changes.items()}
    for folder in ("whole", "killed"):
        shutil.copytree(base[0], tmp_path / folder)
    run = train(words(tmp_path / "whole", name, **changes))["run"]
    line = words(tmp_path / "killed", name, **changes)
    assert fork(line, None, (at("on_train_batch_end", 9, die),)).wait() == -signal.SIGKILL
    assert train(line)["circumstances"]["from_step"] in (7, 8)
    same(left(tmp_path / "killed", run), left(tmp_path / "whole", run))


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=slow)])
def test_a_branch_is_the_whole_run(ranks, tmp_path):
    """A trunk and a run that branches from it give what the run gives alone."""
    changes = {"schedule__kind": "WSD", "schedule__warmup": 2, "schedule__decay": 0.5, "trainer__devices": ranks}
    train(words(tmp_path / "alone", **changes))
    whole = experiment(tmp_path / "branched", **changes)
    trunk, step = whole.trunk() or pytest.fail("no trunk")
    assert step == 6
    ledger = Ledger.create(tmp_path / "branched")
    plan = {"run": ledger.add(whole.spec), "trunk": {"run": run_id(trunk.spec), "step": step}}
    ledger.save_plan("study", {"runs": [plan]})
    assert train_run(trunk, ledger) is not None
    result = train_run(whole, ledger)
    assert result is not None
    assert result["circumstances"]["from_step"] == step
    alone, branched = left(tmp_path / "alone"), left(tmp_path / "branched")
    assert (branched.files, branched.result) == (alone.files, alone.result)
    assert branched.losses.items() <= alone.losses.items()
    assert min(step for step, _ in branched.losses) == 7


# Signals

CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}
SIGNALS = [
    *(("on_train_batch_start", 5, number, "stopped") for number in CODES),
    *(("setup", 0, signal.SIGTERM, "stopped"), ("on_validation_start", 1, signal.SIGTERM, "stopped")),
    *(("on_validation_start", 12, signal.SIGTERM, "stopped"), ("on_save_checkpoint", 12, signal.SIGTERM, "finished")),
    *(pytest.param("on_train_batch_start", n, signal.SIGTERM, "stopped", marks=slow) for n in (0, 3, 11)),
]


@pytest.mark.parametrize(("hook", "step", "number", "outcome"), SIGNALS)
def test_a_signal_saves_and_leaves_with_its_code(hook, step, number, outcome, tmp_path, fork, unbroken):
    line = words(tmp_path / "runs")
    assert fork(line, None, (at(hook, step, send(number)),)).wait() == CODES[number]
    assert ends(tmp_path / "runs") == [outcome]
    ledger = Ledger.open(tmp_path / "runs")
    saved = step + 1 if hook in ("on_train_batch_start", "setup") else step
    assert ledger.checkpoint(ledger.runs()[0], saved) is not None
    assert fork(line).wait() == 0
    same(left(tmp_path / "runs"), unbroken)


def test_a_signal_in_the_publication_comes_after_it(tmp_path, fork, unbroken):
    publication = at_file_operation(".writing-result.json", 1, send(signal.SIGTERM))
    assert fork(words(tmp_path / "runs"), publication).wait() == 143
    assert ends(tmp_path / "runs") == ["finished"]
    same(left(tmp_path / "runs"), unbroken)


# Disks

# A file at whose opening the disk fills up, and the bytes that are left.
DISKS = [
    ("log.jsonl", 0),
    (".writing-000000000004", 2048),
    (".writing-000000000008", 8192),
    (".writing-result.json", 0),
]
MORE = [(".writing-000000000008", leave) for leave in (0, 500, 16384)]


@pytest.mark.parametrize(("file", "leave"), [*DISKS, *(pytest.param(*one, marks=slow) for one in MORE)])
def test_a_full_disk_is_one_line_and_loses_nothing(file, leave, small_disk, fork, unbroken, capfd):
    line = words(small_disk / "runs")
    code = fork(line, at_file_operation(file, 1, lambda: fill(small_disk, leave))).wait()
    if code != 0 or (file, leave) in DISKS[:2]:  # there may have been room enough for what was left to write
        assert code == DISK
        (error,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("scaling: ")]
        assert "No space left" in error
    (small_disk / "filler").unlink()
    assert fork(line).wait() == 0
    same(left(small_disk / "runs"), unbroken)


# Other workers, and the same run again


@pytest.mark.parametrize("step", [6, pytest.param(0, marks=slow)])
def test_a_worker_that_was_suspended_and_lost_its_run_wakes(step, tmp_path, fork, unbroken):
    """Another worker was let in and is done: the first valid result stands."""
    line = words(tmp_path / "runs")
    stale = fork(line, None, (at("on_train_batch_start", step, send(signal.SIGSTOP)),))
    while Path(f"/proc/{stale.pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        assert stale.is_alive()
        time.sleep(0.01)
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    (ledger.folder(run) / "lock").unlink()
    assert fork(line).wait() == 0
    first = ledger.result(run)
    assert first is not None
    time.sleep(1.0)  # so that the first looks at its lock again
    os.kill(stale.pid, signal.SIGCONT)
    assert stale.wait() == 0
    assert ledger.result(run) == first
    assert first["attempt"] == 2
    assert ends(tmp_path / "runs") == ["stopped", "finished"]
    assert not (ledger.folder(run) / "lock").exists()
    same(left(tmp_path / "runs"), unbroken)
