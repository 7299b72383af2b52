"""Draw a picture as SVG in the page: complete before any script runs, and coloured by the page's style sheet.

It draws the elements of `scaling.picture`. Each mark has the name of its run, so that a script can point at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from scaling.picture import Axis, Band, Contours, Line, Marks, Panel, ordered
from scaling.printing import short
from scaling.reports import colour
from scaling.reports.axis import Scale, scale
from scaling.reports.markup import Html, join, tag

LEFT, RIGHT, TOP, BOTTOM = 74, 16, 22, 54
"""Pixels around the frame; letters are larger on a phone, and must fit too."""
RADIUS, STAR = 4.2, 7.5
HEIGHTS_APART = 26
DASHES = {"solid": None, "dashed": "7 4", "dotted": "1.5 4", "dashdot": "8 4 1.5 4"}

Part = Marks | Line | Band | Contours


@dataclass(frozen=True)
class Frame:
    """The places of values on one panel, and the names of its runs and axes."""

    x: Scale
    y: Scale
    panel: Panel
    names: Mapping[str, str]

    def at(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Pixels `[n, 2]`."""
        return np.column_stack([self.x(x), self.y(y)])


def plot(panel: Panel, key: str, label: str, names: Mapping[str, str], width: int = 520, height: int = 340) -> Html:
    """One panel and its legend; `key` is its own on the page, `names` are those of runs by their id."""
    frame = Frame(
        scale(np.concatenate(list(_reach(panel, "x"))), panel.x.log, panel.x.range, LEFT, width - RIGHT),
        scale(np.concatenate(list(_reach(panel, "y"))), panel.y.log, panel.y.range, height - BOTTOM, TOP),
        panel,
        names,
    )
    window = tag("rect", x=LEFT, y=TOP, width=width - RIGHT - LEFT, height=height - BOTTOM - TOP)
    parts = [
        tag("g", *DRAW[type(part)](part, frame), data_part=place, clip_path=_clip(part, key))
        for place, part in enumerate(panel.parts)
    ]
    drawn = tag(
        "svg",
        tag("clipPath", window, id=f"window-{key}"),
        *_axes(frame, width, height),
        *parts,
        class_="plot",
        data_x=_description(frame.x),
        data_y=_description(frame.y),
        viewBox=f"0 0 {width} {height}",
        role="img",
        aria_label=label,
        tabindex=0,
    )
    return tag("div", drawn, _legend(panel), class_="panel")


def _description(scale: Scale) -> str:
    """An axis as the script reads it."""
    return f"{float(scale.low)} {float(scale.high)} {int(scale.log)} {scale.begin} {scale.end}"


def colours(panel: Panel) -> set[str]:
    """Every colour that a panel is drawn in."""
    inks = set()
    for part in panel.parts:
        if isinstance(part, Contours):
            inks.update(ordered(part.levels))
        else:
            inks.update([part.colour] if isinstance(part.colour, str) else part.colour)
    return inks


def _clip(part: Part, key: str) -> str | None:
    """Curves end at the frame; a mark at its edge is shown whole."""
    return None if isinstance(part, Marks) else f"url(#window-{key})"


def _reach(panel: Panel, axis: str) -> Iterator[np.ndarray]:
    """The values along one axis that have to be seen."""
    for part in panel.parts:
        along = {"x": ("x",), "y": ("low", "high") if isinstance(part, Band) else ("y", "low", "high")}[axis]
        yield from (values for name in along if (values := getattr(part, name, None)) is not None)


def _axes(frame: Frame, width: int, height: int) -> Iterator[Html]:
    right, bottom = width - RIGHT, height - BOTTOM
    for value, text in frame.x.ticks():
        x = _px(frame.x(np.array([value]))[0])
        yield tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=bottom)
        yield tag("text", text, class_="tick", x=x, y=bottom + 20, text_anchor="middle")
    for value, text in frame.y.ticks():
        y = _px(frame.y(np.array([value]))[0])
        yield tag("line", class_="grid", x1=LEFT, x2=right, y1=y, y2=y)
        yield tag("text", text, class_="tick", x=LEFT - 8, y=y, dy="0.35em", text_anchor="end")
    yield tag("path", class_="axis", d=f"M{LEFT} {TOP}V{bottom}H{right}")
    middle, half = (LEFT + right) / 2, (TOP + bottom) / 2
    yield tag("text", frame.panel.x.label, class_="label", x=middle, y=height - 10, text_anchor="middle")
    turned = f"translate(16 {half}) rotate(-90)"
    yield tag("text", frame.panel.y.label, class_="label", transform=turned, text_anchor="middle")
    if frame.panel.title:
        yield tag("text", frame.panel.title, class_="label", x=middle, y=TOP - 8, text_anchor="middle")


def _marks(part: Marks, frame: Frame) -> Iterator[Html]:
    places = frame.at(part.x, part.y)
    inks = [part.colour] * len(places) if isinstance(part.colour, str) else part.colour
    if part.symbol == "dot":  # a cloud: one path of points, of which none has a name
        dots = "".join(f"M{_px(x)} {_px(y)}h0" for x, y in places)
        yield tag("path", class_=f"ink cloud {colour.name(inks[0])}", d=dots)
        return
    if part.low is not None and part.high is not None:
        ends = zip(places[:, 0], frame.y(part.low), frame.y(part.high), inks, strict=True)
        for x, low, high, ink in ends:
            yield tag("path", class_=f"ink bar {colour.name(ink)}", d=f"M{_px(x)} {_px(low)}V{_px(high)}")
    hollow = " hollow" if part.hollow else ""
    for row, ((x, y), ink) in enumerate(zip(places, inks, strict=True)):
        run = part.names[row] if part.names else None
        yield tag(
            "path",
            tag("title", _label(frame, part, row, run)),
            class_=f"ink mark {colour.name(ink)}{hollow}",
            transform=f"translate({_px(x)} {_px(y)})",
            d=SYMBOLS[part.symbol],
            data_run=run,
        )


