"""The next run: what a candidate costs and narrows, and goals as people write them."""

import numpy as np
import pytest

from scaling.law import expected_interval, joint, named
from scaling.law.goal import parse_goal
from scaling.law.interval import Interval
from scaling.law.next_run import Belief, Candidates, Look, choose, confirmed, expected_path, look, rank
from scaling.law.noise import student
from scaling.law.shared_errors import SharedErrors

TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
LAW = named("chinchilla")


def grid(seeds=2) -> Candidates:
    """Five sizes, three budgets; the runs of a size and a seed branch off one trunk."""
    N, D, seed = (axis.ravel() for axis in np.meshgrid([6e3, 2e4, 6e4, 1e5, 2e5], [7e5, 1e6, 2e6], np.arange(seeds)))
    trunks = np.unique(N * 10 + seed, return_inverse=True)[1].reshape(-1)
    return Candidates({"N": N, "D": D}, trunks, 0.8 * 6 * N * D, 0.2 * 6 * N * D)


def supposed(*beliefs: Belief, correlation=0.0) -> Look:
    return Look(beliefs or (Belief(LAW, TRUTH),), None, 0.002, correlation, 0)


def test_a_trunk_that_is_there_costs_no_more_and_one_that_passed_is_trained_whole():
    field = grid(1)
    small = [row for row in range(len(field)) if field.columns["N"][row] == 6e3]
    short, middle, long = sorted(small, key=lambda row: field.columns["D"][row])
    whole = field.stem + field.own
    assert field.cost([]) == pytest.approx(whole)
    assert field.cost([short])[middle] == pytest.approx(whole[middle] - field.stem[short])
    assert field.cost([long])[short] == pytest.approx(whole[short])


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_the_half_width_after_a_run_is_that_of_the_design_with_it(correlation):
    field, goal = grid(), parse_goal("E ± 0.01")
    taken = list(range(0, len(field), 2))
    ranking = rank(goal, field, taken, supposed(correlation=correlation))
    for row in (1, 17):
        rows = [*taken, row]
        shared = SharedErrors(np.unique(field.trunks[rows], return_inverse=True)[1], correlation)
        expected = expected_interval(LAW, TRUTH, field.at(rows), 0.002, goal.quantity(LAW), shared=shared)
        assert ranking.after[row] == pytest.approx(0.5 * (expected.high - expected.low), rel=1e-3)
    assert np.all(ranking.score > 0)


def test_laws_that_disagree_send_a_run_where_it_tells_them_apart():
    field, goal = grid(), parse_goal("loss at N=1e7 D=1e8 ± 0.1%")
    steeper = {**TRUTH, "E": 2.05, "alpha": 0.4, "A": 10.0}
    taken = list(range(0, len(field), 2))
    both = supposed(Belief(LAW, TRUTH, 0.5), Belief(LAW, steeper, 0.5))
    theta = [np.array([each.estimates[name] for name in LAW.parameter_names]) for each in both.beliefs]
    apart = np.abs(np.diff([np.log(LAW.predict(each, dict(field.columns))) for each in theta], axis=0)[0])
    ranking, alone = rank(goal, field, taken, both), rank(goal, field, taken, supposed())
    assert ranking.now > 3 * alone.now
    gain = np.log(ranking.now / ranking.after)
    assert np.corrcoef(gain, apart)[0, 1] > 0.5


def test_the_interval_of_several_laws_holds_their_disagreement():
    field, goal = grid(), parse_goal("E ± 0.01")
    rows = list(range(len(field)))
    theta = np.array([TRUTH[name] for name in LAW.parameter_names])
    losses = LAW.predict(theta, dict(field.columns)) * np.exp(
        0.002 * np.random.default_rng(1).standard_normal(len(rows))
    )
    other = named("over_training")
    columns = Candidates(
        {
            **field.columns,
            "C": 6 * field.columns["N"] * field.columns["D"],
            "M": field.columns["D"] / field.columns["N"],
        },
        field.trunks,
        field.stem,
        field.own,
    )
    both = look(goal, [LAW, other], columns, rows, losses)
    ends = [look(goal, [each], columns, rows, losses).interval for each in (LAW, other)]
    assert sum(both.weights) == pytest.approx(1.0)
    centre = both.interval.estimate
    assert centre == pytest.approx(sum(w * i.estimate for w, i in zip(both.weights, ends, strict=True)))
    freedom = [each.degrees_of_freedom for each in both.fits]
    above = sum(
        w * np.hypot(i.high - i.estimate, student(0.95, f) * (i.estimate - centre))
        for w, i, f in zip(both.weights, ends, freedom, strict=True)
    )
    assert both.interval.high == pytest.approx(centre + above)


def test_a_path_stays_within_its_budget_and_stops_at_two_narrow_looks():
    field, goal = grid(), parse_goal("E ± 0.1")
    path = expected_path(goal, field, supposed(correlation=0.9), 1e30, goal.half_width)
    assert confirmed(path.half_widths, 0.1)
    assert not confirmed(path.half_widths[:-1], 0.1)
    short = expected_path(goal, field, supposed(), 0.5 * path.cost)
    assert short.cost <= 0.5 * path.cost
    assert choose(goal, field, list(range(len(field))), supposed(), 1e30) is None


def test_goals_are_read_as_they_are_written():
    goal = parse_goal("loss at C=1e15 ± 0.5%")
    assert (goal.what, goal.half_width, goal.unit, dict(goal.place)) == ("loss", 0.005, "relative", {"C": 1e15})
    assert parse_goal("beta +- 0.1") == parse_goal("beta +- 0.1")
    assert parse_goal("E +/- 0.01").half_width == 0.01
    assert goal.width_of(Interval("loss", 2.0, 1.99, 2.01, 0.95, "t")) == pytest.approx(0.005)
    assert goal.width_of(Interval("loss", 2.0, 1.99, 2.01, 0.95, "t", open_below=True)) == np.inf


def test_a_difference_between_two_variants_is_that_of_their_predictions():
    law = joint.joint("chinchilla", ["ReLU", "GEGLU"], "exponents")
    goal = parse_goal("loss of GEGLU - ReLU at N=1e6 D=2e7 ± 0.01")
    values = {"E": 2.0, "A[ReLU]": 30.0, "A[GEGLU]": 25.0, "B[ReLU]": 4e4, "B[GEGLU]": 4e4}
    values |= {f"{name}[{row}]": power for row in law.variants for name, power in (("alpha", 0.6), ("beta", 0.95))}
    theta = np.array([values[name] for name in law.parameter_names])
    assert goal.quantity(law).of(law, theta) == pytest.approx((25.0 - 30.0) * 1e6**-0.6)
