"""Runs, studies, locks, attempts, results and checkpoints: what others see of them, and what is freed."""

import errno
import fcntl
import logging
import math
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from scaling.ledger import Attempt, Ledger, checkpoint, run_id, space
from scaling.ledger.document import seal
from scaling.ledger.identity import LONGEST, assignments, run_name
from scaling.ledger.run import Lock, lock_state
from tests.command_line import refuses
from tests.ledger.conftest import claimed, save
from tests.test_bad_values import changed
from tests.training.conftest import load, words


def kept(attempt: Attempt) -> list[int]:
    return sorted(checkpoint.steps(attempt.run))


def folder(attempt: Attempt, step: int) -> Path:
    return attempt.run / "checkpoints" / f"{step:012d}"


def resumed(attempt: Attempt, belongs: checkpoint.Belongs = lambda _: True) -> int | None:
    found = attempt.resume(belongs)
    return None if found is None else found.step


def test_equal_specs_share_a_run_which_is_found_by_its_beginning(ledger):
    spec = {"seed": 1, "train": {"tokens": 1000}, "trainer": {"devices": 1}, "name": "first"}
    run = ledger.add(spec)
    assert ledger.add({"train": {"tokens": 1e3}, "trainer": {"devices": 8}, "seed": 1, "name": "second"}) == run
    assert ledger.runs() == [run]
    assert ledger.spec(run) == spec, "as it was first entered"
    assert ledger.find(run[:8]) == run
    (ledger.folder(run) / "spec.json").write_bytes(seal({"run": run, "spec": {"seed": 2}}))
    refuses("seed is 2 there and 1 here", ledger.add, spec)
    (ledger.folder(run) / "result.json").write_bytes(seal({"run": "0" * 16, "attempt": 1, "outcome": "finished"}))
    assert ledger.result(run) is None, "a result of another run is none"


def test_names_that_are_no_names_are_refused_and_touch_nothing(ledger):
    before = sorted(ledger.root.parent.rglob("*"))
    for name in ("../escape", "", "/etc/passwd", "\x1b[2J", "a" * 300):
        for call in (ledger.folder, ledger.spec, ledger.status, ledger.find, ledger.plan, ledger.study_folder):
            refuses(None, call, name)
        refuses(None, ledger.save_plan, name, {"runs": []})
        refuses(None, ledger.save_plan, "study", {"runs": [{"run": name}]})
    assert sorted(ledger.root.parent.rglob("*")) == before


def test_the_ledger_works_without_hard_links(ledger, monkeypatch):
    monkeypatch.setattr(os, "link", Mock(side_effect=PermissionError(1, "no hard links here")))
    run = ledger.add({"seed": 1})
    ledger.save_plan("study", {"runs": [{"run": run}]})
    with claimed(ledger, run) as attempt:
        assert (ledger.claim(run), ledger.status(run).state) == (None, "running")
        assert attempt.finish("finished", {"loss": 1.0})["attempt"] == 1
    assert ledger.status(run).state == "finished"


def test_a_plan_is_written_once(ledger, runs):
    plan = {"question": "which?", "runs": [{"run": run, "size": number} for number, run in enumerate(runs)]}
    for _ in range(2):
        ledger.save_plan("first", plan)
    assert (ledger.plan("first"), ledger.studies(), ledger.runs_of("first")) == (plan, ["first"], runs)
    other = {**plan, "question": "why?"}
    refuses(r"question is 'which\?' there and 'why\?' here", ledger.save_plan, "first", other)