def _label(frame: Frame, part: Marks, row: int, run: str | None) -> str:
    """The label at the pointer: the run, and its place on both axes."""
    who = frame.names.get(run, run) if run else part.label
    values = f"{_value(frame.panel.x, part.x[row])}, {_value(frame.panel.y, part.y[row])}"
    return f"{who}: {values}" if who else values


def _value(axis: Axis, value: float) -> str:
    letter = axis.label.partition(" (")[0]
    if axis.label.endswith("(%)"):
        return f"{letter} {value:+.2f}%".replace("-", "−")
    return f"{letter} {short(value) if abs(value) >= 1e3 else f'{value:.4f}'}"


def _line(part: Line, frame: Frame) -> Iterator[Html]:
    yield tag(
        "path",
        class_=f"ink line {colour.name(part.colour)}",
        d=_path(frame.at(part.x, part.y)),
        stroke_width=f"{1.3 * part.width:.2g}",
        stroke_dasharray=DASHES[part.dash],
    )


def _band(part: Band, frame: Frame) -> Iterator[Html]:
    around = np.concatenate([frame.at(part.x, part.low), frame.at(part.x, part.high)[::-1]])
    yield tag("path", class_=f"ink band {part.shade} {colour.name(part.colour)}", d=f"{_path(around)}Z")


def _contours(part: Contours, frame: Frame) -> Iterator[Html]:
    """Lines of equal height, each with its height where it leaves the frame at the top or on the right."""
    from contourpy import contour_generator

    lines = contour_generator(frame.x(part.x), frame.y(part.y), part.z)
    written: list[np.ndarray] = []
    for level, ink in zip(part.levels, ordered(part.levels), strict=True):
        for line in map(np.asarray, lines.lines(level)):
            yield tag("path", class_=f"ink line {colour.name(ink)}", d=_path(line[::2]), stroke_width="1.3")
            end = line[np.argmax(line[:, 0] - line[:, 1])]
            if all(np.linalg.norm(end - other) > HEIGHTS_APART for other in written):
                written.append(end)
                x, y = min(end[0], frame.x.end - 4), max(end[1], frame.y.end + 14)
                yield tag("text", f"{level:.2f}", class_="height", x=_px(x), y=_px(y - 4), text_anchor="end")


def _legend(panel: Panel) -> Html | None:
    """A sample of each part that has a label; the script lets it single that part out."""
    entries = []
    for place, part in enumerate(panel.parts):
        label = getattr(part, "label", "")
        if label:
            by_colour = colour.name(part.colour) if isinstance(part, Line) else None
            entries.append(tag("li", _sample(part), tag("span", label), data_part=place, data_colour=by_colour))
    if not entries:
        return None
    return tag("div", tag("p", panel.legend) if panel.legend else None, tag("ul", *entries), class_="legend")


def _sample(part: Part) -> Html:
    if isinstance(part, Marks):
        ink = colour.name(part.colour if isinstance(part.colour, str) else part.colour[0])
        hollow = " hollow" if part.hollow else ""
        shape = SYMBOLS["circle" if part.symbol == "dot" else part.symbol]
        inner = tag("path", class_=f"mark {ink}{hollow}", d=shape, transform="translate(12 7)")
    elif isinstance(part, Band):
        inner = tag("rect", class_=f"band {part.shade} {colour.name(part.colour)}", width=24, height=10, y=2)
    elif isinstance(part, Line):
        ink, dashes = colour.name(part.colour), DASHES[part.dash]
        inner = tag("path", class_=f"line {ink}", d="M0 7H24", stroke_width=2, stroke_dasharray=dashes)
    else:
        inner = join()
    return tag("svg", inner, class_="sample", viewBox="0 0 24 14", aria_hidden="true")


def _path(places: np.ndarray) -> str:
    return "M" + "L".join(f"{_px(x)} {_px(y)}" for x, y in places)


def _px(value: float) -> str:
    """A tenth of a pixel is not visible."""
    return f"{value:.1f}".removesuffix(".0")


def _polygon(corners: int, radius: float, inner: float = 1.0, turn: float = 0.0) -> str:
    """A polygon around the origin, or a star where every other corner is drawn in."""
    angles = np.pi * np.arange(2 * corners) / corners - np.pi / 2 + turn
    radii = np.where(np.arange(2 * corners) % 2 == 0, radius, radius * inner)
    chosen = slice(None) if inner < 1 else slice(None, None, 2)
    return _path(np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])[chosen]) + "Z"


SYMBOLS = {
    "circle": f"M{-RADIUS} 0a{RADIUS} {RADIUS} 0 1 0 {2 * RADIUS} 0a{RADIUS} {RADIUS} 0 1 0 {-2 * RADIUS} 0Z",
    "square": _polygon(4, 1.3 * RADIUS, turn=np.pi / 4),
    "triangle": _polygon(3, 1.35 * RADIUS),
    "diamond": _polygon(4, 1.5 * RADIUS),
    "cross": _polygon(4, 1.55 * RADIUS, 0.32, np.pi / 4),
    "star": _polygon(5, STAR, 0.42),
}

DRAW: dict[type, Callable[..., Iterator[Html]]] = {Marks: _marks, Line: _line, Band: _band, Contours: _contours}
