"""Draw a picture for the screen by plotly: the same parts, with a name under the pointer."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.picture.elements import Axis, Band, Contours, Line, Marks, Sheet
from scaling.picture.palette import OPACITY

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SYMBOLS = {
    "circle": "circle",
    "square": "square",
    "triangle": "triangle-up",
    "diamond": "diamond",
    "cross": "x",
    "star": "star",
    "dot": "circle",
}
DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "dashdot": "dashdot"}


def figure(picture: Sheet) -> Figure:
    """The picture as a plotly figure."""
    from plotly.subplots import make_subplots

    count = len(picture.panels)
    chart = make_subplots(
        1, count, subplot_titles=[panel.title for panel in picture.panels], horizontal_spacing=0.3 / count
    )
    for column, panel in enumerate(picture.panels, start=1):
        _, right = chart.get_subplot(1, column).xaxis.domain  # type: ignore[union-attr]
        legend = "legend" if column == 1 else f"legend{column}"
        for part in panel.parts:
            trace = DRAW[type(part)](part)
            chart.add_trace(trace.update({"legend": legend} if trace.type == "scatter" else {}), 1, column)
        chart.update_layout({legend: {"title": panel.legend, "x": right + 0.005, "xanchor": "left", "y": 1}})
        chart.update_xaxes(_axis(panel.x), row=1, col=column)
        chart.update_yaxes(_axis(panel.y), row=1, col=column)
    chart.update_layout(template="simple_white", title=picture.title, width=240 + 480 * count, height=460)
    lines = textwrap.wrap(picture.caption, 34 + 85 * count)
    # In pixels below the axes, so that it is clear of their titles whatever the height.
    place = {"x": 0, "y": 0, "yshift": -62, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "top"}
    font = {"size": 10, "color": "#444444"}
    chart.add_annotation(text="<br>".join(lines), showarrow=False, align="left", font=font, **place)
    chart.update_layout(margin={"b": 84 + 14 * len(lines)})
    return chart


def save(picture: Sheet, path: Path) -> None:
    """One page that needs nothing else, plotly's script included."""
    page = figure(picture).to_html(include_plotlyjs=True, full_html=True, div_id="picture")
    path.write_text(page, encoding="utf-8")


def _axis(axis: Axis) -> dict[str, Any]:
    settings: dict[str, Any] = {"title": axis.label, "type": "log" if axis.log else "linear", "showgrid": True}
    if axis.log:
        settings["exponentformat"] = "power"
    if axis.range is not None:
        settings["range"] = list(np.log10(axis.range)) if axis.log else list(axis.range)
    return settings


def _marks(part: Marks) -> Any:
    from plotly import graph_objects as go

    colour = part.colour if isinstance(part.colour, str) else list(part.colour)
    symbol = SYMBOLS[part.symbol] + ("-open" if part.hollow else "")
    bars = None
    if part.low is not None and part.high is not None:
        bars = {"array": part.high - part.y, "arrayminus": part.y - part.low, "thickness": 1}
    return go.Scatter(
        x=part.x,
        y=part.y,
        mode="markers",
        name=part.label,
        showlegend=bool(part.label),
        text=list(part.names) or None,
        error_y=bars,
        marker={"color": colour, "symbol": symbol, "size": 3 if part.symbol == "dot" else 8},
    )


def _line(part: Line) -> Any:
    from plotly import graph_objects as go

    return go.Scatter(
        x=part.x,
        y=part.y,
        mode="lines",
        name=part.label,
        showlegend=bool(part.label),
        line={"color": part.colour, "dash": DASHES[part.dash], "width": 1.4 * part.wide},
    )


def _band(part: Band) -> Any:
    from plotly import graph_objects as go

    red, green, blue = (int(part.colour[start : start + 2], 16) for start in (1, 3, 5))
    return go.Scatter(
        x=np.concatenate([part.x, part.x[::-1]]),
        y=np.concatenate([part.high, part.low[::-1]]),
        mode="lines",
        fill="toself",
        fillcolor=f"rgba({red},{green},{blue},{OPACITY[part.shade]})",
        line={"width": 0},
        hoverinfo="skip",
        name=part.label,
        showlegend=bool(part.label),
    )


def _contours(part: Contours) -> Any:
    from plotly import graph_objects as go

    step = float(part.levels[1] - part.levels[0])
    return go.Contour(
        x=part.x,
        y=part.y,
        z=part.z,
        colorscale="Cividis",
        showscale=False,
        contours={
            "coloring": "lines",
            "showlabels": True,
            "start": float(part.levels[0]),
            "end": float(part.levels[-1]),
            "size": step,
        },
    )


DRAW: dict[type, Any] = {Marks: _marks, Line: _line, Band: _band, Contours: _contours}
