"""Pictures: panels of marks, lines, bands and contours over a caption, drawn by matplotlib as PDF, SVG or PNG.

A picture reads in grey and under colour-blindness. Ordered values run along cividis (Nuñez et al. 2018, arXiv
1712.01662), whose lightness is even; its palest tenth fades on white and is left out. Kinds have colours of Okabe and
Ito, each with a symbol or a dash of its own.
"""

from __future__ import annotations

import io
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scaling.errors import ScalingError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLACK, GREY = "#000000", "#767676"
KINDS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
OPACITY = {"dark": 0.18, "light": 0.08}
# Marker, area and edge of each symbol: those that must be seen among others have a black edge.
SYMBOLS = {
    "circle": ("o", 26, "white"),
    "cross": ("X", 44, "white"),
    "diamond": ("D", 26, "black"),
    "dot": (".", 9, "white"),
    "star": ("*", 95, "black"),
}
# Metadata of each format without the date, so that a file repeats byte for byte.
FORMATS: dict[str, dict[str, Any]] = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}, ".png": {}}
WIDTH, HEIGHT = 4.6, 3.2  # inches of a panel
LABEL_LETTERS, CAPTION_LETTERS = 36, 78  # letters of a line beside a panel, and below it
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


@dataclass(frozen=True)
class Marks:
    """Observed points, with bars from `low` to `high`. Hollow marks took no part in the fit. `names` are of runs."""

    x: np.ndarray
    y: np.ndarray
    colour: str | tuple[str, ...] = BLACK
    label: str = ""
    symbol: str = "circle"
    hollow: bool = False
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    names: tuple[str, ...] = ()

    def draw(self, axes: Axes, zorder: int) -> None:
        """Draw the bars and the marks."""
        colours: Any = self.colour if isinstance(self.colour, str) else list(self.colour)
        marker, area, edge = SYMBOLS[self.symbol]
        if self.low is not None and self.high is not None:
            axes.vlines(self.x, self.low, self.high, colors=colours, linewidth=0.9, zorder=zorder)
        face = {"facecolors": "white", "edgecolors": colours} if self.hollow else {"c": colours, "edgecolors": edge}
        width, label = 1.1 if self.hollow else 0.4, self.label or None
        axes.scatter(self.x, self.y, area, marker=marker, linewidths=width, label=label, zorder=zorder, **face)


@dataclass(frozen=True)
class Line:
    """A fitted or derived curve."""

    x: np.ndarray
    y: np.ndarray
    colour: str = BLACK
    label: str = ""
    dash: Literal["solid", "dashed", "dotted", "dashdot"] = "solid"
    width: float = 1.4

    def draw(self, axes: Axes, zorder: int) -> None:
        """Draw the curve."""
        style: Any = {"color": self.colour, "linestyle": self.dash, "linewidth": self.width}
        axes.plot(self.x, self.y, label=self.label or None, zorder=zorder, **style)


