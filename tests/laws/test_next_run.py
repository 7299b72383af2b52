"""What to train next: designs, intervals under repeated looks, 10 and 100 times the compute, and rungs to be tuned."""

import numpy as np
import pytest

from scaling.laws import Points, design, expected_interval, fit, intervals, prediction
from scaling.laws.compare import joint
from scaling.laws.design import Candidates
from scaling.laws.horizon import best_points, effect, excess_of_short_cooldowns, horizon, rungs, tuned
from scaling.laws.intervals import Interval, student
from scaling.laws.next_run import Belief, Goal, Look, level_at_a_look, parse_goal, variances
from scaling.laws.problem import SharedErrors
from tests.command_line import refuses
from tests.laws.conftest import LAW

TRUTH = {"E": 2.184, "A": 26.3, "B": 36000.0, "alpha": 0.605, "beta": 0.945}
NOISE, CURVATURE = 0.002, 0.03


def grid() -> Candidates:
    """Five sizes, three budgets, two seeds; the runs of a size and a seed branch off one trunk."""
    N, D, seed = (axis.ravel() for axis in np.meshgrid([6e3, 2e4, 6e4, 1e5, 2e5], [7e5, 1e6, 2e6], np.arange(2)))
    trunks = np.unique(N * 10 + seed, return_inverse=True)[1].reshape(-1)
    return Candidates({"N": N, "D": D, "C": 6 * N * D}, trunks, 0.8 * 6 * N * D, 0.2 * 6 * N * D)


def test_the_half_width_after_a_run_is_that_of_the_design_with_it():
    field, goal, taken = grid(), parse_goal("E ± 0.01"), list(range(0, 22, 2))
    now, after = variances(goal, field, taken, Look((Belief(LAW, TRUTH),), NOISE, 0.9))
    assert np.all(after <= now)
    for row in (1, 24):  # of a trunk of its own, and of one that has two runs
        rows = [*taken, row]
        shared = SharedErrors(np.unique(field.trunks[rows], return_inverse=True)[1], 0.9)
        expected = expected_interval(LAW, TRUTH, field.at(rows), NOISE, goal.quantity(LAW), shared=shared)
        half = student(0.95, len(rows) - 5) * np.sqrt(after[row])
        assert half == pytest.approx(0.5 * (expected.high - expected.low), rel=1e-3)


def test_goals_are_read_as_they_are_written():
    assert (goal := parse_goal("loss at C=1e15 +/- 0.5 %")) == Goal(goal.text, "loss", 0.005, "relative", {"C": 1e15})
    assert (goal.name, goal.width_of(Interval("", 2, 1.99, 2.01, 0.9, "t"))) == ("loss at C=1e15", pytest.approx(0.005))
    law, theta = joint("chinchilla", ["A", "B"]), np.array([2.0, 30.0, 25.0, 4e4, 4e4, 0.6, 0.6, 0.95, 0.95])
    difference = parse_goal("loss of B - A at N=1e6 D=2e7 ± 0.01").quantity(law)
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
    assert student(level_at_a_look(0.95, 30, 1.0) or 0.0, 30) == pytest.approx(1.6 * student(0.95, 30), rel=0.05)


def test_a_design_beats_random_plans_of_the_same_cost():
    C = np.repeat(np.geomspace(1e10, 1e13, 5), 5)
    sizes = np.sqrt(C / 120) * np.tile(np.geomspace(0.2, 5, 5), 5)
    columns, target, budget = {"N": sizes, "D": C / (6 * sizes)}, prediction(LAW, {"N": 1e7, "D": 2e8}), 2e13
    plan = design(LAW, TRUTH, columns, C, budget, 0.005, target)
    assert budget >= plan.cost == pytest.approx(plan.repeats @ C)
    assert plan.repeats.max() == 1
    assert design(LAW, TRUTH, columns, C, budget, 0.005, target, seeds=3).repeats.max() > 1
    rng = np.random.default_rng(0)
    for _ in range(10):
        order = rng.permutation(len(C))
        rows = order[np.cumsum(C[order]) <= budget]
        if len(rows) > 6:
            random = expected_interval(LAW, TRUTH, {name: each[rows] for name, each in columns.items()}, 0.005, target)
            assert plan.expected.high / plan.expected.low <= random.high / random.low * 1.001
    refuses("raise the budget", design, LAW, TRUTH, columns, C, 3e10, 0.005, target)


def runs(seed: int = 0, noise: float = 0.002, **more: list[float]) -> Points:
    """Five sizes by five lengths of Chinchilla's law, and further runs."""
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 3e7, 5), np.geomspace(2e7, 2e9, 5)))
    N, D = np.append(N, more.get("N", [])), np.append(D, more.get("D", []))
    errors = noise * np.random.default_rng(seed).standard_normal(len(N))
    return Points({"N": N, "D": D, "loss": (1.8 + 400 * N**-0.34 + 400 * D**-0.34) * np.exp(errors)})


def cooled(excess: float, seed: int, decay=lambda steps: 0.2 * steps) -> Points:
    """The same under WSD; the shortest cool-down costs `excess` of the loss, others less as 1/steps."""
    points, steps = runs(seed), decay(runs()["D"] / 1e5)
    points = points.with_column("cooldown", steps, "steps")
    return points.with_column("loss", points["loss"] * (1 + excess * steps.min() / steps), "loss")


def fitted(points: Points, law: str = "chinchilla"):
    return fit(law, points, objective="log_squared", starts=64)


