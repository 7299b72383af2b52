"""Keep a study's report where it is read without its ledger: a folder of a repository, with a paragraph in Markdown."""

from __future__ import annotations

import csv
import re
import shutil
from pathlib import Path
from typing import Any

from scaling import atomic
from scaling.errors import ScalingError
from scaling.fit_report.formats import markdown_table, markdown_text
from scaling.fit_report.tables import held_out
from scaling.ledger import Ledger
from scaling.number import plural
from scaling.report import figures, provenance
from scaling.report.answer import answer, tested
from scaling.report.compute_spent import ComputeSpent, compute_spent
from scaling.report.markup import Html, join
from scaling.report.numbers import scientific, span
from scaling.report.page import Record, page, record
from scaling.report.reliability import unreliable
from scaling.report.runs import names
from scaling.studies.findings import FIGURES, Findings, Tell, find, nothing
from scaling.studies.plan import Plan
from scaling.studies.question import read

PAGE, POINTS, FIT, PARAGRAPH = "index.html", "points.csv", "fit.json", "README.md"
SPENT = " of worker time on "


def keep(found: Findings, written: Path, ledger: Ledger, plan: Plan, folder: Path) -> Path:
    """Copy the report beside `written` to FOLDER/NAME, with the study's YAML and a paragraph on what it found."""
    here, there = written.parent, folder / plan.question.name
    atomic.write(there / f"{there.name}.yaml", provenance.asked(found))
    _write(found, record(found, ledger, plan, store=None), _spent(plan, compute_spent(ledger, plan)), there)
    for name in (POINTS, *([FIT] if found.document else [])):
        shutil.copyfile(here / name, there / name)
    for name in (picture + kind for picture in found.pictures for kind in FIGURES):
        shutil.copyfile(here / name, there / name)
    return there


def is_kept(folder: Path) -> bool:
    return (folder / PAGE).is_file() and (folder / POINTS).is_file() and (folder / f"{folder.name}.yaml").is_file()


def fit_again(folder: Path, tell: Tell = nothing) -> tuple[Findings, Path]:
    """A kept report with its law fitted again to the points it keeps; what its ledger knew stays as it was."""
    old = (folder / PAGE).read_text(encoding="utf-8")
    kept = _kept(old, folder / PAGE)
    paragraphs = (folder / PARAGRAPH).read_text(encoding="utf-8").split("\n\n")
    (spent,) = (text for text in paragraphs if SPENT in text)
    before = atomic.read_json(folder / FIT) if (folder / FIT).is_file() else {}
    found = find(read(str(folder / f"{folder.name}.yaml")), _rows(folder / POINTS), folder, before.get("setup"), tell)
    _write(found, kept, spent, folder)
    return found, folder / PAGE


def _kept(text: str, file: Path) -> Record:
    """The parts of a page that its ledger alone knew."""
    parts = {
        "day": r"<span>(\d{4}-\d\d-\d\d)</span></p><h1>",
        "compute": r"(<div><dt>Compute</dt>.*?</div>)</dl></header>",
        "runs": r'(<section aria-labelledby="runs">.*?</section>)',
        "made": r'(<section aria-labelledby="made">.*?</section>)',
    }
    matches = {name: re.search(pattern, text, re.DOTALL) for name, pattern in parts.items()}
    for name, match in matches.items():
        if match is None and name != "day":
            raise ScalingError(f"the page has no part {name!r}", file=file, fix="keep the report of its ledger again")
    return Record(**{name: Html(match[1] if match else "") for name, match in matches.items()})


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


def _write(found: Findings, record: Record, spent: str, there: Path) -> None:
    atomic.write(there / PAGE, page(found, record))
    said = answer(found)
    test = tested(found.document) if found.document else None
    doubts = [] if found.document is None else unreliable(found.document)
    table = held_out(found.document, names(found)) if found.document else None
    lines = [
        f"# {found.question.name}: {said.standing}",
        join("**", found.question.question, "**"),
        join(said.sentence, f" {test}" if test else None),
        join("To be doubted: ", "; ".join(doubts), ".") if doubts else None,
        *([markdown_table(table), *map(markdown_text, table.notes)] if table else []),
        spent,
        *(f"![{found.pictures[name].title}]({name}.png)" for name in figures.of_law(found)[:1]),
        f"[The page]({PAGE}), the [study]({there.name}.yaml) as it was asked, and its [points]({POINTS})"
        + (", with the [fit](fit.json)." if found.document else "."),
    ]
    atomic.write(there / PARAGRAPH, "\n\n".join(line for line in lines if line) + "\n")


def _spent(plan: Plan, how: ComputeSpent) -> str:
    hardware = "; ".join(how.hardware)
    spent = f"{plural(sum(how.hardware.values()), 'run')}, {scientific(how.flops)} FLOPs, {span(how.worker_seconds)}"
    return join(f"{spent}{SPENT}{hardware}, {how.day}: `{provenance.command(plan)}`.")
