"""Fitting: the best optimum, the same digits in any order of rows, groups that share errors, diagnostics."""

import numpy as np
import pytest
from scipy.optimize import minimize

from scaling.base.errors import ScalingError
from scaling.laws import Points, aicc, fit, fit_joint, intervals
from scaling.laws.diagnostics import FALSE_ALARMS, off_size
from scaling.laws.intervals import METHODS
from scaling.laws.problem import OBJECTIVES
from tests.laws.studies import LAW, grid, study, width

SMALL = np.array([2.184, 26.3, 36000.0, 0.605, 0.945])


def trunks(count=6, budgets=4, correlation=0.9):
    """Runs that branch off `count` trunks, and share errors of log loss within one."""
    rng = np.random.default_rng(0)
    trunk, D = np.repeat(np.arange(count), budgets), np.tile(7e5 * 2.0 ** np.arange(budgets), count)
    N = np.geomspace(6e3, 2.2e5, count)[trunk]
    error = np.sqrt(correlation) * rng.standard_normal(count)[trunk]
    error = 0.0024 * (error + np.sqrt(1 - correlation) * rng.standard_normal(len(trunk)))
    return {"N": N, "D": D, "loss": LAW.predict(SMALL, {"N": N, "D": D}) * np.exp(error), "trunk": trunk}


@pytest.mark.parametrize("name", ["log_huber", "squared"])
def test_no_other_optimiser_and_no_grid_of_starts_finds_a_lower_objective(name):
    """The grid is every third of the exponents of Hoffmann et al. 2022, appendix D.3."""
    table, objective = study(60, 0.01), OBJECTIVES[name]
    found, y = fit("chinchilla", table, objective=name), objective.transform(table["loss"])

    def cost(z):
        theta = np.array([*np.exp(z[:3]), *z[3:]])
        return objective.penalty(objective.transform(LAW.predict(theta, table)) - y).sum()

    best = np.array([*np.log(found.theta[:3]), *found.theta[3:]])
    begin = best + 0.02 * np.random.default_rng(0).standard_normal(5)
    other = minimize(cost, begin, method="Nelder-Mead", options={"maxfev": 1500})
    assert found.objective <= other.fun * (1 + 1e-9) + 1e-15
    assert cost(best) == pytest.approx(found.objective, rel=1e-9)
    axes = np.meshgrid([-1, 0, 1], [0, 10, 20], [0, 10, 20], [0, 0.5, 1, 2], [0, 0.5, 1, 2])
    e, a, b, alpha, beta = (axis.ravel() for axis in axes)
    starts = np.column_stack([np.exp(e), np.exp(a), np.exp(b), alpha, beta])
    theirs = fit("chinchilla", table, objective=name, starts=starts)
    assert found.objective == pytest.approx(theirs.objective, rel=1e-10)
    np.testing.assert_allclose(found.theta, theirs.theta, rtol=1e-5)
    assert found.starts_agreeing > 0.5


