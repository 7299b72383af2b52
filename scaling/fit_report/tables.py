"""The tables of a fit's document as text. Terminal, page, Markdown and LaTeX show these, and so the same numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scaling.errors import plural
from scaling.law.extrapolation import TESTED, TESTED_COMPUTE, Extrapolation
from scaling.law.predictions import percent, titles
from scaling.picture import short

Document = Mapping[str, Any]

DECIMALS, MOST_DECIMALS = 4, 15
NOT_FINITE = "not finite"
NOT_IDENTIFIED = "not identified"
UNTESTED = "*"
LARGE = 1e5
"""Losses from here on, which no law of a loss should predict, are printed as powers of ten."""


@dataclass(frozen=True)
class Table:
    """Columns under their titles. The first column names its rows; those in `words` hold no numbers."""

    caption: str
    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: tuple[int, ...] = (0,)
    notes: Sequence[str] = ()


def tables(document: Document) -> Iterator[Table]:
    """Every table that the document of a law, of IsoFLOP minima, or of an envelope has."""
    for build in (choice, estimates, minima, held_out, back_test, predictions, optima):
        table = build(document)
        if table is not None:
            yield table


def choice(document: Document) -> Table | None:
    """The laws that `auto` compared, each under its best weighting, and what they miss the largest runs by."""
    chosen = document.get("choice")
    if chosen is None:
        return None
    best = {trial["law"]: trial for trial in reversed(chosen["trials"])}
    shown = sorted(best.values(), key=lambda trial: trial["score"])
    tests = list(chosen["tests"])
    rows = [
        (
            trial["law"],
            f"cost^{trial['cost_power']:g}" if trial["cost_power"] else "none",
            *("" if trial["errors"][test] is None else f"{trial['errors'][test]:.4g}" for test in tests),
            f"{trial['score']:.2f}",
        )
        for trial in shown
    ]
    heads = [f"largest {name}" for name in tests]
    notes = ("root mean square error of the largest runs, predicted from the others; 1.00 is the lowest in every test",)
    return Table("Laws compared.", ("law", "weights", *heads, "score"), rows, words=(0, 1), notes=notes)


def estimates(document: Document) -> Table:
    """The parameters with their intervals."""
    units = document.get("units", {})
    levels = {interval["level"] for interval in document["intervals"].values()}
    names = dict.fromkeys((*document["estimates"], *document["intervals"]))
    rows = []
    for name in names:
        interval = document["intervals"].get(name)
        estimate = document["estimates"][name] if name in document["estimates"] else interval["estimate"]
        is_fixed = name in document.get("fixed", {})
        ends = "" if interval is None else _ends(interval, "{:.4g}".format)
        ends += f", {NOT_IDENTIFIED}" if ends and name in document.get("unidentified", ()) else ""
        value = NOT_IDENTIFIED if estimate is None else f"{estimate:.5g}"
        rows.append((name, value, "held" if is_fixed else ends, units.get(name, "")))
    title = f"{percent(levels.pop())} interval" if levels else ""
    return Table("Estimates.", ("", "estimate", title, "unit"), rows, words=(0, 3))


def minima(document: Document) -> Table | None:
    """The minimum of each IsoFLOP budget, or why it has none."""
    if "minima" not in document:
        return None
    rows = [
        (short(row["C"]), row["refused"], "", "", "", "")
        if row["refused"]
        else (
            short(row["C"]),
            short(row["N"]),
            _ends(row["interval_N"], short),
            short(row["D"]),
            _ends(row["interval_D"], short),
            f"{row['loss']:.4f}",
        )
        for row in document["minima"]
    ]
    titles = ("C (FLOPs)", "N*", "95% interval of N*", "D*", "95% interval of D*", "loss")
    return Table("Minima of the budgets.", titles, rows, notes=[*_bias(document)])


def _bias(document: Document) -> Iterator[str]:
    """How far parabolas may be off, which noise does not show."""
    for name, bias in document.get("bias", {}).items():
        bound, estimate = bias["bound"], document["estimates"][name]
        if bound is None:
            yield f"{name}: the bias of parabolas is not bounded: it takes four sizes or more at every budget."
            continue
        read = ", ".join(
            f"{kind} {estimate + shift:.4f}"
            for kind, shift in zip(("cubics", "quartics"), bias["shifts"], strict=False)
        )
        yield (
            f"{name}: a parabola misreads a lopsided valley (arXiv 2603.22339): {read}, parabolas {estimate:.4f}; the "
            f"interval holds a bias of {bound:.1g}."
        )


def held_out(document: Document, names: Mapping[str, str] | None = None) -> Table | None:
    """Each held-out run next to its prediction; `names` are shown in place of the runs' ids.

    Losses have as many decimals as it takes for the printed numbers to agree with whether a run is inside.
    """
    tested = document["held_out"]
    if tested is None:
        return None
    points = tested["points"]
    inputs, target = document["inputs"], document["target"]
    decimals = _decimals(points, target)
    excess = (document.get("entropy") or {}).get("excess_errors") or [None] * len(points)
    rows = []
    for point, beyond in zip(points, excess, strict=True):
        run = point["run"] or ""
        rows.append(
            (
                (names or {}).get(run, run),
                *(short(point[name]) for name in inputs),
                *(_loss(point[name], decimals) for name in (target, "predicted")),
                *_both(point, decimals),
                *([] if point["covered"] is None else ["yes" if point["covered"] else "no"]),
                error(point["relative_error"], point.get("error")),
                *([] if beyond is None else [signed(beyond)]),
            )
        )
    intervals = titles_of_intervals(points[0])
    inside = ["inside"] if intervals else []
    more = ["error of the excess"] if excess[0] is not None else []
    titles = ("held out", *inputs, target, "predicted", *intervals, *inside, "error", *more)
    return Table("Held-out runs, predicted and observed.", titles, rows, notes=_untested(points, inputs))


def back_test(document: Document) -> Table | None:
    """The largest runs by each axis, predicted from the smaller ones."""
    tests = document.get("back_test")
    if not tests:
        return None
    inside = f"inside their {titles(tests[0]['level'])[1]}"
    by_law = ["law"] if "choice" in document else []  # each test has chosen its own
    heads = ("left out", "runs", "decades outside", inside, "mean error", "bias", *by_law)
    rows = [
        (
            f"{test['axis']} ≥ {short(test['from'])}",
            str(test["runs"]),
            f"{test['decades_outside']:.2f}",
            f"{test['covered']:.0%}",
            unsigned(test["mean_absolute_relative_error"], test.get("mean_absolute_error")),
            error(test["bias"], test.get("mean_error")),
            *(test[key] for key in by_law),
        )
        for test in tests
    ]
    return Table("Back-test: the largest runs of these points, predicted from a fit of the smaller ones.", heads, rows)


def predictions(document: Document) -> Table | None:
    """What the law predicts for the targets."""
    rows = document.get("predictions")
    if not rows:
        return None
    inputs, target = document["inputs"], document["target"]
    first, *others = inputs
    cells = [(*(short(row[name]) for name in inputs), _answer(row, target), *_both(row, DECIMALS)) for row in rows]
    titles = (f"at {first}", *others, target, *titles_of_intervals(rows[0]))
    notes = [*_outside(rows, inputs), *_untested(rows, inputs), *_no_answers(document, rows, inputs)]
    return Table("Predictions.", titles, cells, notes=notes)


def optima(document: Document) -> Table | None:
    """The best use of each budget."""
    rows = document.get("optima")
    if not rows:
        return None
    bounded = rows[0]["interval_run"] is not None
    titles, cells = ["best at C"], [[short(row["C"])] for row in rows]
    if any("served" in row for row in rows):
        titles.append("tokens served")
        for row, line in zip(rows, cells, strict=True):
            line.append(short(row.get("served", 0.0)))
    for name in ("N", "D"):
        titles += [name, *([f"{percent(rows[0][name]['level'])} interval of {name}"] if bounded else [])]
        for row, line in zip(rows, cells, strict=True):
            estimate, absent = row[name]["estimate"], NOT_FINITE if row.get("identified", True) else NOT_IDENTIFIED
            line += [
                absent if estimate is None else short(estimate),
                *([_ends(row[name], short)] if bounded else []),
            ]
    titles += ["loss", *titles_of_intervals(rows[0])]
    for row, line in zip(rows, cells, strict=True):
        loss = {"loss": row["loss"]["estimate"], "identified": row.get("identified", True)}
        line += [_answer(loss, "loss"), *_both(row, DECIMALS)]
    notes = [line for row in rows for line in disagreement(row)]
    notes += [*_outside(rows, ["C"]), *_untested(rows, ["C"]), *_no_answers(document, rows, ["C"])]
    return Table("The best use of a budget.", titles, cells, notes=notes)


def disagreement(row: Mapping[str, Any]) -> Iterator[str]:
    """The sentence that competing laws put the optimum elsewhere, with their numbers; nothing where they agree."""
    others = [other for other in row.get("competing", ()) if not other["agrees"]]
    if not others:
        return
    numbers = "; ".join(
        f"{other['law']}: N {_bounded(other['N'])}, D {_bounded(other['D'])}, loss {other['loss']['estimate']:.4f}, "
        f"residuals {other['residual_ratio'] or 1.0:.2f} times as large"
        for other in others
    )
    over = row.get("over_laws")
    whole = "" if over is None else f". Over these laws N is {short(over['N']['low'])} to {short(over['N']['high'])}"
    yield f"! {_at(row, ['C'])}: the laws disagree. {numbers}{whole}."


def _bounded(interval: Mapping[str, Any]) -> str:
    return f"{short(interval['estimate'])} ({_ends(interval, short)})"


def _answer(row: Mapping[str, Any], target: str) -> str:
    """The predicted value, or that it is not identified."""
    return _loss(row[target], DECIMALS) if row.get("identified", True) else NOT_IDENTIFIED


def _no_answers(document: Document, rows: Sequence[Mapping[str, Any]], inputs: Sequence[str]) -> Iterator[str]:
    """What was tried where a target is not identified."""
    for row in rows:
        if not row.get("identified", True):
            yield f"{_at(row, inputs)} is not identified by {document['law']} of {tried(document)}."


def tried(document: Document) -> str:
    """`16 points, N 5.9k to 97k, D 700k to 4M`: what a law was fitted to."""
    ranges = (f"{name} {short(low)} to {short(high)}" for name, (low, high) in document["ranges"].items())
    return ", ".join([plural(document["n"], "point"), *ranges])


def heading(document: Document) -> Iterator[str]:
    """The law, its citation, the count of points, and what the columns count."""
    yield f"{document['law']}  {document['formula']}"
    yield document["citation"]
    points = document["points"]
    yield (f"{points['source']}: " if points["source"] else "") + points["count"]
    yield from (f"  {name}: {definition}" for name, definition in points["definitions"].items())


def diagnostics(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Lines and their style: how the optimum was reached, and what speaks against it."""
    if document["held_out"] is not None:
        tested = document["held_out"]
        covered = coverage(tested)
        yield (
            (f"held out: largest error {largest_error(tested)}" + (f"; {covered}" if covered else "")),
            "",
        )
    for step in document.get("steps", [document]):
        if step["objective"] is not None:
            yield (f"{step['target']}: " if "steps" in document else "") + _optimum(step), ""
    if "correlation" in document:
        yield f"errors of a run in the two steps: correlation {document['correlation']:+.2f}", ""
    clusters = document.get("clusters")
    if clusters:
        rho = clusters.get("correlation")
        how = "" if rho is None else f", correlation {rho['estimate']:.2f} ({rho['low']:.2f} to {rho['high']:.2f})"
        counted = plural(clusters["count"], "cluster" if rho is None else "group") + how
        yield f"errors of the points of one {clusters['column']} belong together: {counted}", ""
    pooled = document["points"]["pooled"]
    if pooled:
        kinds = ", ".join(f"{count} values of {name}" for name, count in pooled.items())
        yield f"! {kinds} are pooled as if they were one: choose with --where", "yellow"
    for sentence in (*document.get("not_identified", ()), *document.get("unreliable", ())):
        yield f"! {sentence}", "yellow"
    silent = document.get("checklist", {}).get("missing", ())
    if silent:
        yield "not specified, and a referee would ask:", "dim"
    for question in silent:
        yield f"  {question}", "dim"


