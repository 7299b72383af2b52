"""Figures of laws: the law along its columns, its contours, residuals and test; IsoFLOP curves; learning curves.

A figure reads in grey and under colour-blindness. Ordered values run along cividis (Nuñez et al. 2018, arXiv
1712.01662), whose lightness is even; its palest tenth fades on white and is left out. Kinds have colours of Okabe and
Ito, each with a symbol or a dash of its own.
"""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.colors import LogNorm, Normalize, to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from scaling.base.errors import ScalingError, plural
from scaling.base.printing import short
from scaling.laws.approaches import Envelope, IsoFlop
from scaling.laws.fit import FittedLaw
from scaling.laws.held_out import HeldOut, judge
from scaling.laws.intervals import Method
from scaling.laws.law import FLOPS, MEANINGS, Law
from scaling.laws.optimum import Budget, best_run
from scaling.laws.points import Points
from scaling.laws.predict import Prediction, TwoStep, predict_runs
from scaling.laws.report import titles

STEPS = ("residuals", "extrapolation", "learning_curves", "contours")  # figures that both steps of a law may have
MARGIN = 1.25  # axes reach a quarter beyond the points

BLACK, GREY = "#000000", "#767676"
KINDS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# The endings of files, with the metadata that is left out, so that a file repeats byte for byte.
FORMATS: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
STYLE: Any = {
    "font.size": 9,
    "figure.autolayout": False,  # of a `matplotlibrc`; figures here have a layout of their own
    "figure.constrained_layout.use": False,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "pdf.fonttype": 42,  # letters as letters, so that journals and readers can search them
    "svg.fonttype": "none",
}
DARK, LIGHT = 0.18, 0.08  # opacity of bands of the mean and of a new run
FRONT = 3  # in front of the grid; marks, curves and bands lie in the order in which they are drawn
CROSS, STAR = ("X", 44, "white"), ("*", 95, "black")  # marker, area and edge


class Axis(NamedTuple):
    """A quantity and its unit; logarithmic where it spans decades."""

    label: str
    log: bool = True
    range: Any = None  # its ends; without them it reaches around what is drawn

    @classmethod
    def of(cls, name: str, columns: Sequence[np.ndarray], margin: float = MARGIN) -> Axis:
        """Return the axis of a column, a margin beyond its values: a factor where all are positive, else of their
        range.
        """
        values = np.concatenate(columns)
        low, high = float(values.min()), float(values.max())
        room = (margin - 1) / 2 * ((high - low) or 1.0)
        ends = (low / margin, high * margin) if low > 0 else (low - room, high + room)
        return cls(label(name), low > 0, ends)

    @property
    def samples(self) -> np.ndarray:
        """Values along the range."""
        return (np.geomspace if self.log else np.linspace)(*self.range, num=41)