def test_a_trunk_keeps_its_last_two_checkpoints_and_what_its_branches_need(ledger, runs):
    """What an attempt found stays until it has two whole ones: a damaged one takes the place of none."""
    trunk, branch, other = runs
    for study, run, step in (("one", branch, 2), ("two", other, 3)):
        ledger.save_plan(study, {"runs": [{"run": trunk}, {"run": run, "trunk": {"run": trunk, "step": step}}]})
    with claimed(ledger, trunk) as attempt:
        for step in range(1, 8):
            save(attempt, step)
        assert kept(attempt) == [2, 3, 6, 7]
        attempt.end("stopped", "the last branch has its start")
    (folder(attempt, 7) / "model").write_bytes(b"?")
    with claimed(ledger, trunk) as attempt:
        assert resumed(attempt) == 6
        save(attempt, 8)
        assert kept(attempt) == [2, 3, 6, 8]
        save(attempt, 9)
        assert kept(attempt) == [2, 3, 8, 9]
    with claimed(ledger, branch) as attempt:
        attempt.finish("finished", {"loss": 1.0})
    assert ledger.needed(trunk) == {3}
    assert space.waste(ledger)[0] == []
    with claimed(ledger, other) as attempt:
        attempt.finish("finished", {"loss": 1.0})
    assert {item.run for item in space.waste(ledger)[0]} == {trunk}, "its branches are done"


