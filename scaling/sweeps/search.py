"""Search: the cells of a sweep, one after the other. Grid and random are W&B's; bayes is in `bayes.py`.

A grid is the product of the parameters' values, parameters in the order of their names. A random cell draws a uniform
place for each parameter and takes that quantile; here the places follow from the sweep, the cell's number and the
parameter's name alone, so that a sweep that was killed goes on with the same cells.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scaling.errors import ScalingError
from scaling.sweeps.file import Cell, Sweep


def grid(sweep: Sweep) -> Iterator[Cell]:
    for number in range(sweep.size or 0):
        yield cell(sweep, number)


def cell(sweep: Sweep, number: int) -> Cell:
    """The cell of a number, the last parameter varying fastest; no axis is written out, it may be as long as memory."""
    drawn: Cell = {}
    for key, distribution in reversed(list(sweep.parameters.items())):
        values = distribution.values or ()
        number, index = divmod(number, len(values))
        drawn[key] = values[index]
    return dict(reversed(drawn.items()))


def randomly(sweep: Sweep) -> Iterator[Cell]:
    seed = sweep.fingerprint
    for number in itertools.islice(itertools.count(), sweep.cap):
        yield {
            key: distribution.at(random.Random(f"{seed}:{number}:{key}").random())
            for key, distribution in sweep.parameters.items()
        }


def tried(sweep: Sweep) -> Iterator[tuple[str, Cell]]:
    """Cells that a check looks at: the first values of all parameters, then each other value of one at a time."""
    rows = {key: distribution.tried() for key, distribution in sweep.parameters.items()}
    first = {key: row[0] for key, row in rows.items()}
    yield "", first
    for key, row in rows.items():
        for value in row[1:]:
            yield key, {**first, key: value}


@dataclass
class Listed:
    """A search that does not look at what came out."""

    cells: Iterator[Cell]

    def draw(self) -> Cell | None:
        """The next cell, None where there is none."""
        return next(self.cells, None)

    def hear(self, number: int, outcome: str, value: float | None) -> None:
        """What came of the cell that was drawn as `number`; `value` is the metric, lower better."""


class Search(Protocol):
    def draw(self) -> Cell | None: ...

    def hear(self, number: int, outcome: str, value: float | None) -> None: ...


def searched(sweep: Sweep, folder: Path) -> Search:
    """The sweep's search; `folder` keeps what it has to remember."""
    if sweep.method == "bayes":
        from scaling.sweeps.bayes import Bayes

        return Bayes(sweep, folder / "drawn.jsonl")
    return Listed(grid(sweep) if sweep.method == "grid" else randomly(sweep))


def needs_end(sweep: Sweep) -> None:
    """Refuse a search without an end."""
    if sweep.size is None:
        raise ScalingError(
            f"{sweep.method} has no end of its own",
            key="run_cap",
            file=sweep.config.error("method", "").file,
            fix="set run_cap in the file, or --count N",
        )
