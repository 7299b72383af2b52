"""Designs: what a run costs and narrows, all at once and one after another, and intervals under repeated looks."""

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.laws import design, expected_interval, prediction
from scaling.laws.compare import joint
from scaling.laws.design import Candidates
from scaling.laws.intervals import Interval, student
from scaling.laws.next_run import Belief, Look, level_at_a_look, parse_goal, variances
from scaling.laws.problem import SharedErrors
from tests.laws.studies import LAW

TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
NOISE = 0.002


def grid() -> Candidates:
    """Five sizes, three budgets, two seeds; the runs of a size and a seed branch off one trunk."""
    N, D, seed = (axis.ravel() for axis in np.meshgrid([6e3, 2e4, 6e4, 1e5, 2e5], [7e5, 1e6, 2e6], np.arange(2)))
    trunks = np.unique(N * 10 + seed, return_inverse=True)[1].reshape(-1)
    return Candidates({"N": N, "D": D, "C": 6 * N * D}, trunks, 0.8 * 6 * N * D, 0.2 * 6 * N * D)


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_half_width_after_a_run_is_that_of_the_design_with_it(correlation):
    field, goal, taken = grid(), parse_goal("E ± 0.01"), list(range(0, 22, 2))
    now, after = variances(goal, field, taken, Look((Belief(LAW, TRUTH),), NOISE, correlation))
    assert np.all(after <= now)
    for row in (1, 24):  # of a trunk of its own, and of one that has two runs
        rows = [*taken, row]
        shared = SharedErrors(np.unique(field.trunks[rows], return_inverse=True)[1], correlation)
        expected = expected_interval(LAW, TRUTH, field.at(rows), NOISE, goal.quantity(LAW), shared=shared)
        half = student(0.95, len(rows) - 5) * np.sqrt(after[row])
        assert half == pytest.approx(0.5 * (expected.high - expected.low), rel=1e-3)


def test_goals_are_read_as_they_are_written():
    goal = parse_goal("loss at C=1e15 ± 0.5%")
    assert (goal.what, goal.half_width, goal.unit, dict(goal.place)) == ("loss", 0.005, "relative", {"C": 1e15})
    assert goal.width_of(Interval("loss", 2.0, 1.99, 2.01, 0.95, "t")) == pytest.approx(0.005)
    law = joint("chinchilla", ["ReLU", "GEGLU"])
    theta = np.array([2.0, 30.0, 25.0, 4e4, 4e4, 0.6, 0.6, 0.95, 0.95])
    difference = parse_goal("loss of GEGLU - ReLU at N=1e6 D=2e7 ± 0.01").quantity(law)
    assert difference.of(law, theta) == pytest.approx((25.0 - 30.0) * 1e6**-0.6)


def test_a_mean_is_missed_at_no_look_by_more_than_one_study_in_twenty():
    """Of 2,000 studies of 40 normal values with unknown mean and scale, looked at after each value."""
    values = np.random.default_rng(0).standard_normal((2000, 40))
    missed = np.zeros((2, len(values)), bool)
    for count in range(3, 41):
        mean, error = values[:, :count].mean(1), values[:, :count].std(1, ddof=1) / np.sqrt(count)
        for kind, level in enumerate((0.95, level_at_a_look(0.95, count - 1, count / 40))):
            if level is not None:
                missed[kind] |= np.abs(mean) > student(level, count - 1) * error
    one, every = missed.mean(1)
    assert one > 0.2
    assert 0.01 < every < 0.05
    assert level_at_a_look(0.95, 2, 0.05) is None, "it is open at first, and nearest to that of one look at the end"
    assert student(level_at_a_look(0.95, 30, 1.0) or 0.0, 30) == pytest.approx(1.6 * student(0.95, 30), rel=0.05)


def test_a_design_beats_random_plans_of_the_same_cost():
    C = np.repeat(np.geomspace(1e10, 1e13, 5), 5)
    sizes = np.sqrt(C / 120) * np.tile(np.geomspace(0.2, 5, 5), 5)
    columns, target, budget = {"N": sizes, "D": C / (6 * sizes)}, prediction(LAW, {"N": 1e7, "D": 2e8}), 2e13
    plan = design(LAW, TRUTH, columns, C, budget, 0.005, target)
    assert plan.cost == pytest.approx(plan.repeats @ C)
    assert plan.cost <= budget
    assert plan.repeats.max() == 1
    assert design(LAW, TRUTH, columns, C, budget, 0.005, target, seeds=3).repeats.max() > 1
    rng = np.random.default_rng(0)
    for _ in range(10):
        order = rng.permutation(len(C))
        rows = order[np.cumsum(C[order]) <= budget]
        if len(rows) > 6:
            random = expected_interval(LAW, TRUTH, {name: each[rows] for name, each in columns.items()}, 0.005, target)
            assert plan.expected.high / plan.expected.low <= random.high / random.low * 1.001
    with pytest.raises(ScalingError, match="raise the budget"):
        design(LAW, TRUTH, columns, C, 3e10, 0.005, target)
    with pytest.raises(ScalingError, match="plan more runs"):
        expected_interval(LAW, TRUTH, {name: each[:5] for name, each in columns.items()}, 0.005, target)
