"""Identification: which numbers of a fit are an answer. One rule for parameters, predictions and optima.

A number is identified where its interval is closed at both ends and not too wide:

- an exponent that cannot be negative: no wider than its estimate. At that limit it is known to within a half of itself:
  where a reducible loss is seen to fall by 10^-0.5 over a decade, it may as well fall by 10^-0.25 or by 10^-0.75;
- a predicted loss, of the mean and of a new run: likewise;
- the size and the data of an optimum: its ends differ by a factor of 100 at most, which is as wide as a sweep of sizes
  that finds the optimum without a law.

A score lies between 0 and 1 and a difference of losses may be 0, so that their intervals need only be closed.
"""

from __future__ import annotations

from scaling.law.forms import Parameter
from scaling.law.points import PROPORTIONS, SIGNED

WIDEST = 1.0
"""Width over estimate up to which the interval of an exponent or of a loss counts as known."""
WIDEST_SIZE = 100.0
"""Upper over lower end up to which the interval of a size counts as known."""


def is_exponent(parameter: Parameter) -> bool:
    """Whether the width of its interval is judged: it says how fast a term falls, and is not negative."""
    return parameter.unit == "1" and parameter.scale == "linear" and parameter.lower >= 0.0


def is_wide(estimate: float, low: float, high: float) -> bool:
    """Whether a closed interval of an exponent or a loss is too wide to be an answer."""
    return not high - low <= WIDEST * abs(estimate)


def is_wide_size(low: float, high: float) -> bool:
    """Whether a closed interval of a size is too wide to be an answer."""
    return not 0.0 < high <= WIDEST_SIZE * low


def is_wide_prediction(target: str, estimate: float, low: float, high: float) -> bool:
    """Whether a closed interval of a predicted loss or score is too wide to be an answer."""
    return target not in PROPORTIONS | SIGNED and is_wide(estimate, low, high)
