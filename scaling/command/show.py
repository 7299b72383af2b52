"""Show one run: its state, result, attempts and settings, and its loss curve in the terminal.

scaling show 3fa9                 the run whose id begins so
scaling show 3fa9 runs=/shared/runs
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from scaling.command.document import numbered
from scaling.command.runs import opened
from scaling.errors import ScalingError

SOME = 4  # values of a long list that are printed
ROWS = 12  # lines of text that a curve takes
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # Unicode braille: the bits of a cell's two columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="RUN|runs=FOLDER", help="the beginning of a run's id")
    parser.add_argument("--json", action="store_true", help="one JSON document, with the whole history")


def run(arguments: argparse.Namespace) -> None:
    from scaling.ledger.document import text

    ledger, names = opened(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one run", fix="`scaling runs` lists them")
    name = ledger.find(names[0])
    attempts = [{"attempt": record.number, **record.claim, "exit": record.exit} for record in ledger.attempts(name)]
    document = {
        "row": vars(ledger.status(name)),
        "result": ledger.result(name),
        "attempts": attempts,
        "spec": ledger.spec(name),
        "history": ledger.history(name),
    }
    print(text(numbered(document)) if arguments.json else _screen(document, shutil.get_terminal_size().columns))


def _screen(document: dict[str, Any], width: int) -> str:
    from scaling.ledger.result import flat

    row = document["row"]
    head = [f"run {row['run']}", row["name"], row["state"], row["reason"]]
    parts = [" · ".join(part for part in head if part)]
    series = {kind: _losses(document["history"], kind) for kind in ("train", "evaluate")}
    parts += [curve(points, width, kind) for kind, points in series.items() if len(points) > 1]
    if document["result"] is not None:
        parts.append(_section("result", flat(document["result"])))
    parts += [_section(f"attempt {attempt['attempt']}", _attempt(attempt)) for attempt in document["attempts"]]
    parts.append(_section("spec", flat(document["spec"])))
    return "\n\n".join(parts)


def _attempt(attempt: dict[str, Any]) -> dict[str, Any]:
    ended = attempt["exit"] or {}
    return {key: attempt.get(key) for key in ("host", "claimed")} | {
        key: ended[key] for key in ("outcome", "reason", "ended", "differences") if ended.get(key)
    }


def _section(title: str, values: dict[str, Any]) -> str:
    from scaling.ledger.document import text

    width = max(map(len, values), default=0)
    # As JSON a value cannot carry what a terminal would obey.
    return "\n".join([title, *(f"  {text(key)[1:-1]:<{width}}  {compact(value)}" for key, value in values.items())])


def compact(value: Any) -> str:
    """A value as JSON, of a long list its beginning and its length."""
    from scaling.ledger.document import text

    if isinstance(value, list) and len(value) > SOME + 1:
        return f"[{', '.join(compact(item) for item in value[:SOME])}, … {len(value)} values]"
    return text(value)


def _losses(history: Sequence[dict[str, Any]], kind: str) -> list[tuple[int, float]]:
    entries = (entry for entry in history if entry.get("kind") == kind and "step" in entry and "loss" in entry)
    return [(entry["step"], entry["loss"]) for entry in entries if math.isfinite(entry["loss"]) and entry["step"] > 0]


def curve(points: Sequence[tuple[int, float]], width: int, title: str) -> str:
    """Loss over the logarithm of the step, each column the mean of the steps that fall into it, drawn in braille."""
    margin = 9
    columns, rows = 2 * max(width - margin - 1, 10), 4 * ROWS
    first, last = math.log(points[0][0]), math.log(points[-1][0])
    binned: dict[int, list[float]] = {}
    for step, loss in points:
        binned.setdefault(round((math.log(step) - first) / ((last - first) or 1) * (columns - 1)), []).append(loss)
    means = {column: sum(losses) / len(losses) for column, losses in sorted(binned.items())}
    low, high = min(means.values()), max(means.values())
    for (left, above), (right, below) in pairwise(list(means.items())):  # straight lines across the first, sparse steps
        for column in range(left + 1, right):
            means[column] = above + (below - above) * (column - left) / (right - left)
    cells = [[0x2800] * (columns // 2) for _ in range(ROWS)]
    for column, mean in means.items():
        line = round((high - mean) / ((high - low) or 1) * (rows - 1))
        cells[line // 4][column // 2] |= DOTS[column % 2][line % 4]
    labels = {0: f"{high:.4g}", ROWS - 1: f"{low:.4g}"}
    drawn = [f"{labels.get(line, ''):>{margin - 1}} " + "".join(map(chr, cells[line])) for line in range(ROWS)]
    steps = f"{points[0][0]:<{columns // 4}}{points[-1][0]:>{columns // 2 - columns // 4}}"
    return "\n".join([f"{title} loss", *(line.rstrip("\u2800 ") for line in drawn), " " * margin + steps])
