"""Runs, studies, locks, attempts and results: what others see of them, and what is freed."""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from scaling.base.errors import ScalingError
from scaling.ledger import RESULTS, Attempt, Ledger, space
from scaling.ledger.document import seal
from scaling.ledger.run import Lock, lock_state
from tests.ledger.conftest import save
from tests.ledger.worker import claimed

EVIL = ["../escape", "", "/etc/passwd", "\x1b[2J", "a" * 300]


def refuses(call: Any, *arguments: Any, match: str = "") -> None:
    """One line, with code 2, that a terminal may print."""
    with pytest.raises(ScalingError, match=match) as refused:
        call(*arguments)
    assert refused.value.code == 2
    assert str(refused.value).isprintable()


# Entering and finding


def test_equal_specs_share_a_run(ledger):
    spec = {"seed": 1, "train": {"tokens": 1000}, "trainer": {"devices": 1}, "name": "first"}
    run = ledger.add(spec)
    assert ledger.add({"train": {"tokens": 1e3}, "trainer": {"devices": 8}, "seed": 1, "name": "second"}) == run
    assert ledger.runs() == [run]
    assert ledger.spec(run) == spec, "as it was first entered"
    assert ledger.add({**spec, "seed": 2}) != run
    (ledger.folder(run) / "spec.json").write_bytes(seal({"run": run, "spec": {"seed": 2}}))
    refuses(ledger.add, spec, match="seed is 2 there and 1 here")


@pytest.mark.parametrize("name", EVIL)
def test_names_that_are_no_names(name, ledger):
    before = sorted(ledger.root.parent.rglob("*"))
    for call in (ledger.folder, ledger.spec, ledger.status, ledger.find, ledger.plan, ledger.study_folder):
        refuses(call, name)
    refuses(ledger.save_plan, name, {"runs": []})
    refuses(ledger.save_plan, "study", {"runs": [{"run": name}]})
    assert sorted(ledger.root.parent.rglob("*")) == before


def test_a_run_is_found_by_its_beginning(ledger, runs):
    assert ledger.find(runs[0][:8]) == runs[0]
    refuses(ledger.find, "")
    refuses(ledger.find, runs[0][:15] + "x", match="there is no such run")


