"""Fit a scaling law to a table of runs."""

from __future__ import annotations

import functools
import html
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.errors import ScalingError, nearest

if TYPE_CHECKING:
    import pandas

    from scaling.law.fit import Fit as FittedLaw
    from scaling.law.forms import Form
    from scaling.law.forms.formula import Written
    from scaling.law.interval import Interval
    from scaling.law.points import Points
    from scaling.law.predictions import Prediction
    from scaling.law.two_step import TwoStep
    from scaling.picture import Picture

    Album = Callable[[], dict[str, Picture]]

OBJECTIVES = ("log_huber", "log_squared", "squared", "huber", "log_absolute", "absolute")
TWO_STEP = "two_step"
TWO_STEPS = "chinchilla,task_sigmoid"
"""The steps of `two_step`."""
METHODS = ("profile", "t", "bootstrap_case", "bootstrap_run", "bootstrap_residual", "none")
APPROACHES = {
    "isoflop_parabola": "Chinchilla's approach 2, minima by parabola",
    "isoflop_akima": "Chinchilla's approach 2, minima by Akima's interpolation",
    "envelope": "Chinchilla's approach 1, the envelope of training curves",
}
FORMATS = (".pdf", ".svg", ".png", ".html")
MOST_STARTS = 100_000

DEFAULTS: Mapping[str, Any] = {
    "intervals": "profile",
    "level": 0.95,
    "starts": 1024,
    "seed": 0,
}
FITTING = (
    "hold_out",
    "target",
    "fix",
    "tie",
    "bounds",
    "objective",
    "delta",
    "intervals",
    "level",
    "cluster",
    "weight",
)
USED_BY = {
    **dict.fromkeys((*FITTING, "starts"), ("law",)),
    "noise": ("isoflop",),
    "seed": ("law", "isoflop"),
}
"""Which kinds of law can use an option; an option that is not listed concerns the table, or every kind."""

Row = Mapping[str, float]


class PredictedLoss(float):
    """A predicted loss: a float, with the interval of the law's mean and that of a new run's loss."""

    prediction: Prediction

    def __new__(cls, prediction: Prediction) -> PredictedLoss:
        self = super().__new__(cls, prediction.estimate)
        self.prediction = prediction
        return self

    @property
    def interval_mean(self) -> Interval | None:
        return self.prediction.mean

    @property
    def interval_run(self) -> Interval | None:
        """The interval to compare a run's loss with."""
        return self.prediction.run

    def __repr__(self) -> str:
        new = self.interval_run
        return f"{float(self):.4f}" + (
            "" if new is None else f" ({100 * new.level:g}% {new.low:.4f} to {new.high:.4f})"
        )


