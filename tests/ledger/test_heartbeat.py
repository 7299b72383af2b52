"""Silence is measured by the observer's own clock, and only while the observer was itself looking."""

from __future__ import annotations

import threading
from pathlib import Path

from scaling.ledger.heartbeat import Heartbeat, Lease, Watch, has_ended


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _watch() -> tuple[Watch, Clock]:
    clock = Clock()
    return Watch(Lease(15, 180), clock), clock


def test_three_minutes_of_looking_in_vain(tmp_path: Path) -> None:
    watch, clock = _watch()
    path = tmp_path / "heartbeat"
    path.write_text("1")
    looks = []
    for _ in range(20):
        looks.append(watch.is_stale(path))
        clock.now += 10
    assert looks == [False] * 18 + [True] * 2


def test_a_beat_starts_the_count_anew(tmp_path: Path) -> None:
    watch, clock = _watch()
    path = tmp_path / "heartbeat"
    for beat in range(20):
        path.write_text(str(beat))
        assert not watch.is_stale(path)
        clock.now += 170


def test_a_missing_heartbeat_is_silent_too(tmp_path: Path) -> None:
    watch, clock = _watch()
    assert not watch.is_stale(tmp_path / "heartbeat")
    for _ in range(3):
        clock.now += 60
        watch.silent(tmp_path / "heartbeat")
    assert watch.is_stale(tmp_path / "heartbeat")


def test_an_observer_that_slept_does_not_blame_the_worker(tmp_path: Path) -> None:
    """A machine paused for an hour: worker and observer wake together, and the observer looks first."""
    watch, clock = _watch()
    path = tmp_path / "heartbeat"
    path.write_text("1")
    assert not watch.is_stale(path)
    clock.now += 3600
    assert not watch.is_stale(path)


def test_beats_from_many_threads_are_all_counted(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    heartbeat = Heartbeat(path, Lease(3600, 7200), at_each_beat=lambda: None)
    heartbeat.start()
    threads = [threading.Thread(target=lambda: [heartbeat.beat() for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(path.read_text()) == 401
    heartbeat.stop()
    heartbeat.stop()
    heartbeat.beat()
    assert has_ended(path), "its last word stays"


def test_a_worker_that_said_it_ended_is_stale_at_once(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    heartbeat = Heartbeat(path, Lease(), at_each_beat=lambda: None)
    heartbeat.start()
    watch, _ = _watch()
    assert not watch.is_stale(path)
    heartbeat.stop()
    assert watch.is_stale(path)


def test_it_beats_by_itself(tmp_path: Path) -> None:
    beaten = threading.Event()
    heartbeat = Heartbeat(tmp_path / "heartbeat", Lease(0.01, 1), at_each_beat=beaten.set)
    heartbeat.start()
    assert beaten.wait(10)
    heartbeat.stop()
