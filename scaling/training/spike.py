"""Spikes: losses that stand out from those before them, noted so that a run's troubles can be found later."""

from __future__ import annotations

WINDOW = 100  # updates that the running mean and deviation remember, about
WIDTH = 6.0  # deviations above the mean


class Spikes:
    """x is a spike where x > m + 6 s, m and s running means of the loss and of its absolute deviation."""

    def __init__(self) -> None:
        self.mean, self.deviation, self.seen = 0.0, 0.0, 0

    def above(self, loss: float) -> float | None:
        """How far a loss is above the running mean, where that is a spike; it is then forgotten."""
        excess = loss - self.mean
        if self.seen >= WINDOW and excess > WIDTH * self.deviation:
            return excess
        self.seen += 1
        share = max(1 / self.seen, 1 / WINDOW)
        self.mean += share * excess
        self.deviation += share * (abs(excess) - self.deviation)
        return None
