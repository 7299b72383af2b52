"""List runs: state, progress, loss, speed, host, and how long ago each showed a sign of life.

scaling runs                      every run of runs/
scaling runs quickstart           the runs of a study, in the order of its plan
scaling runs runs=/shared/runs    another folder
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from scaling.api.runs import RUNS, status_rows
from scaling.errors import ScalingError, nearest, plural

if TYPE_CHECKING:
    from scaling.ledger import Ledger, Row

WIDEST = 48  # letters of a name


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="STUDY|runs=FOLDER", help="a study, and where the ledger is")
    parser.add_argument("--json", action="store_true", help="one JSON document: a list of runs")


def run(arguments: argparse.Namespace) -> None:
    from scaling.ledger.document import text

    ledger, studies = opened(arguments.words)
    if len(studies) > 1:
        raise ScalingError("one study at a time", key="STUDY", value=" ".join(studies))
    rows = status_rows(ledger, studies[0] if studies else None)
    print(text([vars(row) for row in rows]) if arguments.json else _table(rows))


def opened(words: Sequence[str]) -> tuple[Ledger, list[str]]:
    """The ledger that `runs=FOLDER` names among the words of a command, and the other words."""
    from scaling.ledger import Ledger

    folder, names = RUNS, []
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            names.append(word)
        elif key != "runs":
            raise ScalingError(f"there is no key {key!r} here", fix=nearest(key, ["runs"]))
        else:
            folder = value
    return Ledger.open(folder), names


def _table(rows: Sequence[Row]) -> str:
    now = time.time()
    columns: dict[str, Callable[[Row], str]] = {
        "run": lambda row: row.run,
        "name": lambda row: _cut(row.name or ""),
        "state": lambda row: row.state,
        "step": lambda row: "" if row.step is None else f"{row.step}/{row.steps or '?'}",
        "loss": lambda row: "" if row.loss is None else f"{row.loss:.4f}",
        "score": lambda row: "" if row.score is None else f"{row.score:.4f}",
        "tokens/s": lambda row: "" if row.tokens_per_second is None else f"{row.tokens_per_second:,.0f}",
        "host": lambda row: str(row.host or ""),
        "age": lambda row: "" if row.seen is None else age(now - row.seen),
        "": lambda row: row.reason or "",
    }
    if all(row.score is None for row in rows):
        del columns["score"]  # no run is of a task
    cells = [list(columns), *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells]
    states = ", ".join(f"{count} {state}" for state, count in Counter(row.state for row in rows).most_common())
    return "\n".join([*lines, "", plural(len(rows), "run") + (f": {states}" if states else "")])


def _cut(name: str) -> str:
    return name if len(name) <= WIDEST else name[: WIDEST - 1] + "…"


def age(seconds: float) -> str:
    """A span of time in a readable unit."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{max(seconds, 0):.0f}s"
