"""The sections of the page: figures that matter, the law, its test, rows side by side, and what to doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scaling.errors import plural
from scaling.laws.compare import COMPUTE
from scaling.laws.law import MEANINGS, PREFIX
from scaling.laws.report import NOT_IDENTIFIED, coverage, held_out, optima, predictions, tried
from scaling.laws.report import estimates as fitted
from scaling.printing import Table, short, span
from scaling.reports.answer import diagnostics, floor, largest_error, setup
from scaling.reports.markup import (
    Html,
    ends,
    formula,
    interval_strip,
    join,
    raised,
    scientific,
    signed,
    significant,
    table,
    tag,
)
from scaling.reports.provenance import ComputeSpent
from scaling.reports.runs import Advantage, counts, difference, exponent
from scaling.studies.findings import FIGURES, Findings, TaskFindings


def section(key: str, title: str, *children: Html | None) -> Html:
    return tag("section", tag("h2", title, id=key), *children, aria_labelledby=key)


# The first screen


def key(findings: Findings, compute: Html) -> Html:
    """Three or four figures, large; the last is `compute`."""
    return tag("dl", *(_figure(*entry) for entry in _entries(findings)), compute, class_="key")


def compute(how: ComputeSpent) -> Html:
    """What the study cost, as a large figure."""
    return _figure(
        "Compute",
        scientific(how.flops),
        f"FLOPs in {plural(sum(how.hardware.values()), 'run')}, {span(how.worker_seconds)} of worker time",
    )


def _figure(name: str, figure: str, *notes: str | None) -> Html:
    remarks = (tag("dd", note) for note in notes if note)
    return tag("div", tag("dt", name), tag("dd", raised(figure), class_="figure"), *remarks)


def _entries(findings: Findings) -> Iterator[tuple[Any, ...]]:
    document = findings.document or {}
    name = floor(document) if document else None
    interval = document.get("intervals", {}).get(name)
    entropy = document.get("entropy")
    if interval is not None and name in document["unidentified"]:
        reason = next((why for why in document["not_identified"] if why.startswith(f"{name} ")), None)
        yield "Irreducible loss", NOT_IDENTIFIED, reason or document["not_identified"][0], tried(document)
    elif interval is not None:
        truth = None if entropy is None else entropy["known"]
        figure = significant(interval["estimate"], interval["low"], interval["high"])
        against = None if truth is None else f"dashed: the known entropy, {truth:.4f}"
        bounds = f"nats per token, {interval['level']:.0%} {ends(interval)}"
        yield "Irreducible loss", figure, interval_strip(interval, truth), bounds, against
    held_out = document.get("held_out")
    if held_out is not None:
        worst = largest_error(held_out)
        yield "Error on held-out loss", worst, _covered(held_out)
    if entropy is not None and entropy["excess_errors"]:
        worst = max(entropy["excess_errors"], key=abs)
        yield "Error of the excess", signed(worst), "of the held-out loss above the entropy, the harder figure"


def _covered(held_out: Mapping[str, Any]) -> str | None:
    covered = coverage(held_out)
    return covered if held_out["n"] == 1 or covered is None else f"largest of {held_out['n']} runs; {covered}"


# The law


def stated(findings: Findings, document: Mapping[str, Any]) -> Html:
    """The formula, what it was fitted to, and what its letters count."""
    definitions = document["points"]["definitions"]
    behind = f"fitted to {document['n']} of {plural(len(findings.rows), 'planned run')}"
    counted = "; ".join(f"{name}: {definitions[name]}" for name in MEANINGS if name in definitions)
    law = tag("span", formula(document["formula"]), class_="formula")
    return join(
        tag("p", law, f" ({document['citation']}), {behind}: {counts(findings)}."),
        tag("p", f"{counted}.", class_="quiet") if counted else None,
    )


def estimates(document: Mapping[str, Any]) -> Html:
    """The parameters, and the law's values at the targets."""
    return join(
        _shown(fitted(document)),
        table("Other laws of the same runs, the likeliest first.", *_compared(document))
        if document["compared"]
        else None,
        _shown(predictions(document)),
        _shown(optima(document)),
    )


def _compared(document: Mapping[str, Any]) -> tuple[Sequence[str], list[Sequence[str]]]:
    return ("law", "AICc", "weight", "largest held-out error"), [
        (row["law"], row["reason"], "", "")
        if "reason" in row
        else (
            row["law"],
            f"{row['aicc']:.1f}",
            f"{row['weight']:.2f}",
            "" if row["held_out"] is None else largest_error(row["held_out"]),
        )
        for row in document["compared"]
    ]


