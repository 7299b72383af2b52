"""Intervals: exact where the law is linear, invariant, open where the points leave them open, and they cover."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law import Absolute, LogSquared, derived, fit, intervals, named, prediction, refit
from scaling.law.interval import METHODS
from scaling.law.noise import expected_penalty, measure, student
from scaling.law.objective import Huber, Squared


def line(n=12, noise=0.01, seed=0):
    """A power law: under log-squared errors a straight line, where every interval is known."""
    rng = np.random.default_rng(seed)
    C = np.geomspace(1e18, 1e20, n)
    return {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(noise * rng.standard_normal(n)), "seed": np.arange(n) % 4}


@pytest.mark.parametrize("method", ["profile", "t"])
def test_the_interval_of_a_straight_line_is_the_textbooks(method):
    table = line()
    x, y = np.log(table["C"]), np.log(table["loss"])
    design = np.column_stack([np.ones_like(x), -x])
    solution, rss, *_ = np.linalg.lstsq(design, y, rcond=None)
    error = np.sqrt(rss[0] / 10 * np.linalg.inv(design.T @ design)[1, 1])
    # Equal errors are assumed here: the factor for unequal ones is one when it comes out below.
    found = intervals(fit("power_law_c", table, objective=LogSquared()), method)["alpha"]
    assert found.estimate == pytest.approx(solution[1])
    assert found.high - found.estimate == pytest.approx(found.estimate - found.low, rel=1e-2)
    assert (found.high - found.low) / 2 >= 0.99 * student(0.95, 10) * error
    assert (found.high - found.low) / 2 <= 1.5 * student(0.95, 10) * error


def test_the_profile_does_not_depend_on_how_the_law_is_written():
    """Kaplan's (C_c/C)^α and A C^-α are one law: the same interval for α and for a prediction."""
    table = line()
    ours, theirs = fit("power_law_c", table), fit("kaplan_c", table)
    for quantity in ("alpha", prediction(named("power_law_c"), {"C": 1e22}, "far")):
        theirs_quantity = quantity if isinstance(quantity, str) else prediction(named("kaplan_c"), {"C": 1e22}, "far")
        first = next(iter(intervals(ours, quantities=[quantity]).values()))
        second = next(iter(intervals(theirs, quantities=[theirs_quantity]).values()))
        assert first.low == pytest.approx(second.low, rel=1e-3)
        assert first.high == pytest.approx(second.high, rel=1e-3)


def test_an_end_of_the_profile_is_where_the_objective_has_risen_enough():
    table = line(9, 0.003)
    table["loss"] += 1.7
    found = fit("power_law_floor_c", table, objective=LogSquared())
    interval = intervals(found, quantities=["alpha"])["alpha"]
    for end in (interval.low, interval.high):
        held = fit("power_law_floor_c", table, objective=LogSquared(), fixed={"alpha": end})
        z = np.sqrt((held.objective - found.objective) / (found.objective / 6))
        assert z == pytest.approx(student(0.95, 6), rel=0.3)
        assert z >= 0.99 * student(0.95, 6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_bounds_parameters_derived_quantities_and_predictions(method):
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(17, 23, 40)), np.exp(rng.uniform(21, 27, 40))
    loss = named("chinchilla").predict(np.array([1.8, 482.0, 2085.0, 0.35, 0.37]), {"N": N, "D": D})
    table = {"N": N, "D": D, "loss": loss * np.exp(0.003 * rng.standard_normal(40)), "seed": np.arange(40) % 10}
    found = fit("chinchilla", table, clusters="seed")
    ratio = derived("β/α", lambda p: p.beta / p.alpha)
    far = prediction(found.form, {"N": 1e11, "D": 2e12})
    bounds = intervals(found, method, quantities=["alpha", "a", ratio, far], count=60)
    assert list(bounds) == ["alpha", "a", "β/α", far.name]
    for interval in bounds.values():
        assert interval.low < interval.estimate < interval.high
    assert bounds["a"].estimate == pytest.approx(
        found.estimates["beta"] / (found.estimates["alpha"] + found.estimates["beta"])
    )
    narrow = intervals(found, method, quantities=["alpha"], count=60, level=0.5)["alpha"]
    assert narrow.high - narrow.low < bounds["alpha"].high - bounds["alpha"].low


def test_refits_are_the_same_for_a_seed_and_as_scattered_as_the_interval_says():
    found = fit("power_law_c", line(40), objective=LogSquared())
    first, second = refit(found, "residual", 400, seed=1), refit(found, "residual", 400, seed=1)
    np.testing.assert_array_equal(first.theta, second.theta)
    assert first.failed == 0
    half = (lambda i: (i.high - i.low) / 2)(intervals(found, "t")["alpha"])
    assert first.theta[:, 1].std() == pytest.approx(half / student(0.95, 38), rel=0.25)


def test_the_noise_is_recovered_under_each_objective():
    rng = np.random.default_rng(0)
    errors = 0.01 * rng.standard_normal(200_000)
    for objective in (Squared(), Huber(1e-3), Huber(0.01), Huber(0.1), Absolute()):
        cost = objective.penalty(errors).sum()
        assert measure(objective, cost, len(errors), 0).scale == pytest.approx(0.01, rel=0.01)
    delta = 0.013
    assert expected_penalty(delta, np.array(0.01)) == pytest.approx(Huber(delta).penalty(errors).mean(), rel=0.01)


def test_what_is_wrong_is_told():
    found = fit("power_law_c", line())
    with pytest.raises(ScalingError, match="did you mean 'profile'"):
        intervals(found, "profil")  # type: ignore[arg-type]
    with pytest.raises(ScalingError, match="did you mean 'alpha'"):
        intervals(found, quantities=["alfa"])
    with pytest.raises(ScalingError, match="between 0 and 1"):
        intervals(found, level=95)
    with pytest.raises(ScalingError, match="resamples clusters"):
        intervals(found, "bootstrap_run")
