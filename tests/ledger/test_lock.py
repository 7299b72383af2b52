"""One holder at a time, a dead one is replaced at once, and one that lost its lock learns it."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scaling.errors import DISK, ScalingError
from scaling.ledger.run import Lock, lock_state

TAKE = """
import pathlib, sys
from scaling.ledger.run import Lock
lock = Lock(pathlib.Path(sys.argv[1]))
print(lock.take(), flush=True)
sys.stdin.read()
"""


def test_one_of_many_takes_it(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"lock{number}"
        locks = [Lock(path) for _ in range(8)]
        with ThreadPoolExecutor(16) as pool:
            looks = [pool.submit(lock_state, path) for _ in range(8)]  # who only looks keeps no one from taking it
            assert list(pool.map(Lock.take, locks)).count(True) == 1
        assert {look.result() for look in looks} <= {"free", "held", "abandoned"}


def test_it_is_free_again_when_it_was_released(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert first.take()
    assert not second.take()
    second.release()
    assert lock_state(first.path) == "held", "the lock of another is left alone"
    first.release()
    assert lock_state(first.path) == "free"
    assert second.take()


@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_holds_it_as_long_as_it_lives(tmp_path: Path, stopped: bool) -> None:
    """However long it was silent: a laptop that slept wakes with all its processes."""
    path = tmp_path / "lock"
    words = [sys.executable, "-c", TAKE, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        if stopped:
            holder.send_signal(signal.SIGSTOP)
        assert not Lock(path).take()
        holder.kill()
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # not waited for: a zombie is dead too
        assert lock_state(path) == "abandoned"
        assert Lock(path).take()


@pytest.mark.parametrize("change", ["gone", "another's"])
def test_who_lost_it_learns_it_and_leaves_the_lock_of_the_other(tmp_path: Path, change: str) -> None:
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


def test_a_full_disk_is_code_74_and_leaves_no_lock(small_disk: Path) -> None:
    from tests.disk import fill

    fill(small_disk, 0)
    with pytest.raises(ScalingError) as full:
        Lock(small_disk / "lock").take()
    assert full.value.code == DISK
    assert not (small_disk / "lock").exists()


def test_a_file_system_without_locks_grants_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