class Picture:
    """A matplotlib figure of panels side by side, over a caption that states the definitions and the count of runs.

    What is drawn later lies in front.
    """

    formats = tuple(FORMATS)

    def __init__(self, title: str, panels: int = 1):
        self.title, self.sentences, self.caption = title, "", ""
        self.runs: dict[PathCollection, Sequence[str]] = {}  # of each group of marks
        with rc_context(STYLE):
            self.figure = Figure(figsize=(4.6 * panels, 3.2), layout="constrained")
            self.panels: Sequence[Axes] = self.figure.subplots(1, panels, squeeze=False)[0]

    def _repr_png_(self) -> bytes:
        """Return the PNG that a notebook shows."""
        file = io.BytesIO()
        self._write([("png", file)], dpi=110)
        return file.getvalue()

    def save(self, *paths: str | Path) -> list[Path]:
        """Draw to files whose suffix chooses the format: .pdf, .svg or .png."""
        files = [Path(path) for path in paths]
        for file in files:
            if file.suffix not in FORMATS:
                fix = "choose .pdf, .svg or .png"
                raise ScalingError("is not a kind of picture", key="suffix", value=file.suffix, file=file, fix=fix)
            file.parent.mkdir(parents=True, exist_ok=True)
        self._write([(file.suffix[1:], file) for file in files], dpi=200)
        return files

    def svg(self, salt: str) -> str:
        """Return an SVG without title and caption, for a page that has its own; `salt` makes its ids distinct.

        The mark of a run is a link to `#run-ID`.
        """
        file = io.StringIO()
        for marks, runs in self.runs.items():
            marks.set_urls([f"#run-{run}" for run in runs])
        self._write([("svg", file)], salt, labelled=False)
        for marks in self.runs:
            marks.set_urls([None])
        return file.getvalue()

    def _write(
        self, files: Iterable[tuple[str, Any]], salt: str = "scaling", labelled: bool = True, **choices: Any
    ) -> None:
        with rc_context({**STYLE, "svg.hashsalt": salt}):
            if not self.figure.texts:
                self.figure.suptitle(self.title, fontsize=10, parse_math=False)
                text = textwrap.fill(self.caption, 78 * len(self.panels))
                style = {"fontsize": 7, "x": 0.01, "ha": "left", "color": "#444444"}
                self.figure.supxlabel(text, parse_math=False, **style)  # a definition may hold dollar signs
                engine: Any = self.figure.get_layout_engine()
                engine.execute(self.figure)  # places everything once, for all formats
                self.figure.set_layout_engine(None)  # an engine, even `none`, has each of them drawn twice
            for text in self.figure.texts:
                text.set_visible(labelled)
            if not labelled:
                choices["bbox_inches"] = self.figure.get_tightbbox().padded(0.1)
            for kind, file in files:
                self.figure.savefig(file, format=kind, metadata=FORMATS[f".{kind}"], **choices)

    def panel(self, place: int, x: Axis, y: Axis, title: str = "") -> Axes:
        """Return a panel with its axes."""
        axes, limits = self.panels[place], {"xlim": x.range, "ylim": y.range}
        axes.set(
            xscale="log" if x.log else "linear",
            yscale="log" if y.log else "linear",
            xlabel=textwrap.fill(x.label, 44),  # the layout cuts off what is longer than its axis
            ylabel=textwrap.fill(y.label, 36),
            title=title,
            **{key: ends for key, ends in limits.items() if ends is not None},
        )
        return axes

    def marks(
        self,
        axes: Axes,
        x: np.ndarray,
        y: np.ndarray,
        colour: str | Sequence[str] = BLACK,
        label: str = "",
        *,
        symbol: tuple[str, float, str] = ("o", 26, "white"),
        hollow: bool = False,
        bars: Any = None,
        runs: Points | None = None,
    ) -> None:
        """Draw points, with `bars` from low to high. Hollow marks took no part in the fit. `runs` has their names."""
        marker, area, edge = symbol
        if bars is not None:
            axes.vlines(x, *bars, colors=colour, linewidth=0.9, zorder=FRONT)
        face: Any = {"facecolors": "white", "edgecolors": colour} if hollow else {"c": colour, "edgecolors": edge}
        face |= {"linewidths": 1.1 if hollow else 0.4, "label": label or None, "zorder": FRONT}
        points = axes.scatter(x, y, area, marker=marker, **face)
        if runs is not None and "run" in runs:
            self.runs[points] = [str(run) for run in runs["run"]]

    def finish(self, points: Points, names: Sequence[str], *sentences: str, legend: str = "") -> Picture:
        """Return the picture with its caption: the sentences, each column's stated definition, and the count of runs;
        with ticks on its logarithmic axes, and legends beside its panels.
        """
        stated = {name: points.definition(name) for name in (*names, "loss") if name in points}
        definitions = "; ".join(f"{name}: {text}" for name, text in stated.items())
        if all(points.definition(name) == "not stated" for name in names):
            definitions = f"Definitions of {', '.join(names)} are not stated"
        source, self.sentences = f"{points.source}: " if points.source else "", " ".join(sentences)
        self.caption = f"{self.sentences} {definitions}. {source}{points.count()}.".strip()
        for axes in self.panels:
            for axis in (axes.xaxis, axes.yaxis):
                if axis.get_scale() != "log":
                    continue
                low, high = axis.get_view_interval()
                if high / low < 100:  # else powers of ten alone
                    subs = (1, 1.5, 2, 3, 5, 7) if high / low < 10 else (1, 2, 5)
                    # Within a factor of 2.5 all of them may lie outside.
                    evenly = MaxNLocator(5, steps=(1, 2, 5, 10))
                    axis.set_major_locator(evenly if high / low < 2.5 else LogLocator(subs=subs, numticks=8))
                    axis.set_major_formatter(lambda value, _: f"{value:g}" if value < 1000 else short(value))
                    axis.set_minor_locator(NullLocator())
                axis.set_minor_formatter("")
            if axes.get_legend_handles_labels()[0]:
                title = legend if axes is self.panels[0] else ""
                place: Any = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
                axes.legend(title=title or None, fontsize=7.5, title_fontsize=7.5, frameon=False, **place)
        return self


