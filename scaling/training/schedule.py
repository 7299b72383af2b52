"""Schedules: the learning rate as a fraction of its peak, a pure function of the step and of the number of steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol

from scaling.base.errors import plural, refuse
from scaling.base.numbers import BelowOne, Fraction, NonNegativeInt, PositiveFraction, Range

BUDGET = ("trainer.max_steps", "train.tokens", "train.epochs")
# Keys by which most runs of a study differ, and which cost nothing to assemble again.
VARIED = ("seed", *BUDGET, "log.name", "log.tags")

Warmup = NonNegativeInt | BelowOne | Literal["auto"]
AUTO, LONGEST = 0.1, 100  # of the run's steps, at most so many, or the schedule's own `longest`


class Schedule(Protocol):
    """A linear rise of `warmup` comes first: steps, a fraction of the run's, or `auto`. With w steps of warmup, step 0
    learns at 1/w of the peak.
    """

    warmup: Warmup

    def factor(self, step: int, steps: int) -> float:
        """The fraction of the peak at which update `step` of `steps` learns."""
        ...


def warmup_steps(schedule: Schedule, steps: int) -> int:
    """The warmup of a run of `steps` steps in whole steps."""
    warmup = schedule.warmup
    if warmup == "auto":
        return min(getattr(schedule, "longest", LONGEST), int(AUTO * steps))
    return warmup if isinstance(warmup, int) else round(warmup * steps)


def check(schedule: Schedule, steps: int) -> None:
    """Refuse a warmup that does not end before the run does; a schedule that starts at its peak has none to end."""
    is_endless = warmup_steps(schedule, steps) >= steps and schedule.factor(0, steps) < 1
    what = f"the warmup does not end within the run's {plural(steps, 'step')}"
    fix = "take auto, a fraction of the run (10%), or more steps (trainer.max_steps or train.tokens)"
    refuse(is_endless, what, fix, key="schedule.warmup", value=schedule.warmup)


def identified(line: Mapping[str, Any], schedule: Schedule, steps: int) -> dict[str, Any]:
    """The line of a schedule as a run's identity has it: its warmup in steps, so that equal warmups are one run.

    A line that leaves the warmup out stands for the schedule's `longest`, as it did when that was every run's default.
    """
    warmup = warmup_steps(schedule, steps)
    left_out = "warmup" not in line and (schedule.warmup != "auto" or warmup == getattr(schedule, "longest", LONGEST))
    return dict(line) if left_out else {**line, "warmup": warmup}


def _rise(step: int, warmup: int) -> float:
    return min(1.0, (step + 1) / warmup) if warmup else 1.0


class _Falling(Schedule):
    """A schedule that falls with the fraction x of the way from the warmup's end to the run's end."""

    def __init__(self, *, warmup: Warmup = "auto", floor: Fraction = 0.0):
        self.warmup: Warmup = warmup
        self.floor = floor

    def fall(self, x: float) -> float:
        return 1.0

    def factor(self, step: int, steps: int) -> float:
        warmup = warmup_steps(self, steps)
        return _rise(step, warmup) * self.fall(min(1.0, max(0, step - warmup) / max(1, steps - warmup)))


class Constant(_Falling):
    """η(s) = 1 after the warmup."""

    def __init__(self, *, warmup: Warmup = 0):
        super().__init__(warmup=warmup)


class Cosine(_Falling):
    """η(s) = f + (1 − f)(1 + cos πx)/2, x the fraction of the way. (Loshchilov & Hutter 2016; f = 0.1 in Hoffmann et
    al. 2022)
    """

    def __init__(self, *, warmup: Warmup = "auto", floor: Fraction = 0.1):
        super().__init__(warmup=warmup, floor=floor)

    def fall(self, x: float) -> float:
        return self.floor + (1 - self.floor) * ((1 + math.cos(math.pi * x)) / 2)


class Linear(_Falling):
    """η(s) = 1 − (1 − f) x, x the fraction of the way. (Devlin et al. 2018)"""

    def fall(self, x: float) -> float:
        return 1 - (1 - self.floor) * x


class InverseSquareRoot:
    """η(s) = √(w/s) after w steps of warmup. (Vaswani et al. 2017, formula 3)

    `rise: flat` learns at the peak from the first step, as T5 does: 1/√max(s, w). (Raffel et al. 2019)
    """

    longest = 4000  # as in the paper

    def __init__(self, *, warmup: Warmup = "auto", rise: Literal["linear", "flat"] = "linear"):
        self.warmup: Warmup = warmup
        self.rise = rise

    def factor(self, step: int, steps: int) -> float:
        warmup = warmup_steps(self, steps)
        plateau = max(1, warmup)
        rise = _rise(step, warmup) if self.rise == "linear" else 1.0
        return rise * math.sqrt(plateau / max(step + 1, plateau))


class WSD:
    """Warmup, a stable trunk, and a cool-down over the last `decay` of the steps, a fraction (0.2, 20%) or a number of
    steps (500). (Hu et al. 2024; Hägele et al. 2024)

    `shape: linear` falls as 1 − x, `sqrt` as 1 − √x. The trunk does not know the run's end, so that one trunk serves
    every budget: a run branches from it at `cooldown(steps)`.
    """

    def __init__(
        self,
        *,
        warmup: Warmup = "auto",
        decay: PositiveFraction | Annotated[int, Range(least=2, most=10**18)] = 0.2,
        shape: Literal["linear", "sqrt"] = "linear",
    ):
        self.warmup: Warmup = warmup
        self.decay, self.shape = decay, shape

    def cooldown(self, steps: int) -> int:
        """The step at which the learning rate begins to fall."""
        length = self.decay if self.decay > 1 else round(self.decay * steps)
        return max(warmup_steps(self, steps), steps - int(length))

    def factor(self, step: int, steps: int) -> float:
        start, rise = self.cooldown(steps), _rise(step, warmup_steps(self, steps))
        if step < start:
            return rise
        share = min(1.0, (step - start + 1) / (steps - start + 1))
        return rise * (1 - (share if self.shape == "linear" else math.sqrt(share)))
