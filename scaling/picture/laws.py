"""Pictures of a fitted law: along one axis, over the plane of size and data, its residuals, and what it predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from scaling.errors import ScalingError, plural
from scaling.law.fit import Fit
from scaling.law.forms import Form
from scaling.law.points import Points
from scaling.law.predictions import Prediction, titles
from scaling.law.sensitivity import DELTAS
from scaling.law.sensitivity import sensitivity as sensitivity_of
from scaling.picture.elements import Axis, Band, Contours, Line, Marks, Panel
from scaling.picture.labels import caption, label, levels, short
from scaling.picture.palette import BLACK, GREY, KINDS, ordered
from scaling.picture.picture import Picture

SAMPLES = 121
BAND_STEP = 15
"""A band's width is smooth in logarithms and expensive: it is computed at every fifteenth sample and interpolated."""
MARGIN = 1.25
"""Axes reach a quarter beyond the points."""

SHADES: Mapping[str, Literal["dark", "light"]] = {"mean": "dark", "run": "light"}

TRIMMINGS = 5
LEAST_SQUARES = 0.1
"""Where on the axis of δ least squares are drawn, whose δ is infinite."""

PANELS = 3
"""Panels of the values of a third column that most runs share."""

Predict = Callable[[Mapping[str, np.ndarray]], Sequence[Prediction]]
"""Columns of n rows to the predictions there, with their two intervals."""


def loss_against(fit: Fit, axis: str, *, predict: Predict | None = None, held_out: Points | None = None) -> Picture:
    """The points and the law along `axis`: a curve at each of a few levels of a second column, a panel of a third."""
    form, points = fit.form, fit.points
    compute = axis == "C" and "C" not in form.inputs and {"N", "D"} <= set(form.inputs)
    if axis not in form.inputs and not compute:
        raise ScalingError(f"{form.name} has no axis {axis!r}", fix=f"choose from {', '.join(form.inputs)}")
    others = [name for name in form.inputs if name != axis and not (compute and name == "D")]
    sentences = [f"{form.formula}, fitted by {fit.problem.objective.name}."]
    if compute:
        sentences.append("C = 6ND.")
    if predict is not None:
        mean, run = titles(_level(predict(_first(form, points))))
        sentences.append(f"Dark bands: {mean}; light bands: {run}.")
    tables = [points] if held_out is None else [points, held_out]
    if len(others) < 2:
        panels = [_panel(fit, tables, axis, others, {}, predict)]
    else:
        third = others[1]
        values, counts = np.unique(points[third], return_counts=True)
        chosen = np.sort(values[np.argsort(-counts, kind="stable")[:PANELS]])
        panels, left = [], len(points)
        for value in chosen:
            subset = [table.where(table[third] == value) for table in tables]
            panels.append(_panel(fit, subset, axis, others[:1], {third: float(value)}, predict))
            left -= len(subset[0])
        sentences.append(f"{plural(left, 'point')} at other {third} {'is' if left == 1 else 'are'} not drawn.")
    return Picture(tuple(panels), caption(points, form.inputs, *sentences), f"{form.target} against {axis}")


def _panel(
    fit: Fit,
    tables: list[Points],
    axis: str,
    others: list[str],
    fixed: Mapping[str, float],
    predict: Predict | None,
) -> Panel:
    form = fit.form
    along = np.concatenate([_on_axis(form, table, axis) for table in tables])
    losses = np.concatenate([table[form.target] for table in tables])
    low, high = _reach(along)
    is_size, is_positive = bool(along.min() > 0), bool(losses.min() > 0)
    x = np.geomspace(low, high, SAMPLES) if is_size else np.linspace(low, high, SAMPLES)
    parts: list[Band | Line | Marks] = []
    paints: list[str | tuple[str, ...]] = [BLACK] * len(tables)
    if others:
        other = others[0]
        every = np.concatenate([table[other] for table in tables])
        steps = levels(every)
        colours = ordered(np.concatenate([steps, every]))
        scale = dict(zip([*steps, *every], colours, strict=True))
        for step in steps:
            inputs = {**fixed, other: step, **({"D": x / (6 * step)} if axis not in form.inputs else {axis: x})}
            parts += _curve(fit, x, inputs, scale[step], f"{other} = {short(step)}", predict)
        paints = [tuple(scale[value] for value in table[other]) for table in tables]
    else:
        parts += _curve(fit, x, {axis: x}, BLACK, "law", predict)
    for table, paint, hollow in zip(tables, paints, (False, True)):
        name = ("held out" if hollow else "fitted") if len(tables) > 1 else ""
        x = _on_axis(form, table, axis)
        parts.append(Marks(x, table[form.target], paint, name, hollow=hollow, names=_names(table)))
    title = ", ".join(f"{name} = {short(value)}" for name, value in fixed.items())
    # The points set the height, so that a law far from them does not.
    room = 0.06 * float(np.ptp(losses)) or 0.06
    height = (float(losses.min()) / 1.06, float(losses.max()) * 1.06) if is_positive else _around(losses, room)
    return Panel(Axis(label(axis), is_size), Axis(label(form.target), is_positive, height), tuple(parts), title)


