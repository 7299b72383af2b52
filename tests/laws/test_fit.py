"""Fitting: the best optimum, the same digits in any order of rows, groups that share errors, diagnostics."""

from typing import Any

import numpy as np
import pytest

from scaling.laws import fit, intervals
from scaling.laws.diagnostics import FALSE_ALARMS, off_size
from scaling.laws.intervals import METHODS
from tests.laws.studies import LAW, grid, study, width

SMALL = np.array([2.184, 26.3, 36000.0, 0.605, 0.945])
FEW: dict[str, Any] = {"objective": "log_squared", "starts": 64}


def trunks(count=6, correlation=0.9):
    """Runs of four budgets that branch off `count` trunks, and share errors of log loss within one."""
    rng, trunk = np.random.default_rng(0), np.repeat(np.arange(count), 4)
    N, D = np.geomspace(6e3, 2.2e5, count)[trunk], np.tile(7e5 * 2.0 ** np.arange(4), count)
    error = np.sqrt(correlation) * rng.standard_normal(count)[trunk]
    error = 0.0024 * (error + np.sqrt(1 - correlation) * rng.standard_normal(len(trunk)))
    return {"N": N, "D": D, "loss": LAW.predict(SMALL, {"N": N, "D": D}) * np.exp(error), "trunk": trunk}


@pytest.mark.parametrize("objective", ["log_huber", "squared"])
def test_no_grid_of_starts_finds_a_lower_objective(objective):
    """Every third of the exponents of Hoffmann et al. 2022, appendix D.3."""
    axes = np.meshgrid([-1, 0, 1], [0, 10, 20], [0, 10, 20], [0, 0.5, 1, 2], [0, 0.5, 1, 2])
    e, a, b, alpha, beta = (axis.ravel() for axis in axes)
    starts = np.column_stack([np.exp(e), np.exp(a), np.exp(b), alpha, beta])
    ours, theirs = (fit("chinchilla", study(60, 0.01), objective=objective, starts=each) for each in (1024, starts))
    assert ours.objective == pytest.approx(theirs.objective, rel=1e-10)
    np.testing.assert_allclose(ours.theta, theirs.theta, rtol=1e-5)
    assert ours.starts_agreeing > 0.5


@pytest.mark.parametrize(("group", "objective"), [(None, "log_huber"), ("run", "log_squared")])
def test_the_order_of_the_rows_changes_no_digit(group, objective):
    table, order = study() | {"run": np.arange(40) % 7}, np.random.default_rng(3).permutation(40)
    mixed = {name: column[order] for name, column in table.items()}
    straight, permuted = (
        fit("chinchilla", each, objective=objective, group=group, starts=64) for each in (table, mixed)
    )
    assert straight.estimates == permuted.estimates
    assert straight.objective == permuted.objective
    np.testing.assert_array_equal(straight.residuals[order], permuted.residuals)
    for method in METHODS:
        first, second = (intervals(each, method, quantities=["alpha"], count=20) for each in (straight, permuted))
        assert first == second


def test_units_change_nothing_but_units_and_weights_count_as_repeated_points(fitted):
    table, repeats = study(), 1 + np.arange(40) % 3
    theirs = fit("chinchilla", table | {"N": table["N"] / 1e6, "D": table["D"] / 1e9})
    for name in ("E", "alpha", "beta"):
        assert theirs.estimates[name] == pytest.approx(fitted.estimates[name], rel=1e-6)
    assert theirs.estimates["A"] == pytest.approx(fitted.estimates["A"] * 1e6 ** -fitted.estimates["alpha"], rel=1e-5)
    weighted = fit("chinchilla", table, weights=7.0 * repeats)
    repeated = fit("chinchilla", {name: np.repeat(column, repeats) for name, column in table.items()})
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=1e-6)
    np.testing.assert_allclose(weighted.weights, repeats / repeats.mean())


# Runs that share errors.