def _optimum(document: Mapping[str, Any]) -> str:
    """How the optimum was reached."""
    agreeing = f"{document['starts_agreeing']:.0%} of the refined starts agree"
    condition = document["condition_number"]
    condition = "condition unbounded" if condition is None else f"condition {condition:.2g}"
    scale = f"scale of the residuals {document['residual_scale']:.2g}"
    return f"{document['objective_kind']} {document['objective']:.8g}; {agreeing}; {condition}; {scale}"


def coverage(tested: Mapping[str, Any]) -> str | None:
    """`3 of 4 runs inside their 90% interval of a new run`; nothing where there are no intervals."""
    if tested["covered"] is None:
        return None
    inside, count = round(tested["covered"] * tested["n"]), tested["n"]
    if count == 1:
        return f"{'inside' if inside else 'outside'} its {percent(tested['level'])} interval of a new run"
    return f"{inside} of {count} runs inside their {percent(tested['level'])} interval of a new run"


def titles_of_intervals(row: Mapping[str, Any]) -> list[str]:
    """The titles of a row's two intervals: of the law's mean, and of the loss of a new run."""
    if row["interval_run"] is None:
        return []
    return titles(row["interval_run"]["level"])


def error(relative: float | None, absolute: float | None) -> str:
    """A relative error with its sign; of a score of 0, which has none, the error in the score's own unit."""
    if relative is not None or absolute is None:
        return signed(relative)
    return f"{absolute:+.{DECIMALS}f}"


