"""Designs: the runs that inform most for their cost, and the intervals that they will give."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.laws import design, expected_interval, fit, named, prediction, simulated_intervals
from scaling.laws.design import choose_runs

TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
LAW = named("chinchilla")
FARSEER = np.array([0.45, -0.11, 0.04, 0.09, 0.28, -0.16, 0.3, -0.17, -0.14])
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


def test_simulation_agrees_with_information_where_noise_is_small():
    target = prediction(LAW, {"N": 1e9, "D": 2e10})
    expected = expected_interval(LAW, TRUTH, GRID, 0.002, target)
    simulated, coverage = simulated_intervals(LAW, TRUTH, GRID, 0.002, [target], studies=150)[target.name]
    widths = [np.log(interval.high / interval.low) for interval in (simulated, expected)]
    assert widths[0] == pytest.approx(widths[1], rel=0.15)
    assert coverage > 0.88


def test_a_tenth_of_the_cost_is_spent_where_it_informs_the_targets():
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 6e9, 8), np.geomspace(1e9, 5e11, 8)))
    form, table, cost = named("farseer"), {"N": N, "D": D}, N * D
    losses = form.predict(FARSEER, table) * np.exp(1e-3 * np.random.default_rng(0).standard_normal(len(N)))
    far, budget = {"N": np.array([2e10]), "D": np.array([2e12])}, 0.1 * cost.sum()
    asked = []

    def observe(rows):
        asked.extend(rows.tolist())
        return losses[rows]

    chosen = choose_runs([form], table, observe, cost, budget, far)
    assert asked == chosen.tolist()
    assert len(set(asked)) == len(asked)
    assert cost[chosen].sum() <= budget
    np.testing.assert_array_equal(chosen, choose_runs([form], table, lambda rows: losses[rows], cost, budget, far))
    # As many of the cheapest runs as the budget pays for are worse.
    cheap = np.argsort(cost)[: np.searchsorted(np.cumsum(np.sort(cost)), budget)]
    truth = form.predict(FARSEER, far)[0]

    def error(rows):
        points = {"N": N[rows], "D": D[rows], "loss": losses[rows]}
        return abs(fit(form, points, starts=64).predict(**far)[0] / truth - 1)

    assert error(chosen) < error(cheap)
    with pytest.raises(ScalingError, match="give each run its cost"):
        choose_runs([form], table, observe, 0 * cost, budget, far)
