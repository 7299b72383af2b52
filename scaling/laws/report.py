"""The report of a fit as lines and tables of text, read from the document of `scaling fit --json` (docs/json.md).

Terminal, notebook, page, Markdown and LaTeX show these tables, and so the same numbers; a kept fit.json has them too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.base.errors import plural
from scaling.base.printing import GREEK, Table, TableResult, percent, short, titled

Row = Mapping[str, Any]

MOST_DECIMALS, ERROR = 15, "mean_absolute_relative_error"
NOT_FINITE, NOT_IDENTIFIED, UNTESTED = "not finite", "not identified", "*"
TESTED = "1 decade along an axis, 2 of compute"
DERIVED = {"a": "N_opt ∝ C^a", "b": "D_opt ∝ C^b"}
_NAME = re.compile(rf"\b(task_)?({'|'.join(GREEK)})(?=\b|_)")


def letters(text: str) -> str:
    """The same text with the Greek letters of the papers: `alpha_N` as `α_N`."""
    return _NAME.sub(lambda match: (match[1] or "") + GREEK[match[2]], text)


@dataclass(frozen=True, repr=False)
class Report(TableResult):
    """The document of a fit as lines and tables."""

    document: dict[str, Any]

    def _steps(self) -> list[tuple[str, Row]]:
        """The documents of both steps of a law under the name of what each predicts, or the one there is."""
        return [(f"{step['target']}: ", step) for step in self.document.get("steps", ())] or [("", self.document)]

    def heading(self) -> Iterator[str]:
        """The law, its citation, the points, the range and definition of each column, and how close the law comes."""
        document, points = self.document, self.document["points"]
        yield f"{document['law']}  {document['formula']}"
        yield document["citation"]
        fitted = " + ".join(str(step["n"] - step["degrees_of_freedom"]) for _, step in self._steps() if "n" in step)
        kinds = [f"{fitted} parameters"] if fitted else []
        kinds += [f"{points[k]} {k.replace('_', ' ')}" for k in ("held_out", "excluded", "failed") if points[k]]
        source = f"{points['source']}: " if points["source"] else ""
        yield source + ", ".join([plural(points["fitted"], "point"), *kinds])
        ranges = document.get("ranges", {})
        stated = points["definitions"] | ({"C": "6ND"} if "C" in ranges and "C" not in document["inputs"] else {})
        for name in dict.fromkeys((*ranges, *stated)):
            range_text = " to ".join(map(short, ranges.get(name, ())))
            yield f"  {name}: " + ", ".join(filter(None, [range_text, stated.get(name)]))
        for prefix, step in self._steps():
            if step.get("r_squared") is not None:
                worst, target = step["largest_residual"], step["target"]
                values = f"{target} {four_decimals(worst[target])}, fitted {four_decimals(worst['fitted'])}"
                values += f" ({signed(worst['fitted'] / worst[target] - 1.0)})" if worst[target] else ""
                where = _at(worst, step["inputs"]) + (f" ({worst['run']})" if worst["run"] else "")
                close = f"R² {step['r_squared']:.4f}, mean error {_unsigned(step[ERROR], step['mean_absolute_error'])}"
                yield f"{prefix}{close}, largest residual at {where}: {values}"

    def tables(self) -> Iterator[Table]:
        """Every table of a law, of IsoFLOP minima, or of an envelope."""
        builders = (choice, estimates, minima, held_out, back_test, predictions, optima)
        yield from filter(None, (build(self.document) for build in builders))

    def remarks(self) -> Iterator[str]:
        """Remarks on the optimum that was reached, on what speaks against the law, and on the place of the figures."""
        document, tested = self.document, self.document["held_out"] or {}
        if tested:
            error = _unsigned(tested["largest_relative_error"], tested["largest_error"])
            yield "; ".join(filter(None, [f"held out: largest error {error}", coverage(tested)]))
        targets = [*tested.get("points", ()), *document.get("predictions", ()), *document.get("optima", ())]
        for method in dict.fromkeys(row["interval_run"]["method"] for row in targets if row["interval_run"]):
            sources = "noise, the error of the fit and the error of the law's form"
            yield f"The interval of a new run ({_method(method)}) covers its {sources} (docs/coverage.md)."
        for prefix, step in self._steps():
            if step["objective"] is not None:
                number, scale = step["condition_number"], f"scale of the residuals {step['residual_scale']:.2g}"
                agreeing = f"{step['starts_agreeing']:.0%} of the refined starts agree"
                condition = f"condition {'unbounded' if number is None else format(number, '.2g')}"
                yield f"{prefix}{step['objective_kind']} {step['objective']:.8g}; {agreeing}; {condition}; {scale}"
        if "correlation" in document:
            yield f"errors of a run in the two steps: correlation {document['correlation']:+.2f}"
        if groups := document.get("clusters"):
            rho, counted = groups["correlation"], plural(groups["count"], "group")
            within = f", correlation {rho['estimate']:.2f} ({rho['low']:.2f} to {rho['high']:.2f})" if rho else ""
            yield f"errors of the points of one {groups['column']} belong together: {counted}{within}"
        if pooled := document["points"]["pooled"]:
            kinds = ", ".join(f"{count} values of {name}" for name, count in pooled.items())
            yield f"! {kinds} are pooled as if they were one: choose with --where"
        yield from (f"! {letters(line)}" for key in ("not_identified", "unreliable") for line in document.get(key, ()))
        best = min(tested.get("other_laws", ()), key=lambda other: other[ERROR], default=None)
        if best and tested[ERROR] is not None and best[ERROR] < 0.9 * tested[ERROR]:
            errors = f"mean error {best[ERROR]:.2%} against {tested[ERROR]:.2%}"
            yield f"! {best['law']} predicts the held-out runs better ({errors}): --law auto compares the laws"
        if figures := document.get("figures"):
            yield f"figures: {Path(figures[0]).parent}"


def choice(document: Row) -> Table | None:
    """The laws that `auto` compared, each under its best weighting, and their errors on the largest runs."""
    chosen = document.get("choice") or {"trials": (), "tests": ()}
    best = {trial["law"]: trial for trial in reversed(chosen["trials"])}  # the best are the first
    rows = [
        [
            ("law", trial["law"]),
            ("weights", f"cost^{trial['cost_power']:g}" if trial["cost_power"] else "none"),
            *(
                (f"largest {name}", "" if trial["errors"].get(name) is None else f"{trial['errors'][name]:.4g}")
                for name in chosen["tests"]
            ),
            ("score", f"{trial['score']:.2f}"),
        ]
        for trial in sorted(best.values(), key=lambda trial: trial["score"])
    ]
    note = "root mean square error of the largest runs, predicted from the others; 1.00 is the lowest in every test"
    return titled("Laws compared.", rows, words=(0, 1), notes=[note])


def estimates(document: Row) -> Table:
    """The parameters and the exponents that follow from them, with their intervals."""
    intervals, values = document["intervals"], document["estimates"]
    unidentified, held, units = document.get("unidentified", ()), document.get("fixed", {}), {}
    named = {word for sentence in document.get("not_identified", ()) for word in sentence.split()[:2]}
    rows = []
    for name in dict.fromkeys((*values, *intervals)):
        interval, doubted = intervals.get(name), name in unidentified
        estimate, digits = values.get(name, interval and interval["estimate"]), _digits(interval)
        # A closed interval of points that are too few rests on the law's form alone.
        is_shown = not doubted or name not in values or name.removeprefix("task_") in named
        ends = low_to_high(interval, f"{{:.{digits}g}}".format) if interval and is_shown else ""
        remark = "held" if name in held else "" if name in values else DERIVED.get(name, "")
        value = NOT_IDENTIFIED if estimate is None else f"{estimate:.{digits + 1}g}"
        rows.append((letters(name), value, ends, ", ".join(filter(None, [remark, NOT_IDENTIFIED if doubted else ""]))))
    kinds = sorted({(interval["level"], interval["method"]) for interval in intervals.values()})
    title = "; ".join(f"{percent(level)} interval ({_method(method)})" for level, method in kinds)
    for name, unit in document.get("units", {}).items():
        units.setdefault(unit, []).append(letters(name))
    stated = "; ".join(f"{', '.join(names)} {unit}" for unit, names in units.items() if unit not in ("", "1"))
    return Table("Estimates.", ("", "estimate", title, ""), rows, (0, 3), [f"Units: {stated}"] if stated else [])


def _method(name: str) -> str:
    return "Student's t" if name == "t" else name


def _digits(interval: Row | None) -> int:
    """Four significant digits, or as many as it takes for the width of an interval to have two."""
    low, high = (interval["low"], interval["high"]) if interval else (None, None)
    if low is None or high is None or low == high:
        return 4
    return min(max(4, math.ceil(math.log10(max(abs(low), abs(high)) / (high - low))) + 1), MOST_DECIMALS)


def minima(document: Row) -> Table | None:
    """The minimum of each IsoFLOP budget, or why it has none."""
    rows = [
        [
            ("C (FLOPs)", short(row["C"])),
            ("N*", row["refused"] or short(row["N"])),
            ("95% interval of N*", "" if row["refused"] else low_to_high(row["interval_N"], short)),
            ("D*", "" if row["refused"] else short(row["D"])),
            ("95% interval of D*", "" if row["refused"] else low_to_high(row["interval_D"], short)),
            ("loss", "" if row["refused"] else f"{row['loss']:.4f}"),
        ]
        for row in document.get("minima", ())
    ]
    return titled("Minima of the budgets.", rows, notes=[*_bias(document)])


def _bias(document: Row) -> Iterator[str]:
    """The bound on the bias of parabolas, which noise does not show."""
    for name, bias in document.get("bias", {}).items():
        bound, estimate = bias["bound"], document["estimates"][name]
        kinds = zip(("cubics", "quartics"), bias["shifts"], strict=False)
        read = ", ".join(f"{kind} {estimate + shift:.4f}" for kind, shift in kinds)
        misread = f"a parabola misreads a lopsided valley (arXiv 2603.22339): {read}, parabolas {estimate:.4f}"
        unknown = "the bias of parabolas is not bounded: it takes four sizes or more at every budget."
        yield f"{name}: {unknown if bound is None else f'{misread}; the interval holds a bias of {bound:.1g}.'}"


def held_out(document: Row, names: Mapping[str, str] | None = None) -> Table | None:
    """Each held-out run next to its prediction; `names` are shown in place of the runs' ids."""
    points = (document["held_out"] or {}).get("points", ())
    inputs, target = document.get("inputs", ()), document.get("target", "")
    excess = (document.get("entropy") or {}).get("excess_errors") or [None] * len(points)
    rows = [
        [
            ("held out", (names or {}).get(point["run"] or "", point["run"] or "")),
            *((name, short(point[name])) for name in inputs),
            (target, four_decimals(point["observed"])),
            ("predicted", four_decimals(point["predicted"])),
            *_both(point),
            *([] if point["covered"] is None else [("inside", "yes" if point["covered"] else "no")]),
            ("error", _error(point["relative_error"], point["error"])),
            *([] if beyond is None else [("error of the excess", signed(beyond))]),
        ]
        for point, beyond in zip(points, excess, strict=True)
    ]
    return titled(
        "Held-out runs, predicted and observed.", rows, notes=[*caveats(document, points, inputs, is_test=True)]
    )