# The test


def test(findings: Findings, document: Mapping[str, Any]) -> Html:
    """Each held-out run next to what the law, fitted to the others, predicted for it."""
    names = {row["run"]: row["name"] for row in findings.rows}
    sentences = "These runs took no part in the fit."
    if covered := coverage(document["held_out"]):
        narrower = "The narrower interval of the mean covers only the error of the fit."
        sentences += f" {covered[0].upper()}{covered[1:]}. {narrower}"
    return join(tag("p", sentences), _shown(held_out(document, names)))


# The tasks


def task(findings: Findings, scores: TaskFindings) -> Html:
    """A task's score from the study's law of the loss: the law, the held-out runs, and what to doubt."""
    heading = tag("h3", scores.task)
    if scores.document is None:
        return join(heading, tag("p", f"No law of the score: {scores.reason}."))
    document = scores.document
    names = {row["run"]: row["name"] for row in findings.rows}
    law = tag("span", formula(document["formula"]), class_="formula")
    runs = plural(document["n"], "finetuned run")
    sentence = join(law, f" ({document['citation']}), its second step fitted to {runs}. ")
    tested = document["held_out"]
    covered = None if tested is None else coverage(tested)
    test = f"{covered[0].upper()}{covered[1:]}." if covered else "No held-out run has a score."
    second = {
        key: {name: value for name, value in document[key].items() if name.startswith(PREFIX)}
        for key in ("estimates", "intervals", "units")
    }
    doubts = [*document["not_identified"], *document["unreliable"]]
    return join(
        heading,
        tag("p", sentence, test),
        _shown(held_out(document, names)),
        _shown(fitted({**document, **second})),
        _shown(predictions(document)),
        tag("ul", *(tag("li", doubt) for doubt in doubts)) if doubts else None,
    )


# Rows compared


def advantages_table(findings: Findings, advantages: Sequence[Advantage]) -> Html:
    sizes = sorted({advantage.size for advantage in advantages})
    cells = {(advantage.row, advantage.size): str(advantage) for advantage in advantages}
    names = dict.fromkeys(advantage.row for advantage in advantages)
    heads = ("row", *(f"N = {short(size)}" for size in sizes))
    caption = (
        f"Loss over that of {findings.rows[0]['row']}, less one; ± the standard deviation between pairs of one size."
    )
    return table(caption, heads, [(name, *(cells.get((name, size), "") for size in sizes)) for name in names])


def exponents_table(rows: Mapping[str, Any]) -> Html:
    names = list(dict.fromkeys(line["name"] for line in rows["exponents"]))
    exponents = {(line["row"], line["name"]): line for line in rows["exponents"]}
    first = rows["baseline"]
    heads = ("row", *(part for name in names for part in (exponent(name), "interval", f"less that of {first}")))
    body = [
        (row, *(cell for name in names for cell in _exponent(exponents[row, name])))
        for row in dict.fromkeys(line["row"] for line in rows["exponents"])
    ]
    compute = "γ = αβ/(α + β) is that of compute spent best. " if COMPUTE in names else ""
    return table(f"Exponents of each row’s law, with one floor for all. {compute}", heads, body)


def _exponent(line: Mapping[str, Any]) -> tuple[str, str, str]:
    value = significant(line["estimate"], line["low"], line["high"])
    return value, ends(line), difference(line) if line["difference"] else ""


# Reliability


def trust(document: Mapping[str, Any]) -> Html:
    return join(diagnostics(document), setup(document))


# Files of the page


def beside(findings: Findings) -> Html:
    """The other files of the report."""
    files = ["points.csv"] + (["fit.json"] if findings.document is not None else [])
    figures = f"; the figures as {' and '.join(kind[1:].upper() for kind in FIGURES)}" if findings.pictures else ""
    links = [tag("a", name, href=name) for name in files]
    return join(links[0], *(join(", ", link) for link in links[1:]), figures)


def _shown(figures: Table | None) -> Html | None:
    """A table of the law's document, with a minus sign before negative numbers."""
    if figures is None:
        return None
    rows = [[re.sub(r"^-(?=\d)", "−", cell) for cell in row] for row in figures.rows]
    notes = [tag("p", note, class_="quiet") for note in figures.notes]
    return join(table(figures.caption, figures.titles, rows, figures.words), *notes)
