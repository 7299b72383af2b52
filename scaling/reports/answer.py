"""The answer of a study in one sentence, with its interval; and as plainly, what is not identified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from scaling.base.markup import ends, formula, percent, signed, significant, symbol
from scaling.base.printing import Html, join, tag
from scaling.laws.compare import COMPUTE
from scaling.laws.report import coverage, tried
from scaling.studies.findings import Findings

FLOOR = "nats per token"
"""The unit of a law's irreducible loss, and of nothing else in it."""
MOST_EXPONENTS = 3


class Answer(NamedTuple):
    """`standing` is how sure it is, in two words."""

    standing: str
    sentence: Html


def answer(findings: Findings) -> Answer:
    document, compared, complete = findings.document, advantage(findings), findings.complete
    if not document and compared is None:
        return Answer("no law" if complete else "no law yet", join(f"There is no law: {findings.reason}."))
    if not document:
        return Answer("compared" if complete else "preliminary", join(compared))
    doubts, sure = document["not_identified"], "identified" if complete else "preliminary"
    if "rows" in document and not doubts:
        return Answer(sure, join(exponents(document["rows"]), " ", compared))
    if not doubts:
        return Answer(sure, _law(document))
    more = f"one of {len(doubts)} such findings; " if len(doubts) > 1 else ""
    doubt = f"{doubts[0]} ({more}{tried(document)})"
    if "rows" not in document and floor(document) in _identified(document):
        of_all = f"These runs do not identify all of the law: {doubt}. "
        return Answer("identified in part", join(of_all, _law(document)))
    best = join(
        " The best fit of ", formula(document["formula"]), " is drawn below, and its numbers should not be quoted."
    )
    sentence = join(f"These runs do not identify the law: {doubt}.", best)
    return Answer("not identified", sentence if compared is None else join(sentence, " ", compared))


def _identified(document: Mapping[str, Any]) -> list[str]:
    """The parameters that have an interval and are identified."""
    return [
        name for name in document["units"] if name in document["intervals"] and name not in document["unidentified"]
    ]


def _law(document: Mapping[str, Any]) -> Html:
    """The law with the intervals of its exponents and of its floor."""
    names = [name for name, unit in document["units"].items() if unit == "1"][:MOST_EXPONENTS]
    identified = [name for name in names if name in _identified(document)]
    signs = [" with ", *[", "] * (len(identified) - 2), " and "]
    clauses = (part for sign, name in zip(signs, identified) for part in (sign, _bounded(document, name)))
    law = join("The loss follows ", tag("span", formula(document["formula"]), class_="formula"), *clauses)
    name, entropy = floor(document), document.get("entropy") or {}
    if name is not None and name in document["intervals"]:
        law = join(law, ", and levels off at ", _bounded(document, name), " nats per token")
        if "contained" in entropy:
            holds = "holds" if entropy["contained"] else "does not hold"
            law = join(law, f" — an interval that {holds} the language’s known entropy, {entropy['known']:.3f}")
    return join(law, ".")


def floor(document: Mapping[str, Any]) -> str | None:
    """The name of the irreducible loss, where the law has one."""
    return next((name for name, unit in document["units"].items() if unit == FLOOR), None)


def _bounded(document: Mapping[str, Any], name: str) -> Html:
    interval = document["intervals"][name]
    value = significant(interval["estimate"], interval["low"], interval["high"])
    return tag("span", tag("strong", symbol(name), f" = {value}"), f" {ends(interval)}", class_="whole")


def largest_error(held_out: Mapping[str, Any]) -> str:
    """The largest error of the held-out runs in percent; in the score's own unit where one of them scores 0."""
    relative = held_out["largest_relative_error"]
    return f"{held_out['largest_error']:.3g}" if relative is None else percent(abs(relative))