def _reach(values: np.ndarray) -> tuple[float, float]:
    """The ends of an axis: a quarter beyond the points, of a proportion that may be 0 a tenth of their range."""
    if values.min() > 0:
        return float(values.min()) / MARGIN, float(values.max()) * MARGIN
    return _around(values, 0.1 * float(np.ptp(values)) or 0.1)


def _around(values: np.ndarray, room: float) -> tuple[float, float]:
    return float(values.min()) - room, float(values.max()) + room


def _curve(
    fit: Fit, x: np.ndarray, inputs: Mapping[str, np.ndarray], colour: str, name: str, predict: Predict | None
) -> list[Band | Line]:
    """The law along x, over its band where there is one."""
    columns = {key: np.broadcast_to(np.asarray(value, float), x.shape) for key, value in inputs.items()}
    y = fit.predict(**columns)
    line = Line(x, y, colour, name)
    if predict is None:
        return [line]
    knots = slice(None, None, BAND_STEP)
    place = np.log(x) if x.min() > 0 else x
    predictions = predict({key: column[knots] for key, column in columns.items()})

    def band(of: Literal["mean", "run"]) -> Band:
        ends = (
            np.array([getattr(getattr(prediction, of), end) for prediction in predictions]) for end in ("low", "high")
        )
        low, high = (_between(place, y, knots, end) for end in ends)
        return Band(x, low, high, colour, shade=SHADES[of])

    return [band("run"), band("mean"), line]


def _between(place: np.ndarray, y: np.ndarray, knots: slice, ends: np.ndarray) -> np.ndarray:
    """An end of the law's interval at every place, of those at the knots; in logarithms where the law is positive."""
    if y.min() <= 0:
        return y + np.interp(place, place[knots], ends - y[knots])
    return y * np.exp(np.interp(place, place[knots], np.log(_positive(ends) / y[knots])))


def _positive(ends: np.ndarray) -> np.ndarray:
    """An interval that begins at zero has no place on a logarithmic axis: it is drawn to its bottom."""
    return np.maximum(ends, np.finfo(float).tiny)


def _level(predictions: Sequence[Prediction]) -> float:
    (run,) = {prediction.run.level for prediction in predictions if prediction.run is not None}
    return run


def _first(form: Form, points: Points) -> dict[str, np.ndarray]:
    return {name: points[name][:1] for name in form.inputs}


def contours(fit: Fit, *, frontier: tuple[np.ndarray, np.ndarray] | None = None) -> Picture:
    """Lines of equal loss over N and D, the runs, and the compute-optimal frontier (its N and D) where it is given."""
    form, points = fit.form, fit.points
    if set(form.inputs) != {"N", "D"}:
        raise ScalingError(f"{form.name} is no law of N and D alone", fix="draw its loss along one axis")
    size, data = ((points[name].min() / 2, points[name].max() * 2) for name in ("N", "D"))
    x, y = np.geomspace(*size, SAMPLES), np.geomspace(*data, SAMPLES)
    z = fit.predict(N=x[None, :], D=y[:, None])
    heights = np.linspace(z.min(), z.max(), 14)[1:-1]
    nothing = np.empty(0), np.empty(0)
    covered = tuple(np.concatenate([points[name], ends]) for name, ends in zip("ND", frontier or nothing))
    parts: list[Contours | Line | Marks] = [Contours(x, y, z, heights, covered)]  # type: ignore[arg-type]
    parts.append(Marks(points["N"], points["D"], BLACK, "runs", names=_names(points)))
    if frontier is not None:
        within = (
            (frontier[0] >= size[0]) & (frontier[0] <= size[1]) & (frontier[1] >= data[0]) & (frontier[1] <= data[1])
        )
        parts.append(Line(frontier[0][within], frontier[1][within], KINDS[1], "compute-optimal", "dashed", 2.0))
    panel = Panel(Axis(label("N"), True, size), Axis(label("D"), True, data), tuple(parts))
    sentence = f"Lines of equal {form.target} of {form.formula}."
    return Picture((panel,), caption(points, form.inputs, sentence), f"{form.target} over N and D")


