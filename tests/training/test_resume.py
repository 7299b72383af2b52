"""A run that was interrupted, at whatever moment and however often, ends as the run that never was: to the bit."""

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import DISK
from scaling.ledger import Ledger, run_id
from scaling.ledger.document import entries
from scaling.ledger.run import LOG
from scaling.training.run import train_run
from tests.disk import fill
from tests.training.conftest import PAIRS, WORSE, at, at_file_operation, die, ends, experiment, left, send, train, words

slow = pytest.mark.slow

# Kills: hooks of Lightning's at a step, and file operations from the first that names a file on.
KILLS: list[Any] = [("on_validation_start", 1), ("on_save_checkpoint", 8), (".writing-000000000008", 7)]
KILLS += [(".writing-result.json", number) for number in (1, 3)]  # in the writing, and after it is published
MORE = [("setup", 0), ("on_save_checkpoint", 4), ("on_validation_end", 12)]
MORE += [("on_train_batch_end", step) for step in (1, 3, 4, 12)]
MORE += [(".writing-000000000008", number) for number in (1, 4, 9, 11, 13)]


@pytest.mark.parametrize(("place", "number"), [*KILLS, *(pytest.param(*one, marks=slow) for one in MORE)])
def test_a_kill_at_a_step_or_at_a_file_operation(place, number, tmp_path, fork, unbroken):
    line, is_file = words(tmp_path / "runs"), place.startswith(".")
    happens = (at_file_operation(place, number), ()) if is_file else (None, (at(place, number, die),))
    assert fork(line, *happens).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    assert left(tmp_path / "runs") == unbroken


def test_three_kills_in_one_run(tmp_path, fork, unbroken):
    """No attempt does more again than one interval between checkpoints, and the history has the steps of a whole run,
    each once: laws of curves are fitted to them.
    """
    line = words(tmp_path / "runs", log__every=5)
    for step in (2, 5, 9):
        assert fork(line, None, (at("on_train_batch_end", step, die),)).wait() == -signal.SIGKILL
    assert fork(line).wait() == 0
    assert left(tmp_path / "runs")._replace(losses=unbroken.losses) == unbroken
    ledger = Ledger.open(tmp_path / "runs")
    (run,) = ledger.runs()
    assert [entry["from_step"] for entry in entries(ledger.folder(run) / LOG, ["resume"])] == [None, None, 4, 8]
    assert [entry["step"] for entry in ledger.history(run) if entry["kind"] == "train"] == [1, 5, 10, 12]


# Kinds of runs with a state of their own; the default is AdamW on Causal, in float32.
TEACHER = "{kind: Distil, objective: Causal, teacher: BASE, weight: 0.5}"
PERFORMER = {"model.block.mixer": "{kind: Performer, features: 8, redraw: 3}", "model.position": "NoPosition"}
PERFORMER |= {"model.block.mixer.dropout": "absent", "train.batch": "{0: 2, 6: 4}", "train.micro_batch": 1}
ROUNDED = {"train.parts": "{last: 1}", "train.layer_decay": 0.5, "trainer.precision": "bf16-true"}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Muon and a teacher": ("decoder", {"optimizer": "Muon", "objective": TEACHER, "seed": 1}),
    "Adafactor and pairs": ("encoder_decoder", {**PAIRS, "optimizer": "Adafactor"}),
    "redrawn features and a growing batch": ("decoder", PERFORMER),
    "early stopping": ("decoder", {**WORSE, "train.checkpoint_every": 7}),
    "a frozen part and rates by layer in bfloat16": ("decoder", {"start.run": "BASE", **ROUNDED}),
    "LoRA": ("decoder", {"start.run": "BASE", "tuning": "{kind: LoRA, rank: 2, targets: [all], dropout: 0.1}"}),
    "SGD and corrupted spans": ("encoder_decoder", {"objective": "SpanCorruption", "optimizer": "SGD"}),
}


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=slow if "SGD" in kind else ()) for kind in KINDS])
def test_every_kind_of_run_resumes(kind, base, tmp_path, fork):
    name, changes = KINDS[kind]
    changes = {key: str(value).replace("BASE", base[1]) for key, value in changes.items()}
    for folder in ("whole", "killed"):
        shutil.copytree(base[0], tmp_path / folder)
    run = train(words(tmp_path / "whole", name, **changes))["run"]
    line = words(tmp_path / "killed", name, **changes)
    assert fork(line, None, (at("on_train_batch_end", 9, die),)).wait() == -signal.SIGKILL
    assert train(line)["circumstances"]["from_step"] in (7, 8)
    assert left(tmp_path / "killed", run) == left(tmp_path / "whole", run)


