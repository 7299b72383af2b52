"""Two users of one group share a ledger: a folder that passes its group on, and a umask of 002."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from scaling.ledger import Ledger, listing
from tests.ledger import worker

GROUP, ONE, OTHER = 64001, 64002, 64003

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that both users may write in; pytest's own are the tester's alone."""
    folder = Path(tempfile.mkdtemp(prefix="scaling-shared-"))
    os.chown(folder, ONE, GROUP)
    folder.chmod(0o2775)
    yield folder
    shutil.rmtree(folder)


def start(user: int, deed: Callable[[], object]) -> int:
    """A process of a user, who has no rights but their own and their group's."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            os.setgroups([GROUP])
            os.setgid(user)
            os.setuid(user)
            os.umask(0o002)
            deed()
            code = 0
        finally:
            os._exit(code)
    return process


def run_as(user: int, deed: Callable[[], object]) -> None:
    assert os.waitpid(start(user, deed), 0)[1] == 0


def test_a_run_of_one_user_is_continued_by_another_and_freed_by_the_first(shared: Path):
    run_as(ONE, lambda: Ledger.create(shared).add({"seed": 1}))
    ledger = Ledger.open(shared)
    (run,) = ledger.runs()
    first = start(ONE, lambda: worker.work(Ledger.open(shared), 0.1, 0, random.Random(0)))
    until = time.monotonic() + 30
    while ledger.reached(run) < 4:
        assert time.monotonic() < until
        time.sleep(0.02)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    run_as(OTHER, lambda: worker.work(Ledger.open(shared), 0.0, 0, random.Random(0)))
    result = ledger.result(run)
    assert result is not None
    assert result["loss"] == worker.expected(run)[-1]
    assert [entry["from_step"] for entry in ledger.history(run) if entry["kind"] == "resume"] == [None, 4]
    assert listing.waste(ledger)[0]
    run_as(ONE, lambda: listing.free(listing.waste(Ledger.open(shared))[0]))
    assert not listing.waste(ledger)[0]
