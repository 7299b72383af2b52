"""Write a study's report: the page, and beside it its points, its fit and its figures."""

from __future__ import annotations

from pathlib import Path

from scaling import atomic
from scaling.ledger import Ledger
from scaling.report.page import page, record
from scaling.studies.findings import Findings, find, rows
from scaling.studies.plan import Plan


def write(ledger: Ledger, plan: Plan) -> tuple[Findings, Path]:
    """What the finished runs of a study say by now, and the page that says it."""
    folder = ledger.study_folder(plan.question.name) / "report"
    found = find(plan.question, rows(ledger, plan), folder)
    path = folder / "index.html"
    atomic.write(path, page(found, record(found, ledger, plan)))
    return found, path
