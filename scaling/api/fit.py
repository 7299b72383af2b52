"""Fit a scaling law to a table of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from scaling.api.fit_options import AUTO, DEFAULTS, check, law_of
from scaling.api.fit_result import Fit, columns_of_a_row, overflows_ignored
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.law.forms import Form
    from scaling.law.forms.formula import Written
    from scaling.law.points import Points
    from scaling.picture import Picture

Row = Mapping[str, float]


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
    over: float | None = None,
    intervals: str | None = None,
    level: float | None = None,
    cluster: str | None = None,
    share: str | None = None,
    noise: float | None = None,
    starts: int | None = None,
    seed: int | None = None,
) -> Fit:
    """Fit a law to runs: a DataFrame, records, columns, or the path of a table, a study, a sweep or a ledger.

    `law` is a law by name (`scaling.explain("law")`), a formula (`"E + A*N^-a"`), a YAML file, two laws in two steps
    (`"chinchilla,task_sigmoid"`: the loss, and a task's score given it), `auto` (of the laws whose columns the table
    has, the one that predicts its largest runs best), or an analysis: `isoflop_parabola`, `isoflop_akima`, `envelope`.
    The other arguments are the options of `scaling fit`, `rename` being its `--map`.

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
        "over": over,
        "intervals": intervals,
        "level": level,
        "cluster": cluster,
        "share": share,
        "weight": weight,
        "noise": noise,
        "starts": starts,
        "seed": seed,
    }
    chosen = law_of(law)
    check(law, chosen, given)
    options = {name: DEFAULTS.get(name) if value is None else value for name, value in given.items()}
    with overflows_ignored():
        table = read_points(points, rename=rename or {}, where=where, define=define or {}, pool=pool, best_by=best_by)
        if isinstance(chosen, str) and chosen != AUTO:
            return _approach(table, chosen, noise, options["seed"] or 0)
        return _fit(table, chosen, {**_setup(points, table), **(define or {})}, options)


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


def _fit(points: Points, law: Form | Written | str, stated: Mapping[str, str], options: Mapping[str, Any]) -> Fit:
    from scaling.fit_report.report import FitReport, fit_report, two_step_report
    from scaling.law import Form
    from scaling.law.chance import known_chance, upper_level
    from scaling.law.choice import choose, choose_again, cost_of, cost_weights
    from scaling.law.columns import clustered_by, shared_by
    from scaling.law.held_out import column_held_out, split_held_out
    from scaling.law.objective import named_objective
    from scaling.law.two_step import TwoStep, fit_law
    from scaling.picture.figures import figures_of_law

    fixed, limits = dict(options["fix"] or {}), dict(options["bounds"] or {})
    if isinstance(law, Form):
        fixed = known_chance(law, points) | fixed
        limits = upper_level(law, fixed) | limits
    tested = None
    targets = list(options["target"])
    if not isinstance(law, str):
        form = _constrained(law, points, options["tie"] or {}, limits)
        for target in targets:
            _check_target(form, target)
    if options["hold_out"] in (None, "largest"):
        mask = column_held_out(points)
        points, tested = (points, None) if mask is None else points.hold_out(mask)
    elif options["hold_out"] != "none":
        points, tested = split_held_out(points, options["hold_out"])
    usual = None if options["cluster"] else shared_by(points)
    shared = {None: usual, "none": None}.get(options["share"], options["share"])
    usual = clustered_by(points) if shared is None else None
    clusters = {None: usual, "none": None}.get(options["cluster"], options["cluster"])
    objective, delta, over = (options[name] for name in ("objective", "delta", "over"))
    own = "log_huber" if isinstance(law, str) else form.objective
    asked = (objective, delta, over) != (None, None, None)
    kind = named_objective(objective or own, delta, over) if asked else None
    weights = None if options["weight"] is None else _weights(points, options["weight"])
    choice, refit = None, None
    if isinstance(law, str):
        refit = choose_again(points, objective=kind, seed=options["seed"], clusters=clusters, shared=shared)
        choice = choose(points, objective=kind, seed=options["seed"])
        form, kind = choice.best.form, choice.best.objective
        cost = cost_of(points)
        weights = cost_weights(cost, choice.best.power)
        for target in targets:
            _check_target(form, target)
    law_fit = fit_law(
        form,
        points,
        objective=kind,
        weights=weights,
        clusters=clusters,
        shared=shared,
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
        "cluster_column": clusters or shared,
        "seed": options["seed"],
    }
    of_two = isinstance(law_fit, TwoStep)
    report = two_step_report(law_fit, **choices) if of_two else fit_report(law_fit, **choices)
    if options["hold_out"] == "largest":
        report = report.with_back_test(refit)

    def album() -> dict[str, Picture]:
        test = report.held_out if isinstance(report, FitReport) else None
        return figures_of_law(law_fit, tested, level=options["level"], method=method, tested=test)

    document = report.to_json() | ({} if choice is None else {"choice": choice.to_json()})
    return Fit(document, points, law_fit, method, options["level"], album, refit)


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
    """One row of the law's columns; or C, alone or with `served`, which asks for the run of the lowest loss."""
    budget = "C" in row and set(row) <= {"C", "served"}
    if not (budget and set(form.inputs) == {"N", "D"} and form.target == "loss"):
        columns_of_a_row(form, row)
    _check_positive(row)


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