def back_test(document: Row) -> Table | None:
    """The largest runs by each axis, predicted from the smaller ones."""
    rows = [
        [
            ("left out", f"{test['axis']} ≥ {short(test['from'])}"),
            ("runs", str(test["runs"])),
            ("decades outside", f"{test['decades_outside']:.2f}"),
            (f"inside their {titles(test['level'])[1]}", f"{test['covered']:.0%}"),
            ("mean error", _unsigned(test[ERROR], test["mean_absolute_error"])),
            ("bias", _error(test["bias"], test["mean_error"])),
            *([("law", test["law"])] if "choice" in document else []),  # each test has chosen its own
        ]
        for test in document.get("back_test", ())
    ]
    return titled("Back-test: the largest runs of these points, predicted from a fit of the smaller ones.", rows)


def predictions(document: Row) -> Table | None:
    """The predictions of the law for the targets."""
    targets, inputs, target = document.get("predictions", ()), document.get("inputs", ()), document.get("target", "")
    rows = [
        [
            *((("" if place else "at ") + name, short(row[name])) for place, name in enumerate(inputs)),
            (target, _answer(row, row[target])),
            *_both(row),
        ]
        for row in targets
    ]
    return titled("Predictions.", rows, notes=[*caveats(document, targets, inputs)])


