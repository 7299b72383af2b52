"""An interval as a strip: the estimate in it, and the truth where it is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scaling.reports.markup import Html, tag
from scaling.reports.numbers import ends, significant

WIDTH, MIDDLE, ROOM = 200, 13, 8


def interval_strip(interval: Mapping[str, Any], truth: float | None) -> Html:
    """An open end runs out of the strip."""
    low, high, best = interval["low"], interval["high"], interval["estimate"]
    seen = [value for value in (low, high, best, truth) if value is not None]
    first, reach = min(seen), (max(seen) - min(seen)) or 1.0

    def at(value: float) -> float:
        return round(ROOM + (WIDTH - 2 * ROOM) * (value - first) / reach, 1)

    begin, end = (at(low) if low is not None else 0), (at(high) if high is not None else WIDTH)
    truth_line = None if truth is None else tag("line", class_="truth", x1=at(truth), x2=at(truth), y1=1, y2=25)
    label = f"{significant(best, low, high)} in {ends(interval)}" + (
        "" if truth is None else f"; the truth is {truth:.4f}"
    )
    return tag(
        "svg",
        tag("line", class_="range", x1=begin, x2=end, y1=MIDDLE, y2=MIDDLE),
        tag("circle", class_="best", cx=at(best), cy=MIDDLE, r=5),
        truth_line,
        class_="strip",
        viewBox=f"0 0 {WIDTH} 26",
        preserveAspectRatio="xMinYMid",
        role="img",
        aria_label=label,
    )
