"""Fitting: the best optimum, the same digits in any order of rows, groups, diagnostics, intervals and optima."""

from typing import Any

import numpy as np
import pytest

import scaling
from scaling.laws import fit, intervals, optimal, parameter, problem
from scaling.laws.intervals import METHODS, bound, student
from tests.command_line import refuses
from tests.laws.conftest import FARSEER, LAW, grid, study, width

SMALL = np.array([2.184, 26.3, 36000.0, 0.605, 0.945])
FEW: dict[str, Any] = {"objective": "log_squared", "starts": 64}
QUICK: dict[str, Any] = {"intervals": "t", "objective": "log_squared", "starts": 128}
BUDGET = 1e23


def trunks(count=6, correlation=0.9):
    """Runs of four budgets that branch off `count` trunks, and share errors of log loss within one."""
    rng, trunk = np.random.default_rng(0), np.repeat(np.arange(count), 4)
    N, D = np.geomspace(6e3, 2.2e5, count)[trunk], np.tile(7e5 * 2.0 ** np.arange(4), count)
    error = np.sqrt(correlation) * rng.standard_normal(count)[trunk]
    error = 0.0024 * (error + np.sqrt(1 - correlation) * rng.standard_normal(len(trunk)))
    return {"N": N, "D": D, "loss": LAW.predict(SMALL, {"N": N, "D": D}) * np.exp(error), "trunk": trunk}


@pytest.mark.parametrize(("group", "objective"), [(None, "log_huber"), ("run", "log_squared")])
def test_the_order_of_the_rows_changes_no_digit(group, objective):
    table, order = study() | {"run": np.arange(40) % 7}, np.random.default_rng(3).permutation(40)
    tables = (table, {name: column[order] for name, column in table.items()})
    straight, permuted = (fit("chinchilla", each, objective=objective, group=group, starts=64) for each in tables)
    assert (straight.estimates, straight.objective) == (permuted.estimates, permuted.objective)
    np.testing.assert_array_equal(straight.residuals[order], permuted.residuals)
    for method in METHODS:
        first, second = (intervals(each, method, quantities=["alpha"], count=20) for each in (straight, permuted))
        assert first == second


def test_units_change_nothing_weights_are_repeated_points_and_many_points_leave_no_doubt(fitted):
    table, repeats, ours = study(), 1 + np.arange(40) % 3, fitted.estimates
    theirs = fit("chinchilla", table | {"N": table["N"] / 1e6, "D": table["D"] / 1e9}).estimates
    assert [theirs[name] / ours[name] for name in ("E", "alpha", "beta")] == pytest.approx([1, 1, 1], rel=1e-6)
    assert theirs["A"] == pytest.approx(ours["A"] * 1e6 ** -ours["alpha"], rel=1e-5)
    weighted = fit("chinchilla", table, weights=7.0 * repeats)
    repeated = fit("chinchilla", {name: np.repeat(column, repeats) for name, column in table.items()})
    np.testing.assert_allclose(weighted.theta, repeated.theta, rtol=1e-6)
    exact = fit("chinchilla", study(30, noise=0.0))
    assert (fitted.not_identified, exact.not_identified, exact.unreliable) == ((), (), ())
    alpha = intervals(exact)["alpha"]
    assert alpha.low == alpha.high == pytest.approx(0.3478)


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
    # Groups stay together in hold-outs and bootstraps.
    assert len(set(grouped.without(table["trunk"] == 5, 64).groups.tolist())) == 5


def test_wavy_errors_and_misses_beyond_the_scatter_of_seeds_are_named():
    exact = study(120, noise=0.0)
    wave = 0.01 * np.sign(np.sin(np.argsort(np.argsort(exact["loss"])) / 6))
    wavy = fit("chinchilla", exact | {"loss": exact["loss"] * np.exp(wave)}, **FEW)
    assert any("neighbours" in reason for reason in wavy.unreliable)
    table = {name: np.repeat(column, 3) for name, column in study(20, noise=0.0).items()}
    table["loss"] = table["loss"] * np.exp(0.005 * np.random.default_rng(1).standard_normal(60))
    right, wrong = (fit(law, table, **FEW) for law in ("chinchilla", "power_law_floor_n"))
    assert right.seed_noise == pytest.approx(0.005, rel=0.25)
    assert [any("seeds scatter" in reason for reason in each.unreliable) for each in (right, wrong)] == [False, True]


