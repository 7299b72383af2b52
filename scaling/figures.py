"""Figures of laws: the law along its columns, its contours, residuals and test; IsoFLOP curves; learning curves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from scaling.errors import plural
from scaling.laws.approaches import Envelope, IsoFlop
from scaling.laws.fit import DELTAS, SENSITIVITY_POINTS, Fit
from scaling.laws.fit import sensitivity as sensitivity_of
from scaling.laws.held_out import HeldOut
from scaling.laws.intervals import Method, bootstrap
from scaling.laws.law import MEANINGS
from scaling.laws.optimum import FLOPS, Budget, optimal_size
from scaling.laws.points import NOT_STATED, Points
from scaling.laws.predict import Prediction, TwoStep, predict_runs, rows_of
from scaling.laws.report import titles
from scaling.picture import BLACK, GREY, KINDS, Axis, Band, Contours, Line, Marks, Panel, Picture, ordered
from scaling.printing import short

UNITS = {"C": "FLOPs", "loss": "nats per token"}
STEPS = ("residuals", "sensitivity", "extrapolation", "joint_region", "learning_curves", "contours")
"""Figures that both steps of a law may have."""
SAMPLES = 41
MARGIN = 1.25  # axes reach a quarter beyond the points
PANELS = 3  # values of further columns, those of most runs
DRAWS = 400  # bootstrap refits behind a joint region
TRIMMINGS = 5
LEAST_SQUARES = 0.1  # where least squares, whose δ is infinite, stands on the axis of δ


def figures_of_law(
    fit: Fit | TwoStep,
    held_out: Points | None = None,
    *,
    level: float = 0.95,
    method: Method | None = "profile",
    tested: HeldOut | None = None,
) -> dict[str, Picture]:
    """Return the figures of a law by name: along each of its columns and along compute, its residuals, and its test.

    The test has the intervals of `method`, as the tables have; curves have those of Student's t. Without a method there
    are none. A joint law is one curve a variant and has the residuals alone. `tested` is the test by that method, where
    it is known: along a flat valley its intervals take longer than all figures.
    """
    if isinstance(fit, TwoStep):
        return {
            f"{step}_{name}" if name in STEPS else name: picture
            for step, law in (("loss", fit.loss), ("task", fit.task))
            for name, picture in figures_of_law(law, held_out, level=level, method=method).items()
        }
    form, points = fit.form, fit.points
    if form.axes != form.inputs:
        return {"residuals": residuals(fit)}
    figures = curves_of_law(fit, held_out, level=level, method=method and "t")
    if set(form.inputs) == {"N", "D"}:
        figures["contours"] = contours(fit)
    figures["residuals"] = residuals(fit)
    bounded = method is not None and fit.degrees_of_freedom > 1
    if bounded and len(points) <= SENSITIVITY_POINTS and form.target == "loss":
        figures["sensitivity"] = sensitivity(fit)
    exponents = [parameter.name for parameter in form.parameters if parameter.unit == "1"]
    free = [name for name in exponents if name not in fit.problem.fixed]
    if len(free) > 1 and fit.degrees_of_freedom > 0:
        resampling = "case" if fit.problem.shared is None else "run"  # runs that share errors are drawn together
        theta = bootstrap(fit.problem, fit.u, resampling, DRAWS, seed=fit.seed)[0]
        figures["joint_region"] = joint_region(
            fit, {name: theta[:, form.parameter_names.index(name)] for name in free[:2]}
        )
    if {"run", "N", "D"} <= set(points.columns) and len(set(points["run"])) < len(points):
        figures["learning_curves"] = learning_curves(points)
    if held_out is not None:
        axis = "C" if {"N", "D"} <= set(form.inputs) else form.inputs[0]
        predictions = (
            tested.predictions
            if tested is not None and method is not None
            else predict_runs(fit, rows_of(held_out, fit), level, method, seed=fit.seed)
        )
        figures["extrapolation"] = extrapolation(fit, held_out, axis, predictions)
    return figures


def curves_of_law(
    fit: Fit, held_out: Points | None = None, *, level: float = 0.95, method: Method | None = "t"
) -> dict[str, Picture]:
    """Return the figures of a law along each of its columns, and along compute, by name."""
    axes = [*fit.form.inputs, *(["C"] if {"N", "D"} <= set(fit.form.inputs) else [])]
    return {f"{fit.form.target}_against_{axis}": loss_against(fit, axis, held_out, level, method) for axis in axes}


def loss_against(
    fit: Fit, axis: str, held_out: Points | None = None, level: float = 0.95, method: Method | None = "t"
) -> Picture:
    """Draw the law along `axis` through the points: a curve a level of a second column, a panel a value of others."""
    form, points = fit.form, fit.points
    along_compute = axis == "C" and "C" not in form.inputs
    others = [name for name in form.inputs if name != axis and not (along_compute and name == "D")]
    sentences = [f"{form.formula}, fitted by {fit.problem.objective.name}."]
    if along_compute:
        sentences.append("C = 6ND.")
    if method is not None and fit.degrees_of_freedom > 0:
        mean, run = titles(level)
        sentences.append(f"Dark bands: {mean}; light bands: {run}.")
    values = Counter(zip(*(points[name].tolist() for name in others[1:]), strict=True))
    panels, drawn = [], 0
    for chosen in sorted(value for value, _ in values.most_common(PANELS)) or [()]:
        fixed = dict(zip(others[1:], chosen, strict=True))
        tables = [_rows_at(table, fixed) for table in (points, held_out) if table is not None]
        panels.append(_panel(fit, axis, others[:1], fixed, tables, level, method))
        drawn += len(tables[0])
    if fixed := others[1:]:
        left = len(points) - drawn
        sentences.append(
            f"{plural(left, 'point')} at other {', '.join(fixed)} {'is' if left == 1 else 'are'} not drawn."
        )
    return Picture(tuple(panels), caption(points, form.inputs, *sentences), f"{form.target} against {axis}")


def _rows_at(points: Points, values: Mapping[str, float]) -> Points:
    return points.where(
        np.all([np.ones(len(points), bool), *(points[name] == values[name] for name in values)], axis=0)
    )


def _panel(
    fit: Fit,
    axis: str,
    second: Sequence[str],
    fixed: Mapping[str, float],
    tables: Sequence[Points],
    level: float,
    method: Method | None,
) -> Panel:
    form = fit.form
    along = [table[axis] if axis in form.inputs else FLOPS * table["N"] * table["D"] for table in tables]
    losses = [table[form.target] for table in tables]
    # The points set the height, so that a law far from them does not.
    x_axis, y_axis = _axis(axis, along), _axis(form.target, losses, 1.06)
    x, (bottom, top) = _samples(x_axis), _span(y_axis)
    curves: list[tuple[str, str, Mapping[str, float]]] = [(BLACK, "law", {})]
    colours: Sequence[str | tuple[str, ...]] = [BLACK] * len(tables)
    for other in second:
        values = np.concatenate([table[other] for table in tables])
        scale = dict(zip(values, ordered(values), strict=True))
        curves = [(scale[value], f"{other} = {short(value)}", {other: value}) for value in levels(values)]
        colours = [tuple(scale[value] for value in table[other]) for table in tables]
    parts: list[Band | Line | Marks] = []
    for colour, name, value in curves:
        columns = {**fixed, **value, **({axis: x} if axis in form.inputs else {"D": x / (FLOPS * value["N"])})}
        columns = {name: np.broadcast_to(column, x.shape) for name, column in columns.items()}
        predictions = predict_runs(fit, rows_of(columns, fit), level, method, seed=fit.seed)
        if predictions[0].run is not None:  # an open end lies beyond the frame
            run, mean = (_bounds(predictions, of).clip(2 * bottom - top, 2 * top - bottom) for of in ("run", "mean"))
            parts.append(Band(x, run[0], run[1], colour, shade="light"))
            parts.append(Band(x, mean[0], mean[1], colour))
        parts.append(Line(x, _estimates(predictions), colour, name))
    for table, place, loss, colour, name in zip(tables, along, losses, colours, ("fitted", "held out")):
        label = name if len(tables) > 1 else ""
        parts.append(Marks(place, loss, colour, label, hollow=name == "held out", names=_names(table)))
    title = ", ".join(f"{name} = {short(value)}" for name, value in fixed.items())
    return Panel(x_axis, y_axis, tuple(parts), title)


def contours(fit: Fit) -> Picture:
    """Draw lines of equal loss over N and D, the runs, and the compute-optimal frontier."""
    form, N, D = fit.form, fit.points["N"], fit.points["D"]
    n, d = _axis("N", [N], 2.0), _axis("D", [D], 2.0)
    x, y = _samples(n), _samples(d)
    z = fit.predict(N=x[None, :], D=y[:, None])
    budgets = FLOPS * np.geomspace(x[0] * y[0], x[-1] * y[-1])
    size = np.array([float(optimal_size(form, Budget(budget)).of(form, fit.theta)) for budget in budgets])
    data = budgets / (FLOPS * size)
    inside = (size >= x[0]) & (size <= x[-1]) & (data >= y[0]) & (data <= y[-1])
    sizes = np.unique(N)
    gap = np.diff(np.log(sizes)).argmax()  # the widest space between runs, where heights cover none
    parts = (
        Contours(x, y, z, np.linspace(z.min(), z.max(), 14)[1:-1], float(np.sqrt(sizes[gap] * sizes[gap + 1]))),
        Marks(N, D, BLACK, "runs", names=_names(fit.points)),
        Line(size[inside], data[inside], KINDS[1], "compute-optimal", "dashed", 2.0),
    )
    text = caption(fit.points, form.inputs, f"Lines of equal {form.target} of {form.formula}.")
    return Picture((Panel(n, d, parts),), text, f"{form.target} over N and D")


def residuals(fit: Fit) -> Picture:
    """Draw the distance of each point from the law, in percent of its loss or in its own unit, along each column."""
    form, points, observed = fit.form, fit.points, fit.points[fit.form.target]
    predicted = fit.predict(**{name: points[name] for name in form.inputs})
    errors, unit = _errors(observed, predicted, observed, "observed", "predicted")
    scatter = float(np.sqrt(np.mean(errors**2)))
    panels = []
    for name in form.axes:
        axis = _axis(name, [points[name]])
        ends, height = np.array(axis.range), np.full(2, scatter)
        band = Band(ends, -height, height, GREY, "" if panels else "root mean square")
        marks = Marks(points[name], errors, KINDS[0], names=_names(points))
        panels.append(Panel(axis, Axis(unit), (band, Line(ends, np.zeros(2)), marks)))
    sentence = f"Residuals of {form.formula}; root mean square {_amount(scatter, unit, 'g')}."
    return Picture(tuple(panels), caption(points, form.axes, sentence), "residuals")


def extrapolation(fit: Fit, held_out: Points, axis: str, predictions: Sequence[Prediction]) -> Picture:
    """Draw the held-out runs and what the law, fitted to the other runs, predicts for them."""
    form, points, observed = fit.form, fit.points, held_out[fit.form.target]
    fitted_x, x = _column_or_compute(points, axis), _column_or_compute(held_out, axis)
    predicted, run = _estimates(predictions), predictions[0].run
    errors, unit = _errors(predicted, observed, observed, "predicted", "observed")
    worst = _amount(np.abs(errors).max(), unit, "f")
    sentence = f"{form.formula}; {plural(len(held_out), 'run')} held out, largest error {worst}."
    (low, high), bars = (None, None), (None, None)
    if run is not None:
        sentence += f" Bars: {titles(run.level)[1]}."
        low, high = _bounds(predictions, "run")
        bars = [_errors(end, observed, observed)[0] for end in (low, high)]
    losses = (
        Marks(fitted_x, points[form.target], GREY, "fitted", names=_names(points)),
        Marks(x, observed, BLACK, "held out", hollow=True, names=_names(held_out)),
        Marks(x, predicted, KINDS[1], "predicted", "cross", low=low, high=high),
    )
    near, whole = _axis(axis, [x]), _axis(axis, [fitted_x, x])
    zero = Line(np.array(near.range), np.zeros(2))
    marks = Marks(x, errors, KINDS[1], symbol="cross", low=bars[0], high=bars[1], names=_names(held_out))
    height = Axis(label(form.target), _is_positive(points[form.target], observed, predicted))
    panels = (Panel(whole, height, losses), Panel(near, Axis(unit), (zero, marks)))
    return Picture(panels, caption(points, form.inputs, sentence), "extrapolation")


def sensitivity(fit: Fit) -> Picture:
    """Draw how far the floor moves with the penalty's δ, and without each point."""
    analysis, points = sensitivity_of(fit), fit.points
    name, interval, estimate = analysis.parameter, fit.bounds.get(analysis.parameter), np.full(2, analysis.estimate)
    parameter = fit.form.parameters[fit.form.parameter_names.index(name)]
    title = "δ of Huber's penalty, of log loss (the last: least squares)"
    penalty = Axis(title, True, (min(DELTAS) / MARGIN, LEAST_SQUARES * MARGIN))
    ends = np.array(penalty.range)
    parts: list[Band | Line | Marks] = [
        Line(ends, estimate),
        Marks(np.minimum(DELTAS, LEAST_SQUARES), analysis.by_delta, KINDS[0]),
    ]
    if interval and parameter.scale == "linear" and not (interval.open_below or interval.open_above):
        parts.insert(0, Band(ends, np.full(2, interval.low), np.full(2, interval.high), GREY, "95% interval"))
    column = "C" if "C" in points else fit.form.axes[0]
    axis, left_out = _axis(column, [points[column]]), Axis(f"{name} without the point ({parameter.unit})")
    marks = Marks(points[column], analysis.without, KINDS[0], names=_names(points))
    panels = (
        Panel(penalty, Axis(f"{name} ({parameter.unit})"), tuple(parts)),
        Panel(axis, left_out, (Line(np.array(axis.range), estimate), marks)),
    )
    largest = np.nanmax(np.abs(analysis.without - analysis.estimate), initial=0.0)
    sentence = f"{name} under other penalties, and without each point, of which one moves it by {largest:.2g}."
    return Picture(panels, caption(points, fit.form.axes, sentence), f"sensitivity of {name}")


