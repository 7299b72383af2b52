"""Schedules: the learning rate as a share of its peak, a pure function of the step and of how many steps there are."""

from __future__ import annotations

import math
from typing import Literal, Protocol

from scaling.errors import ScalingError
from scaling.number import Fraction, NonNegativeInt, PositiveFraction


class Schedule(Protocol):
    """`warmup` steps of linear rise come first: step 0 learns at 1/warmup of the peak."""

    warmup: int

    def factor(self, step: int, steps: int) -> float:
        """The share of the peak at which update `step` of `steps` learns."""
        ...


def check(schedule: Schedule, steps: int) -> None:
    """Refuse a warmup that does not end before the run does."""
    if schedule.warmup >= steps:
        raise ScalingError(
            f"the warmup does not end within the run's {steps} steps",
            key="schedule.warmup",
            value=schedule.warmup,
            mend="shorten the warmup or train longer",
        )


def _rise(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


def _share(step: int, warmup: int, steps: int) -> float:
    """How much of the way from the warmup's end to the run's end lies behind: 0 to 1."""
    return min(1.0, max(0, step - warmup) / max(1, steps - warmup))


class Constant:
    """η(s) = 1 after the warmup."""

    def __init__(self, *, warmup: NonNegativeInt = 0):
        self.warmup = warmup

    def factor(self, step: int, steps: int) -> float:
        return _rise(step, self.warmup)


class Cosine:
    """η(s) = f + (1 − f)(1 + cos πx)/2, x the share of the way. (Loshchilov & Hutter 2016; f = 0.1 in Hoffmann et al.
    2022)
    """

    def __init__(self, *, warmup: NonNegativeInt = 100, floor: Fraction = 0.1):
        self.warmup, self.floor = warmup, floor

    def factor(self, step: int, steps: int) -> float:
        fall = (1 + math.cos(math.pi * _share(step, self.warmup, steps))) / 2
        return _rise(step, self.warmup) * (self.floor + (1 - self.floor) * fall)


class Linear:
    """η(s) = 1 − (1 − f) x, x the share of the way. (Devlin et al. 2018)"""

    def __init__(self, *, warmup: NonNegativeInt = 100, floor: Fraction = 0.0):
        self.warmup, self.floor = warmup, floor

    def factor(self, step: int, steps: int) -> float:
        return _rise(step, self.warmup) * (1 - (1 - self.floor) * _share(step, self.warmup, steps))


class InverseSquareRoot:
    """η(s) = √(w/s) after w steps of warmup. (Vaswani et al. 2017, formula 3)

    `rise: flat` learns at the peak from the first step, as T5 does: 1/√max(s, w). (Raffel et al. 2019)
    """

    def __init__(self, *, warmup: NonNegativeInt = 4000, rise: Literal["linear", "flat"] = "linear"):
        self.plateau, self.warmup = max(1, warmup), warmup if rise == "linear" else 0

    def factor(self, step: int, steps: int) -> float:
        return _rise(step, self.warmup) * math.sqrt(self.plateau / max(step + 1, self.plateau))


class WSD:
    """Warmup, a stable trunk, and a cool-down over the last share `decay` of the steps. (Hu et al. 2024; Hägele et
    al. 2024)

    `shape: linear` falls as 1 − x, `sqrt` as 1 − √x. The trunk does not know the run's end, so that one trunk serves
    every budget: a run branches from it at `cooldown(steps)`.
    """

    def __init__(
        self,
        *,
        warmup: NonNegativeInt = 100,
        decay: PositiveFraction = 0.2,
        shape: Literal["linear", "sqrt"] = "linear",
    ):
        self.warmup, self.decay, self.shape = warmup, decay, shape

    def cooldown(self, steps: int) -> int:
        """The step at which the learning rate begins to fall."""
        return max(self.warmup, steps - round(self.decay * steps))

    def factor(self, step: int, steps: int) -> float:
        start = self.cooldown(steps)
        if step < start:
            return _rise(step, self.warmup)
        share = (step - start + 1) / (steps - start + 1)
        return _rise(step, self.warmup) * (1 - (share if self.shape == "linear" else math.sqrt(share)))
