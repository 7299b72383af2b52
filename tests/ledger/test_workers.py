"""Real processes, really killed: no run is lost, none is done twice, and every loss is what it would have been."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.ledger import Ledger, space
from tests.ledger import worker

Start = Callable[..., subprocess.Popen[str]]


def _assert_as_never_killed(ledger: Ledger, run: str) -> None:
    result = ledger.result(run)
    assert result is not None
    assert result["loss"] == worker.expected(run)[-1]
    losses = [entry["loss"] for entry in ledger.history(run) if entry["kind"] == "train"]
    assert losses == worker.expected(run)


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 5))])
def test_eight_workers_race_for_two_hundred_runs(ledger: Ledger, start: Start, seed: int) -> None:
    moments = random.Random(seed)
    names = [ledger.add({"seed": 1000 * seed + number}) for number in range(200)]
    workers = [start(ledger.root, "--seed", number, "--pause", 0.001) for number in range(8)]
    for number in range(20):
        time.sleep(moments.uniform(0.02, 0.1))
        victim = moments.randrange(8)
        workers[victim].kill()
        workers[victim].wait()
        workers[victim] = start(ledger.root, "--seed", 8 + number, "--pause", 0.001)
    assert [process.wait(timeout=300) for process in workers] == [0] * 8
    for run in names:
        _assert_as_never_killed(ledger, run)
        attempts, result = ledger.attempts(run), ledger.result(run)
        assert result is not None
        assert [record.number for record in attempts] == list(range(1, len(attempts) + 1))
        # The one that published is the last, and the only one that came to an end: those before it were killed.
        assert result["attempt"] == attempts[-1].number
        assert all(record.end is None for record in attempts[:-1])


# Two users of one group: a folder that passes its group on, and a umask of 002

GROUP, ONE, OTHER = 64001, 64002, 64003


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both users may write in; pytest's own are the tester's alone."""
    folder = Path(tempfile.mkdtemp(prefix="scaling-shared-"))
    os.chown(folder, ONE, GROUP)
    folder.chmod(0o2775)
    yield folder
    shutil.rmtree(folder)


def start_as(user: int, do: Callable[[], object]) -> int:
    """A process of a user, who has no rights but their own and their group's."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.setgroups([GROUP])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o002)
            do()
            code = 0
        finally:
            os._exit(code)
    return process


def run_as(user: int, do: Callable[[], object]) -> None:
    assert os.waitpid(start_as(user, do), 0)[1] == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_run_of_one_user_is_continued_by_another_and_freed_by_the_first(shared: Path):
    run_as(ONE, lambda: Ledger.create(shared).add({"seed": 1}))
    ledger = Ledger.open(shared)
    (run,) = ledger.runs()
    first = start_as(ONE, lambda: worker.work(Ledger.open(shared), 0.1, random.Random(0)))
    until = time.monotonic() + 30
    while ledger.reached(run) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    run_as(OTHER, lambda: worker.work(Ledger.open(shared), 0.0, random.Random(0)))
    result = ledger.result(run)
    assert result is not None
    assert result["loss"] == worker.expected(run)[-1]
    assert [entry["from_step"] for entry in ledger.history(run) if entry["kind"] == "resume"] == [None, 4]
    assert space.waste(ledger)[0]
    run_as(ONE, lambda: space.free(space.waste(Ledger.open(shared))[0]))
    assert not space.waste(ledger)[0]
