"""Designs: the runs that inform most for their cost, and the intervals that they will give."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.laws import design, expected_interval, named, prediction

TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
LAW = named("chinchilla")
C = np.repeat(np.geomspace(1e17, 1e20, 5), 5)
SIZES = np.sqrt(C / 120) * np.tile(np.geomspace(0.2, 5, 5), 5)
GRID = {"N": SIZES, "D": C / (6 * SIZES)}


def test_a_design_beats_random_plans_of_the_same_cost():
    target = prediction(LAW, {"N": 1e10, "D": 2e11})
    plan = design(LAW, TRUTH, GRID, C, 2e20, 0.005, target)
    width = plan.expected.high / plan.expected.low
    assert plan.cost == pytest.approx(plan.repeats @ C)
    assert plan.cost <= 2e20
    assert plan.repeats.max() == 1
    assert design(LAW, TRUTH, GRID, C, 2e20, 0.005, target, seeds=3).repeats.max() > 1
    rng = np.random.default_rng(0)
    for _ in range(10):
        order = rng.permutation(len(C))
        rows = order[np.cumsum(C[order]) <= 2e20]
        if len(rows) > 6:
            random = expected_interval(LAW, TRUTH, {name: column[rows] for name, column in GRID.items()}, 0.005, target)
            assert width <= random.high / random.low * 1.001
    with pytest.raises(ScalingError, match="raise the budget"):
        design(LAW, TRUTH, GRID, C, 3e17, 0.005, target)
    with pytest.raises(ScalingError, match="plan more runs"):
        expected_interval(LAW, TRUTH, {name: column[:5] for name, column in GRID.items()}, 0.005, target)