def test_a_process_holds_a_lock_as_long_as_it_lives(tmp_path):
    """However long it was silent: a laptop that slept wakes with all its processes."""
    path = tmp_path / "lock"
    code = "import pathlib, sys; from scaling.ledger.run import Lock; lock = Lock(pathlib.Path(sys.argv[1]))"
    command = [sys.executable, "-c", f"{code}; lock.take(); sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as holder:
        while lock_state(path) != "held":
            time.sleep(0.01)
        holder.send_signal(signal.SIGSTOP)
        assert not Lock(path).take()
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # not waited for: a zombie is dead too
        assert lock_state(path) == "abandoned"
        assert Lock(path).take()


def test_a_lock_that_changes_hands_while_another_looks_at_it_is_held_once(tmp_path, monkeypatch):
    """The file that the second opened is removed by the first, and made again by the third."""
    first, second, third = (Lock(tmp_path / "lock") for _ in range(3))
    flock = fcntl.flock

    def late(handle: int, kind: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        first.release()
        assert third.take()
        flock(handle, kind)

    assert first.take()
    monkeypatch.setattr(fcntl, "flock", late)
    assert not second.take()


@pytest.mark.parametrize("how", ["its file is gone", "it is another's", "there are no locks"])
def test_who_lost_a_lock_learns_it_and_leaves_the_lock_of_the_other(how, tmp_path, monkeypatch):
    """Also where a file server forgot the first one, and on a file system that grants all to the latest."""
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    if how == "there are no locks":
        monkeypatch.setattr(fcntl, "flock", Mock(side_effect=OSError(errno.ENOSYS, "Function not implemented")))
    assert first.take()
    assert not first.is_lost(since=0)
    if how == "it is another's":
        first.path.write_text("{}")
    else:
        if how == "its file is gone":
            first.path.unlink()
        assert second.take()
    assert first.is_lost(since=0)
    first.release()
    assert first.path.exists()
    assert second.is_lost(since=0) == (how == "it is another's")


@pytest.mark.parametrize("loss", [2.75, math.nan])
def test_the_first_result_stands_and_a_later_one_is_compared(loss, ledger, runs, caplog):
    """Except for its circumstances. The lock of the first had been judged abandoned; it drops nothing of the later."""
    first = claimed(ledger, runs[0])
    (ledger.folder(runs[0]) / "lock").unlink()
    late, standing = claimed(ledger, runs[0]), math.nan if math.isnan(loss) else 2.5
    with first, late, caplog.at_level(logging.WARNING):
        for attempt, step in ((late, 1), (late, 2), (first, 3), (first, 4)):
            save(attempt, step)
        assert (kept(late), first.superseded, late.superseded) == ([1, 2, 3, 4], True, False)
        stands = first.finish("finished", {"loss": standing, "circumstances": {"host": "a"}})
        again = late.finish("finished", {"loss": loss, "circumstances": {"host": "b"}})
        assert again["attempt"] == stands["attempt"] == 1
    assert ("attempt 2 found another result than attempt 1" in caplog.text) == (loss == 2.75)
    end = ledger.attempts(runs[0])[1].end or {}
    assert end.get("differences") == ({"loss": [2.5, 2.75]} if loss == 2.75 else None)
    assert ledger.status(runs[0]).reason == ("attempt 2 found another result" if loss == 2.75 else None)


@pytest.fixture
def done(ledger: Ledger, runs: list[str]) -> list[str]:
    """The first two of three runs finished."""
    for number, run in enumerate(runs[:2]):
        with claimed(ledger, run) as attempt:
            for step in (2, 4):
                save(attempt, step, b"first", 200)
            attempt.finish("finished", {"loss": 2.0 + number, "step": 4})
    return runs[:2]


def test_the_weights_of_a_teacher_are_not_freed_before_its_pupil_is_done(ledger, done):
    ledger.add({"objective": {"teacher": done[0][:8]}})
    assert {item.run for item in space.waste(ledger, weights=True)[0]} == {done[1]}


def test_what_a_branch_or_a_result_needs_is_not_freed_and_no_link_is_followed(ledger, runs, done, tmp_path):
    """Where the last checkpoint is damaged, the one before has the result's weights."""
    ledger.save_plan("study", {"runs": [{"run": runs[2], "trunk": {"run": done[0], "step": 2}}]})
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "manifest.json").write_text("{}")
    (ledger.folder(done[0]) / "checkpoints" / "000000000009").symlink_to(outside)
    found = [item for item in space.waste(ledger)[0] if not item.path.is_symlink()]
    assert [(item.run, int(item.path.name)) for item in found] == [(done[1], 2)]
    (ledger.folder(done[1]) / "checkpoints" / "000000000004" / "model").write_bytes(b"flipped")
    space.free(space.waste(ledger)[0])
    assert [ledger.checkpoint(done[0], step) is None for step in (2, 4)] == [False, False]
    assert [ledger.checkpoint(done[1], step) is None for step in (2, 4)] == [False, True]
    space.free(space.waste(ledger, weights=True)[0])
    assert [ledger.checkpoint(done[0], step) is None for step in (2, 4)] == [False, True]
    assert ledger.result(done[0]) is not None
    assert (outside / "manifest.json").exists()


@pytest.mark.parametrize("place", ["", "store/RUN/checkpoints", "studies/one/report"])
def test_what_a_killed_process_was_writing_is_found_anywhere(ledger, runs, place):
    left = ledger.root / place.replace("RUN", runs[0]) / ".writing-points.csv-00"
    left.mkdir(parents=True)
    (left / "half").write_bytes(bytes(10))
    assert space.waste(ledger)[0] == [], "it may be writing still"
    os.utime(left, (0, time.time() - 2 * space.HOUR))
    with claimed(ledger, runs[0]) as attempt:
        assert space.waste(ledger)[0] == [], "someone works there"
        attempt.end("stopped", "enough")
    assert [(item.kind, item.bytes, item.path) for item in space.waste(ledger)[0]] == [("half-written", 10, left)]
    space.free(space.waste(ledger)[0])
    assert not left.exists()


@pytest.fixture
def attempt(ledger: Ledger, runs: list[str]) -> Iterator[Attempt]:
    with claimed(ledger, runs[0]) as attempt:
        yield attempt


def test_a_step_saved_twice_is_there_once_and_the_first_stays_if_it_is_whole_and_the_run_s(attempt):
    model = folder(attempt, 1) / "model"
    for content in (b"a", b"b"):
        save(attempt, 1, content)
        assert (kept(attempt), model.read_bytes()) == ([1], b"a")
    model.write_bytes(b"?")
    save(attempt, 1, b"b")
    assert model.read_bytes() == b"b"
    with attempt.checkpoint(2, {"tokens": 7}) as other:
        (other / "model").write_bytes(b"another")
    assert resumed(attempt, lambda candidate: candidate.note["tokens"] == 10 * candidate.step) == 1


def test_damage_is_found_and_told_and_the_one_before_is_used(attempt, caplog):
    for seed in range(20):
        chance, last = random.Random(seed), 2 * seed + 2
        save(attempt, last - 1)
        save(attempt, last)
        path = chance.choice([path for path in sorted(folder(attempt, last).rglob("*")) if path.is_file()])
        content = bytearray(path.read_bytes())
        place = chance.randrange(len(content))
        if seed % 3:
            content[place] ^= 1 << chance.randrange(8)
        path.write_bytes(content if seed % 3 else content[:place])
        caplog.clear()
        assert resumed(attempt) == last - 1, path
        assert f"{last:012d} is damaged and not used" in caplog.text


def test_what_is_sealed_and_no_checkpoint_is_damage(attempt):
    """A manifest that names what is outside, one that makes no sense, a link in the place of a file."""
    outside = ({name: {"bytes": 1, "sha256": "0"}} for name in ("../../secret", "/etc/passwd", ""))
    save(attempt, 1)
    save(attempt, 2)
    path = folder(attempt, 2)
    for manifest in ({"a": 1}, *({"step": 2, "files": files, "note": {}} for files in (*outside, [], {"model": 1}))):
        whole = (path / checkpoint.MANIFEST).read_bytes()
        (path / checkpoint.MANIFEST).write_bytes(seal(manifest))
        assert resumed(attempt) == 1
        (path / checkpoint.MANIFEST).write_bytes(whole)
    assert resumed(attempt) == 2
    (path / "model").rename(attempt.run / "model")
    (path / "model").symlink_to(attempt.run / "model")
    assert resumed(attempt) == 1


# Equal experiments share a name, differing ones never do.
SPEC: dict[str, Any] = {
    "model": {"kind": "Decoder", "block": {"channel": {"kind": "Gated", "activation": "GeLU"}}, "layers": 4},
    "data": {"fingerprint": "c0ffee", "folder": "/here"},
    "size": {"width": 64, "length": 64},
    "optimizer": {"kind": "AdamW", "lr": 3e-4, "betas": [0.9, 0.95]},
    "schedule": {"kind": "WSD", "warmup": 100},
    "train": {"tokens": 20_000_000, "batch": 1024},
    "trainer": {"precision": "32-true"},
    "evaluate": {"windows": 64},
    "seed": 1,
    "versions": {"Gated": 1},
}
COUNTED: list[tuple[str, Any]] = [
    *(("model.block.channel.activation", "ReLU"), ("data.fingerprint", "c0ffef")),
    ("model.block.channel.log", "a key of a piece is not the section of that name"),
    *(("data", {"kind": "Text"}), ("optimizer.lr", 3.0000000000000003e-4), ("optimizer.betas", [0.95, 0.9])),
    *(("versions.Gated", 2), ("a key of tomorrow", 0), *(("seed", value) for value in (True, "1", None))),
]


def test_a_name_is_what_it_was_and_what_counts_changes_it():
    """Names are on disks: a change of this one orphans every run."""
    assert run_id(SPEC) == "9ac4aa04ed64974d"
    assert run_id(dict(reversed(changed(SPEC, ["train", "tokens"], 2e7).items()))) == run_id(SPEC)
    assert run_id(changed(SPEC, ["data", "folder"], "/there")) == run_id(SPEC)
    for path, value in COUNTED:
        assert run_id(changed(SPEC, path.split("."), value)) != run_id(SPEC), path
    for path in ("name", "log", "runs", "evaluate.points", "evaluate.spacing", "start.folder", "train.micro_batch"):
        section, dot, _ = path.partition(".")
        other = changed(SPEC, path.split("."), "anything")
        assert run_id(other) == run_id({section: {}, **SPEC} if dot else SPEC), path


def test_a_run_is_named_by_what_sets_it_apart_and_by_what_the_command_line_set(tmp_path):
    row = {"row": "Plain GeLU", "seed": 0, "optimizer.lr": 0.00123456, "decay": 1000.0, "l": [1, 2], "on": True}
    assert " ".join(assignments(row)) == "Plain GeLU seed=0 lr=0.001235 decay=1000 l=[1,2] on=true"
    name = run_name(load(words(tmp_path / "runs", optimizer__lr="0.0212345", seed=7)), 6464)
    assert name.startswith("Decoder 6,464 ")
    assert {"lr=0.02123", "seed=7", "max_steps=12"} <= set(name.split())
    assert not any(word.startswith(("runs=", "wandb=", "every=")) for word in name.split())
    assert len(name) <= LONGEST