def test_a_size_above_the_law_is_named_with_its_distance():
    table = grid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 4), 0.001)
    is_above = np.isclose(table["N"], 10**7.4)
    shifted = table | {"loss": table["loss"] * np.exp(0.02 * is_above)}
    found, straight = (fit("chinchilla", each, starts=64) for each in (shifted, table))
    above = (shifted["loss"] - found.predict(N=table["N"], D=table["D"]))[is_above]
    distance = f"{above.min():.2g} to {above.max():.2g} nats"
    (reason,) = (why for why in found.unreliable if "does not fit this size" in why)
    assert reason == f"All 4 points of N = 2.512e+07 lie above the law by {distance}: the form does not fit this size"
    assert not any("does not fit this size" in why for why in straight.unreliable)


def line(n):
    """A power law: under log-squared errors a straight line, where every interval is known."""
    C, rng = np.geomspace(1e18, 1e20, n), np.random.default_rng(0)
    return {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(0.01 * rng.standard_normal(n))}


@pytest.mark.parametrize(("method", "points"), [("profile", 12), ("t", 12), ("bootstrap", 60)])
def test_the_interval_of_a_straight_line_is_the_textbooks(method, points):
    table = line(points)
    x, y = np.log(table["C"]), np.log(table["loss"])
    design = np.column_stack([np.ones_like(x), -x])
    solution, rss, *_ = np.linalg.lstsq(design, y, rcond=None)
    half = student(0.95, points - 2) * np.sqrt(rss[0] / (points - 2) * np.linalg.inv(design.T @ design)[1, 1])
    # Kaplan's (C_c/C)^α and A C^-α are one law.
    for law in ("power_law_c", "kaplan_c"):
        found = intervals(fit(law, table, objective="log_squared", starts=64), method, quantities=["alpha"])["alpha"]
        assert found.estimate == pytest.approx(solution[1])
        # The factor for unequal errors is at least 1; percentiles of refits scatter.
        low, high = (0.75, 1.25) if method == "bootstrap" else (0.99, 1.5)
        assert low * half <= width(found) / 2 <= high * half
        if method != "bootstrap":
            assert found.high - found.estimate == pytest.approx(found.estimate - found.low, rel=1e-2)


def test_unequal_errors_widen_both_ends_under_a_bounded_influence():
    """The larger half of the runs scatters a hundred times as much as the smaller one, which a score does not show."""
    C, rng = np.geomspace(1e18, 1e20, 80), np.random.default_rng(10)
    errors = np.where(np.arange(80) > 40, 0.05, 0.0005) * rng.standard_normal(80)
    found = fit("power_law_c", {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(errors)})
    problem = found.problem, found.u, found.objective, [parameter(found.form, "alpha")]
    (alone,), (widened,) = bound(*problem, found.refits[:0]), bound(*problem, found.refits)
    assert widened.high - widened.estimate > 1.1 * (alone.high - alone.estimate)
    assert widened.estimate - widened.low > 1.1 * (alone.estimate - alone.low)


def test_what_the_points_do_not_close_is_open_and_not_identified():
    C, noise = np.geomspace(1e18, 1e19, 12), np.random.default_rng(0).standard_normal(12)
    loss = (1.7 + (C / 3e18) ** -0.1) * np.exp(0.02 * noise)
    found = fit("power_law_floor_c", {"C": C, "loss": loss}, objective="log_squared")
    assert intervals(found)["E"].to_json()["low"] is None
    (sentence,) = (why for why in found.not_identified if why.startswith("E is not separated from"))
    assert sentence.endswith("open below")
    N, noise = np.geomspace(1e6, 1e8, 12), np.random.default_rng(3).standard_normal(12)
    found = fit("power_law_floor_n", {"N": N, "loss": 2.0 + 0.02 * (N / 1e6) ** -0.8 + 1.2e-3 * noise})
    alpha = intervals(found)["alpha"]
    ends = f"{alpha.low:.3g} to {alpha.high:.3g}"
    assert found.unidentified == ("alpha",)
    assert f"alpha lies anywhere from {ends}: the interval is wider than the estimate" in found.not_identified


