"""Keep a study's report where it is read without its ledger: a folder of a repository, with a paragraph in Markdown."""

from __future__ import annotations

import shutil
from pathlib import Path

from scaling import atomic
from scaling.ledger import Ledger
from scaling.report import figures, provenance
from scaling.report.answer import answer, tested
from scaling.report.doubts import unreliable
from scaling.report.made import Made, made
from scaling.report.markup import join
from scaling.report.numbers import plural, scientific, span
from scaling.report.page import page
from scaling.study.findings import FIGURES, Findings
from scaling.study.plan import Plan


def keep(found: Findings, written: Path, ledger: Ledger, plan: Plan, folder: Path) -> Path:
    """Copy the report beside `written` to FOLDER/NAME, with the study's YAML and a paragraph on what it found."""
    here, there = written.parent, folder / plan.question.name
    atomic.write(there / "index.html", page(found, ledger, plan, store=None))
    atomic.write(there / f"{there.name}.yaml", provenance.asked(found))
    atomic.write(there / "README.md", _paragraph(found, plan, made(ledger, plan)))
    names = ["points.csv", *(["fit.json"] if found.document else [])]
    for name in (*names, *(picture + kind for picture in found.pictures for kind in FIGURES)):
        shutil.copyfile(here / name, there / name)
    return there


def _paragraph(found: Findings, plan: Plan, how: Made) -> str:
    said = answer(found)
    test = tested(found.document) if found.document else None
    hardware = "; ".join(how.hardware)
    spent = f"{plural(sum(how.hardware.values()), 'run')}, {scientific(how.flops)} FLOPs, {span(how.worker_seconds)} of"
    doubts = [] if found.document is None else unreliable(found.document)
    lines = [
        f"# {plan.question.name}: {said.standing}",
        join("**", found.question.question, "**"),
        join(said.sentence, f" {test}" if test else None),
        join("To be doubted: ", "; ".join(doubts), ".") if doubts else None,
        join(f"{spent} worker time on {hardware}, {how.day}: `{provenance.command(plan)}`."),
        *(f"![{found.pictures[name].title}]({name}.png)" for name in figures.of_law(found)[:1]),
        f"[The page](index.html), the [study]({plan.question.name}.yaml) as it was asked, and its [points](points.csv)"
        + (", with the [fit](fit.json)." if found.document else "."),
    ]
    return "\n\n".join(line for line in lines if line) + "\n"