def test_the_next_run_narrows_the_interval_as_much_as_it_says_and_predictions_are_optimal_and_hold_the_truth():
    law = fitted(runs())
    document = horizon(law, method="t") or pytest.fail("no horizon")
    for row, times in zip(document["predictions"], (10, 100)):
        assert pytest.approx(times * 6 * 3e7 * 2e9) == row["C"] == pytest.approx(6 * row["N"] * row["D"])
        truth = 1.8 + 400 * row["N"] ** -0.34 + 400 * row["D"] ** -0.34
        assert row["interval_run"]["low"] < truth < row["interval_run"]["high"]
    run, place, widths = document["next_run"], document["predictions"][0], []
    for points in (runs(noise=0.0), runs(noise=0.0, N=[run["N"]], D=[run["D"]])):
        # The same noise about both fits: the widths differ by what the run tells.
        noisy = points.with_column("loss", points["loss"] * np.exp(0.002 * (-1.0) ** np.arange(len(points))), "loss")
        (bound,) = intervals(fitted(noisy), "t", quantities=[prediction(law.form, place)]).values()
        widths.append(np.log(bound.high / bound.low))
    assert widths[1] / widths[0] == pytest.approx(run["width"], rel=0.15)
    assert run["C"] <= place["C"] * 1.001


@pytest.mark.parametrize("excess", [0.0, 0.02])
def test_the_interval_holds_the_cost_of_short_cool_downs(excess):
    """Of twelve studies three or more miss a 95% interval once in 50 times; these are fixed draws."""
    found = [excess_of_short_cooldowns(fitted(cooled(excess, seed))) for seed in range(12)]
    assert sum(each["low"] <= excess <= each["high"] for each in found) >= 10
    assert sum(each["low"] > 0 for each in found) <= (1 if excess == 0 else 12)
    # What some runs lack that cool down over a fixed number of steps is not the law's term of D.
    some = cooled(2 * excess, 0, lambda steps: np.where(np.arange(25) % 2, 0.2 * steps, 25.0))
    document = excess_of_short_cooldowns(fitted(some))
    assert (document["low"] > 0) == (excess > 0)
    assert ("undercooled; raise schedule.decay" if excess else "loses at most") in document["sentence"]


def ladder(best, noise=5e-4):
    """Sixteen rungs of N and D, each trained at half, once and twice the rate 1e-3; `best` is the best rate of N."""
    N, D = (np.repeat(each.ravel(), 3) for each in np.meshgrid(np.geomspace(1e5, 1e7, 4), np.geomspace(2e6, 2e8, 4)))
    rate, errors = np.tile([0.5e-3, 1e-3, 2e-3], 16), noise * np.random.default_rng(0).standard_normal(48)
    excess = CURVATURE / 2 * np.log(rate / best(N)) ** 2
    columns = {"N": N, "D": D, "loss": (1.8 + 20 * N**-0.3 + 40 * D**-0.3) * np.exp(excess + errors), "lr": rate}
    return columns, rate == 1e-3


def test_what_a_rung_loses_and_its_best_rate_are_those_of_the_simulation():
    found, left = rungs(*ladder(lambda N: 2e-3)), np.expm1(CURVATURE / 2 * np.log(2) ** 2)
    assert len(found) == 16
    assert np.mean([rung["left"].covers(left) for rung in found]) > 0.8
    assert np.mean([rung["best"].covers(2e-3) for rung in found]) > 0.8
    assert all(rung["left"].low > 0 and rung["used"] == 1e-3 for rung in found)
    columns, used = ladder(lambda N: 1e-3)
    assert sum(rung["left"].low > 0 for rung in rungs(columns, used)) <= 2, "of tuned rungs"
    # The batch is judged at the rate of the rung alone.
    more = {name: np.concatenate([column, column[used], column[used]]) for name, column in columns.items()}
    more["batch"] = np.repeat([16.0, 8.0, 32.0], [48, 16, 16])
    assert {rung["knob"] for rung in rungs(more, np.concatenate([used, np.zeros(32, bool)]))} == {"lr", "batch"}


def test_a_rate_that_falls_with_size_changes_the_exponent_of_size_and_the_best_points_give_its_law():
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25)
    law = fit("chinchilla", {name: columns[name][used] for name in ("N", "D", "loss")}, starts=64)
    change = {each.name: each for each in effect(law, rungs(columns, used))}
    assert change["alpha"].estimate == pytest.approx(-0.047, abs=0.01)
    assert change["alpha"].high < 0
    assert change["beta"].covers(0.0)
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25, noise=2e-5)
    table = [dict(zip(columns, map(float, values), strict=True)) for values in zip(*columns.values(), strict=True)]
    for row, point in enumerate(table):
        beside = "" if used[row] else f"{row // 3 * 3 + 1}"
        point |= {"name": f"{row}", "beside": beside, "held_out": 0, "B": 64}
    points = best_points(tuned(law, table))
    assert {point["knob"] for point in points} == {"lr"}
    assert all(point["low"] < point["lr"] < point["high"] and point["B"] == 64 for point in points)
    best = fit("learning_rate_n", {name: [point[name] for point in points] for name in ("N", "lr")})
    assert best.estimates["b_N"] == pytest.approx(-0.25, abs=0.02)


def test_a_relative_goal_of_a_parameter_at_zero_is_open_and_a_row_is_not_compared_with_itself():
    """A fit to few runs often ends at E = 0."""
    field, goal, taken = grid(), parse_goal("E ± 5%"), list(range(0, 22, 2))
    assert goal.width_of(Interval("E", 0.0, 0.0, 0.1, 0.95, "t")) == np.inf
    look = Look((Belief(LAW, {**TRUTH, "E": 0.0}),), NOISE, 0.9)
    relative, absolute = (variances(parse_goal(text), field, taken, look) for text in ("E ± 5%", "E ± 0.1"))
    assert np.argsort(relative[1]).tolist() == np.argsort(absolute[1]).tolist()
    refuses("it compares a row with itself", parse_goal, "loss of A - A at N=1e6 D=1e7 ± 0.1")
