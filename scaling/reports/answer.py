"""The answer of a study in one sentence, with its interval; and as plainly, what is not identified."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scaling.errors import plural
from scaling.laws.report import coverage, tried
from scaling.ledger import Ledger
from scaling.reports.markup import Html, ends, formula, join, percent, significant, symbol, tag
from scaling.reports.runs import advantages, compared, exponents
from scaling.studies.findings import Findings
from scaling.studies.predictions import FOLDER, calibration, registered

FLOOR = "nats per token"
"""The unit of a law's irreducible loss, and of nothing else in it."""
MOST_EXPONENTS = 3


@dataclass(frozen=True)
class Answer:
    """`standing` is how sure it is, in two words."""

    standing: str
    sentence: Html


def answer(findings: Findings) -> Answer:
    document = findings.document
    leads = advantages(findings)
    if document is None and leads:
        return Answer("compared" if findings.complete else "preliminary", compared(findings, leads))
    if document is None:
        return Answer("no law" if findings.complete else "no law yet", join(f"There is no law: {findings.reason}."))
    if document["not_identified"]:
        answered = [name for name in document["intervals"] if name not in document["unidentified"]]
        if answered and floor(document) in answered and "rows" not in document:
            return Answer(
                "identified in part", join(_undetermined(document), " ", _course(document), _floor(document), ".")
            )
        doubt = _doubt(document)  # which pairs of runs do not share
        return Answer("not identified", join(doubt, " ", compared(findings, leads)) if leads else doubt)
    standing = "identified" if findings.complete else "preliminary"
    if "rows" in document:
        return Answer(standing, join(exponents(document["rows"]), " ", compared(findings, leads) if leads else None))
    return Answer(standing, join(_course(document), _floor(document), "."))


def _doubt(document: Mapping[str, Any]) -> Html:
    """What is not known is the answer; what the best fit is comes after it."""
    return join(
        f"These runs do not identify the law: {_first_finding(document)}. The best fit of ",
        formula(document["formula"]),
        " is drawn below, and its numbers should not be quoted.",
    )


def _undetermined(document: Mapping[str, Any]) -> Html:
    """What the runs do not identify of a law of which they identify the floor."""
    return join(f"These runs do not identify all of the law: {_first_finding(document)}.")


def _first_finding(document: Mapping[str, Any]) -> str:
    """The first reason why the law is not identified, the number of reasons, and what was tried."""
    first, *others = document["not_identified"]
    more = f"one of {len(others) + 1} such findings; " if others else ""
    return f"{first} ({more}{tried(document)})"


def _course(document: Mapping[str, Any]) -> Html:
    """The formula with its exponents."""
    names = [name for name, unit in document["units"].items() if unit == "1"][:MOST_EXPONENTS]
    known = [name for name in names if name in document["intervals"] and name not in document["unidentified"]]
    clauses = [_bounded(document, name) for name in known]
    return join(
        "The loss follows ",
        tag("span", formula(document["formula"]), class_="formula"),
        " with " if clauses else None,
        *_listed(clauses),
    )


def _floor(document: Mapping[str, Any]) -> Html | None:
    name = floor(document)
    if name is None or name not in document["intervals"]:
        return None
    sentence = join(", and levels off at ", _bounded(document, name), " nats per token")
    entropy = document.get("entropy")
    if entropy is None or "contained" not in entropy:
        return sentence
    holds = "holds" if entropy["contained"] else "does not hold"
    return join(sentence, f" — an interval that {holds} the language’s known entropy, {entropy['known']:.3f}")


def floor(document: Mapping[str, Any]) -> str | None:
    """The name of the irreducible loss, where the law has one."""
    return next((name for name, unit in document["units"].items() if unit == FLOOR), None)


def _bounded(document: Mapping[str, Any], name: str) -> Html:
    interval = document["intervals"][name]
    value = significant(interval["estimate"], interval["low"], interval["high"])
    return tag("span", tag("strong", symbol(name), f" = {value}"), f" {ends(interval)}", class_="whole")


def _listed(parts: list[Html]) -> list[str]:
    """One, two and three."""
    between = [", "] * max(len(parts) - 2, 0) + [" and "] * (len(parts) > 1) + [""] * (len(parts) > 0)
    return [piece for pair in zip(parts, between, strict=True) for piece in pair]


def largest_error(held_out: Mapping[str, Any]) -> str:
    """The largest error of the held-out runs in percent; in the score's own unit where one of them scores 0."""
    relative = held_out["largest_relative_error"]
    return f"{held_out['largest_error']:.3g}" if relative is None else percent(abs(relative))


def tested(document: Mapping[str, Any]) -> str | None:
    """The held-out prediction in one sentence."""
    held_out = document.get("held_out")
    if held_out is None:
        return None
    runs = "The held-out run was" if held_out["n"] == 1 else f"The {held_out['n']} held-out runs were"
    sentence = f"{runs} predicted to within {largest_error(held_out)}"
    errors = (document.get("entropy") or {}).get("excess_errors")
    if errors:
        sentence += f", and the part of the loss above the entropy to within {percent(max(map(abs, errors)))}"
    covered = coverage(held_out)
    return f"{sentence}; {covered}." if covered else f"{sentence}."


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


def setup(document: Mapping[str, Any]) -> Html | None:
    """How the runs were trained, by their specs or in the words of the study's YAML."""
    stated = document.get("setup", {})
    pairs = (join(tag("dt", name), tag("dd", text)) for name, text in stated.items())
    return join(tag("h3", "Setup"), tag("dl", *pairs, class_="pairs asked")) if stated else None


def on_record(ledger: Ledger) -> Html | None:
    """A paragraph; none where nothing was predicted."""
    record = calibration(registered(ledger))
    if not record["predictions"] and not record["altered"]:
        return None
    return tag("p", f"Predictions on record in this ledger: {sentence(record)}.")


def sentence(record: Mapping[str, Any]) -> str:
    """The calibration over all predictions."""
    levels = [
        f"{level['inside']} of {level['scored']} losses inside their {100 * level['level']:g}% interval of a new run"
        for level in record["levels"]
    ]
    error = record["mean_absolute_relative_error"]
    return "; ".join(
        [
            f"{plural(record['predictions'], 'prediction')}, {record['scored']} scored, {record['waiting']} waiting",
            *levels,
            *([] if error is None else [f"mean error {error:.2%}"]),
            *(f"altered since, and not counted: {FOLDER}/{file}" for file in record["altered"]),
        ]
    )
