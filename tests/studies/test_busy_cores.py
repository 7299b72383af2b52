import os
import time
from pathlib import Path

import pytest

from scaling.studies.machine import busy_cores


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("number", [0, 2])
def test_they_work_beside_until_they_are_left(number, tmp_path):
    def begin():
        mine = Path(tmp_path / str(os.getpid()))
        mine.touch()

        def deed():
            mine.write_text("done")
            time.sleep(0.001)

        return deed

    with busy_cores(number, begin):
        pids = [int(path.name) for path in tmp_path.iterdir()]  # all have begun
        assert len(set(pids) - {os.getpid()}) == number
        until = time.monotonic() + 60
        while any(path.read_text() != "done" for path in tmp_path.iterdir()):
            assert time.monotonic() < until
    assert not any(map(alive, pids))


def test_one_that_fails_is_done_without(tmp_path):
    def begin():
        raise RuntimeError("no memory, say")

    with busy_cores(1, begin):
        pass
