"""Write a study's report: the page, and with it its points, its fit and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaling import atomic
from scaling.ledger import Ledger
from scaling.ledger.setup import setup
from scaling.number import plural
from scaling.report.page import page, record
from scaling.studies.findings import Findings, Tell, find, nothing, rows

if TYPE_CHECKING:
    from scaling.studies.plan import Plan


def write(ledger: Ledger, plan: Plan, tell: Tell = nothing) -> tuple[Findings, Path]:
    """The results of the finished runs of a study, and its page; `tell` is given each step that takes time."""
    folder = ledger.study_folder(plan.question.name) / "report"
    results = {cell.run: ledger.result(cell.run) for cell in plan.runs}
    finished = [run for run, result in results.items() if result is not None and result["outcome"] == "finished"]
    if finished:
        tell(f"read {plural(len(plan.runs), 'run')}")
    answers = setup([ledger.spec(run) for run in finished], [results[run] for run in finished])
    findings = find(plan.question, rows(ledger, plan), folder, answers, tell)
    tell("write the page")
    path = folder / "index.html"
    atomic.write(path, page(findings, record(findings, ledger, plan)))
    return findings, path
