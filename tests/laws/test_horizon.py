"""What a study says of 10 and 100 times its compute."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.laws import Points, fit, intervals, prediction
from scaling.laws.horizon import horizon, sentence

TRUE = {"E": 1.8, "A": 400.0, "B": 400.0, "alpha": 0.34, "beta": 0.34}


def runs(seed: int = 0, noise: float = 0.002, **more: list[float]) -> Points:
    rng = np.random.default_rng(seed)
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 3e7, 5), np.geomspace(2e7, 2e9, 5)))
    N, D = np.append(N, more.get("N", [])), np.append(D, more.get("D", []))
    loss = TRUE["E"] + TRUE["A"] * N ** -TRUE["alpha"] + TRUE["B"] * D ** -TRUE["beta"]
    return Points({"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(len(N)))})


def fitted(points: Points, law: str = "chinchilla"):
    return fit(law, points, objective="log_squared", starts=64)


def test_the_predictions_are_compute_optimal_and_hold_the_truth():
    for seed in range(5):
        document = horizon(fitted(runs(seed)))
        for row, times in zip(document["predictions"], (10, 100)):
            assert pytest.approx(times * 6 * 3e7 * 2e9) == row["C"] == pytest.approx(6 * row["N"] * row["D"])
            truth = TRUE["E"] + TRUE["A"] * row["N"] ** -TRUE["alpha"] + TRUE["B"] * row["D"] ** -TRUE["beta"]
            assert row["interval_run"]["low"] < truth < row["interval_run"]["high"]


def test_the_next_run_narrows_the_interval_as_much_as_it_says():
    law = fitted(runs())
    document = horizon(law) or pytest.fail("no horizon")
    run, place = document["next_run"], document["predictions"][0]
    without = runs(noise=0.0)
    more = runs(noise=0.0, N=[run["N"]], D=[run["D"]])
    widths = []
    for points in (without, more):
        # The same noise about both fits: the widths differ by what the run tells.
        noisy = points.with_column("loss", points["loss"] * np.exp(0.002 * (-1.0) ** np.arange(len(points))), "loss")
        (bound,) = intervals(fitted(noisy), "t", quantities=[prediction(law.form, place)]).values()
        widths.append(np.log(bound.high / bound.low))
    assert widths[1] / widths[0] == pytest.approx(run["width"], rel=0.15)
    assert run["C"] <= place["C"] * 1.001
    assert f"C = {run['C']:.3g}" in sentence(document)


def test_a_law_in_compute_has_a_horizon_and_a_law_in_parameters_none():
    points = runs()
    points = points.with_column("C", 6 * points["N"] * points["D"], "6ND")
    document = horizon(fitted(points, "power_law_floor_c"))
    assert set(document["next_run"]) == {"C", "width", "halves"}
    assert horizon(fitted(points, "power_law_floor_n")) is None