def residuals(fit: Fit) -> Picture:
    """How far each point lies from the law, in percent of its loss or in its own unit, along each of its columns."""
    form, points = fit.form, fit.points
    predicted = fit.predict(**{name: points[name] for name in form.inputs})
    off, unit = _errors(points[form.target], predicted, points[form.target], "observed", "predicted")
    spread = float(np.sqrt(np.mean(off**2)))
    panels = []
    for place, name in enumerate(form.axes):
        ends = np.array(_reach(points[name]))
        flat = np.full(2, spread)
        panels.append(
            Panel(
                Axis(label(name), log=bool(points[name].min() > 0)),
                Axis(unit),
                (
                    Band(ends, -flat, flat, GREY, "" if place else "root mean square"),
                    Line(ends, np.zeros(2), BLACK),
                    Marks(points[name], off, KINDS[0], names=_names(points)),
                ),
            )
        )
    size = f"{spread:.2g}%" if unit.endswith("(%)") else f"{spread:.2g}"
    sentence = f"Residuals of {form.formula}; root mean square {size}."
    return Picture(tuple(panels), caption(points, form.axes, sentence), "residuals")


def _errors(
    first: np.ndarray, second: np.ndarray, observed: np.ndarray, name: str, other: str
) -> tuple[np.ndarray, str]:
    """The first over the second in percent, and its axis; the difference where a score is 0 or a loss negative."""
    if observed.min() > 0:
        return 100 * (first / second - 1), f"{name} over {other} - 1 (%)"
    return first - second, f"{name} - {other}"


def sensitivity(fit: Fit) -> Picture:
    """How far the floor moves with the penalty's δ, and without each point."""
    found, points = sensitivity_of(fit), fit.points
    ends = np.array([min(DELTAS) / MARGIN, LEAST_SQUARES * MARGIN])
    interval, parts = fit.bounds.get(found.parameter), list[Marks | Line | Band]()
    closed = interval is not None and not (interval.open_below or interval.open_above)
    chosen = fit.form.parameters[fit.form.parameter_names.index(found.parameter)]
    if interval is not None and closed and chosen.scale == "linear":
        low, high = (np.full(2, end) for end in (interval.low, interval.high))
        parts.append(Band(ends, low, high, GREY, "95% interval"))
    deltas = np.minimum(DELTAS, LEAST_SQUARES)
    parts += [
        Line(ends, np.full(2, found.estimate), BLACK),
        Marks(deltas, found.by_delta, KINDS[0]),
    ]
    axis = "C" if "C" in points.columns else fit.form.axes[0]
    reach = np.array(_reach(points[axis]))
    name = found.parameter
    panels = (
        Panel(
            Axis("δ of Huber's penalty, of log loss (the last: least squares)", log=True),
            Axis(f"{name} ({chosen.unit})"),
            tuple(parts),
        ),
        Panel(
            Axis(label(axis), log=bool(points[axis].min() > 0)),
            Axis(f"{name} without the point ({chosen.unit})"),
            (
                Line(reach, np.full(2, found.estimate)),
                Marks(points[axis], found.without, KINDS[0], names=_names(points)),
            ),
        ),
    )
    most = np.abs(found.without - found.estimate)
    most = most[np.isfinite(most)].max(initial=0.0)
    sentence = f"{name} under other penalties, and without each point, of which one moves it by {most:.2g}."
    return Picture(panels, caption(points, fit.form.axes, sentence), f"sensitivity of {name}")