def joint_region(fit: Fit, draws: Mapping[str, np.ndarray]) -> Picture:
    """Draw two parameters over bootstrap draws, with the ellipses that hold half and 95% of them."""
    (x, y), cloud = draws, np.stack(list(draws.values()))
    centre, inner = np.median(cloud, axis=1, keepdims=True), np.ones(cloud.shape[1], bool)
    for _ in range(TRIMMINGS):  # the shape is that of the inner nine tenths, so that a few wild draws do not bend it
        variances, directions = np.linalg.eigh(np.cov(cloud[:, inner]))
        # Draws may lie on a line, as where a parameter is at its bound in all of them.
        root = directions * np.sqrt(np.maximum(variances, 1e-12 * variances.max() + np.finfo(float).tiny))
        radius = np.linalg.norm(np.linalg.solve(root, cloud - centre), axis=0)
        inner = radius <= np.quantile(radius, 0.9)
    turn = np.linspace(0, 2 * np.pi, 200)
    circle = root @ np.stack([np.cos(turn), np.sin(turn)])
    half, most = (centre + np.quantile(radius, share) * circle for share in (0.5, 0.95))
    parts = (
        Marks(cloud[0], cloud[1], GREY, f"{cloud.shape[1]} draws", "dot"),
        Line(half[0], half[1], KINDS[0], "50%", "dashed"),
        Line(most[0], most[1], KINDS[0], "95%"),
        Marks(np.array([fit.estimates[x]]), np.array([fit.estimates[y]]), KINDS[1], "estimate", "diamond"),
    )
    text = caption(fit.points, fit.form.inputs, f"{x} and {y} of {fit.form.formula}.")
    return Picture((Panel(Axis(x), Axis(y), parts),), text, f"joint region of {x} and {y}")