def save_pages(pictures: Iterable[Picture], file: Path) -> None:
    """Draw pictures into one PDF, a page each: its letters take longest, and it has them once."""
    from matplotlib.backends.backend_pdf import PdfPages

    with rc_context(STYLE), PdfPages(file, metadata=FORMATS[".pdf"]) as pages:
        for picture in pictures:
            picture._write([("pdf", pages)])


def line(
    axes: Axes, x: Any, y: Any, colour: str = BLACK, label: str = "", dash: Any = "solid", width: float = 1.4
) -> None:
    """Draw a fitted or derived curve."""
    axes.plot(x, y, color=colour, label=label or None, linestyle=dash, linewidth=width, zorder=FRONT)


def band(axes: Axes, x: Any, ends: Any, colour: str, label: str = "", opacity: float = DARK) -> None:
    """Fill an interval around a curve; the caption names it. A light band lies behind a dark one."""
    axes.fill_between(x, *ends, color=colour, alpha=opacity, linewidth=0, label=label or None, zorder=FRONT)


def ordered(values: np.ndarray) -> tuple[str, ...]:
    """Return a colour for each value, from dark to light; along logarithms where all values are positive."""
    norm = (LogNorm if np.min(values) > 0 else Normalize)(np.min(values), np.max(values))
    return tuple(to_hex(colour) for colour in colormaps["cividis"](0.9 * np.asarray(norm(values))))


def figures_of_law(
    fit: FittedLaw | TwoStep, test: HeldOut | None = None, *, level: float = 0.95, method: Method | None = "profile"
) -> dict[str, Picture]:
    """Return the figures of a law by name: along each of its columns and along compute, its residuals, and its test.

    The test has the intervals that the tables have; curves have those of Student's t, and none without a method. A
    joint law is one curve a variant and has the residuals alone.
    """
    if isinstance(fit, TwoStep):
        figures = {}
        for step, law in (("loss", fit.loss), ("task", fit.task)):
            judged = test and judge(law, test.points, level, method)
            for name, picture in figures_of_law(law, judged, level=level, method=method).items():
                figures[f"{step}_{name}" if name in STEPS else name] = picture
        return figures
    form, points, residual = fit.form, fit.points, {"residuals": residuals(fit)}
    if form.axes != form.inputs:
        return residual
    axes = [*form.inputs, *(["C"] if {"N", "D"} <= set(form.inputs) else [])]
    figures = {
        f"{form.target}_against_{axis}": loss_against(fit, axis, test and test.points, level, method and "t")
        for axis in axes
    }
    if set(form.inputs) == {"N", "D"}:
        figures["contours"] = contours(fit)
    figures |= residual
    if "run" in points and len(set(points["run"])) < len(points):
        with suppress(ScalingError):  # a law of other columns needs no N, D or loss
            figures["learning_curves"] = learning_curves(points)
    return figures if test is None else {**figures, "extrapolation": extrapolation(fit, test)}