@dataclass(frozen=True)
class Band:
    """An interval around a curve; the caption names it. A light band lies behind a dark one."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colour: str = BLACK
    label: str = ""
    shade: Literal["dark", "light"] = "dark"

    def draw(self, axes: Axes, zorder: int) -> None:
        """Fill the interval."""
        style: Any = {"color": self.colour, "alpha": OPACITY[self.shade], "linewidth": 0}
        axes.fill_between(self.x, self.low, self.high, label=self.label or None, zorder=zorder, **style)


@dataclass(frozen=True)
class Contours:
    """Lines of equal height over a grid: `z[i, j]` at `y[i]`, `x[j]`."""

    x: np.ndarray
    y: np.ndarray
    z: np.ndarray
    levels: np.ndarray
    labels_at: float

    def draw(self, axes: Axes, zorder: int) -> None:
        """Draw the lines below the marks, each with its height where it crosses x = `labels_at`."""
        colours, below = list(ordered(self.levels)), zorder - 2
        lines = axes.contour(self.x, self.y, self.z, levels=self.levels, colors=colours, linewidths=1, zorder=below)
        heights = self.z[:, np.abs(self.x - self.labels_at).argmin()]
        crossed = self.levels[(self.levels > heights.min()) & (self.levels < heights.max())]
        places = [(self.labels_at, float(np.interp(-level, -heights, self.y))) for level in crossed]
        axes.clabel(lines, fontsize=7, fmt="%.2f", manual=places, zorder=below)


@dataclass(frozen=True)
class Axis:
    """A quantity and its unit; logarithmic where it spans decades."""

    label: str
    log: bool = False
    range: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """Parts on two axes, the first one at the back. There is a legend, titled `legend`, where a part has a label."""

    x: Axis
    y: Axis
    parts: tuple[Marks | Line | Band | Contours, ...]
    title: str = ""
    legend: str = ""

    def draw(self, axes: Axes) -> None:
        """Draw the parts, the axes, and the legend next to the panel, where it covers no point."""
        from matplotlib.ticker import LogLocator

        axes.set(xscale="log" if self.x.log else "linear", yscale="log" if self.y.log else "linear")
        for zorder, part in enumerate(self.parts, start=3):
            part.draw(axes, zorder)
        axes.set(xlabel=self.x.label, ylabel=textwrap.fill(self.y.label, LABEL_LETTERS), title=self.title)
        for axis, limit, ticks in ((self.x, axes.set_xlim, axes.xaxis), (self.y, axes.set_ylim, axes.yaxis)):
            if axis.range is not None:
                limit(*axis.range)
            if axis.log:
                low, high = ticks.get_view_interval()
                if high / low < 10:  # plain numbers within one decade, else powers of ten alone
                    ticks.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8), numticks=8))
                    ticks.set_major_formatter("{x:g}")
                ticks.set_minor_formatter("")
        if any(getattr(part, "label", "") for part in self.parts):
            axes.legend(title=self.legend or None, loc="center left", bbox_to_anchor=(1.0, 0.5))


@dataclass(frozen=True, repr=False)
class Picture:
    """Panels side by side over a caption that states the definitions and the count of runs."""

    panels: tuple[Panel, ...]
    caption: str
    title: str = ""

    def __repr__(self) -> str:
        return f"Picture({self.title!r}, {len(self.panels)} panels)"

    def _repr_png_(self) -> bytes:
        """Return the PNG that a notebook shows."""
        file = io.BytesIO()
        self.figure().savefig(file, dpi=110)
        return file.getvalue()

    def save(self, *paths: str | Path) -> list[Path]:
        """Draw to files whose suffix chooses the format: .pdf, .svg or .png."""
        from matplotlib import rc_context

        files = [Path(path) for path in paths]
        for file in files:
            if file.suffix not in FORMATS:
                fix = "choose .pdf, .svg or .png"
                raise ScalingError("is no kind of picture", key="suffix", value=file.suffix, file=file, fix=fix)
        chart = self.figure()
        chart.draw_without_rendering()  # places everything once, for all formats
        chart.set_layout_engine("none")
        for file in files:
            file.parent.mkdir(parents=True, exist_ok=True)
            with rc_context(STYLE):
                chart.savefig(file, dpi=200, metadata=FORMATS[file.suffix])
        return files

    def figure(self) -> Figure:
        """Return the picture as a matplotlib figure, outside of pyplot's state."""
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        with rc_context(STYLE):
            count = len(self.panels)
            chart = Figure(figsize=(WIDTH * count, HEIGHT), layout="constrained")
            for axes, panel in zip(chart.subplots(1, count, squeeze=False)[0], self.panels, strict=True):
                panel.draw(axes)
            chart.suptitle(self.title, fontsize=10)
            caption = textwrap.fill(self.caption, CAPTION_LETTERS * count)
            chart.supxlabel(caption, fontsize=7, x=0.01, ha="left", color="#444444")
            return chart


def ordered(values: np.ndarray) -> tuple[str, ...]:
    """Return a colour for each value, from dark to light; along logarithms where all values are positive."""
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize, to_hex

    norm = (LogNorm if np.min(values) > 0 else Normalize)(np.min(values), np.max(values))
    return tuple(to_hex(colour) for colour in colormaps["cividis"](0.9 * np.asarray(norm(values))))
