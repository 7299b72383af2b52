"""One holder at a time; a dead one is replaced at once where that is known, and after its lease where it is not."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.errors import DISK, ScalingError
from scaling.ledger.lock import Lease, Lock, Machine, state, this_machine

HERE = this_machine()
OTHER = Machine("other", "another boot", "pid:[1]")
TAKE = "import sys, pathlib; from scaling.ledger.lock import Lock; print(Lock(pathlib.Path(sys.argv[1])).take())"


def age(path: Path, seconds: float) -> None:
    os.utime(path, (0, time.time() - seconds))


def test_one_of_many_takes_it(tmp_path: Path) -> None:
    for number in range(20):
        locks = [Lock(tmp_path / f"lock{number}") for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(Lock.take, locks)).count(True) == 1
    assert len(list(tmp_path.iterdir())) == 20, "nothing temporary is left"


def test_it_is_free_again_when_it_was_released(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = Lock(path), Lock(path)
    assert first.take()
    assert not second.take()
    second.release()
    assert state(path, Lease(), HERE) == "held", "the lock of another is left alone"
    first.release()
    assert state(path, Lease(), HERE) == "free"
    assert second.take()


@pytest.mark.parametrize("silent", [False, True])
def test_a_process_of_this_machine_holds_it_as_long_as_it_lives(tmp_path: Path, silent: bool) -> None:
    """However long it was silent: a laptop that slept wakes with all its processes."""
    path = tmp_path / "lock"
    code = f"{TAKE}; sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as it:
        assert it.stdout is not None
        assert it.stdout.readline() == b"True\n"
        if silent:
            age(path, 3600)
        assert not Lock(path).take()
        it.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, it.pid, os.WEXITED | os.WNOWAIT)  # not waited for: a zombie is dead too
        assert state(path, Lease(), HERE) == "abandoned"
        assert Lock(path).take()


@pytest.mark.parametrize(
    "elsewhere", [OTHER, replace(HERE, boot_id="another"), replace(HERE, process_namespace="pid:[1]")]
)
@pytest.mark.parametrize("seconds", [170, 190])
def test_another_machine_is_given_the_lease(tmp_path: Path, elsewhere: Machine, seconds: float) -> None:
    holder, observer = Lock(tmp_path / "lock", machine=elsewhere), Lock(tmp_path / "lock")
    assert holder.take()
    age(holder.path, seconds)
    assert observer.take() == (seconds > 180)
    holder.renew()
    assert holder.lost == (seconds > 180)


@pytest.mark.parametrize("change", [{"pid": 10**30}, {"process_started": 1}])
def test_a_number_that_no_process_or_a_later_one_has(tmp_path: Path, change: dict[str, int]) -> None:
    path = tmp_path / "lock"
    Lock(path).take()
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert state(path, Lease(), HERE) == "abandoned"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"pid": "1"}', b'{"pid": null, "boot_id": 1}'])
def test_a_torn_lock_is_one_whose_holder_is_unknown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lock"
    path.write_bytes(content)
    assert not Lock(path).take()
    age(path, 200)
    assert Lock(path).take()


def test_who_is_wrongly_thought_dead_learns_it_and_leaves_the_lock_of_the_other(tmp_path: Path) -> None:
    first, second = Lock(tmp_path / "lock", Lease(0.01, 0.1), OTHER), Lock(tmp_path / "lock", Lease(10, 0.1))
    assert first.take()
    age(first.path, 60)
    assert second.take()
    with first:
        until = time.monotonic() + 10
        while not first.lost:
            assert time.monotonic() < until
            time.sleep(0.005)
    second.renew()
    assert not second.lost


def test_it_renews_itself(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock", Lease(0.01, 1), OTHER)
    assert lock.take()
    with lock:
        age(lock.path, 3600)
        until = time.monotonic() + 10
        while state(lock.path, lock.lease, HERE) != "held":
            assert time.monotonic() < until
            time.sleep(0.005)
    assert not lock.path.exists()


def test_a_lock_that_changed_hands_while_it_was_judged_is_put_back(tmp_path: Path, monkeypatch) -> None:
    """Two observers judge a dead holder: the slower one must not take away the lock of the faster one."""
    dead, fast, slow = Lock(tmp_path / "lock", machine=OTHER), Lock(tmp_path / "lock"), Lock(tmp_path / "lock")
    assert dead.take()
    age(dead.path, 3600)
    rename = os.rename

    def late(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        assert fast.take()
        rename(source, target)

    monkeypatch.setattr(os, "rename", late)
    assert not slow.take()
    fast.renew()
    assert not fast.lost
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def test_a_full_disk_is_code_74_and_leaves_no_lock(small_disk: Path) -> None:
    from tests.disk import fill

    fill(small_disk, 0)
    with pytest.raises(ScalingError) as full:
        Lock(small_disk / "lock").take()
    assert full.value.code == DISK
    assert not (small_disk / "lock").exists()