def loss_against(
    fit: FittedLaw, axis: str, held_out: Points | None = None, level: float = 0.95, method: Method | None = "t"
) -> Picture:
    """Draw the law along `axis` through the points: a curve a level of a second column, a panel a value of others."""
    form, points, is_column = fit.form, fit.points, axis in fit.form.inputs
    others = [name for name in form.inputs if name != axis and (is_column or name != "D")]
    others.sort(key=lambda name: name != "N" and not is_column)  # along compute, curves are those of sizes
    further = others[1:]
    sentences = [f"{form.formula}, fitted by {fit.problem.objective.name}.", *([] if is_column else ["C = 6ND."])]
    if method is not None and fit.degrees_of_freedom > 0:
        sentences.append("Dark bands: {}; light bands: {}.".format(*titles(level)))
    values = Counter(zip(*(points[name].tolist() for name in further), strict=True))
    chosen = sorted(value for value, _ in values.most_common(3)) or [()]
    picture, left = Picture(f"{form.target} against {axis}", len(chosen)), len(points)
    for place, value in enumerate(chosen):
        fixed = dict(zip(further, value, strict=True))
        tables = [
            table.where(np.all([np.isfinite(table[form.target]), *(table[n] == v for n, v in fixed.items())], axis=0))
            for table in (points, held_out)
            if table is not None
        ]
        left -= len(tables[0])
        along = [_along(axis, table, form) for table in tables]
        # The points set the height, so that a law far from them does not.
        x_axis = Axis.of(axis, along)
        y_axis = Axis.of(form.target, [table[form.target] for table in tables], 1.06)
        x, (bottom, top) = x_axis.samples, y_axis.range
        axes = picture.panel(place, x_axis, y_axis, ", ".join(f"{name} = {short(v)}" for name, v in fixed.items()))
        curves: list[tuple[str, str, Mapping[str, float]]] = [(BLACK, "law", {})]
        colours: Sequence[str | Sequence[str]] = [BLACK] * len(tables)
        for other in others[:1]:
            levels_of_runs = np.concatenate([table[other] for table in tables])
            scale = dict(zip(levels_of_runs, ordered(levels_of_runs), strict=True))
            curves = [(scale[at], f"{other} = {short(at)}", {other: at}) for at in levels(levels_of_runs)]
            colours = [[scale[at] for at in table[other]] for table in tables]
        for colour, name, at in curves:
            moved, along_it = (axis, x) if is_column else ("D", x / (FLOPS * at["N"]))
            predictions = predict_runs(fit, [{**fixed, **at, moved: each} for each in along_it], level, method)
            if predictions[0].run is not None:  # an open end lies beyond the frame
                for of, opacity in (("run", LIGHT), ("mean", DARK)):
                    ends = _bounds(predictions, of).clip(2 * bottom - top, 2 * top - bottom)
                    band(axes, x, ends, colour, opacity=opacity)
            line(axes, x, [prediction.estimate for prediction in predictions], colour, name)
        for table, at, colour, name in zip(tables, along, colours, ("fitted", "held out")):
            named, hollow = name if len(tables) > 1 else "", name == "held out"
            picture.marks(axes, at, table[form.target], colour, named, hollow=hollow, runs=table)
    if further:
        verb = "is" if left == 1 else "are"
        sentences.append(f"{plural(left, 'point')} at other {', '.join(further)} {verb} not drawn.")
    return picture.finish(points, form.inputs, *sentences)


def contours(fit: FittedLaw) -> Picture:
    """Draw lines of equal loss over N and D, the runs, and the compute-optimal frontier."""
    form, N, D = fit.form, fit.points["N"], fit.points["D"]
    n, d = Axis.of("N", [N], 2.0), Axis.of("D", [D], 2.0)
    x, y = n.samples, d.samples
    z = fit.predict(N=x[None, :], D=y[:, None])
    picture = Picture(f"{form.target} over N and D")
    axes = picture.panel(0, n, d)
    heights = np.unique(np.quantile(z, np.linspace(0, 1, 14)[1:-1]))
    lines = axes.contour(x, y, z, levels=heights, colors=list(ordered(heights)), linewidths=1, zorder=1)
    axes.clabel(lines, fontsize=7, fmt="%.3g", zorder=1)
    picture.marks(axes, N, D, BLACK, "runs", runs=fit.points)
    budgets = FLOPS * np.geomspace(x[0] * y[0], x[-1] * y[-1])
    size = np.array([best_run(fit, Budget(budget))["N"] for budget in budgets])
    data = budgets / (FLOPS * size)
    inside = (size >= x[0]) & (size <= x[-1]) & (data >= y[0]) & (data <= y[-1])
    line(axes, size[inside], data[inside], KINDS[1], "compute-optimal" if inside.any() else "", "dashed", 2.0)
    return picture.finish(fit.points, form.inputs, f"Lines of equal {form.target} of {form.formula}.")


