"""From compute to a task in two steps: size and data to loss, loss to the task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import Fit
from scaling.law.interval import Interval
from scaling.law.noise import measure, student
from scaling.law.profile import standard_error
from scaling.law.quantity import prediction


@dataclass(frozen=True)
class TwoStep:
    """A law of loss and a law of a task's score given that loss.

    Bhagia et al. 2024, arXiv 2412.04403, section 3; Gadre et al. 2024, arXiv 2403.08540, section 2.
    """

    loss: Fit
    task: Fit

    def __post_init__(self):
        if self.task.form.inputs != ("loss",):
            raise ScalingError(f"{self.task.form.name} is not a law of a task given loss", fix="fit task_sigmoid, say")

    def predict(self, **inputs: Any) -> np.ndarray:
        """The score at these columns of the law of loss."""
        return self.task.predict(loss=self.loss.predict(**inputs))

    def interval(self, level: float = 0.95, **inputs: float) -> Interval:
        """Of the mean score at one row of columns, the errors of both steps together, as independent.

        The second step is taken at the predicted loss and the first is carried through its slope there, each with its
        own Student's t, so that the wider half-width rules (the sum of squares of the two half-widths).
        """
        log_loss, error = _step(self.loss, inputs)
        loss = float(np.exp(log_loss))
        score = float(self.task.predict(loss=loss))
        slope = float(self.task.predict(loss=loss * 1.001) - self.task.predict(loss=loss * 0.999)) / 0.002
        log_score, task_error = _step(self.task, {"loss": loss})
        first = abs(slope) * error * student(level, self.loss.degrees_of_freedom)
        second = float(np.exp(log_score)) * task_error * student(level, self.task.degrees_of_freedom)
        width = float(np.hypot(first, second))
        return Interval(self.task.form.target, score, score - width, score + width, level, "t")


def _step(fit: Fit, inputs: dict[str, float]) -> tuple[float, float]:
    """Log of a law's prediction and its standard error."""
    noise = measure(fit.problem.objective, np.array([fit.objective]), len(fit.problem.observed), len(fit.problem.free))
    value, error, _ = standard_error(fit.problem, prediction(fit.form, inputs), fit.u[None], noise)
    return float(value[0]), float(error[0])