def optima(document: Row) -> Table | None:
    """The best use of each budget."""
    budgets = document.get("optima", ())
    served = any("served" in row for row in budgets)
    rows = [
        [
            ("best at C", short(row["C"])),
            *([("tokens served", short(row.get("served", 0.0)))] if served else []),
            *_size(row, "N"),
            *_size(row, "D"),
            ("loss", _answer(row, row["loss"]["estimate"])),
            *_both(row),
        ]
        for row in budgets
    ]
    notes = [*(line for row in budgets for line in disagreement(row)), *caveats(document, budgets, ["C"])]
    return titled("The best use of a budget.", rows, notes=notes)


def _size(row: Row, name: str) -> list[tuple[str, str]]:
    """The best size or data of a budget, and its interval where there is one."""
    run, cells = row["interval_run"], [(name, _answer(row, row[name]["estimate"], short))]
    return cells + ([(f"{percent(run['level'])} interval of {name}", low_to_high(row[name], short))] if run else [])


def disagreement(row: Row) -> Iterator[str]:
    """The sentence that competing laws put the optimum elsewhere, with their numbers; nothing where they agree."""

    def bounded(interval: Row) -> str:
        return f"{short(interval['estimate'])} ({low_to_high(interval, short)})"

    numbers = "; ".join(
        f"{other['law']}: N {bounded(other['N'])}, D {bounded(other['D'])}, loss {other['loss']['estimate']:.4f}, "
        f"residuals {other['residual_ratio'] or 1.0:.2f} times as large"
        for other in row.get("competing", ())
        if not other["agrees"]
    )
    if numbers:
        yield f"! {_at(row, ['C'])}: the laws disagree. {numbers}."