def residuals(fit: FittedLaw) -> Picture:
    """Draw the distance of each point from the law, in percent of its loss or in its own unit, along each column."""
    form, points, observed = fit.form, fit.points, fit.points[fit.form.target]
    predicted = fit.predict(**{name: points[name] for name in form.inputs})
    errors, unit = _errors(observed, predicted, observed, "observed", "predicted")
    scatter = float(np.sqrt(np.mean(errors**2)))
    picture = Picture("residuals", len(form.axes))
    for place, name in enumerate(form.axes):
        axis = Axis.of(name, [points[name]])
        axes = picture.panel(place, axis, Axis(unit, False))
        band(axes, axis.range, (-scatter, scatter), GREY, "" if place else "root mean square")
        line(axes, axis.range, (0, 0))
        picture.marks(axes, points[name], errors, KINDS[0], runs=points)
    percent = "%" if unit.endswith("(%)") else ""
    sentence = f"Residuals of {form.formula}; root mean square {scatter:.2g}{percent}."
    return picture.finish(points, form.axes, sentence)


def extrapolation(fit: FittedLaw, test: HeldOut) -> Picture:
    """Draw the held-out runs and what the law, fitted to the other runs, predicts for them."""
    form, points, held_out, observed = fit.form, fit.points, test.points, test.observed
    axis, predictions = "C" if {"N", "D"} <= set(form.inputs) else form.inputs[0], test.predictions
    fitted_x, x = (_along(axis, table, form) for table in (points, held_out))
    predicted, run = np.array([prediction.estimate for prediction in predictions]), predictions[0].run
    errors, unit = _errors(predicted, observed, observed, "predicted", "observed")
    worst = f"{np.abs(errors).max():.2f}%" if unit.endswith("(%)") else f"{np.abs(errors).max():.2g}"
    sentence = f"{form.formula}; {plural(len(held_out), 'run')} held out, largest error {worst}."
    ends = bars = None
    if run is not None:
        sentence += f" Bars: {titles(run.level)[1]}."
        ends = _bounds(predictions, "run")
        bars = [_errors(end, observed, observed)[0] for end in ends]
    picture = Picture("extrapolation", 2)
    is_log = all((column > 0).all() for column in (points[form.target], observed, predicted))
    height = Axis(label(form.target), is_log)
    axes = picture.panel(0, Axis.of(axis, [fitted_x, x]), height)
    picture.marks(axes, fitted_x, points[form.target], GREY, "fitted", runs=points)
    picture.marks(axes, x, observed, BLACK, "held out", hollow=True, runs=held_out)
    picture.marks(axes, x, predicted, KINDS[1], "predicted", symbol=CROSS, bars=ends)
    near = Axis.of(axis, [x])
    axes = picture.panel(1, near, Axis(unit, False))
    line(axes, near.range, (0, 0))
    picture.marks(axes, x, errors, KINDS[1], symbol=CROSS, bars=bars, runs=held_out)
    return picture.finish(points, form.inputs, sentence)


