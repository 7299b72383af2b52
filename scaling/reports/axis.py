"""Axes on the page: from values to pixels, and the places of their ticks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.printing import short

PADDING = 0.03
"""Of an axis that no picture has given a range, beyond its outermost values."""
SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
LONG = 1e9
"""From here on a number is a power of ten; below it has a letter."""
FEW_DECADES, ONE_TWO_FIVE = 0.9, 2.5
"""Decades up to which ticks are even, and up to which they are at 1, 2 and 5."""


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` along pixels from `begin` to `end`."""

    low: float
    high: float
    log: bool
    begin: float
    end: float

    def __call__(self, values: np.ndarray) -> np.ndarray:
        low, high, bent = self._bent(np.array([self.low])), self._bent(np.array([self.high])), self._bent(values)
        return self.begin + (bent - low) / (high - low) * (self.end - self.begin)

    def _bent(self, values: np.ndarray) -> np.ndarray:
        return np.log(np.maximum(values, 1e-300)) if self.log else np.asarray(values, float)

    def ticks(self, most: int = 7) -> list[tuple[float, str]]:
        """Places of round numbers, at most about `most`, and what is written there."""
        decades = np.log10(self.high / self.low) if self.log else 0.0
        if decades <= FEW_DECADES:
            most = most if self.high < LONG else most // 2
            return [(value, _plain(value, step)) for value, step in _even(self.low, self.high, most)]
        powers = np.arange(np.floor(np.log10(self.low)), np.ceil(np.log10(self.high)) + 1)
        if decades <= ONE_TWO_FIVE:
            values = [factor * 10.0**power for power in powers for factor in (1, 2, 5)]
        else:
            values = [10.0**power for power in powers[:: int(np.ceil(len(powers) / most))]]
        return [(value, _round(value)) for value in values if self.low <= value <= self.high]


def scale(values: np.ndarray, log: bool, limits: tuple[float, float] | None, begin: float, end: float) -> Scale:
    """The scale that shows all values, or `limits`."""
    if limits is not None:
        return Scale(*limits, log, begin, end)
    finite = values[np.isfinite(values)]
    low, high = float(finite.min()), float(finite.max())
    if log:
        room = (high / low) ** PADDING if high > low else 1.1
        return Scale(low / room, high * room, log, begin, end)
    room = (high - low) * PADDING or 1.0
    return Scale(low - room, high + room, log, begin, end)


def _even(low: float, high: float, most: int) -> list[tuple[float, float]]:
    """Multiples of 1, 2 or 5 times a power of ten, and their distance."""
    rough = (high - low) / most
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [(place * step, step) for place in range(first, last + 1)]


def _plain(value: float, step: float) -> str:
    """The digits that distinguish neighbours."""
    if 1e3 <= abs(value) < LONG:
        return short(value)
    power = int(np.floor(np.log10(abs(value)) + 1e-9)) if abs(value) >= LONG else 0
    digits = max(0, power - int(np.floor(np.log10(step) + 1e-9)))
    mantissa = f"{value / 10.0**power:.{digits}f}".replace("-", "−")
    return f"{mantissa}·{_ten(power)}" if power else mantissa


def _round(value: float) -> str:
    if abs(value) < LONG:
        return short(value)
    mantissa, power = f"{value:.0e}".split("e")
    return _ten(int(power)) if mantissa == "1" else f"{mantissa}·{_ten(int(power))}"


def _ten(power: int) -> str:
    return f"10{str(power).translate(SUPERSCRIPT)}"