def joint_region(fit: Fit, draws: Mapping[str, np.ndarray], x: str = "alpha", y: str = "beta") -> Picture:
    """Two parameters over bootstrap draws, with the ellipses that hold half and 95% of them."""
    points, cloud = fit.points, np.stack([draws[x], draws[y]])
    centre = np.median(cloud, axis=1, keepdims=True)
    inner = np.ones(cloud.shape[1], bool)
    for _ in range(TRIMMINGS):  # the shape is that of the inner nine tenths, so that a few wild draws do not bend it
        variances, directions = np.linalg.eigh(np.cov(cloud[:, inner]))
        # Draws may lie on a line, as where a parameter is at its bound in all of them.
        root = directions * np.sqrt(np.maximum(variances, 1e-12 * variances.max() + np.finfo(float).tiny))
        radius = np.linalg.norm(np.linalg.solve(root, cloud - centre), axis=0)
        inner = radius <= np.quantile(radius, 0.9)
    turn = np.linspace(0, 2 * np.pi, 200)
    parts: list[Marks | Line] = [Marks(cloud[0], cloud[1], GREY, f"{cloud.shape[1]} draws", "dot")]
    for share, dash in ((0.5, "dashed"), (0.95, "solid")):
        ring = centre + np.quantile(radius, share) * root @ np.stack([np.cos(turn), np.sin(turn)])
        parts.append(Line(ring[0], ring[1], KINDS[0], f"{share:.0%}", dash))  # type: ignore[arg-type]
    best = fit.estimates
    parts.append(Marks(np.array([best[x]]), np.array([best[y]]), KINDS[1], "estimate", "diamond"))
    sentence = f"{x} and {y} of {fit.form.formula}."
    panel = Panel(Axis(x), Axis(y), tuple(parts))
    return Picture((panel,), caption(points, fit.form.inputs, sentence), f"joint region of {x} and {y}")


def extrapolation(fit: Fit, held_out: Points, *, predict: Predict | None = None, axis: str = "C") -> Picture:
    """The held-out runs and what the law, fitted to the others, predicts for them."""
    form, points = fit.form, fit.points
    columns = {name: held_out[name] for name in form.inputs}
    predicted = fit.predict(**columns)
    predictions = [] if predict is None else predict(columns)
    runs = [prediction.run for prediction in predictions if prediction.run is not None]
    low, high = (np.array([getattr(run, end) for run in runs]) if runs else None for end in ("low", "high"))
    seen, ahead = _column(points, axis), _column(held_out, axis)
    observed = held_out[form.target]
    off, unit = _errors(predicted, observed, observed, "predicted", "observed")
    in_percent = unit.endswith("(%)")
    bars = ()
    if low is not None and high is not None:
        bars = tuple(off + (100 * (end / predicted - 1) if in_percent else end - predicted) for end in (low, high))
    ends = np.array(_reach(ahead))
    is_size = bool(min(seen.min(), ahead.min()) > 0)
    losses = Panel(
        Axis(label(axis), log=is_size),
        Axis(label(form.target), log=bool(min(points[form.target].min(), observed.min(), predicted.min()) > 0)),
        (
            Marks(seen, points[form.target], GREY, "fitted", names=_names(points)),
            Marks(ahead, observed, BLACK, "held out", hollow=True, names=_names(held_out)),
            Marks(ahead, predicted, KINDS[1], "predicted", "cross", low=low, high=high),
        ),
    )
    errors = Panel(
        Axis(label(axis), log=is_size),
        Axis(unit),
        (
            Line(ends, np.zeros(2), BLACK),
            Marks(
                ahead,
                off,
                KINDS[1],
                symbol="cross",
                low=bars[0] if bars else None,
                high=bars[1] if bars else None,
                names=_names(held_out),
            ),
        ),
    )
    largest = f"{np.abs(off).max():.2f}%" if in_percent else f"{np.abs(off).max():.2g}"
    sentences = [f"{form.formula}; {plural(len(held_out), 'run')} held out, largest error {largest}."]
    if runs:
        sentences.append(f"Bars: {titles(_level(predictions))[1]}.")
    return Picture((losses, errors), caption(points, form.inputs, *sentences), "extrapolation")


def _column(points: Points, axis: str) -> np.ndarray:
    """A column, or the compute that N and D cost."""
    if axis == "C" and "C" not in points:
        return 6 * points["N"] * points["D"]
    return points[axis]


def _on_axis(form: Form, points: Points, axis: str) -> np.ndarray:
    """A column of the law; with curves at C = 6ND the points are drawn at 6ND, however their own C was counted."""
    return points[axis] if axis in form.inputs else 6 * points["N"] * points["D"]


def _names(points: Points) -> tuple[str, ...]:
    return tuple(map(str, points["run"])) if "run" in points else ()