def tested(document: Mapping[str, Any]) -> str | None:
    """The held-out prediction in one sentence; None without a law or a held-out run."""
    held_out = document.get("held_out")
    if not held_out:
        return None
    runs = "The held-out run was" if held_out["n"] == 1 else f"The {held_out['n']} held-out runs were"
    errors, covered = (document.get("entropy") or {}).get("excess_errors"), coverage(held_out)
    excess = (
        f", and the part of the loss above the entropy to within {percent(max(map(abs, errors)))}" if errors else ""
    )
    inside = f"; {covered}" if covered else ""
    return f"{runs} predicted to within {largest_error(held_out)}{excess}{inside}."


def unreliable(document: Mapping[str, Any]) -> list[str]:
    """Why the intervals may not cover what they claim: by the residuals, and by what was fitted as if it were one."""
    pooled = document["points"]["pooled"] if document else {}
    kinds = (f"{count} values of {name} were fitted as if they were one" for name, count in pooled.items())
    return [*document.get("unreliable", ()), *kinds]


# Rows of a table, compared


def advantages(findings: Findings) -> dict[tuple[str, float], list[float]]:
    """The loss over that of the first row's run of the same settings, less one, of each further row at each N."""
    finished = [row for row in findings.rows if row["status"] == "finished" and "row" in row]
    base = {_cell(row): row for row in finished if row["row"] == findings.rows[0]["row"]}
    pairs: dict[tuple[str, float], list[float]] = {}
    for row in finished:
        other = base.get(_cell(row))
        if other is not None and row["row"] != other["row"]:
            pairs.setdefault((row["row"], other["N"]), []).append(row["loss"] / other["loss"] - 1)
    return dict(sorted(pairs.items()))


def _cell(row: Mapping[str, Any]) -> str:
    """What a run shares with those of other rows: its name without the row. Kept tables spell it `row=NAME`."""
    name = f" {row['name']} ".replace(" row=", " ")
    return name.replace(f" {row['row']} ", " ").strip()


def scatter(differences: Sequence[float]) -> str:
    """The mean difference, and the standard deviation between pairs."""
    return f"{signed(fmean(differences))}" + (f" ± {percent(stdev(differences))}" if len(differences) > 1 else "")


def advantage(findings: Findings) -> Html | None:
    """The loss of each row relative to the first, at the smallest and the largest size; None without rows."""
    pairs = advantages(findings)
    if not pairs:
        return None
    means: dict[str, list[str]] = {}
    for (row, size), gains in pairs.items():
        means.setdefault(row, []).append(f"{signed(fmean(gains))} at N = {size:,}")
    parts = [f"{row} {' and '.join(dict.fromkeys((each[0], each[-1])))}" for row, each in means.items()]
    sizes = len({size for _, size in pairs})
    ladder = "at one size" if sizes == 1 else f"over {sizes} sizes"
    return join(f"Loss relative to {findings.rows[0]['row']}, {ladder}: {'; '.join(parts)}.")


def exponents(rows: Mapping[str, Any]) -> Html:
    """Whether each row gains or loses on the first as runs grow, by the first of the law's exponents."""
    name = rows["exponents"][0]["name"]
    base, *others = (other for other in rows["exponents"] if other["name"] == name)
    scale, gains = "compute" if name == COMPUTE else "scale", []
    for other in others:
        low, high = other["difference"]["low"], other["difference"]["high"]
        gain = "it gains" if (low or 0) > 0 else "it loses" if (high or 0) < 0 else None
        course = f"{gain} with {scale}" if gain else "these runs do not show whether it gains or loses"
        gains.append(f"{other['row']} by {difference(other)}, so that {course}")
    value = significant(base["estimate"], base["low"], base["high"])
    return join(
        f"The loss above its floor falls with {scale} by an exponent ",
        tag("strong", exponent(name), f" = {value}"),
        f" {ends(base)} under {base['row']}; it differs under {'; '.join(gains)}.",
    )


def exponent(name: str) -> Html:
    """γ, of compute, and the law's own."""
    return symbol("gamma" if name == COMPUTE else name)


def difference(exponent: Mapping[str, Any]) -> str:
    """`+0.012 [0.004, 0.020]`"""
    interval = exponent["difference"]
    text = significant(interval["estimate"], interval["low"], interval["high"])
    return f"{'' if text.startswith('−') else '+'}{text} {ends(interval)}"
