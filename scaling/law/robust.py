"""How much wider an interval becomes when errors belong together in clusters."""

from __future__ import annotations

import numpy as np

from scaling.law.fit import Fit
from scaling.law.noise import Noise
from scaling.law.profile import standard_error
from scaling.law.quantity import Quantity


def cluster_inflation(fit: Fit, quantity: Quantity, noise: Noise) -> tuple[float, float]:
    """The factor on the quantity's variance, at least 1, and the degrees of freedom.

    The sandwich of clusters' scores over the variance of independent errors, with G - 1 degrees of freedom for G
    clusters (Cameron and Miller 2015, Journal of Human Resources 50(2), section VI).
    """
    if fit.clusters is None:
        return 1.0, float(fit.degrees_of_freedom)
    problem = fit.problem
    residual, jacobian = problem.linearise(fit.u[None])
    scores = jacobian[0] * problem.weights * problem.objective.influence(residual[0])
    groups = int(fit.clusters.max()) + 1
    summed = np.zeros((groups, len(fit.u)))
    np.add.at(summed, fit.clusters, scores.T)
    n, p = len(fit.clusters), len(fit.u)
    correction = groups / max(groups - 1, 1) * (n - 1) / max(n - p, 1)
    # `direction` is the change of the coordinates per unit of the quantity; its score is the quantity's.
    _, error, direction = standard_error(problem, quantity, fit.u[None], noise)
    along = summed @ direction[0]
    curvature = noise.kappa[0] / max(error[0] ** 2, 1e-300)
    sandwich = correction * float(along @ along) / curvature**2
    return max(1.0, sandwich / max(float(error[0] ** 2), 1e-300)), float(max(groups - 1, 1))
