"""The decisions of an adaptive study: which run it chose, what it knew, what it expected, and why it stopped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.errors import plural
from scaling.reports.markup import Html, join, tag
from scaling.reports.numbers import scientific

HEADS = ("run", "why", "known runs", "half-width known", "half-width expected after", "FLOPs", "FLOPs in all")
WHY = {
    "reached": "the goal is reached: the last two looks were narrow enough",
    "budget": "the budget pays for no further candidate",
    "candidates": "every candidate was chosen",
}


def chosen(decisions: Sequence[Mapping[str, Any]]) -> Html | None:
    """A sentence and a table; none where the study is not adaptive."""
    if not decisions:
        return None
    body = [
        tag("tr", tag("th", run, scope="row"), tag("td", why, class_="words"), *(tag("td", cell) for cell in numbers))
        for run, why, *numbers in map(_row, decisions)
    ]
    head = tag("tr", *(tag("th", text, scope="col", class_="words" if text in HEADS[:2] else None) for text in HEADS))
    caption = "Each decision in its order: half the width of the 95% interval, before the run and as expected after it."
    table = tag("table", tag("caption", tag("span", caption)), tag("thead", head), tag("tbody", *body))
    scroll = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label="Table of decisions")
    return join(tag("p", sentence(decisions)), scroll)


def sentence(decisions: Sequence[Mapping[str, Any]]) -> str:
    """How far the goal is."""
    last, count = decisions[-1], sum("run" in decision for decision in decisions)
    width = "an open interval" if last["half_width"] is None else _width(last["half_width"], last["goal"])
    spent = f"{plural(count, 'run')} for {last['spent']:.3g} of {last['budget']:.3g} FLOPs"
    state = WHY.get(last.get("concluded", ""), "it goes on")
    return f"The goal is {last['goal']}. {spent} give {width}: {state}."


def _row(decision: Mapping[str, Any]) -> list[Html | str]:
    goal = decision["goal"]
    known = "open" if decision["half_width"] is None else _width(decision["half_width"], goal)
    count = str(len(decision["known"]))
    if "run" not in decision:
        return ["none", WHY[decision["concluded"]], count, known, "", "", scientific(decision["spent"])]
    expected = decision["expected_half_width"]
    after = "open" if expected is None else _width(expected, goal)
    cost, spent = scientific(decision["flops"]), scientific(decision["spent"])
    return [decision["name"], _why(decision), count, known, after, cost, spent]


def _why(decision: Mapping[str, Any]) -> str:
    if decision["reason"] == "spread":
        return "spread over the columns for little cost: no law is known yet"
    weights = [f"{law['law']} {law['weight']:.2f}" for law in decision["laws"]]
    laws = f"; laws: {', '.join(weights)}" if len(weights) > 1 else ""
    others = [f"{other['name']} ({other['score']:.0%} of that)" for other in decision["others"][:1]]
    return f"narrows it most per FLOP{'; next: ' if others else ''}{''.join(others)}{laws}"


def _width(half_width: float, goal: str) -> str:
    return f"± {100 * half_width:.3g}%" if goal.rstrip().endswith("%") else f"± {half_width:.3g}"