def tried(document: Row) -> str:
    """`16 points, N 5.9k to 97k, D 700k to 4M`: what a law was fitted to."""
    ranges = (f"{name} {' to '.join(map(short, document['ranges'][name]))}" for name in document["inputs"])
    return ", ".join([plural(document["n"], "point"), *ranges])


def coverage(tested: Row) -> str | None:
    """`3 of 4 runs lie inside the 90% interval of a new run`; nothing where there are no intervals."""
    if tested["covered"] is None:
        return None
    inside, count = round(tested["covered"] * tested["n"]), tested["n"]
    runs = f"the run lies {'inside' if inside else 'outside'}" if count == 1 else f"{inside} of {count} runs lie inside"
    return f"{runs} the {percent(tested['level'])} interval of a new run"


def signed(share: float | None) -> str:
    """A relative error with its sign, to the hundredth of a percent or to two digits."""
    if share is None:
        return NOT_FINITE
    if share == 0 or not math.isfinite(share):
        return f"{share:+.0%}"
    return f"{share:+.{min(max(2, 1 - math.floor(math.log10(abs(100 * share)))), 4)}%}"


def _error(relative: float | None, absolute: float | None) -> str:
    """A relative error with its sign; of a score of 0, which has none, the error in the score's own unit."""
    return signed(relative) if relative is not None or absolute is None else f"{absolute:+.4f}"


def _unsigned(relative: float | None, absolute: float | None) -> str:
    if relative is not None:
        return f"{abs(relative):.2%}"
    return NOT_FINITE if absolute is None else f"{absolute:.4f}"


def titles(level: float) -> list[str]:
    """The titles of the two intervals of a prediction: of the law's mean, and of a new run."""
    return [f"{percent(level)} interval of {what}" for what in ("the mean", "a new run")]


def _both(row: Row) -> list[tuple[str, str]]:
    """The two intervals of a row; none where there are none. One that was not tested so far outside is marked."""
    if row["interval_run"] is None:
        return []
    mean, run = (low_to_high(row[name]) for name in ("interval_mean", "interval_run"))
    ends = (mean, run if row["tested"] else f"{run}{UNTESTED}")
    return [*zip(titles(row["interval_run"]["level"]), ends, strict=True)]


def _answer(row: Row, value: float | None, form: Callable[[float], str] | None = None) -> str:
    """A predicted value, or that it is not identified."""
    if not row.get("identified", True):
        return NOT_IDENTIFIED
    return form(value) if form is not None and value is not None else four_decimals(value)


def caveats(document: Row, rows: Sequence[Row], inputs: Sequence[str], is_test: bool = False) -> Iterator[str]:
    """Why intervals are marked; of targets, how far they lie outside the points, and which have no answer."""
    outside = [row for row in rows if row.get("decades_outside") and not is_test]
    yield from (f"{_at(row, inputs)}: {distance(row['decades_outside'])}" for row in outside)
    far = [row for row in rows if row["interval_run"] is not None and not row["tested"]]
    for row in far[:1]:
        where, level = f"{len(far)} runs" if len(far) != 1 else _at(row, inputs), percent(row["interval_run"]["level"])
        tested = f"farther outside than these intervals were tested on published studies ({TESTED})"
        yield f"{UNTESTED} {where}: {tested}. No {level} is claimed."
    for row in rows:
        if not row.get("identified", True):
            yield f"{_at(row, inputs)} is not identified by {document['law']} of {tried(document)}."


def distance(decades: Mapping[str, float]) -> str:
    """`0.48 decades above the largest N`: how far a run lies outside the points."""
    sides = {name: "above the largest" if far > 0 else "below the smallest" for name, far in decades.items()}
    sizes = {name: f"{abs(far):.2g}" for name, far in decades.items()}
    parts = (f"{sizes[name]} decade{'' if sizes[name] == '1' else 's'} {sides[name]} {name}" for name in decades)
    return ", ".join(parts)


def _at(row: Row, inputs: Sequence[str]) -> str:
    return " ".join(f"{name}={short(row[name])}" for name in inputs)


def four_decimals(value: float | None) -> str:
    """Four decimals; a value that no law of a loss should predict is a power of ten."""
    return NOT_FINITE if value is None else f"{value:.4f}" if abs(value) < 1e5 else f"{value:.4g}"


def low_to_high(interval: Row | None, form: Callable[[float], str] = four_decimals) -> str:
    """`2.1 to 2.3`; an end that is open is said to be."""
    both = () if interval is None else (interval["low"], interval["high"])
    return " to ".join("open" if end is None else form(end) for end in both)
