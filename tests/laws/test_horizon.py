"""What a study says of 10 and 100 times its compute, of short cool-downs, and of rungs that are not tuned."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.laws import Points, fit, intervals, prediction
from scaling.laws.horizon import best_points, effect, excess_of_short_cooldowns, horizon, rungs, sentence, tuned


def runs(seed: int = 0, noise: float = 0.002, **more: list[float]) -> Points:
    """Five sizes by five lengths of Chinchilla's law, and further runs."""
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 3e7, 5), np.geomspace(2e7, 2e9, 5)))
    N, D = np.append(N, more.get("N", [])), np.append(D, more.get("D", []))
    errors = noise * np.random.default_rng(seed).standard_normal(len(N))
    return Points({"N": N, "D": D, "loss": (1.8 + 400 * N**-0.34 + 400 * D**-0.34) * np.exp(errors)})


def cooled(excess: float, seed: int, decay=lambda steps: 0.2 * steps) -> Points:
    """The same under WSD; the shortest cool-down costs `excess` of the loss, others less as 1/steps."""
    points = runs(seed)
    steps = decay(points["D"] / 1e5)
    points = points.with_column("cooldown", steps, "steps")
    return points.with_column("loss", points["loss"] * (1 + excess * steps.min() / steps), "loss")


def fitted(points: Points, law: str = "chinchilla"):
    return fit(law, points, objective="log_squared", starts=64)


def test_the_predictions_are_compute_optimal_and_hold_the_truth():
    for seed in range(2):
        document = horizon(fitted(runs(seed)))
        for row, times in zip(document["predictions"], (10, 100)):
            assert pytest.approx(times * 6 * 3e7 * 2e9) == row["C"] == pytest.approx(6 * row["N"] * row["D"])
            truth = 1.8 + 400 * row["N"] ** -0.34 + 400 * row["D"] ** -0.34
            assert row["interval_run"]["low"] < truth < row["interval_run"]["high"]
    assert horizon(fitted(runs(), "power_law_floor_n")) is None


def test_the_next_run_narrows_the_interval_as_much_as_it_says():
    law = fitted(runs())
    document = horizon(law, method="t") or pytest.fail("no horizon")
    run, place = document["next_run"], document["predictions"][0]
    widths = []
    for points in (runs(noise=0.0), runs(noise=0.0, N=[run["N"]], D=[run["D"]])):
        # The same noise about both fits: the widths differ by what the run tells.
        noisy = points.with_column("loss", points["loss"] * np.exp(0.002 * (-1.0) ** np.arange(len(points))), "loss")
        (bound,) = intervals(fitted(noisy), "t", quantities=[prediction(law.form, place)]).values()
        widths.append(np.log(bound.high / bound.low))
    assert widths[1] / widths[0] == pytest.approx(run["width"], rel=0.15)
    assert run["C"] <= place["C"] * 1.001
    assert run["halves"] == (run["width"] <= 0.5)
    assert f"C = {run['C']:.3g}" in sentence(document)


@pytest.mark.parametrize("excess", [0.0, 0.02])
def test_the_interval_holds_the_cost_of_short_cool_downs(excess):
    """Of twelve studies three or more miss a 95% interval once in 50 times; these are fixed draws."""
    found = [excess_of_short_cooldowns(fitted(cooled(excess, seed))) for seed in range(12)]
    assert sum(each["low"] <= excess <= each["high"] for each in found) >= 10
    assert sum(each["low"] > 0 for each in found) <= (1 if excess == 0 else 12)

    def some(steps):  # what some runs lack that cool down over a fixed number of steps is not the law's term of D
        return np.where(np.arange(25) % 2, 0.2 * steps, 25.0)

    document = excess_of_short_cooldowns(fitted(cooled(2 * excess, 0, some)))
    assert (document["low"] > 0) == (excess > 0)
    assert ("undercooled; raise schedule.decay" if excess else "loses at most") in document["sentence"]
    assert excess_of_short_cooldowns(fitted(cooled(excess, 0, lambda steps: np.full(25, 100.0)))) is None


# What rungs lose by their learning rate, and what that does to the exponents of a law.

CURVATURE = 0.03


def ladder(best, noise=5e-4):
    """Sixteen rungs of N and D, each trained at half, once and twice the rate 1e-3; `best` is the best rate of N."""
    N, D = (np.repeat(each.ravel(), 3) for each in np.meshgrid(np.geomspace(1e5, 1e7, 4), np.geomspace(2e6, 2e8, 4)))
    rate, errors = np.tile([0.5e-3, 1e-3, 2e-3], 16), noise * np.random.default_rng(0).standard_normal(48)
    excess = CURVATURE / 2 * np.log(rate / best(N)) ** 2
    columns = {"N": N, "D": D, "loss": (1.8 + 20 * N**-0.3 + 40 * D**-0.3) * np.exp(excess + errors), "lr": rate}
    return columns, rate == 1e-3


def test_what_a_rung_loses_and_its_best_rate_are_those_of_the_simulation():
    found = rungs(*ladder(lambda N: 2e-3))
    assert len(found) == 16
    left = np.expm1(CURVATURE / 2 * np.log(2) ** 2)
    assert np.mean([rung["left"].covers(left) for rung in found]) > 0.8
    assert np.mean([rung["best"].covers(2e-3) for rung in found]) > 0.8
    assert all(rung["left"].low > 0 and rung["used"] == 1e-3 for rung in found)
    columns, used = ladder(lambda N: 1e-3)
    assert sum(rung["left"].low > 0 for rung in rungs(columns, used)) <= 2, "of tuned rungs"
    # The batch is judged at the rate of the rung alone.
    more = {name: np.concatenate([column, column[used], column[used]]) for name, column in columns.items()}
    more["batch"] = np.repeat([16.0, 8.0, 32.0], [48, 16, 16])
    more["loss"][64:] *= 1.01
    assert {rung["knob"] for rung in rungs(more, np.concatenate([used, np.zeros(32, bool)]))} == {"lr", "batch"}


def test_a_rate_that_falls_with_size_changes_the_exponent_of_size_and_the_best_points_give_its_law():
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25)
    law = fit("chinchilla", {name: columns[name][used] for name in ("N", "D", "loss")}, starts=64)
    change = {each.name: each for each in effect(law, rungs(columns, used))}
    assert change["alpha"].estimate == pytest.approx(-0.047, abs=0.01)
    assert change["alpha"].high < 0
    assert change["beta"].covers(0.0)
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25, noise=2e-5)
    table = [
        {**dict(zip(columns, map(float, values), strict=True)), "name": f"{row}", "beside": "", "held_out": 0, "B": 64}
        for row, values in enumerate(zip(*columns.values(), strict=True))
    ]
    for row in np.flatnonzero(~used):
        table[row]["beside"] = f"{row // 3 * 3 + 1}"
    points = best_points(tuned(law, table))
    assert {point["knob"] for point in points} == {"lr"}
    assert all(point["low"] < point["lr"] < point["high"] and point["B"] == 64 for point in points)
    best = fit("learning_rate_n", {name: [point[name] for point in points] for name in ("N", "lr")})
    assert best.estimates["b_N"] == pytest.approx(-0.25, abs=0.02)