def isoflop_valleys(isoflop: IsoFlop, points: Points) -> Picture:
    """Draw the loss along size at each budget with its minimum, and the power law through the minima."""
    budgets = np.array([minimum.C for minimum in isoflop.minima])
    valleys: list[Line | Marks] = []
    for minimum, colour in zip(isoflop.minima, ordered(budgets), strict=True):
        name = short(minimum.C) if minimum.C in levels(budgets, 6) else ""
        valleys.append(Line(minimum.sizes, minimum.losses, colour, width=0.8))
        valleys.append(Marks(minimum.sizes, minimum.losses, colour, name))
    values = [(minimum.C, minimum.position, minimum.loss, minimum.spread) for minimum in isoflop.accepted]
    C, positions, losses, spread = np.array(values).T
    valleys.append(Marks(positions, losses, KINDS[1], "minimum", "star"))
    low, high = isoflop.interval()
    sentences = [f"Minima by {isoflop.kind}; exponent {isoflop.law.exponent:.3f}, 95% {low:.3f} to {high:.3f}."]
    minima = Marks(C, positions, KINDS[1], "minimum", "star")
    if np.isfinite(spread).all():
        minima = replace(minima, low=positions * np.exp(-2 * spread), high=positions * np.exp(2 * spread))
        sentences.append("Bars: two standard deviations of the minimum under seed noise.")
    refused = [minimum.refused for minimum in isoflop.minima if minimum.refused is not None]
    if refused:
        reasons = "; ".join(sorted(set(refused)))
        sentences.append(f"{len(refused)} of {len(isoflop.minima)} budgets have no minimum: {reasons}.")
    budget, size = _axis("C", [C], 2.0), label(isoflop.along)
    x = _samples(budget)
    law = Line(x, np.asarray(isoflop.law(x)), BLACK, f"{isoflop.along}* ∝ C^{isoflop.law.exponent:.3f}")
    panels = (
        Panel(Axis(size, True), Axis(label("loss"), True), tuple(valleys), legend="C (FLOPs)"),
        Panel(budget, Axis(f"optimal {size}", True), (law, minima)),
    )
    return Picture(panels, caption(points, ("N", "D", "C"), *sentences), "IsoFLOP curves")


