"""Keep a study's report where it is read without its ledger: a folder of a repository, with a paragraph in Markdown."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import atomic
from scaling.errors import ScalingError, plural
from scaling.laws.report import held_out
from scaling.ledger import Ledger
from scaling.printing import markdown_text, span
from scaling.reports import figures, provenance
from scaling.reports.answer import answer, tested, unreliable
from scaling.reports.markup import Html, join, scientific
from scaling.reports.page import Record, page, record
from scaling.reports.provenance import ComputeSpent, compute_spent
from scaling.reports.runs import names
from scaling.studies.decisions import decisions
from scaling.studies.findings import FIGURES, FIT, Findings, TaskFindings, Tell, find, nothing, read_fit
from scaling.studies.question import read

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

DECISIONS = "decisions.json"
PAGE, POINTS, PARAGRAPH, RECORD = "index.html", "points.csv", "README.md", "record.json"


def keep(findings: Findings, written: Path, ledger: Ledger, plan: Plan, folder: Path) -> Path:
    """Copy the report next to `written` to FOLDER/NAME, with the study's YAML and a paragraph on its result."""
    source, target = written.parent, folder / plan.question.name
    atomic.write(target / f"{target.name}.yaml", provenance.study_yaml(findings))
    made = decisions(ledger, plan.question.name)
    spent = _spent(plan, compute_spent(ledger, plan))
    of_ledger = record(findings, ledger, plan, store=None)
    _write(findings, of_ledger, spent, target)
    for name in (POINTS, *([FIT] if findings.document else [])):
        shutil.copyfile(source / name, target / name)
    if made:
        atomic.write_json(target / DECISIONS, {"decisions": made})
    for name in (picture + kind for picture in findings.pictures for kind in FIGURES):
        shutil.copyfile(source / name, target / name)
    atomic.write_json(target / RECORD, {**asdict(of_ledger), "spent": spent, "points": _hash(target / POINTS)})
    return target


def is_kept(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (PAGE, POINTS, RECORD, f"{folder.name}.yaml"))


def fit_again(folder: Path, tell: Tell = nothing) -> tuple[Findings, Path]:
    """A kept report with its law fitted again to the points it keeps. What only the ledger knew is in record.json."""
    try:
        kept = atomic.read_json(folder / RECORD)
        points, spent = kept.pop("points"), kept.pop("spent")
        of_ledger = Record(**{name: Html(part) for name, part in kept.items()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        fix = "keep the report of its ledger again"
        raise ScalingError(f"the record is damaged: {error}", file=folder / RECORD, fix=fix) from None
    if _hash(folder / POINTS) != points:
        fix = "put the file back as it was kept, or keep the report of its ledger again"
        raise ScalingError("these are not the points of the kept report", file=folder / POINTS, fix=fix)
    before = read_fit(folder / FIT) or {}
    question = read(str(folder / f"{folder.name}.yaml"))
    findings = find(question, _rows(folder / POINTS), folder, before.get("setup"), tell)
    _write(findings, of_ledger, spent, folder)
    return findings, folder / PAGE


def _hash(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows as they were written: numbers as numbers, no loss as None."""
    with path.open(encoding="utf-8", newline="") as lines:
        return [{name: _value(name, text) for name, text in row.items()} for row in csv.DictReader(lines)]


def _value(name: str, text: str) -> Any:
    if name in ("run", "name", "row"):
        return text
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if str(value) == text:
            return value
    return text or None


def _write(findings: Findings, record: Record, spent: str, there: Path) -> None:
    atomic.write(there / PAGE, page(findings, record))
    answered = answer(findings)
    test = tested(findings.document) if findings.document else None
    doubts = [] if findings.document is None else unreliable(findings.document)
    table = held_out(findings.document, names(findings)) if findings.document else None
    lines = [
        f"# {findings.question.name}: {answered.standing}",
        join("**", findings.question.question, "**"),
        join(answered.sentence, f" {test}" if test else None),
        join("Reliability: ", "; ".join(doubts), ".") if doubts else None,
        *([table.markdown(), *map(markdown_text, table.notes)] if table else []),
        *(line for each in findings.tasks for line in _of_task(each, names(findings))),
        spent,
        *(f"![{findings.pictures[name].title}]({name}.png)" for name in figures.of_law(findings)[:1]),
        f"[The page]({PAGE}), the [study]({there.name}.yaml), and its [points]({POINTS})"
        + (", with the [fit](fit.json)." if findings.document else "."),
    ]
    atomic.write(there / PARAGRAPH, "\n\n".join(line for line in lines if line) + "\n")


def _of_task(task: TaskFindings, names: Mapping[str, str]) -> list[str]:
    """The score of each held-out run as it was predicted, or why there is no law of it."""
    if task.document is None:
        return [f"The score of {markdown_text(task.task)} has no law: {markdown_text(task.reason or '')}."]
    table = held_out(task.document, names)
    title = f"The score of {markdown_text(task.task)}, by {markdown_text(task.document['law'])}:"
    doubts = [*task.document["not_identified"], *unreliable(task.document)]
    return [
        *([title, table.markdown()] if table else []),
        *([markdown_text("; ".join(doubts)) + "."] if doubts else []),
    ]


def _spent(plan: Plan, how: ComputeSpent) -> str:
    hardware = "; ".join(how.hardware)
    spent = f"{plural(sum(how.hardware.values()), 'run')}, {scientific(how.flops)} FLOPs, {span(how.worker_seconds)}"
    return join(f"{spent} of worker time on {hardware}, {how.day}: `{provenance.command(plan)}`.")