def test_the_ledger_works_without_hard_links(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    ledger = Ledger.create(tmp_path / "runs")
    run = ledger.add({"seed": 1})
    ledger.save_plan("study", {"runs": [{"run": run}]})
    with claimed(ledger, run) as attempt:
        assert ledger.claim(run) is None
        assert attempt.finish("finished", {"loss": 1.0})["attempt"] == 1
    assert ledger.status(run).state == "finished"


# Studies


def test_a_plan_is_written_once(ledger, runs):
    plan = {"question": "which?", "runs": [{"run": run, "size": number} for number, run in enumerate(runs)]}
    ledger.save_plan("first", plan)
    ledger.save_plan("first", plan)
    assert ledger.plan("first") == plan
    assert ledger.studies() == ["first"]
    assert ledger.runs_of("first") == runs
    other = {**plan, "question": "why?"}
    refuses(ledger.save_plan, "first", other, match=r"question is 'which\?' there and 'why\?' here")
    refuses(ledger.plan, "frist", match="did you mean 'first'")


def test_a_trunk_keeps_what_its_branches_need(ledger, runs):
    trunk, branch, other = runs
    for study, run, step in (("one", branch, 2), ("two", other, 3)):
        ledger.save_plan(study, {"runs": [{"run": trunk}, {"run": run, "trunk": {"run": trunk, "step": step}}]})
    assert ledger.needed(trunk) == {2, 3}
    with claimed(ledger, trunk) as attempt:
        for step in range(1, 8):
            save(attempt, step)
        attempt.end("stopped", "the last branch has its start")
    assert [step for step in range(1, 8) if ledger.checkpoint(trunk, step)] == [2, 3, 6, 7]
    with claimed(ledger, branch) as attempt:
        attempt.finish("finished", {"loss": 1.0})
    assert ledger.needed(trunk) == {3}
    assert space.waste(ledger)[0] == []
    with claimed(ledger, other) as attempt:
        attempt.finish("finished", {"loss": 1.0})
    assert {item.run for item in space.waste(ledger)[0]} == {trunk}, "its branches are done"


# Locks

TAKE = "import pathlib, sys; from scaling.ledger.run import Lock; l = Lock(pathlib.Path(sys.argv[1])); print(l.take())"


def test_one_of_many_takes_a_lock_and_the_next_when_it_is_released(tmp_path):
    for number in range(20):
        path = tmp_path / f"lock{number}"
        locks = [Lock(path) for _ in range(8)]
        with ThreadPoolExecutor(16) as pool:
            looks = [pool.submit(lock_state, path) for _ in range(8)]  # who only looks keeps no one from taking it
            taken = list(pool.map(Lock.take, locks))
        assert taken.count(True) == 1
        assert {look.result() for look in looks} <= {"free", "held", "abandoned"}
    holder = locks.pop(taken.index(True))
    locks[0].release()
    assert lock_state(path) == "held", "the lock of another is left alone"
    holder.release()
    assert lock_state(path) == "free"
    assert locks[0].take()


def test_a_process_holds_a_lock_as_long_as_it_lives(tmp_path):
    """However long it was silent: a laptop that slept wakes with all its processes."""
    path = tmp_path / "lock"
    command = [sys.executable, "-c", f"{TAKE}; sys.stdin.read()", str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as holder:
        while lock_state(path) != "held":
            time.sleep(0.01)
        holder.send_signal(signal.SIGSTOP)
        assert not Lock(path).take()
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # not waited for: a zombie is dead too
        assert lock_state(path) == "abandoned"
        assert Lock(path).take()


@pytest.mark.parametrize("change", ["gone", "another's"])
def test_who_lost_a_lock_learns_it_and_leaves_the_lock_of_the_other(change, tmp_path):
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    if change == "gone":
        first.path.unlink()
        assert second.take()
    else:  # a file server that forgot the first one
        first.path.write_text("{}")
    assert first.is_lost()
    first.release()
    assert first.path.exists()
    assert not second.is_lost() or change != "gone"


def test_a_file_system_without_locks_grants_the_latest(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not first.is_lost(since=0)
    assert second.take()
    assert first.is_lost(since=0)
    first.release()
    assert not second.is_lost(since=0)


# Attempts and results


def test_one_attempt_at_a_time(ledger, runs):
    with claimed(ledger, runs[0]) as first:
        assert ledger.claim(runs[0]) is None
        assert ledger.status(runs[0]).state == "running"
        assert not first.superseded
    assert sorted(path.name for path in first.run.iterdir()) == ["log.jsonl", "spec.json"], "the lock is gone"
    with claimed(ledger, runs[0]) as second:
        assert second.number == 2
        second.finish("finished", {"loss": 1.0})
    assert ledger.claim(runs[0]) is None


def rivals(ledger: Ledger, run: str) -> tuple[Attempt, Attempt]:
    """Two attempts at a run, the second as if the lock of the first had been judged abandoned."""
    first = claimed(ledger, run)
    (ledger.folder(run) / "lock").unlink()
    return first, claimed(ledger, run)


@pytest.mark.parametrize("loss", [2.75, math.nan])
def test_the_first_result_stands_and_a_later_one_is_compared(loss, ledger, runs, caplog):
    """Except for its circumstances."""
    first, late = rivals(ledger, runs[0])
    standing = math.nan if math.isnan(loss) else 2.5
    with first, late, caplog.at_level(logging.WARNING):
        kept = first.finish("finished", {"loss": standing, "circumstances": {"host": "a"}})
        assert (
            late.finish("finished", {"loss": loss, "circumstances": {"host": "b"}})["attempt"] == kept["attempt"] == 1
        )
    assert ("attempt 2 found another result than attempt 1" in caplog.text) == (loss == 2.75)
    end = ledger.attempts(runs[0])[1].end or {}
    assert end.get("differences") == ({"loss": [2.5, 2.75]} if loss == 2.75 else None)
    assert ledger.status(runs[0]).reason == ("attempt 2 found another result" if loss == 2.75 else None)


def test_a_damaged_result_is_none_and_is_written_again(ledger, runs):
    for content in (b"", b'{"loss": 1}', seal({"run": runs[1], "attempt": 1, "outcome": "finished"})):
        (ledger.folder(runs[0]) / "result.json").write_bytes(content)
        assert ledger.result(runs[0]) is None
        assert ledger.status(runs[0]).state == "waiting"
    with claimed(ledger, runs[0]) as attempt:
        assert attempt.finish("finished", {"loss": 2.0})["loss"] == 2.0
    assert (ledger.result(runs[0]) or {})["loss"] == 2.0


@pytest.mark.parametrize("outcome", ["finished", "diverged", "pruned", "out_of_memory", "failed", "stopped"])
def test_a_result_ends_a_run_and_an_interruption_leaves_it_open(ledger, runs, outcome):
    with claimed(ledger, runs[0]) as attempt:
        if outcome in RESULTS:
            attempt.finish(outcome, {"loss": math.nan})
        else:
            attempt.end(outcome, "for a reason")
    row = ledger.status(runs[0])
    assert (row.state, row.reason) == (outcome, None if outcome in RESULTS else "for a reason")
    again = ledger.claim(runs[0])
    assert (again is None) == (outcome in RESULTS)
    if again is not None:
        again.close()


ERRORS = [(RuntimeError("two\nlines"), "failed"), (KeyboardInterrupt(), "stopped"), (SystemExit(143), "stopped")]


@pytest.mark.parametrize(("error", "outcome"), ERRORS)
def test_leaving_by_an_exception_is_logged(ledger, runs, error, outcome):
    with pytest.raises(type(error)), claimed(ledger, runs[0]):
        raise error
    row, (record,) = ledger.status(runs[0]), ledger.attempts(runs[0])
    assert row.state == outcome
    assert "\n" not in str(row.reason)
    assert ("RuntimeError" in record.end.get("traceback", "")) == (outcome == "failed")


def test_failures_count_until_someone_asks_to_try_again(ledger, runs):
    for outcome in ("failed", "stopped", "out_of_memory"):
        with claimed(ledger, runs[0]) as attempt:
            attempt.end(outcome, "")
    assert [record.failed for record in ledger.attempts(runs[0])] == [True, False, True]
    ledger.retry(runs[0])
    assert not any(record.failed for record in ledger.attempts(runs[0]))
    with claimed(ledger, runs[0]) as attempt:
        attempt.end("failed", "")
    assert [record.failed for record in ledger.attempts(runs[0])] == [False, False, False, True]


def test_the_history_has_each_step_once_from_its_last_attempt(ledger, runs):
    for lines in ([(1, 1.0), (2, 2.0), (3, 3.0)], [(3, 3.5), (4, 4.0)]):
        with claimed(ledger, runs[0]) as attempt:
            attempt.resume()
            for step, loss in lines:
                attempt.log.write({"kind": "train", "step": step, "loss": loss})
            attempt.log.write({"kind": "evaluate", "step": lines[0][0], "loss": 9.0})
    found = [(entry["kind"], entry.get("step"), entry.get("loss")) for entry in ledger.history(runs[0])]
    assert [entry for entry in found if entry[0] == "train"] == [
        ("train", step, loss) for step, loss in ((1, 1.0), (2, 2.0), (3, 3.5), (4, 4.0))
    ]
    assert [step for kind, step, _ in found if kind == "evaluate"] == [1, 3]
    assert [kind for kind, *_ in found][:2] == ["resume", "resume"]


# Training a run that is done again, listing and freeing


@pytest.fixture
def done(ledger: Ledger, runs: list[str]) -> list[str]:
    """The first two of three runs finished."""
    for number, run in enumerate(runs[:2]):
        with claimed(ledger, run) as attempt:
            attempt.log.write({"kind": "train", "step": 4, "steps": 4, "loss": 2.5})
            for step in (2, 4):
                save(attempt, step, b"first", 200)
            attempt.finish("finished", {"loss": 2.0 + number, "step": 4, "circumstances": {"tokens_per_second": 10.0}})
    return runs[:2]


def test_collecting_lists_first_and_frees_then(ledger, runs, done, tmp_path):
    ledger.save_plan("study", {"runs": [{"run": runs[2], "trunk": {"run": done[0], "step": 2}}]})
    outside, checkpoints = tmp_path / "outside", ledger.folder(done[0]) / "checkpoints"
    outside.mkdir()
    (outside / "manifest.json").write_text("{}")
    (checkpoints / "000000000009").symlink_to(outside)  # a link that leads out is not followed
    found = [item for item in space.waste(ledger)[0] if not item.path.is_symlink()]
    assert {(item.run, int(item.path.name)) for item in found} == {(done[1], 2)}
    assert all(item.path.exists() for item in found), "nothing was touched"
    assert space.free(found) == sum(item.bytes for item in found) > 1000
    space.free(space.waste(ledger)[0])
    assert ledger.checkpoint(done[0], 2) is not None, "a branch still needs it"
    assert all(ledger.checkpoint(run, 4) is not None for run in done), "the final weights"
    weights = [item for item in space.waste(ledger, weights=True)[0] if not item.path.is_symlink()]
    assert {(item.run, item.kind) for item in weights} == {(run, "final weights") for run in done}
    space.free(weights)
    assert ledger.checkpoint(done[0], 2) is not None, "a branch still needs it"
    assert ledger.checkpoint(done[0], 4) is None
    assert ledger.result(done[0]) is not None
    assert (outside / "manifest.json").exists()


def test_where_the_last_checkpoint_is_damaged_the_one_before_is_the_final_one(ledger, done):
    (ledger.folder(done[0]) / "checkpoints" / "000000000004" / "model").write_bytes(b"flipped")
    space.free(space.waste(ledger)[0])
    assert ledger.checkpoint(done[0], 2) is not None


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
