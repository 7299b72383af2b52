"""Numbers: which numbers a keyword may be, declared where the keyword is.

    def __init__(self, *, kernel: PositiveInt = 3, exponent: Annotated[float, Range(least=0, most=64)] = 1.6): ...

`build` refuses what lies outside, and every number that is not finite, so no class checks a single number by itself.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from typing import Annotated

MOST_ROWS = 1 << 22  # of a batch: beyond any that is trained, and few enough to be numbered over all steps
MOST_THINGS = 10**9  # of what a model or its data have many of: more is a slip of the keyboard


def plural(count: int, thing: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


@dataclass(frozen=True)
class Range:
    """The numbers between two bounds: `least` and `most` belong to it, `above` and `below` do not."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            (self.least is None or number >= self.least)
            and (self.above is None or number > self.above)
            and (self.most is None or number <= self.most)
            and (self.below is None or number < self.below)
        )

    def of(self, noun: str) -> str:
        """`a whole number` within these bounds, in words."""
        if noun == "a whole number" and self.least == 1:
            return " ".join(filter(None, ("a positive whole number", str(replace(self, least=None)))))
        return " ".join(filter(None, (noun, str(self))))

    def __str__(self) -> str:
        low = "" if self.least is None else f"from {_written(self.least)}"
        low = low if self.above is None else f"above {_written(self.above)}"
        high = "" if self.most is None else f"up to {_written(self.most)}"
        high = high if self.below is None else f"below {_written(self.below)}"
        return " and ".join(filter(None, (low, high)))


def _written(bound: float) -> str:
    return f"{bound:,}" if abs(bound) < 10**6 else re.sub(r"e\+0?", "e", f"{bound:.4g}")


def is_number(value: object) -> bool:
    """Whether a value is a finite number, one that a float can hold; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


PositiveInt = Annotated[int, Range(least=1, most=MOST_THINGS)]
SmallInt = Annotated[int, Range(least=1, most=65_536)]  # of what a layer builds or computes one by one
NonNegativeInt = Annotated[int, Range(least=0, most=MOST_THINGS)]
Long = Annotated[int, Range(least=1, most=10**18)]  # tokens, bytes and steps, of which there may be very many
Rows = Annotated[int, Range(least=1, most=MOST_ROWS)]
Seed = Annotated[int, Range(least=0, most=2**63 - 1)]
PositiveFloat = Annotated[float, Range(above=0)]
NonNegativeFloat = Annotated[float, Range(least=0)]
Factor = Annotated[float, Range(above=0, most=1024)]  # of a width
Width = Annotated[float, Range(above=0, most=65_536)]  # of its own, or below 1 as a fraction of the stream's
Fraction = Annotated[float, Range(least=0, most=1)]
PositiveFraction = Annotated[float, Range(above=0, most=1)]
OpenFraction = Annotated[float, Range(above=0, below=1)]
BelowOne = Annotated[float, Range(least=0, below=1)]  # the fraction that is dropped or kept on average: never all