def test_a_target_that_is_not_identified_has_no_value_and_states_the_points():
    poor = grid(np.geomspace(1e8, 4e8, 4), np.geomspace(1e10, 4e10, 4), 0.01)
    found = scaling.fit(poor, targets=[{"N": 1e6, "D": 1e9}, {"C": 1e26}], **QUICK)
    (prediction,), (optimum,) = found.to_json()["predictions"], found.to_json()["optima"]
    assert prediction["identified"] is optimum["identified"] is False
    assert prediction["loss"] is prediction["interval_run"]["estimate"] is optimum["N"]["estimate"] is None
    assert "not identified by chinchilla of 16 points, N 100M to 400M, D 10B to 40B" in str(found)
    refuses("the optimum is not identified", found.optimum, 1e26)
    of_compute = scaling.fit(line(12), law="power_law_floor_c", intervals="none", starts=24)
    refuses("is not a law of N and D alone", of_compute.optimum, 1e26)


def test_the_optimum_is_the_closed_form_and_a_model_that_serves_is_smaller_and_sees_more_data(fitted):
    """N_opt = G (C/6)^a with G = (αA/βB)^(1/(α+β)), a = β/(α+β): Hoffmann et al. 2022, eq. 4; of a model that serves
    the best of many sizes on C = 6ND + 2NT, which the closed form does not know."""
    _, A, B, alpha, beta = fitted.theta
    size = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (BUDGET / 6) ** (beta / (alpha + beta))
    alone = optimal(fitted, BUDGET)
    assert alone.N.estimate == pytest.approx(size, rel=1e-8)
    assert alone.N.low < size < alone.N.high
    served = 1e13
    sizes = np.exp(np.linspace(np.log(1e9), np.log(BUDGET / (2 * served)), 200_000)[:-1])
    losses = fitted.predict(N=sizes, D=(BUDGET - 2 * sizes * served) / (6 * sizes))
    best = optimal(fitted, BUDGET, served=served)
    assert best.N.estimate == pytest.approx(sizes[losses.argmin()], rel=1e-4)
    assert best.loss.estimate == pytest.approx(losses.min(), rel=1e-9)
    assert best.N.high < alone.N.low


def test_the_output_names_the_law_that_puts_the_optimum_elsewhere():
    """Points of farseer's law, which chinchilla's fits nearly as well and extrapolates elsewhere."""
    bent = scaling.fit(study(60, **FARSEER), targets=[{"C": BUDGET}], **QUICK)
    (best,) = bent.document["optima"]
    (other,) = (law for law in best["competing"] if not law["agrees"])
    assert other["law"] == "farseer"
    assert not best["N"]["low"] <= other["N"]["estimate"] <= best["N"]["high"]
    assert "the laws disagree. farseer: N " in str(bent)
    with pytest.warns(UserWarning, match=r"the laws disagree\. farseer: N "):
        assert bent.optimum(BUDGET)["N"] == pytest.approx(best["N"]["estimate"])
    alike = scaling.fit(study(60, 0.001, seed=1), targets=[{"C": 1e21}], **QUICK)
    assert all(law["agrees"] for law in alike.document["optima"][0]["competing"])
    assert "disagree" not in str(alike)


def test_a_correlation_that_has_no_weight_widens_nothing_however_far_its_estimates_lie():
    rng = np.random.default_rng(0)
    seen = problem.Correlation(
        problem.SharedErrors(np.arange(12) // 3, 0.9), rng.normal(size=(2, 12)), rng.normal(size=12)
    )
    seen.weights[-1], slopes = 0.0, np.eye(2)
    factors = seen.widening(slopes, 0.95)
    seen.steps[-1] = 1e14
    assert seen.widening(slopes, 0.95) == pytest.approx(factors, rel=1e-6)
