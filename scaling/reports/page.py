"""The page: one HTML file that opens from a disk without a network. No text in it can act as markup or as script."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from scaling.errors import plural
from scaling.ledger import Ledger
from scaling.reports import figures, sections
from scaling.reports.answer import answer, on_record, tested, unreliable
from scaling.reports.markup import Html, join, shell, tag
from scaling.reports.provenance import chosen, compute_spent, provenance
from scaling.reports.runs import advantages, counts, names, runs_table
from scaling.studies.decisions import decisions
from scaling.studies.findings import Findings

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

EMPTY = Html("")
STORE = PurePosixPath("../../../store")
"""From studies/NAME/report to the runs."""


@dataclass(frozen=True)
class Record:
    """The parts of a page that the ledger alone knows: the first day, the compute, the runs, how all was made."""

    day: str
    compute: Html
    runs: Html
    provenance: Html
    decisions: Html = EMPTY


def record(findings: Findings, ledger: Ledger, plan: Plan, store: PurePosixPath | None = STORE) -> Record:
    """Without a `store` the runs lead to no settings."""
    how, taken = compute_spent(ledger, plan), decisions(ledger, plan.question.name)
    runs = sections.section("runs", "The runs", runs_table(findings, ledger, store))
    again = sections.section("made", "How it was made", provenance(findings, plan, how), on_record(ledger))
    table = chosen(taken)
    made = sections.section("decisions", "The decisions", table) if table else EMPTY
    return Record(how.day, sections.compute(how), runs, again, made)


def page(findings: Findings, record: Record) -> str:
    """The whole page: the same bytes for the same runs."""
    study = findings.question.name
    answered, runs = answer(findings), names(findings)
    kind = "standing" if answered.standing in ("identified", "compared") else "standing warn"
    document = findings.document
    doubts = 0 if document is None else len(unreliable(document))
    beside = advantages(findings)
    test = None if document is None else tested(document)
    header = tag(
        "header",
        tag(
            "p",
            tag("span", answered.standing, class_=kind),
            tag("a", plural(doubts, "doubt"), href="#trust") if doubts else None,
            tag("span", f"scaling study “{study}”"),
            tag("span", counts(findings)),
            tag("span", record.day) if record.day else None,
            class_="kicker",
        ),
        tag("h1", findings.question.question),
        tag("p", answered.sentence, class_="answer"),
        tag("p", test, class_="answer") if test else None,
        sections.key(findings, record.compute),
    )
    first, rest = figures.of_law(findings)[:1], figures.of_law(findings)[1:]
    section = sections.section
    main = tag(
        "main",
        section(
            "law",
            "The law",
            sections.stated(findings, document),
            figures.gallery(findings, first, runs, wide=True),
            sections.estimates(document),
            figures.gallery(findings, rest, runs),
        )
        if document
        else None,
        section("test", "The test", sections.test(findings, document), figures.gallery(findings, figures.TEST, runs))
        if document and test
        else None,
        section(
            "tasks",
            "The tasks",
            *(
                join(sections.task(findings, scores), figures.gallery(findings, (scores.picture,), runs))
                if scores.picture
                else sections.task(findings, scores)
                for scores in findings.tasks
            ),
        )
        if findings.tasks
        else None,
        section(
            "rows",
            "Rows compared",
            sections.exponents_table(document["rows"]) if document and "rows" in document else None,
            sections.advantages_table(findings, beside),
        )
        if beside
        else None,
        record.decisions,
        record.runs,
        section("trust", "Reliability", sections.trust(document), figures.gallery(findings, figures.DOUBT, runs))
        if document
        else None,
        record.provenance,
        id="main",
        tabindex=-1,
    )
    footer = tag(
        "footer",
        "Made by scaling from the ledger of this study alone. With this page: ",
        sections.beside(findings),
        ".",
    )
    body = join(
        tag("a", "To the report", href="#main", class_="skip"),
        header,
        main,
        footer,
    )
    style = (files("scaling.reports") / "page.css").read_text(encoding="utf-8")
    return shell(f"{study} — scaling study", body, style)