def learning_curves(points: Points, *, axis: str = "D", envelope: Envelope | None = None) -> Picture:
    """Draw the loss of each run along its training, darker for smaller models, and the envelope where there is one."""
    sizes = dict(zip(points["run"].tolist(), points["N"].tolist(), strict=True))
    colours = dict(zip(points["N"].tolist(), ordered(points["N"]), strict=True))
    named = set(levels(points["N"], 6).tolist())
    parts: list[Line] = []
    for run, size in sorted(sizes.items(), key=lambda item: item[1]):
        rows = np.flatnonzero(points["run"] == run)
        rows = rows[np.argsort(points[axis][rows])]
        name = f"N = {short(size)}" if size in named else ""
        named.discard(size)  # one line of a size is in the legend
        parts.append(Line(points[axis][rows], points["loss"][rows], colours[size], name, width=1.0))
    if envelope is not None:
        parts.append(Line(getattr(envelope, axis), envelope.loss, KINDS[1], "envelope", "dashed", 2.0))
    panel = Panel(Axis(label(axis), True), Axis(label("loss"), True), tuple(parts))
    return Picture((panel,), caption(points, ("N", axis)), "learning curves")


def label(name: str) -> str:
    """Return the label of a column's axis: its name and its unit or meaning."""
    unit = UNITS.get(name) or MEANINGS.get(name)
    return f"{name} ({unit})" if unit else name