def test_groups_are_fitted_by_generalised_least_squares():
    """At its own correlation the gradient of r'V⁻¹r vanishes, computed here from the covariance itself."""
    table = trunks()
    grouped, alone = fit("chinchilla", table, group="trunk", **FEW), fit("chinchilla", table, **FEW)
    trunk, problem, theta = grouped.points["trunk"][grouped.order], grouped.problem, grouped.theta
    rho = problem.shared.correlation
    covariance = np.where(trunk[:, None] == trunk, rho, 0.0) + (1 - rho) * np.eye(len(trunk))
    slopes = LAW.jacobian(theta, problem.columns) / LAW.predict(theta, problem.columns)[:, None]
    scaled = slopes / np.linalg.norm(slopes, axis=0)
    assert np.abs(scaled.T @ np.linalg.solve(covariance, problem.errors(grouped.u[None])[0])).max() < 1e-6
    # The slope within groups is narrower, and the slope across them wider.
    bounds = [intervals(each, quantities=["alpha", "beta"]) for each in (grouped, alone)]
    assert width(bounds[0]["beta"]) < 0.8 * width(bounds[1]["beta"])
    assert width(bounds[0]["alpha"]) > 1.2 * width(bounds[1]["alpha"])
    many = fit("chinchilla", trunks(60, 0.7), group="trunk", **FEW)
    low, high = many.correlation.interval()
    assert low < 0.7 < high < low + 0.35
    assert many.problem.shared.correlation == pytest.approx(many.correlation.mean, abs=0.02)
    # Groups stay together in hold-outs and bootstraps.
    assert len(set(grouped.without(table["trunk"] == 5, 64).groups.tolist())) == 5
    assert intervals(grouped, "bootstrap", quantities=["beta"], count=30)["beta"].low > 0


# Diagnostics: what the points do not identify, and why intervals may not cover, in sentences that are seldom wrong.


def test_few_points_identify_nothing_and_enough_do(fitted):
    few = fit("chinchilla", study(12))
    assert "12 points are fewer than 3 for each of 5 parameters: none is identified" in few.not_identified
    assert few.unidentified == ("E", "A", "B", "alpha", "beta")
    exact = fit("chinchilla", study(30, noise=0.0))
    assert (fitted.not_identified, exact.not_identified, exact.unreliable) == ((), (), ())
    alpha = intervals(exact)["alpha"]
    assert alpha.low == alpha.high == pytest.approx(0.3478)


def test_wavy_errors_and_misses_beyond_the_scatter_of_seeds_are_named():
    exact, wave = study(120, noise=0.0), np.empty(120)
    wave[np.argsort(exact["loss"])] = 0.01 * np.sign(np.sin(np.arange(120) / 6))
    wavy = fit("chinchilla", exact | {"loss": exact["loss"] * np.exp(wave)}, **FEW)
    assert any("neighbours" in reason for reason in wavy.unreliable)
    table = {name: np.repeat(column, 3) for name, column in study(20, noise=0.0).items()}
    table["loss"] = table["loss"] * np.exp(0.005 * np.random.default_rng(1).standard_normal(60))
    right, wrong = (fit(law, table, **FEW) for law in ("chinchilla", "power_law_floor_n"))
    assert right.seed_noise == pytest.approx(0.005, rel=0.25)
    assert wavy.seed_noise is None
    assert not any("seeds scatter" in reason for reason in right.unreliable)
    assert any("seeds scatter" in reason for reason in wrong.unreliable)


def test_a_size_above_the_law_is_named_with_its_distance():
    table = grid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 4), 0.001)
    is_above, table["trunk"] = np.isclose(table["N"], 10**7.4), table["N"]
    shifted = table | {"loss": table["loss"] * np.exp(0.02 * is_above)}
    found, straight = (fit("chinchilla", each, starts=64) for each in (shifted, table))
    above = (shifted["loss"] - found.predict(N=table["N"], D=table["D"]))[is_above]
    distance = f"{above.min():.2g} to {above.max():.2g} nats"
    (reason,) = (why for why in found.unreliable if "does not fit this size" in why)
    assert reason == f"All 4 points of N = 2.512e+07 lie above the law by {distance}: the form does not fit this size"
    assert not any("does not fit this size" in why for why in straight.unreliable)
    shared = fit("chinchilla", shifted, group="trunk", starts=64).unreliable
    assert any(why.endswith("or it is the error that these points share, which the intervals hold") for why in shared)


def test_independent_errors_name_a_size_as_seldom_as_is_stated():
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(6), np.arange(4)))
    jacobian = [np.ones(len(x)), np.exp(-0.8 * x), x * np.exp(-0.8 * x), np.exp(-0.9 * y), y * np.exp(-0.9 * y)]
    columns, rng, studies = {"N": np.exp(x), "D": np.exp(y)}, np.random.default_rng(0), 600
    found = sum(off_size(rng.standard_normal(len(x)), np.array(jacobian), columns) is not None for _ in range(studies))
    assert found / studies <= FALSE_ALARMS + 2.5 * np.sqrt(FALSE_ALARMS / studies)
