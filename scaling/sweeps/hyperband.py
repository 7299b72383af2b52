"""Hyperband as W&B stops runs: at each bracket, only the best 1/η of those that came so far go on. (Li et al. 2018)

    brackets = min_iter η^i, i = 0, 1, …     or     max_iter / η^i, i = 1 … s

A bracket counts how often the metric was logged, which for the held-out loss is once an evaluation. At a bracket b the
threshold is the ⌊n/η⌋-th best (counted from 0) of the n values that any run has at b. A running run is stopped where
its value at the last bracket it reached is worse (`strict`), or where the best of its values so far is.

W&B's departure from the paper: runs are not given their budgets by bracket; all start alike, and each is looked at when
it reaches a bracket, with those that were there before.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from scaling.errors import ScalingError, nearest
from scaling.schema import PositiveInt, Range, check

MOST = 100  # brackets that W&B reckons with
KEYS: dict[str, Any] = {
    "type": str,
    "min_iter": PositiveInt,
    "max_iter": PositiveInt,
    "s": Annotated[int, Range(least=1, most=MOST)],
    "eta": Annotated[float, Range(above=1, most=1000)],
    "strict": bool,
}


@dataclass(frozen=True)
class Hyperband:
    brackets: tuple[int, ...]
    eta: float
    strict: bool

    def stops(self, history: Sequence[float], others: Collection[Sequence[float]]) -> bool:
        """Whether the run of this history is stopped now; lower is better, and `others` are all runs but it."""
        reached = [bracket for bracket in self.brackets if bracket < len(history)]
        if not reached:
            return False
        last = reached[-1]
        values = sorted(values_of[last] for values_of in (history, *others) if last < len(values_of))
        threshold = values[int(len(values) / self.eta)]
        return (history[last] if self.strict else min(history)) > threshold


def check_keys(line: Mapping[str, Any], keys: Mapping[str, Any], noun: str) -> None:
    """Refuse a key that is none of these, or a value that has not its type."""
    for key, value in line.items():
        if key not in keys:
            raise ScalingError(f"{noun} has no such key", key=key, fix=nearest(key, keys))
        check(key, value, keys[key])


def hyperband(line: Mapping[str, Any]) -> Hyperband:
    """What a sweep's `early_terminate` means."""
    check_keys(line, KEYS, "hyperband")
    if line.get("type") != "hyperband":
        raise ScalingError("there is no such rule", key="type", value=line.get("type"), fix="W&B knows hyperband")
    eta = line.get("eta", 3)
    if "max_iter" in line and "s" in line:
        spans = [line["max_iter"] / eta**step for step in range(1, line["s"] + 1)]
        brackets = sorted(int(span) for span in spans if span >= 1)
    elif "min_iter" in line:
        brackets = [int(line["min_iter"] * eta**step) for step in range(MOST) if line["min_iter"] * eta**step < 2**53]
    else:
        raise ScalingError("hyperband needs min_iter, or max_iter and s", fix="write min_iter: 3")
    if not brackets:
        raise ScalingError("there is no bracket", key="max_iter", value=line["max_iter"], fix="take a larger one")
    return Hyperband(tuple(brackets), eta, bool(line.get("strict", True)))
