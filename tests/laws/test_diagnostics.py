"""Diagnostics: what the points do not identify, and why intervals may not cover, in sentences that are seldom wrong."""

import numpy as np
import pytest

from scaling.laws import fit, intervals, named
from scaling.laws.diagnostics import FALSE_ALARMS, off_size

THETA = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])


def study(n=60, noise=0.01, seed=0):
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log(5e7), np.log(2e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    loss = named("chinchilla").predict(THETA, {"N": N, "D": D})
    return {"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(n))}


def grid(shift=0.0):
    """Six sizes at four budgets; the runs of one size lie `shift` above the law."""
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 4)))
    noise = 0.001 * np.random.default_rng(0).standard_normal(24)
    law = named("chinchilla").predict(THETA, {"N": N, "D": D})
    return {"N": N, "D": D, "loss": law * np.exp(noise + shift * np.isclose(N, 10**7.4)), "trunk": N}


def test_leverage_sums_to_the_number_of_parameters():
    assert fit("chinchilla", study(40)).diagnostics.leverage.sum() == pytest.approx(5)


def test_few_points_identify_nothing_and_enough_do():
    few = fit("chinchilla", study(12))
    assert "12 points are fewer than 3 for each of 5 parameters: none is identified" in few.not_identified
    assert few.unidentified == ("E", "A", "B", "alpha", "beta")
    assert fit("chinchilla", study(60)).not_identified == ()


def test_points_on_a_law_leave_nothing_in_doubt():
    found = fit("chinchilla", study(30, noise=0.0))
    assert (found.not_identified, found.unreliable) == ((), ())
    alpha = intervals(found)["alpha"]
    assert alpha.low == alpha.high == pytest.approx(0.3478)


def test_unequal_and_wavy_errors_are_named():
    exact, rng = study(120, noise=0.0), np.random.default_rng(0)
    unequal = 0.01 * (exact["loss"] - 1.8) * rng.standard_normal(120)
    wave = np.empty(120)
    wave[np.argsort(exact["loss"])] = 0.01 * np.sign(np.sin(np.arange(120) / 6))
    for error, words in ((unequal, "errors are larger"), (wave, "neighbours")):
        found = fit("chinchilla", exact | {"loss": exact["loss"] * np.exp(error)})
        assert any(words in reason for reason in found.unreliable)


def test_seeds_show_the_noise_and_whether_the_law_misses():
    table = {name: np.repeat(column, 3) for name, column in study(20, noise=0.0).items()}
    table["loss"] = table["loss"] * np.exp(0.005 * np.random.default_rng(1).standard_normal(60))
    found = fit("chinchilla", table)
    assert found.seed_noise == pytest.approx(0.005, rel=0.25)
    assert not any("seeds scatter" in reason for reason in found.unreliable)
    assert any("seeds scatter" in reason for reason in fit("power_law_floor_n", table).unreliable)
    assert fit("chinchilla", study(20)).seed_noise is None


def patterns(found):
    return [reason for reason in found.unreliable if "does not fit this size" in reason]


def test_a_size_above_the_law_is_named_with_its_distance():
    table = grid(0.02)
    found = fit("chinchilla", table)
    above = (table["loss"] - found.predict(N=table["N"], D=table["D"]))[np.isclose(table["N"], 10**7.4)]
    distance = f"{above.min():.2g} to {above.max():.2g} nats"
    (reason,) = patterns(found)
    assert reason == f"All 4 points of N = 2.512e+07 lie above the law by {distance}: the form does not fit this size"
    assert patterns(fit("chinchilla", grid())) == []
    (shared,) = patterns(fit("chinchilla", table, group="trunk"))
    assert shared.endswith("or it is the error that these points share, which the intervals hold")


@pytest.mark.parametrize(("sizes", "budgets"), [(6, 4), (10, 8)])
def test_independent_errors_name_a_size_as_seldom_as_is_stated(sizes, budgets):
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(sizes), np.arange(budgets)))
    jacobian = [np.ones(len(x)), np.exp(-0.8 * x), x * np.exp(-0.8 * x), np.exp(-0.9 * y), y * np.exp(-0.9 * y)]
    columns, rng = {"N": np.exp(x), "D": np.exp(y)}, np.random.default_rng(0)
    studies = 600
    found = sum(off_size(rng.standard_normal(len(x)), np.array(jacobian), columns) is not None for _ in range(studies))
    assert found / studies <= FALSE_ALARMS + 2.5 * np.sqrt(FALSE_ALARMS / studies)
    alone = np.geomspace(1e7, 1e9, 20)  # sizes that no two points share are not tested
    assert off_size(rng.standard_normal(20), np.ones((1, 20)), {"N": alone}) is None