def isoflop_valleys(isoflop: IsoFlop, points: Points) -> Picture:
    """Draw the loss along size at each budget with its minimum, and the power law through the minima."""
    picture, size = Picture("IsoFLOP curves", 2), label(isoflop.along)
    axes = picture.panel(0, Axis(size), Axis(label("loss")))
    budgets = np.array([minimum.C for minimum in isoflop.minima])
    for minimum, colour in zip(isoflop.minima, ordered(budgets), strict=True):
        name = short(minimum.C) if minimum.C in levels(budgets, 6) else ""
        line(axes, minimum.sizes, minimum.losses, colour, width=0.8)
        picture.marks(axes, minimum.sizes, minimum.losses, colour, name)
    values = [(each.C, each.position.estimate, each.loss, each.spread) for each in isoflop.minima if each.position]
    C, positions, losses, spread = np.array(values).T
    picture.marks(axes, positions, losses, KINDS[1], "minimum", symbol=STAR)
    exponent = isoflop.law.exponent
    ends = f"95% {exponent.low:.3f} to {exponent.high:.3f}"
    sentences = [f"Minima by {isoflop.kind}; exponent {exponent.estimate:.3f}, {ends}."]
    bars = None
    if np.isfinite(spread).all():
        bars = (positions * np.exp(-2 * spread), positions * np.exp(2 * spread))
        sentences.append("Bars: two standard deviations of the minimum under seed noise.")
    refused = [minimum.refused for minimum in isoflop.minima if minimum.refused is not None]
    if refused:
        reasons = "; ".join(sorted(set(refused)))
        sentences.append(f"{len(refused)} of {len(isoflop.minima)} budgets have no minimum: {reasons}.")
    budget = Axis.of("C", [C], 2.0)
    axes = picture.panel(1, budget, Axis(f"optimal {size}"))
    law, name = np.asarray(isoflop.law(budget.samples)), f"{isoflop.along}* ∝ C^{exponent.estimate:.3f}"
    line(axes, budget.samples, law, BLACK, name)
    picture.marks(axes, C, positions, KINDS[1], "minimum", symbol=STAR, bars=bars)
    return picture.finish(points, ("N", "D", "C"), *sentences, legend="C (FLOPs)")


def learning_curves(points: Points, *, axis: str = "D", envelope: Envelope | None = None) -> Picture:
    """Draw the loss of each run along its training, darker for smaller models, and the envelope where there is one."""
    size, x, loss = (points.numbers(name) for name in ("N", axis, "loss"))
    colours, named = dict(zip(size.tolist(), ordered(size), strict=True)), set(levels(size, 6).tolist())
    picture = Picture("learning curves")
    axes = picture.panel(0, Axis(label(axis)), Axis(label("loss")))
    for rows in sorted(points.runs().values(), key=lambda rows: size[rows[-1]]):
        rows, N = rows[np.argsort(x[rows])], float(size[rows[-1]])
        name = f"N = {short(N)}" if N in named else ""
        named.discard(N)  # one line of a size is in the legend
        line(axes, x[rows], loss[rows], colours[N], name, width=1.0)
    if envelope is not None:
        line(axes, getattr(envelope, axis), envelope.loss, KINDS[1], "envelope", "dashed", 2.0)
    return picture.finish(points, ("N", axis))


def label(name: str) -> str:
    """Return the label of a column's axis: its name and its unit or meaning."""
    unit = {"C": "FLOPs", "loss": "nats per token"}.get(name) or MEANINGS.get(name)
    return f"{name} ({unit})" if unit else name


def levels(values: np.ndarray, count: int = 5) -> np.ndarray:
    """Return the distinct values where they are few, else some of them at even ranks."""
    distinct = np.unique(values)
    return distinct[np.unique(np.linspace(0, len(distinct) - 1, count).round().astype(int))]


def _along(axis: str, table: Points, form: Law) -> np.ndarray:
    """Return the runs' values of a column of the law, or their compute by its N and D."""
    return table[axis] if axis in form.inputs else FLOPS * table["N"] * table["D"]


def _bounds(predictions: Sequence[Prediction], name: str) -> np.ndarray:
    """Return the lower and the upper ends of the intervals of the `mean` or of a new `run`."""
    intervals = [getattr(prediction, name) for prediction in predictions]
    return np.array([[interval.low for interval in intervals], [interval.high for interval in intervals]])


def _errors(
    values: np.ndarray, others: np.ndarray, observed: np.ndarray, name: str = "", other: str = ""
) -> tuple[np.ndarray, str]:
    """Return the values over the others in percent, or their difference where a score is 0 or a loss negative."""
    if (observed > 0).all():
        return 100 * (values / others - 1), f"{name} over {other} - 1 (%)"
    return values - others, f"{name} - {other}"