def unsigned(relative: float | None, absolute: float | None) -> str:
    """The size of an error, in percent where that is known."""
    if relative is not None:
        return f"{abs(relative):.2%}"
    return NOT_FINITE if absolute is None else f"{absolute:.{DECIMALS}f}"


def largest_error(tested: Mapping[str, Any]) -> str:
    """The largest error of the held-out runs; in the score's own unit where one of them scores 0."""
    return unsigned(tested["largest_relative_error"], tested.get("largest_error"))


def signed(share: float | None) -> str:
    """A relative error with its sign, to the hundredth of a percent or to two digits."""
    if share is None:
        return NOT_FINITE
    if share == 0 or not math.isfinite(share):
        return f"{share:+.0%}"
    digits = min(max(2, 1 - math.floor(math.log10(abs(100 * share)))), 4)
    return f"{share:+.{digits}%}"


def _both(row: Mapping[str, Any], decimals: int) -> list[str]:
    """The two intervals of a row; no cells where there are none. One that was not tested so far outside is marked."""
    if row["interval_run"] is None:
        return []
    mean, run = (_ends(row[name], lambda end: _loss(end, decimals)) for name in ("interval_mean", "interval_run"))
    return [mean, run if row.get("tested", True) else f"{run}{UNTESTED}"]