@pytest.mark.parametrize("ranks", [1, pytest.param(2, marks=slow)])
def test_a_branch_is_the_whole_run(ranks, tmp_path):
    changes = {"schedule__kind": "WSD", "schedule__warmup": 2, "schedule__decay": 0.5, "trainer__devices": ranks}
    train(words(tmp_path / "alone", **changes))
    whole = experiment(tmp_path / "branched", **changes)
    trunk, step = whole.trunk() or pytest.fail("no trunk")
    assert step == 6
    ledger = Ledger.create(tmp_path / "branched")
    plan = {"run": ledger.add(whole.spec), "trunk": {"run": run_id(trunk.spec), "step": step}}
    ledger.save_plan("study", {"runs": [plan]})
    assert train_run(trunk, ledger) is not None
    assert train_run(whole, ledger)["circumstances"]["from_step"] == step
    alone, branched = left(tmp_path / "alone"), left(tmp_path / "branched")
    assert (branched.files, branched.result) == (alone.files, alone.result)
    assert branched.losses.items() <= alone.losses.items()
    assert min(step for step, _ in branched.losses) == 7


CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}
SIGNALS: list[Any] = [("on_train_batch_start", 5, signal.SIGINT), ("setup", 0, signal.SIGUSR1)]
SIGNALS += [("on_validation_start", 12, signal.SIGTERM), ("on_save_checkpoint", 12, signal.SIGTERM)]
LATER = [("on_train_batch_start", step, signal.SIGTERM) for step in (0, 3, 11)]
LATER += [("on_validation_start", 1, signal.SIGTERM), ("on_train_batch_start", 5, signal.SIGUSR1)]


@pytest.mark.parametrize(("hook", "step", "number"), [*SIGNALS, *(pytest.param(*one, marks=slow) for one in LATER)])
def test_a_signal_saves_and_leaves_with_its_code(hook, step, number, tmp_path, fork, unbroken):
    line = words(tmp_path / "runs")
    assert fork(line, None, (at(hook, step, send(number)),)).wait() == CODES[number]
    assert ends(tmp_path / "runs") == ["finished" if hook == "on_save_checkpoint" else "stopped"]
    ledger = Ledger.open(tmp_path / "runs")
    saved = step + 1 if hook in ("on_train_batch_start", "setup") else step
    assert ledger.checkpoint(ledger.runs()[0], saved) is not None
    assert fork(line).wait() == 0
    assert left(tmp_path / "runs") == unbroken


def test_a_signal_in_the_publication_comes_after_it(tmp_path, fork, unbroken):
    publication = at_file_operation(".writing-result.json", 1, send(signal.SIGTERM))
    assert fork(words(tmp_path / "runs"), publication).wait() == 143
    assert ends(tmp_path / "runs") == ["finished"]
    assert left(tmp_path / "runs") == unbroken


# A file at whose opening the disk fills up, and the bytes that are left. In the last ones there may be room enough.
FULL: list[Any] = [("log.jsonl", 0), (".writing-000000000004", 2048), (".writing-result.json", 0)]
FULL += [pytest.param(".writing-000000000008", leave, marks=slow) for leave in (0, 500, 8192, 16384)]


@pytest.mark.parametrize(("file", "leave"), FULL)
def test_a_full_disk_is_one_line_and_loses_nothing(file, leave, small_disk, fork, unbroken, capfd):
    line = words(small_disk / "runs")
    code = fork(line, at_file_operation(file, 1, lambda: fill(small_disk, leave))).wait()
    if code != 0 or (file, leave) in FULL[:2]:
        assert code == DISK
        (error,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("scaling: ")]
        assert "No space left" in error
    (small_disk / "filler").unlink()
    assert fork(line).wait() == 0
    assert left(small_disk / "runs") == unbroken


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
    time.sleep(1.0)  # so that the first looks at its lock again
    os.kill(stale.pid, signal.SIGCONT)
    assert stale.wait() == 0
    assert ledger.result(run) == first
    assert (first or {})["attempt"] == 2
    assert ends(tmp_path / "runs") == ["stopped", "finished"]
    assert not (ledger.folder(run) / "lock").exists()
    assert left(tmp_path / "runs") == unbroken
