"""What a study says of 10 and 100 times its compute, and of runs that cooled down over few steps."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.laws import Points, fit, intervals, prediction
from scaling.laws.horizon import excess_of_short_cooldowns, horizon, sentence


def runs(seed: int = 0, noise: float = 0.002, **more: list[float]) -> Points:
    """Five sizes by five lengths of Chinchilla's law, and further runs."""
    rng = np.random.default_rng(seed)
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 3e7, 5), np.geomspace(2e7, 2e9, 5)))
    N, D = np.append(N, more.get("N", [])), np.append(D, more.get("D", []))
    loss = 1.8 + 400 * N**-0.34 + 400 * D**-0.34
    return Points({"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(len(N)))})


def cooled(excess: float, seed: int, decay=lambda steps: 0.2 * steps) -> Points:
    """The same under WSD; the shortest cool-down costs `excess` of the loss, others less as 1/steps."""
    points = runs(seed)
    steps = decay(points["D"] / 1e5)
    points = points.with_column("cooldown", steps, "steps")
    return points.with_column("loss", points["loss"] * (1 + excess * steps.min() / steps), "loss")


def fitted(points: Points, law: str = "chinchilla"):
    return fit(law, points, objective="log_squared", starts=64)


def test_the_predictions_are_compute_optimal_and_hold_the_truth():
    for seed in range(3):
        document = horizon(fitted(runs(seed)))
        for row, times in zip(document["predictions"], (10, 100)):
            assert pytest.approx(times * 6 * 3e7 * 2e9) == row["C"] == pytest.approx(6 * row["N"] * row["D"])
            truth = 1.8 + 400 * row["N"] ** -0.34 + 400 * row["D"] ** -0.34
            assert row["interval_run"]["low"] < truth < row["interval_run"]["high"]


def test_the_next_run_narrows_the_interval_as_much_as_it_says():
    law = fitted(runs())
    document = horizon(law) or pytest.fail("no horizon")
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


def test_a_law_in_compute_has_a_horizon_and_a_law_in_parameters_none():
    points = runs()
    points = points.with_column("C", 6 * points["N"] * points["D"], "6ND")
    document = horizon(fitted(points, "power_law_floor_c"))
    assert set(document["next_run"]) == {"C", "width", "halves"}
    assert horizon(fitted(points, "power_law_floor_n")) is None


@pytest.mark.parametrize("excess", [0.0, 0.02])
def test_the_interval_holds_the_cost_of_short_cool_downs(excess):
    """Of twelve studies three or more miss a 95% interval once in 50 times; these are fixed draws."""
    found = [excess_of_short_cooldowns(fitted(cooled(excess, seed))) for seed in range(12)]
    assert sum(each["low"] <= excess <= each["high"] for each in found) >= 10
    assert sum(each["low"] > 0 for each in found) <= (1 if excess == 0 else 12)


def test_short_cool_downs_are_told_from_the_law_of_the_data():
    """Where some runs cool down over a fixed number of steps, what they lack is not the law's term of D."""
    points = cooled(0.03, 0, decay=lambda steps: np.where(np.arange(25) % 2, 0.2 * steps, 25.0))
    document = excess_of_short_cooldowns(fitted(points))
    assert document["low"] > 0
    assert document["steps"] == [points["cooldown"].min(), points["cooldown"].max()]
    assert "undercooled; raise schedule.decay" in document["sentence"]
    none = excess_of_short_cooldowns(
        fitted(cooled(0, 0, decay=lambda steps: np.where(np.arange(25) % 2, 0.2 * steps, 25.0)))
    )
    assert "the shortest loses at most" in none["sentence"]
    assert "do not tell" in excess_of_short_cooldowns(fitted(cooled(0, 0)), level=1 - 1e-15)["sentence"]
    assert excess_of_short_cooldowns(fitted(cooled(0, 0, decay=lambda steps: np.full(25, 100.0)))) is None