def _outside(rows: Sequence[Mapping[str, Any]], inputs: Sequence[str]) -> list[str]:
    """How far each target lies outside the points, and what its interval rests on."""
    lines = [f"{_at(row, inputs)}: {_distance(row)}" for row in rows if row.get("decades_outside")]
    if lines and rows[0]["interval_run"] is not None:
        lines.append(
            "A new run's interval holds its noise, the error of the fit, and that of the law's form (docs/coverage.md)."
        )
    return lines


def _untested(rows: Sequence[Mapping[str, Any]], inputs: Sequence[str]) -> list[str]:
    """Why an interval is marked."""
    far = [row for row in rows if row["interval_run"] is not None and not row.get("tested", True)]
    if not far:
        return []
    level = percent(far[0]["interval_run"]["level"])
    where = _at(far[0], inputs) if len(far) == 1 else f"{len(far)} runs"
    return [
        f"{UNTESTED} {where}: farther outside than these intervals were tested on published studies "
        f"({TESTED:g} decade along an axis, {TESTED_COMPUTE:g} of compute). No {level} is claimed."
    ]


def _at(row: Mapping[str, Any], inputs: Sequence[str]) -> str:
    return " ".join(f"{name}={short(row[name])}" for name in inputs)


def _distance(row: Mapping[str, Any]) -> str:
    return str(Extrapolation(row["decades_outside"]))


def _ends(interval: Mapping[str, Any], form: Any) -> str:
    low, high = ("open" if interval[end] is None else form(interval[end]) for end in ("low", "high"))
    return f"{low} to {high}"


def _loss(value: float | None, decimals: int) -> str:
    if value is None:
        return NOT_FINITE
    return f"{value:.{decimals}f}" if abs(value) < LARGE else f"{value:.{decimals}g}"


def _decimals(points: Sequence[Mapping[str, Any]], target: str) -> int:
    """The fewest at which no loss outside its printed interval looks as if it were inside."""
    outside = [point for point in points if point["covered"] is False]

    def agrees(decimals: int) -> bool:
        return not any(_holds(point["interval_run"], point[target], decimals) for point in outside)

    return next((decimals for decimals in range(DECIMALS, MOST_DECIMALS) if agrees(decimals)), MOST_DECIMALS)


def _holds(interval: Mapping[str, Any], value: float, decimals: int) -> bool:
    low, high = (
        open_end if interval[end] is None else float(_loss(interval[end], decimals))
        for end, open_end in (("low", -math.inf), ("high", math.inf))
    )
    return low <= float(_loss(value, decimals)) <= high