@dataclass(frozen=True, repr=False)
class Fit:
    """A fitted law, or the growth of the optimal size and data that an IsoFLOP or envelope analysis finds.

    Printed, it is what `scaling fit` prints; a notebook shows the same as tables. `law` is None for an analysis
    without a law of the loss.
    """

    document: Mapping[str, Any]
    points: Points
    law: FittedLaw | TwoStep | None = None
    method: str | None = None
    level: float = 0.95
    album: Album = field(default=dict)

    @property
    def estimates(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(self.document["estimates"])

    @property
    def intervals(self) -> dict[str, Interval]:
        """The parameters' intervals; an open end is infinite."""
        from scaling.law.interval import Interval

        return {name: Interval.from_json(name, interval) for name, interval in self.document["intervals"].items()}

    @property
    def doubts(self) -> list[str]:
        """What speaks against believing the fit, in sentences; empty where nothing was seen."""
        return [*self.document.get("not_identified", ()), *self.document.get("unreliable", ())]

    @property
    def held_out(self) -> pandas.DataFrame:
        """The held-out runs, each with its prediction."""
        return _frame((self.document.get("held_out") or {}).get("points", ()))

    @functools.cached_property
    def back_test(self) -> pandas.DataFrame:
        """The largest of the fitted runs by each axis, predicted by fits to the smaller ones."""
        from scaling.law.back_test import back_test

        tests = self.document.get("back_test")
        if not tests and self.law is not None:
            with _overflows_ignored():
                tests = [test.to_json() for test in back_test(self.law, self.level)]
        return _frame(tests or ())

    @property
    def minima(self) -> pandas.DataFrame:
        """The minimum of each budget of an IsoFLOP analysis, or why it has none (`refused`)."""
        return _frame(self.document.get("minima", ()))

    @property
    def checklist(self) -> pandas.DataFrame:
        """The questions that a referee asks of a scaling law, each with its answer, or None where it has none."""
        return _frame((self.document.get("checklist") or {}).get("answers", ()))

    @property
    def predictions(self) -> pandas.DataFrame:
        """What the law predicts for the targets."""
        return _frame(self.document.get("predictions", ()))

    def predict(self, **columns: Any) -> Any:
        """The loss (or score) at one row of the law's columns as a `PredictedLoss`; for arrays of them a DataFrame.

        fit.predict(N=7e9, D=1.4e11).interval_run

        A law of a score takes `examples` too, the number of examples that the new score will be the mean of.
        """
        import numpy as np

        from scaling.law.predictions import predict_runs

        law = self._needs_law("predict")
        names = _columns_of_a_row(law.form, columns)
        rows = np.broadcast_arrays(*(np.asarray(columns[name], float) for name in names))
        table = [dict(zip(names, map(float, row), strict=True)) for row in zip(*(one.ravel() for one in rows))]
        with _overflows_ignored():
            predicted = predict_runs(law, table, self.level, self.method, seed=law.seed)  # type: ignore[arg-type]
        if not rows[0].ndim:
            return PredictedLoss(predicted[0])
        target = law.form.target
        return _frame([{**one.row, target: one.estimate, **one.to_json()} for one in predicted])

    def optimum(self, C: float) -> dict[str, float]:
        """The size N and the data D that make the best of C FLOPs, and the loss there."""
        estimates = self.estimates
        if self.law is None:
            size, data = (
                estimates[f"{name}_coefficient"] * C ** estimates[key] for name, key in (("N", "a"), ("D", "b"))
            )
            return {"N": size, "D": data}
        from scaling.law.frontier import FLOPS, optimal_size
        from scaling.law.two_step import TwoStep

        law = self.law.loss if isinstance(self.law, TwoStep) else self.law
        size = float(optimal_size(law.form, C).of(law.form, law.theta))
        data = C / (FLOPS * size)
        return {"N": size, "D": data, "loss": float(law.predict(N=size, D=data))}

    @functools.cached_property
    def pictures(self) -> dict[str, Picture]:
        """All pictures of the fit by name; notebooks show them, and `save` draws them to files."""
        with _overflows_ignored():
            return self.album()

    def plot(self, name: str | None = None) -> Picture:
        """One picture: the loss against compute, or the first there is; `pictures` has them all."""
        if name is None:
            name = next((one for one in self.pictures if one.endswith("_against_C")), next(iter(self.pictures)))
        if name not in self.pictures:
            raise ScalingError(f"there is no picture {name!r}", fix=nearest(name, self.pictures))
        return self.pictures[name]

    def save(self, folder: str | Path) -> list[Path]:
        """Draw all pictures into a folder, each as PDF, SVG, PNG and interactive HTML."""
        from scaling.picture import save

        files = {name: [Path(folder) / (name + suffix) for suffix in FORMATS] for name in self.pictures}
        return [path for name, picture in self.pictures.items() for path in save(picture, *files[name])]

    def to_json(self) -> dict[str, Any]:
        """The document of `scaling fit --json` (docs/json.md)."""
        return dict(self.document)

    def to_markdown(self) -> str:
        from scaling.fit_report.formats import markdown

        return markdown(self.document)

    def to_latex(self) -> str:
        from scaling.fit_report.formats import latex

        return latex(self.document)

    def _repr_html_(self) -> str:
        from scaling.fit_report.tables import diagnostics, heading, tables

        lines = [f"<p>{html.escape(line)}</p>" for line in heading(self.document)]
        for table in tables(self.document):
            head = "".join(f"<th>{html.escape(title)}</th>" for title in table.titles)
            rows = ("".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in table.rows)
            body = "".join(f"<tr>{row}</tr>" for row in rows)
            caption = f"<caption>{html.escape(table.caption)}</caption>"
            lines.append(f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>")
            lines += [f"<p>{html.escape(note)}</p>" for note in table.notes]
        return "\n".join([*lines, *(f"<p>{html.escape(line)}</p>" for line, _ in diagnostics(self.document))])

    def __str__(self) -> str:
        import io

        from rich.console import Console

        from scaling.fit_report.terminal import show

        console = Console(file=io.StringIO(), highlight=False, soft_wrap=True, width=120)
        show(self.document, console)
        return console.file.getvalue().rstrip()  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        estimates = ", ".join(f"{name} {value:.4g}" for name, value in self.estimates.items())
        return f"Fit({self.document['law']}, {len(self.points)} runs: {estimates})"

    def _needs_law(self, verb: str) -> FittedLaw | TwoStep:
        if self.law is None:
            raise ScalingError(
                f"{self.document['law']} has no law of the loss to {verb} with", fix="fit a law such as chinchilla"
            )
        return self.law


def fit(
    points: Any,
    law: str = "chinchilla",
    *,
    rename: Mapping[str, str] | None = None,
    where: Sequence[str] = (),
    define: Mapping[str, str] | None = None,
    pool: Sequence[str] = (),
    best_by: Sequence[str] = (),
    fix: Mapping[str, float] | None = None,
    tie: Mapping[str, str] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    weight: str | None = None,
    hold_out: str | None = None,
    targets: Sequence[Row] = (),
    objective: str | None = None,
    delta: float | None = None,
    intervals: str | None = None,
    level: float | None = None,
    cluster: str | None = None,
    noise: float | None = None,
    starts: int | None = None,
    seed: int | None = None,
) -> Fit:
    """Fit a law to runs: a DataFrame, records, columns, or the path of a table, a study, a sweep or a ledger.

    `law` is a law by name (`scaling.explain("law")`), a formula (`"E + A*N^-a"`), a YAML file, two laws in two steps
    (`"chinchilla,task_sigmoid"`: the loss, and a task's score given it), or an analysis: `isoflop_parabola`,
    `isoflop_akima`, `envelope`. The other arguments are the options of `scaling fit`, `rename`
    being its `--map`.

        fit = scaling.fit(df, law="chinchilla", hold_out="N>=1e9", targets=[{"N": 7e9, "D": 1.4e11}])
    """
    given = {
        "hold_out": hold_out,
        "target": targets,
        "fix": fix,
        "tie": tie,
        "bounds": bounds,
        "objective": objective,
        "delta": delta,
        "intervals": intervals,
        "level": level,
        "cluster": cluster,
        "weight": weight,
        "noise": noise,
        "starts": starts,
        "seed": seed,
    }
    chosen = law_of(law)
    check(law, chosen, given)
    options = {name: DEFAULTS.get(name) if value is None else value for name, value in given.items()}
    with _overflows_ignored():
        table = read_points(points, rename=rename or {}, where=where, define=define or {}, pool=pool, best_by=best_by)
        if isinstance(chosen, str):
            return _approach(table, chosen, noise, options["seed"] or 0)
        return _fit(table, chosen, {**_setup(points, table), **(define or {})}, options)


def _overflows_ignored() -> AbstractContextManager[None]:
    """An overflow on the way to a fit is handled by the solver; its reader has nothing to do about it."""
    import numpy as np

    return np.errstate(all="ignore")


def law_of(text: str) -> Form | Written | str:
    """A law of the papers, one that a person wrote, or the name of an approach."""
    from scaling.law.forms import Form, laws
    from scaling.law.forms.formula import Written, is_formula, read_law

    if text in APPROACHES:
        return text
    if text == TWO_STEP:
        return law_of(TWO_STEPS)
    if re.fullmatch(r"\s*\w+\s*,\s*\w+\s*", text):
        from scaling.law.forms.composed import Composed

        loss, task = (law_of(name.strip()) for name in text.split(","))
        if not isinstance(loss, Form) or not isinstance(task, Form):
            raise ScalingError("are no two laws", key="law", value=text, fix=f"write {TWO_STEPS}")
        return Composed(loss, task)
    if text.endswith((".yaml", ".yml")):
        return read_law(text)
    if is_formula(text):
        return Written(text)
    by_name = laws()
    if text not in by_name:
        raise ScalingError("is no law", key="law", value=text, fix=nearest(text, [*by_name, TWO_STEP, *APPROACHES]))
    return by_name[text]


def check(name: str, law: Form | Written | str, given: Mapping[str, Any]) -> None:
    """Refuse what the law cannot use, and values that no law can, before the table is read."""
    kind = "law" if not isinstance(law, str) else law.partition("_")[0]
    for option, kinds in USED_BY.items():
        if given[option] not in (None, (), [], {}) and kind not in kinds:  # 0 is a seed that was given
            raise ScalingError(
                f"{name} cannot use it",
                key=option.replace("_", "-"),
                value=_spelled(given[option]),
                fix="leave it out",
            )
    objective = given["objective"] or getattr(law, "objective", "log_huber")
    method = given["intervals"] or DEFAULTS["intervals"]
    for option, value, choices in (("objective", objective, OBJECTIVES), ("intervals", method, METHODS)):
        if value not in choices:
            raise ScalingError("is not known", key=option, value=value, fix=nearest(value, choices))
    unused = {
        "delta": objective not in ("log_huber", "huber") and f"the objective {objective} has none",
        "level": method == "none" and "no intervals are asked for",
        "seed": kind == "isoflop" and given["noise"] is None and "nothing is random without --noise",
    }
    for option, reason in unused.items():
        if reason and given[option] is not None:
            raise ScalingError(reason, key=option, value=given[option], fix="leave it out")
    ranges = {
        "starts": (1, MOST_STARTS, f"give 1 to {MOST_STARTS:,}, or leave it out for the default"),
        "seed": (0, 2**63, "give a whole number of 0 or more"),
    }
    for option, (low, high, fix) in ranges.items():
        value = given[option]
        if value is not None and not low <= value <= high:
            what = "must be positive" if low == 1 and value < 1 else f"is not {low} to {high:,}"
            raise ScalingError(what, key=option, value=value, fix=fix)
    for option, fix in (("delta", "the papers use 1e-3"), ("noise", "give the standard deviation between seeds")):
        value = given[option]
        if value is not None and not 0 < value < float("inf"):
            raise ScalingError("must be positive", key=option, value=value, fix=fix)
    if given["level"] is not None and not 0 < given["level"] < 1:
        raise ScalingError("is not between 0 and 1", key="level", value=given["level"], fix="write 0.95 for 95%")
    if method == "bootstrap_run" and given["cluster"] is None:
        raise ScalingError(
            "resamples clusters, and none are named", key="intervals", value=method, fix="add --cluster run"
        )


def _spelled(value: Any) -> Any:
    """An option's value as the command line writes it."""
    if isinstance(value, Mapping):
        return " ".join(f"{name}={one}" for name, one in value.items())
    if isinstance(value, str | int | float):
        return value
    return " ".join(_spelled(one) for one in value)


def read_points(source: Any, **choices: Any) -> Points:
    """Points of whatever holds a table of runs."""
    from scaling.law.columns import from_columns, from_frame, from_rows
    from scaling.law.points import Points
    from scaling.law.read_points import read_points_file, table_of
    from scaling.ledger.points import rows_of

    if isinstance(source, Points):
        if any(choices.values()):
            raise ScalingError("these points are read already", key=next(name for name in choices if choices[name]))
        return source
    if hasattr(source, "columns"):
        return from_frame(source, **choices)
    if isinstance(source, Mapping):
        return from_columns(source, **choices)
    if isinstance(source, Iterable) and not isinstance(source, str):
        return from_rows(source, **choices)
    folder = Path(source)
    rows = rows_of(folder) if folder.is_dir() and not table_of(folder).exists() else None
    if rows is None:
        return read_points_file(folder, **choices)
    if not rows:
        raise ScalingError("is a ledger of no runs", file=folder, fix="train some, or give a table of runs")
    return from_rows(rows, source=str(folder), **choices)


def _setup(source: Any, points: Points) -> dict[str, str]:
    """What the specs of the runs answer of the checklist, where the points lie in a ledger."""
    from scaling.ledger.setup import setup_of_table

    given = isinstance(source, str | Path) and "run" in points
    return setup_of_table(Path(source), map(str, points["run"])) if given else {}


def _fit(points: Points, law: Form | Written, stated: Mapping[str, str], options: Mapping[str, Any]) -> Fit:
    from scaling.fit_report.report import fit_report, two_step_report
    from scaling.law.chance import below_one, known_chance
    from scaling.law.columns import clustered_by
    from scaling.law.held_out import column_held_out, split_held_out
    from scaling.law.objective import named_objective
    from scaling.law.two_step import TwoStep, fit_law
    from scaling.picture.figures import figures_of_law

    form = _constrained(law, points, options["tie"] or {}, options["bounds"] or {})
    fixed = {**known_chance(form, points), **(options["fix"] or {})}
    form = form if options["bounds"] else below_one(form, fixed)
    targets = list(options["target"])
    for target in targets:
        _check_target(form, target)
    tested = None
    if options["hold_out"] in (None, "largest"):
        mask = column_held_out(points)
        points, tested = (points, None) if mask is None else points.hold_out(mask)
    elif options["hold_out"] != "none":
        points, tested = split_held_out(points, options["hold_out"])
    clusters = {None: clustered_by(points), "none": None}.get(options["cluster"], options["cluster"])
    objective, delta = options["objective"], options["delta"]
    law_fit = fit_law(
        form,
        points,
        objective=None if objective is None and delta is None else named_objective(objective or form.objective, delta),
        weights=None if options["weight"] is None else _weights(points, options["weight"]),
        clusters=clusters,
        fixed=fixed,
        starts=options["starts"],
        seed=options["seed"],
    )
    method = None if options["intervals"] == "none" else options["intervals"]
    choices: dict[str, Any] = {
        "method": method,
        "level": options["level"],
        "held_out": tested,
        "targets": targets,
        "stated": stated,
        "cluster_column": clusters,
        "seed": options["seed"],
    }
    of_two = isinstance(law_fit, TwoStep)
    report = two_step_report(law_fit, **choices) if of_two else fit_report(law_fit, **choices)
    if options["hold_out"] == "largest":
        report = report.with_back_test()

    def album() -> dict[str, Picture]:
        return figures_of_law(law_fit, tested, level=options["level"], method=method)

    return Fit(report.to_json(), points, law_fit, method, options["level"], album)


def _constrained(
    law: Form | Written, points: Points, ties: Mapping[str, str], limits: Mapping[str, tuple[float, float]]
) -> Form:
    """The law with ties and bounds; of a formula the columns and parameters are now known."""
    from dataclasses import replace

    from scaling.law.forms.composed import Composed
    from scaling.law.forms.constrained import constrained
    from scaling.law.forms.formula import Written, formula

    if isinstance(law, Written):
        written = replace(law, bounds={**(law.bounds or {}), **limits})
        return constrained(formula(written, points), {**(law.ties or {}), **ties}, {})
    if isinstance(law, Composed):
        return law.constrained(ties, limits)
    return constrained(law, dict(ties), dict(limits))


def _check_target(form: Form, row: Row) -> None:
    """One row of the law's columns; or C alone, which asks for the run of the lowest loss."""
    if not (set(row) == {"C"} and set(form.inputs) == {"N", "D"} and form.target == "loss"):
        _columns_of_a_row(form, row)
    _check_positive(row)


def _columns_of_a_row(form: Form, row: Iterable[str]) -> list[str]:
    """The law's columns, and `examples` where the row has it and the law is of a score."""
    from scaling.law.fit import check_columns
    from scaling.law.points import PROPORTIONS
    from scaling.law.predictions import EXAMPLES

    more = [EXAMPLES] if EXAMPLES in row and form.target in PROPORTIONS else []
    check_columns(form, [name for name in row if name not in more], key="target")
    return [*form.inputs, *more]


def _check_positive(row: Row) -> None:
    from scaling.law.points import POSITIVE

    for name, value in row.items():
        if name in POSITIVE and value <= 0:
            raise ScalingError("must be positive", key=f"target {name}", value=value, fix=f"write {name}=1e9")


def _weights(points: Points, column: str) -> Any:
    weights = points.numbers(column)
    if weights.min() <= 0:
        raise ScalingError(
            "is no weight",
            file=points.source or None,
            key=column,
            value=float(weights.min()),
            fix=f"weights are positive; leave runs out by --where '{column}>0'",
        )
    return weights


def _approach(
    points: Points, law: Literal["isoflop_parabola", "isoflop_akima", "envelope"] | str, noise: float | None, seed: int
) -> Fit:
    from scaling.fit_report.report import EnvelopeReport, MinimaReport
    from scaling.law.envelope import envelope
    from scaling.law.held_out import column_held_out
    from scaling.law.isoflop import isoflop
    from scaling.picture.figures import figures_of_envelope, figures_of_isoflop

    mask = column_held_out(points)
    points = points if mask is None else points.hold_out(mask)[0]
    if law == "envelope":
        closed = envelope(points)
        return Fit(EnvelopeReport(points, closed).to_json(), points, album=lambda: figures_of_envelope(points, closed))
    kind: Any = law.removeprefix("isoflop_")
    size, data = (isoflop(points, along=name, kind=kind, noise=noise, seed=seed) for name in ("N", "D"))
    return Fit(MinimaReport(points, size, data).to_json(), points, album=lambda: figures_of_isoflop(points, size, data))


def _frame(rows: Iterable[Mapping[str, Any]]) -> pandas.DataFrame:
    """Records as a DataFrame, an interval as the two columns of its ends."""
    import pandas

    return pandas.DataFrame([dict(_cells(row)) for row in rows])


def _cells(row: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in row.items():
        if name == "interval":
            continue  # the older name of interval_mean
        if name.startswith("interval_"):
            for end in ("low", "high"):
                yield f"{name.removeprefix('interval_')}_{end}", None if value is None else value[end]
        elif not isinstance(value, Mapping | list):
            yield name, value
        else:
            yield name, json.dumps(value)
