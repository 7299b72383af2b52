"""Jobs that are all to be done: one whose process died is tried again, and one that failed is an error."""

from __future__ import annotations

from typing import Any

import pytest

from scaling.base.errors import DISK, ScalingError
from scaling.executors import scheduler
from scaling.executors.executor import End
from scaling.executors.scheduler import Job, finish


class Scripted:
    """An executor whose jobs end as stated, one try after another."""

    slots, log = 1, "the log"

    def __init__(self, *ends: End):
        self.ends = list(ends)

    def submit(self, name: str, function: Any, *arguments: Any, resources: Any = None) -> Any:
        return Handle(name, self.ends.pop(0))

    def wait(self, timeout: float) -> None: ...


class Handle:
    def __init__(self, name: str, end: End):
        self.name, self.end = name, end

    def wait(self, timeout: float) -> End:
        return self.end


def job(name: str) -> Job:
    return Job(name, name, (print,))


DIED = End("died", reason="its process was killed by SIGKILL")


def test_a_job_that_died_is_tried_three_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "WAIT", 0.0)
    finish(Scripted(DIED, DIED, End("done")), [job("part 1")])  # type: ignore[arg-type]
    with pytest.raises(ScalingError, match="killed by SIGKILL; see the log; the same command goes on"):
        finish(Scripted(DIED, DIED, DIED), [job("part 1")])  # type: ignore[arg-type]


def test_a_job_that_failed_gives_its_error_and_code() -> None:
    ends = End("done"), End("failed", reason="a.txt:3: is not JSON", code=DISK)
    with pytest.raises(ScalingError) as error:
        finish(Scripted(*ends), [job("part 1"), job("part 2")])  # type: ignore[arg-type]
    assert (str(error.value), error.value.code) == ("a.txt:3: is not JSON", DISK)
