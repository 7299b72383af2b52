"""The numbers that settings take: annotated types whose range is checked wherever a value arrives."""

import math
import re
import sys
from dataclasses import dataclass
from typing import Annotated

MOST_ROWS = 1 << 22  # of a batch: beyond any that is trained, and few enough to be numbered over all steps
MOST_THINGS = 10**9  # of what a model or its data have many of: more is a slip of the keyboard


@dataclass(frozen=True)
class Range:
    """The numbers between two bounds: `least` and `most` belong to it, `above` and `below` do not."""

    least: float = -math.inf
    above: float = -math.inf
    most: float = math.inf
    below: float = math.inf

    def __contains__(self, number: float) -> bool:
        return self.least <= number <= self.most and self.above < number < self.below

    def of(self, noun: str) -> str:
        """`a whole number` within these bounds, in words."""
        bounds = {"from": self.least, "above": self.above, "up to": self.most, "below": self.below}
        if noun == "a whole number" and self.least == 1:
            noun, bounds["from"] = "a positive whole number", -math.inf
        finite = {word: bound for word, bound in bounds.items() if math.isfinite(bound)}
        words = (f"{word} {bound:,}" if abs(bound) < 10**6 else f"{word} {bound:.4g}" for word, bound in finite.items())
        return " ".join([noun, re.sub(r"e\+0?", "e", " and ".join(words))]).rstrip()


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
