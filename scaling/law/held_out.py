"""Runs held out of a fit: which they are, and what the fit predicts for them."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.forms import Form
from scaling.law.interval import Method
from scaling.law.points import Points
from scaling.law.predictions import Prediction, predict_runs, rows_of
from scaling.law.row_condition import condition, is_condition
from scaling.law.two_step import TwoStep, fit_law, has_score

HELD_OUT = "held_out"
"""The column that marks the held-out runs in the project's own tables."""

YES = MappingProxyType({"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False, "": False})


def column_held_out(points: Points) -> np.ndarray | None:
    """Which runs the table's own column holds out; None where it has no such column or holds out none."""
    if HELD_OUT not in points:
        return None
    words = [f"{value:g}" if isinstance(value, float) else str(value) for value in points[HELD_OUT].tolist()]
    words = ["" if word == "nan" else word.strip().casefold() for word in words]
    for word in words:
        if word not in YES:
            raise ScalingError(
                "is neither 0 nor 1",
                file=points.source or None,
                key=HELD_OUT,
                value=word,
                fix="write 1 for a held-out run",
            )
    mask = np.array([YES[word] for word in words], bool)
    return mask if mask.any() else None


def split_held_out(points: Points, text: str | None) -> tuple[Points, Points | None]:
    """The points to fit and those held out: `N>=1e9`, or `N` alone for the largest N, or `none`.

    By default, and under `largest`, those that the table's own column holds out.
    """
    if text in (None, "largest"):
        mask = column_held_out(points)
        return (points, None) if mask is None else points.hold_out(mask)
    if text == "none":
        return points, None
    if is_condition(text):
        mask = condition(text, "hold-out").mask(points.columns, "hold-out", points.source)
    else:
        column = points.numbers(text.strip())
        mask = column == column.max()
    if mask.all() or not mask.any():
        share = "every run" if mask.all() else "no run"
        raise ScalingError(f"holds out {share}", key="hold-out", value=text, fix="choose another bound")
    return points.hold_out(mask)


@dataclass(frozen=True)
class HeldOut:
    """Runs that took no part in a fit, next to what it predicts for them."""

    fit: Fit | TwoStep
    runs: tuple[str | None, ...]
    observed: np.ndarray
    predictions: tuple[Prediction, ...]

    @property
    def predicted(self) -> np.ndarray:
        return np.array([prediction.estimate for prediction in self.predictions])

    @property
    def errors(self) -> np.ndarray:
        return self.predicted - self.observed

    @property
    def relative_errors(self) -> np.ndarray:
        """Infinite or not a number where a score is 0: `errors` are known there too."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.predicted / self.observed - 1.0

    @property
    def covered(self) -> np.ndarray:
        """Is each loss inside its interval of a new run? Empty without intervals."""
        intervals = [prediction.run for prediction in self.predictions if prediction.run is not None]
        return np.array([interval.covers(loss) for interval, loss in zip(intervals, self.observed)], bool)

    def to_json(self) -> dict[str, Any]:
        run = self.predictions[0].run
        return {
            "n": len(self.observed),
            "mean_absolute_error": float(np.mean(np.abs(self.errors))),
            "largest_error": float(np.max(np.abs(self.errors))),
            "mean_absolute_relative_error": float(np.mean(np.abs(self.relative_errors))),
            "largest_relative_error": float(np.max(np.abs(self.relative_errors))),
            "covered": None if run is None else float(np.mean(self.covered)),
            "level": None if run is None else run.level,
        }


def predict_held_out(
    form: Form | str,
    points: Points,
    mask: np.ndarray,
    *,
    level: float = 0.95,
    method: Method | None = "profile",
    **choices: Any,
) -> HeldOut:
    """Fit without the points of mask `held` and predict them."""
    mask = np.asarray(mask, bool)
    if not mask.any() or mask.all():
        raise ScalingError(f"{int(mask.sum())} of {len(mask)} points are held out", fix="hold out some and keep some")
    rest, tested = points.hold_out(mask)
    return judge(fit_law(form, rest, **choices), tested, level, method)


def judge(
    fit: Fit | TwoStep, held_out: Points, level: float = 0.95, method: Method | None = "profile", *, seed: int = 0
) -> HeldOut:
    """What a fit predicts for points it has not seen; in two steps for those that have a score."""
    if isinstance(fit, TwoStep):
        scored = has_score(fit.form, held_out)
        held_out = held_out if scored.all() else held_out.where(scored)
    predictions = predict_runs(fit, rows_of(held_out, fit), level, method, seed=seed)
    runs = tuple(map(str, held_out["run"])) if "run" in held_out else (None,) * len(held_out)
    return HeldOut(fit, runs, held_out.numbers(fit.form.target), tuple(predictions))


def leave_one_scale_out(form: Form | str, points: Points, scale: str, **choices: Any) -> dict[float, HeldOut]:
    """Each value of column `scale` predicted from the others; the largest is the extrapolation that matters."""
    values = np.asarray(points[scale], float)
    return {float(value): predict_held_out(form, points, values == value, **choices) for value in np.unique(values)}


def largest_scale_out(form: Form | str, points: Points, scale: str, **choices: Any) -> HeldOut:
    """The largest value of column `scale` predicted from the rest."""
    values = np.asarray(points[scale], float)
    return predict_held_out(form, points, values == values.max(), **choices)
