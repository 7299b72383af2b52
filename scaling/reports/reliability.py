"""What speaks for and against the law: how the fit went, what the points identify, and the questions of a referee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from scaling.errors import plural
from scaling.reports.markup import Html, join, tag
from scaling.reports.numbers import percent


def diagnostics(document: Mapping[str, Any]) -> Html:
    """The fit in figures, then every doubt in a sentence."""
    rows = join(*(join(tag("dt", name), tag("dd", value)) for name, value in _figures(document)))
    doubts = [*document["not_identified"], *unreliable(document)]
    value = (
        tag("ul", *(tag("li", doubt) for doubt in doubts), class_="plain warn")
        if doubts
        else tag("p", "Every parameter is identified, and the residuals give no reason to doubt the intervals.")
    )
    return join(value, tag("dl", rows, class_="pairs"))


def unreliable(document: Mapping[str, Any]) -> list[str]:
    """Why the intervals may not cover what they claim: by the residuals, and by what was fitted as if it were one."""
    kinds = document["points"]["pooled"].items()
    return [
        *document["unreliable"],
        *(f"{count} values of {name} were fitted as if they were one" for name, count in kinds),
    ]


def _figures(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "starts that agree", f"{document['starts_agreeing']:.0%} of those refined reach one optimum"
    yield "objective", f"{document['objective_kind']}, {document['objective']:.4g}"
    yield "points, parameters", f"{document['n']}, {document['n'] - document['degrees_of_freedom']}"
    yield "scale of the residuals", percent(document["residual_scale"])
    noise = document["seed_noise"]
    yield (
        "scatter between seeds",
        "not measured: no two runs differ in their seed alone" if noise is None else percent(noise),
    )
    condition = document["condition_number"]
    yield "condition number", "unbounded" if condition is None else f"{condition:.3g}"
    yield "largest leverage of a run", f"{document['largest_leverage']:.2f}"


def checklist(document: Mapping[str, Any]) -> Html:
    """Every question of a referee with its answer, those without one first."""
    answers, silent = document["checklist"]["answers"], document["checklist"]["missing"]
    open_ones = tag("ul", *(tag("li", question) for question in silent), class_="plain warn")
    summary = f"{plural(len(answers) - len(silent), 'question')} of {len(answers)} answered"
    sections = dict.fromkeys(entry["section"] for entry in answers)
    parts = [join(tag("h4", name.capitalize()), _questions(answers, name)) for name in sections]
    return join(
        tag("p", "Not answered:") if silent else None,
        open_ones if silent else None,
        tag("details", tag("summary", f"{summary} (after Li et al. 2025, arXiv 2502.18969)"), *parts),
    )


def _questions(answers: list[Mapping[str, Any]], section: str) -> Html:
    pairs = (
        join(tag("dt", entry["question"]), tag("dd", entry["answer"] or tag("span", "not answered", class_="warn")))
        for entry in answers
        if entry["section"] == section
    )
    return tag("dl", *pairs, class_="pairs asked")