@pytest.mark.parametrize(("group", "objective"), [(None, "log_huber"), ("run", "log_squared")])
def test_the_order_of_the_rows_changes_no_digit(group, objective):
    table, order = study() | {"run": np.arange(40) % 7}, np.random.default_rng(3).permutation(40)
    mixed = {name: column[order] for name, column in table.items()}
    straight, permuted = (
        fit("chinchilla", each, objective=objective, group=group, starts=128) for each in (table, mixed)
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


def test_predictions_need_the_laws_columns_and_groups_a_label_a_point(fitted):
    with pytest.raises(ScalingError, match="a label a point"):
        fit("chinchilla", study(), group=np.ones(3))
    assert fitted.predict(N=[1e9, 2e9], D=2e10).shape == (2,)
    for columns, what in (({"N": 1e9}, "needs N, D"), ({"N": 1e9, "D": 1e9, "U": 1e9}, "no column")):
        with pytest.raises(ScalingError, match=what):
            fitted.predict(**columns)


# Runs that share errors.


@pytest.fixture(scope="module")
def grouped():
    return fit("chinchilla", trunks(), group="trunk", objective="log_squared", starts=64)


def test_groups_are_fitted_by_generalised_least_squares(grouped):
    """At its own correlation the gradient of r'V⁻¹r vanishes, computed here from the covariance itself."""
    trunk, problem = grouped.points["trunk"][grouped.order], grouped.problem
    rho = problem.shared.correlation
    covariance = np.where(trunk[:, None] == trunk, rho, 0.0) + (1 - rho) * np.eye(len(trunk))
    error, theta = problem.errors(grouped.u[None])[0], grouped.theta
    slopes = LAW.jacobian(theta, problem.columns) / LAW.predict(theta, problem.columns)[:, None]
    scaled = slopes / np.linalg.norm(slopes, axis=0)
    assert np.abs(scaled.T @ np.linalg.solve(covariance, error)).max() < 1e-6
    many = fit("chinchilla", trunks(60, correlation=0.7), group="trunk", starts=64)
    low, high = many.correlation.interval()
    assert low < 0.7 < high < low + 0.35
    assert many.problem.shared.correlation == pytest.approx(many.correlation.mean, abs=0.02)  # pyright: ignore


def test_groups_narrow_the_slope_within_them_and_widen_the_slope_across_them(grouped):
    alone = fit("chinchilla", trunks(), objective="log_squared", starts=64)
    bounds = [intervals(each, quantities=["alpha", "beta"]) for each in (grouped, alone)]
    assert width(bounds[0]["beta"]) < 0.8 * width(bounds[1]["beta"])
    assert width(bounds[0]["alpha"]) > 1.2 * width(bounds[1]["alpha"])


def test_groups_stay_together_in_hold_outs_bootstraps_and_joint_fits(grouped):
    table = trunks()
    assert len(set(grouped.without(table["trunk"] == 5, 64).groups.tolist())) == 5
    assert intervals(grouped, "bootstrap", quantities=["beta"], count=30)["beta"].low > 0
    assert aicc(grouped) < aicc(fit("power_law_d", table, group="trunk", objective="log_squared", starts=64))
    both = {name: np.tile(column, 2) for name, column in table.items()}
    both |= {"loss": both["loss"] * np.repeat([1, 1.01], 24), "arch": np.repeat(["a", "b"], 24)}
    both["trunk"][24:] += 6
    joint = fit_joint("chinchilla", Points(both), "arch", group="trunk", starts=32)
    assert len(set(joint.groups.tolist())) == 12


# Diagnostics: what the points do not identify, and why intervals may not cover, in sentences that are seldom wrong.


def test_few_points_identify_nothing_and_enough_do(fitted):
    few = fit("chinchilla", study(12))
    assert "12 points are fewer than 3 for each of 5 parameters: none is identified" in few.not_identified
    assert few.unidentified == ("E", "A", "B", "alpha", "beta")
    assert fitted.not_identified == ()
    exact = fit("chinchilla", study(30, noise=0.0))
    assert (exact.not_identified, exact.unreliable) == ((), ())
    alpha = intervals(exact)["alpha"]
    assert alpha.low == alpha.high == pytest.approx(0.3478)


def test_wavy_errors_and_misses_beyond_the_scatter_of_seeds_are_named(fitted):
    exact, wave = study(120, noise=0.0), np.empty(120)
    wave[np.argsort(exact["loss"])] = 0.01 * np.sign(np.sin(np.arange(120) / 6))
    wavy = fit("chinchilla", exact | {"loss": exact["loss"] * np.exp(wave)}, starts=128)
    assert any("neighbours" in reason for reason in wavy.unreliable)
    table = {name: np.repeat(column, 3) for name, column in study(20, noise=0.0).items()}
    table["loss"] = table["loss"] * np.exp(0.005 * np.random.default_rng(1).standard_normal(60))
    seeds = fit("chinchilla", table, starts=128)
    assert seeds.seed_noise == pytest.approx(0.005, rel=0.25)
    assert not any("seeds scatter" in reason for reason in seeds.unreliable)
    assert any("seeds scatter" in reason for reason in fit("power_law_floor_n", table, starts=128).unreliable)
    assert fitted.seed_noise is None


def test_a_size_above_the_law_is_named_with_its_distance():
    table = grid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 4), 0.001)
    is_above, table["trunk"] = np.isclose(table["N"], 10**7.4), table["N"]
    shifted = table | {"loss": table["loss"] * np.exp(0.02 * is_above)}
    found, straight = (fit("chinchilla", each, starts=128) for each in (shifted, table))
    above = (shifted["loss"] - found.predict(N=table["N"], D=table["D"]))[is_above]
    distance = f"{above.min():.2g} to {above.max():.2g} nats"
    (reason,) = (why for why in found.unreliable if "does not fit this size" in why)
    assert reason == f"All 4 points of N = 2.512e+07 lie above the law by {distance}: the form does not fit this size"
    assert not any("does not fit this size" in why for why in straight.unreliable)
    shared = fit("chinchilla", shifted, group="trunk", starts=128).unreliable
    assert any(why.endswith("or it is the error that these points share, which the intervals hold") for why in shared)


def test_independent_errors_name_a_size_as_seldom_as_is_stated():
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(6), np.arange(4)))
    jacobian = [np.ones(len(x)), np.exp(-0.8 * x), x * np.exp(-0.8 * x), np.exp(-0.9 * y), y * np.exp(-0.9 * y)]
    columns, rng = {"N": np.exp(x), "D": np.exp(y)}, np.random.default_rng(0)
    studies = 600
    found = sum(off_size(rng.standard_normal(len(x)), np.array(jacobian), columns) is not None for _ in range(studies))
    assert found / studies <= FALSE_ALARMS + 2.5 * np.sqrt(FALSE_ALARMS / studies)
    alone = np.geomspace(1e7, 1e9, 20)  # sizes that no two points share are not tested
    assert off_size(rng.standard_normal(20), np.ones((1, 20)), {"N": alone}) is None
