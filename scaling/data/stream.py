"""Stream: arrays of tokens end to end, as if they were one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np


class Stream:
    """Tokens of several arrays, numbered through."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = arrays
        # Where each array begins in the whole, and where the last one ends.
        self.starts = np.cumsum([0, *(len(array) for array in arrays)])

    def places(self, positions: np.ndarray) -> list[tuple[int, int]]:
        """The array that holds each position, and where in it."""
        arrays = np.searchsorted(self.starts, positions, side="right") - 1
        return list(zip(arrays.tolist(), (positions - self.starts[arrays]).tolist()))

    def fill(self, rows: np.ndarray, places: Iterable[tuple[int, int]]) -> None:
        """Fill each of [n t] rows from its place on."""
        for row, (number, place) in zip(rows, places):
            self._fill(row, number, place)

    def _fill(self, row: np.ndarray, number: int, place: int) -> None:
        taken = self.arrays[number][place : place + len(row)]
        row[: len(taken)] = taken
        if len(taken) < len(row):
            self._fill(row[len(taken) :], number + 1, 0)
