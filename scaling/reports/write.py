"""Write a study's report: the page, and with it its points, its fit and its figures."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from scaling import atomic
from scaling.errors import plural
from scaling.ledger import Ledger
from scaling.ledger.document import disk
from scaling.reports.keep import keep
from scaling.reports.page import page, record
from scaling.reports.setup import setup
from scaling.studies.findings import Findings, Tell, find, nothing
from scaling.studies.plan import newest
from scaling.studies.points import rows

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

LOCK = "report.lock"


def write(ledger: Ledger, plan: Plan, tell: Tell = nothing, kept: Path | None = None) -> tuple[Findings, Path]:
    """The results of the finished runs of a study, and its page; `tell` is given each step that takes time. With a
    folder `kept` the report is copied there, and the page is that of the copy.

    Two commands report a study one after the other, each from what the ledger holds by then.
    """
    folder = ledger.study_folder(plan.question.name)
    with _locked(folder / LOCK, tell):
        plan = newest(ledger, plan)
        findings, path = _write(ledger, plan, folder / "report", tell)
        return findings, path if kept is None else keep(findings, path, ledger, plan, kept) / path.name


@contextmanager
def _locked(path: Path, tell: Tell) -> Iterator[None]:
    """Hold the lock of a file, which the system frees when its process ends; where a file system has none, nothing."""
    with disk(f"cannot write {path.name}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = path.open("a")
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            tell("wait for another report of this study")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError:
            pass
        yield


def _write(ledger: Ledger, plan: Plan, folder: Path, tell: Tell) -> tuple[Findings, Path]:
    if any(ledger.result(run.run) is not None for run in plan.runs):
        tell(f"read {plural(len(plan.runs), 'run')}")
    table = rows(ledger, plan)
    finished = [row["run"] for row in table if row["status"] == "finished"]
    answers = setup([ledger.spec(run) for run in finished], [ledger.result(run) for run in finished])
    findings = find(plan.question, table, folder, answers, tell)
    tell("write the page")
    path = folder / "index.html"
    atomic.write(path, page(findings, record(findings, ledger, plan)))
    return findings, path
