"""Draw a picture for print by matplotlib: PDF, SVG or PNG, the same bytes each time."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.picture.elements import Band, Contours, Line, Marks, Panel, Sheet
from scaling.picture.palette import OPACITY, ordered

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH, HEIGHT = 4.6, 3.2
"""Inches a panel."""

CAPTION = 7
LETTERS = 36
"""Of a line beside a panel of this height."""
ROOM = 0.06
"""Of the panel: a contour with less room than this on all its length goes without its height."""
SYMBOLS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D", "cross": "X", "star": "*", "dot": "."}
AREAS = {"dot": 9, "cross": 44, "star": 95}
EDGES = {"star": "black", "diamond": "black"}
"""Marks that must be seen among others have a black edge."""
SHAPING = ("GDEF", "GPOS", "GSUB", "MATH")
"""Tables of a font that place letters next to each other."""
DASHES = {"solid": "-", "dashed": "--", "dotted": ":", "dashdot": "-."}

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # letters as letters, so that journals and readers can search them
    "svg.fonttype": "none",
    "svg.hashsalt": "scaling",
}


def figure(picture: Sheet) -> Figure:
    """The picture as a matplotlib figure, outside of pyplot's state."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        count = len(picture.panels)
        wide = WIDTH * count
        chart = Figure(figsize=(wide, HEIGHT), layout="constrained")
        for axes, panel in zip(chart.subplots(1, count, squeeze=False)[0], picture.panels, strict=True):
            _panel(axes, panel)
        if picture.title:
            chart.suptitle(picture.title, fontsize=10)
        lines = textwrap.wrap(picture.caption, int(wide * 17))
        chart.supxlabel("\n".join(lines), fontsize=CAPTION, x=0.01, ha="left", color="#444444")
        return chart


def save(picture: Sheet, paths: Iterable[Path]) -> None:
    """By their suffixes: .pdf, .svg or .png."""
    from matplotlib import rc_context

    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
    with rc_context(STYLE), _without_shaping():
        chart = figure(picture)
        _lay_out(chart)
        for path in paths:
            chart.savefig(path, dpi=200, metadata=dates[path.suffix])


@contextmanager
def _without_shaping() -> Iterator[None]:
    """Embed fonts in a PDF without the tables that shape text: its letters are placed already.

    To reduce these tables to the letters of a figure is most of what a PDF costs. matplotlib asks for the default
    options of fontTools, and has none of its own for it.
    """
    from fontTools.subset import Options

    default = getattr(Options, "_drop_tables_default", [])
    Options._drop_tables_default = [*default, *SHAPING]
    try:
        yield
    finally:
        Options._drop_tables_default = default


def _lay_out(chart: Figure) -> None:
    """Once for all files, by the letters of a PDF: `savefig` draws a figure that has a layout engine twice."""
    from matplotlib.backends.backend_pdf import FigureCanvasPdf

    engine = chart.get_layout_engine()
    assert engine is not None
    FigureCanvasPdf(chart)
    engine.execute(chart)
    chart.set_layout_engine(None)


def png(picture: Sheet, dpi: int = 110) -> bytes:
    """The bytes of a PNG."""
    from io import BytesIO

    from matplotlib import rc_context

    page = BytesIO()
    with rc_context(STYLE):
        figure(picture).savefig(page, format="png", dpi=dpi)
    return page.getvalue()


def _panel(axes: Axes, panel: Panel) -> None:
    # Scales before parts: contours choose the slope of their labels by them.
    for axis, name in ((panel.x, "x"), (panel.y, "y")):
        if axis.log:
            getattr(axes, f"set_{name}scale")("log")
        if axis.range is not None:
            getattr(axes, f"set_{name}lim")(*axis.range)
    for height, part in enumerate(panel.parts, start=3):
        DRAW[type(part)](axes, part, height)
    axes.set(xlabel=panel.x.label, ylabel=textwrap.fill(panel.y.label, LETTERS), title=panel.title)
    _few_ticks(axes, panel)
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        # Next to the panel, where it can cover no point.
        axes.legend(handles, labels, title=panel.legend or None, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _few_ticks(axes: Axes, panel: Panel) -> None:
    """A logarithmic axis within one decade names its ticks in plain numbers, else only its powers of ten."""
    from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

    for axis, chart in ((panel.x, axes.xaxis), (panel.y, axes.yaxis)):
        if not axis.log:
            continue
        low, high = sorted(chart.get_view_interval())
        if high / low < 10:
            chart.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8), numticks=8))
            chart.set_major_formatter(FormatStrFormatter("%g"))
        chart.set_minor_formatter(NullFormatter())


def _marks(axes: Axes, part: Marks, height: int) -> None:
    colours: Any = part.colour if isinstance(part.colour, str) else list(part.colour)
    edge = EDGES.get(part.symbol, "white")
    face = {"facecolors": "white", "edgecolors": colours} if part.hollow else {"c": colours, "edgecolors": edge}
    if part.low is not None and part.high is not None:
        axes.vlines(part.x, part.low, part.high, colors=colours, linewidth=0.9, zorder=height)
    axes.scatter(
        part.x,
        part.y,
        marker=SYMBOLS[part.symbol],
        s=AREAS.get(part.symbol, 26),
        linewidths=1.1 if part.hollow else 0.4,
        label=part.label or None,
        zorder=height,
        **face,
    )


def _line(axes: Axes, part: Line, height: int) -> None:
    style = {"color": part.colour, "linestyle": DASHES[part.dash], "linewidth": part.wide}
    axes.plot(part.x, part.y, label=part.label or None, zorder=height, **style)


def _band(axes: Axes, part: Band, height: int) -> None:
    shade = {"color": part.colour, "alpha": OPACITY[part.shade], "linewidth": 0}
    axes.fill_between(part.x, part.low, part.high, label=part.label or None, zorder=height, **shade)


def _contours(axes: Axes, part: Contours, height: int) -> None:
    colours = list(ordered(part.levels))
    chart = axes.contour(part.x, part.y, part.z, levels=part.levels, colors=colours, linewidths=1.0, zorder=height - 2)
    axes.clabel(chart, fontsize=7, fmt="%.2f", manual=_free_places(chart, part))


def _free_places(chart: Any, part: Contours) -> list[tuple[float, float]]:
    """For each line the place on it that is farthest from the marks, the frame and the heights already placed."""
    origin, span = np.log([part.x[0], part.y[0]]), np.log([part.x[-1] / part.x[0], part.y[-1] / part.y[0]])

    def square(pairs: np.ndarray) -> np.ndarray:
        return (np.log(pairs) - origin) / span

    occupied = square(np.column_stack(part.avoid))
    places = []
    for line in chart.allsegs:
        if not line:
            continue
        candidates = np.concatenate(line)
        positions = square(candidates)
        room = np.linalg.norm(positions[:, None] - occupied[None], axis=-1).min(axis=1)
        room = np.minimum(room, 1.5 * np.minimum(positions, 1 - positions).min(axis=1))
        best = int(room.argmax())
        if room[best] < ROOM:
            continue
        places.append((float(candidates[best, 0]), float(candidates[best, 1])))
        occupied = np.vstack([occupied, positions[best]])
    return places


DRAW: dict[type, Any] = {Marks: _marks, Line: _line, Band: _band, Contours: _contours}
