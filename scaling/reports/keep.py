"""Keep a study's report where it is read without its ledger: a folder of a repository, with a paragraph in Markdown."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Mapping, Sequence
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
from scaling.studies.decisions import Decision, decisions
from scaling.studies.findings import FIGURES, FIT, Findings, TaskFindings, Tell, find, nothing, read_fit
from scaling.studies.question import read

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

DECISIONS = "decisions.json"
PAGE, POINTS, PARAGRAPH = "index.html", "points.csv", "README.md"
SPENT = " of worker time on "
RUN = re.compile(r'<tr data-run="(\w+)"[^>]*>(.*?)</tr>', re.DOTALL)
CELL = re.compile(r'<td data-value="([^"]*)"')


def keep(findings: Findings, written: Path, ledger: Ledger, plan: Plan, folder: Path) -> Path:
    """Copy the report next to `written` to FOLDER/NAME, with the study's YAML and a paragraph on its result."""
    source, target = written.parent, folder / plan.question.name
    atomic.write(target / f"{target.name}.yaml", provenance.study_yaml(findings))
    made = decisions(ledger, plan.question.name)
    spent = _spent(plan, compute_spent(ledger, plan), made)
    _write(findings, record(findings, ledger, plan, store=None), spent, target)
    for name in (POINTS, *([FIT] if findings.document else [])):
        shutil.copyfile(source / name, target / name)
    if made:
        atomic.write_json(target / DECISIONS, {"decisions": made})
    for name in (picture + kind for picture in findings.pictures for kind in FIGURES):
        shutil.copyfile(source / name, target / name)
    return target


def is_kept(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (PAGE, POINTS, PARAGRAPH, f"{folder.name}.yaml"))


def fit_again(folder: Path, tell: Tell = nothing) -> tuple[Findings, Path]:
    """A kept report with its law fitted again to the points it keeps; what its ledger knew stays as it was."""
    old = (folder / PAGE).read_text(encoding="utf-8")
    kept = _kept(old, folder / PAGE)
    paragraphs = (folder / PARAGRAPH).read_text(encoding="utf-8").split("\n\n")
    spent = next((text for text in paragraphs if SPENT in text), None)
    if spent is None:
        fix = "keep the report of its ledger again"
        raise ScalingError("it has no paragraph on the time that was spent", file=folder / PARAGRAPH, fix=fix)
    before = read_fit(folder / FIT) or {}
    rows = _rows(folder / POINTS)
    _refuse_others(rows, kept.runs, folder / POINTS)
    findings = find(read(str(folder / f"{folder.name}.yaml")), rows, folder, before.get("setup"), tell)
    _write(findings, kept, spent, folder)
    return findings, folder / PAGE


def _kept(text: str, file: Path) -> Record:
    """The parts of a page that its ledger alone knew."""
    parts = {
        "day": r"<span>(\d{4}-\d\d-\d\d)</span></p><h1>",
        "compute": r"(<div><dt>Compute</dt>.*?</div>)</dl></header>",
        "runs": r'(<section aria-labelledby="runs">.*?</section>)',
        "decisions": r'(<section aria-labelledby="decisions">.*?</section>)',
        "provenance": r'(<section aria-labelledby="made">.*?</section>)',
    }
    matches = {name: re.search(pattern, text, re.DOTALL) for name, pattern in parts.items()}
    for name, match in matches.items():
        if match is None and name not in ("day", "decisions"):
            raise ScalingError(f"the page has no part {name!r}", file=file, fix="keep the report of its ledger again")
    return Record(**{name: Html(match[1] if match else "") for name, match in matches.items()})


def _refuse_others(rows: Sequence[Mapping[str, Any]], table: Html, file: Path) -> None:
    """Refuse points that are not those of the page: its table has N, D, C and the loss of each run."""
    fix = "put the file back as it was kept, or keep the report of its ledger again"
    printed = {run: CELL.findall(cells) for run, cells in RUN.findall(table)}
    for line, row in enumerate(rows, 2):
        expected = printed.pop(row["run"], None)
        if expected is None:
            raise ScalingError("the page has no such run", file=file, line=line, key="run", value=row["run"], fix=fix)
        for name, value in zip(("N", "D", "C", "loss"), expected):
            if str(row.get(name)) != value and (name != "loss" or row["status"] == "finished"):
                raise ScalingError(
                    f"the page has {value or 'none'}", file=file, line=line, key=name, value=row.get(name), fix=fix
                )
    if printed:
        what = f"{plural(len(printed), 'run')} of the page {'is' if len(printed) == 1 else 'are'} missing"
        raise ScalingError(what, file=file, key="run", value=next(iter(printed)), fix=fix)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The rows as they were written: numbers as numbers, no loss as None."""
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for line, row in enumerate(rows, 2):
        if None in row or None in row.values():
            raise ScalingError("the line is cut off, or has further cells", file=path, line=line)
    return [{name: _value(name, text) for name, text in row.items()} for row in rows]


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


def _spent(plan: Plan, how: ComputeSpent, made: Sequence[Decision]) -> str:
    hardware = "; ".join(how.hardware)
    spent = f"{plural(sum(how.hardware.values()), 'run')}, {scientific(how.flops)} FLOPs, {span(how.worker_seconds)}"
    return join(f"{spent}{SPENT}{hardware}, {how.day}: `{provenance.command(plan, made)}`.")