def caption(points: Points, names: Iterable[str], *sentences: str) -> str:
    """Return the sentences, each column's stated definition, and the count of runs."""
    stated = {name: points.definition(name) for name in (*names, "loss") if name in points}
    silent = all(points.definition(name) == NOT_STATED for name in names)
    definitions = "; ".join(f"{name}: {text}" for name, text in stated.items())
    source = f"{points.source}: " if points.source else ""
    return " ".join(
        [*sentences, "Definitions not stated." if silent else f"{definitions}.", f"{source}{points.count()}."]
    )


def levels(values: np.ndarray, count: int = 5) -> np.ndarray:
    """Return the distinct values where they are few, else some of them at even ranks."""
    distinct = np.unique(values)
    return distinct[np.unique(np.linspace(0, len(distinct) - 1, count).round().astype(int))]


def _is_positive(*columns: np.ndarray) -> bool:
    return all((column > 0).all() for column in columns)


def _axis(name: str, columns: Sequence[np.ndarray], margin: float = MARGIN) -> Axis:
    """Return the axis of a column, a margin beyond its values: a factor where all are positive, else of their range."""
    values = np.concatenate(columns)
    low, high = float(values.min()), float(values.max())
    if low > 0:
        return Axis(label(name), True, (low / margin, high * margin))
    room = (margin - 1) / 2 * ((high - low) or 1.0)
    return Axis(label(name), False, (low - room, high + room))


def _span(axis: Axis) -> tuple[float, float]:
    assert axis.range is not None
    return axis.range


def _samples(axis: Axis) -> np.ndarray:
    return (np.geomspace if axis.log else np.linspace)(*_span(axis), SAMPLES)


def _column_or_compute(points: Points, axis: str) -> np.ndarray:
    return points[axis] if axis in points else FLOPS * points["N"] * points["D"]


def _names(points: Points) -> tuple[str, ...]:
    return tuple(map(str, points["run"])) if "run" in points else ()


def _estimates(predictions: Sequence[Prediction]) -> np.ndarray:
    return np.array([prediction.estimate for prediction in predictions])


def _bounds(predictions: Sequence[Prediction], name: str) -> np.ndarray:
    """Return the lower and the upper ends of the intervals of the `mean` or of a new `run`."""
    intervals = [getattr(prediction, name) for prediction in predictions]
    return np.array([[interval.low for interval in intervals], [interval.high for interval in intervals]])


def _errors(
    values: np.ndarray, others: np.ndarray, observed: np.ndarray, name: str = "", other: str = ""
) -> tuple[np.ndarray, str]:
    """Return the values over the others in percent, or their difference where a score is 0 or a loss negative."""
    if _is_positive(observed):
        return 100 * (values / others - 1), f"{name} over {other} - 1 (%)"
    return values - others, f"{name} - {other}"


def _amount(value: float, unit: str, digits: str) -> str:
    return f"{value:.2{digits}}%" if unit.endswith("(%)") else f"{value:.2g}"
