"""Intervals, and optima with theirs: exact where that is known, open where the points leave them open, invariant."""

import warnings
from typing import Any

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.laws import Quantity, derived, fit, intervals, named, optimal, parameter, prediction
from scaling.laws.intervals import METHODS, bootstrap, bound, student
from scaling.laws.law import Dual

THETA = np.array([1.8, 482.0, 2085.0, 0.35, 0.37])


def line(n=12, noise=0.01, seed=0):
    """A power law: under log-squared errors a straight line, where every interval is known."""
    rng = np.random.default_rng(seed)
    C = np.geomspace(1e18, 1e20, n)
    return {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(noise * rng.standard_normal(n))}


def grid(sizes, budgets, noise, seed=0):
    N, D = (axis.ravel() for axis in np.meshgrid(sizes, budgets))
    rng = np.random.default_rng(seed)
    loss = named("chinchilla").predict(THETA, {"N": N, "D": D}) * np.exp(noise * rng.standard_normal(len(N)))
    return {"N": N, "D": D, "loss": loss}


WELL = grid(np.geomspace(1e7, 1e10, 5), np.geomspace(1e9, 1e12, 5), 0.001)
POORLY = grid(np.geomspace(1e8, 4e8, 4), np.geomspace(1e10, 4e10, 4), 0.01)


LAW = named("chinchilla")
OPTIMAL = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])
FARSEER = np.array([2.2, -0.10, -0.02, 0.33, 0.31, -0.10, 0.39, -0.23, -0.07])
BUDGET = 1e23


def table(form, theta, noise=0.003):
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(17.7, 23, 60)), np.exp(rng.uniform(21, 26, 60))
    return {"N": N, "D": D, "loss": form.predict(theta, {"N": N, "D": D}) * np.exp(noise * rng.standard_normal(60))}


@pytest.fixture(scope="module")
def fitted():
    return fit(LAW, table(LAW, OPTIMAL))


@pytest.mark.parametrize("method", ["profile", "t"])
def test_the_interval_of_a_straight_line_is_the_textbooks(method):
    table = line()
    x, y = np.log(table["C"]), np.log(table["loss"])
    design = np.column_stack([np.ones_like(x), -x])
    solution, rss, *_ = np.linalg.lstsq(design, y, rcond=None)
    half = student(0.95, 10) * np.sqrt(rss[0] / 10 * np.linalg.inv(design.T @ design)[1, 1])
    found = intervals(fit("power_law_c", table, objective="log_squared"), method)["alpha"]
    assert found.estimate == pytest.approx(solution[1])
    assert found.high - found.estimate == pytest.approx(found.estimate - found.low, rel=1e-2)
    # The factor for unequal errors is at least 1.
    assert 0.99 * half <= (found.high - found.low) / 2 <= 1.5 * half


def test_the_profile_does_not_depend_on_how_the_law_is_written():
    """Kaplan's (C_c/C)^α and A C^-α are one law: the same interval for α and for a prediction."""
    table, bounds = line(), []
    for name in ("power_law_c", "kaplan_c"):
        far = prediction(named(name), {"C": 1e22}, "far")
        bounds.append(intervals(fit(name, table), quantities=["alpha", far]))
    for name in ("alpha", "far"):
        first, second = (found[name] for found in bounds)
        assert (first.low, first.high) == pytest.approx((second.low, second.high), rel=1e-3)


def test_an_end_of_the_profile_is_where_the_objective_has_risen_enough():
    table = line(9, 0.003)
    table["loss"] += 1.7
    found = fit("power_law_floor_c", table, objective="log_squared")
    interval = intervals(found, quantities=["alpha"])["alpha"]
    for end in (interval.low, interval.high):
        held = fit("power_law_floor_c", table, objective="log_squared", fixed={"alpha": end})
        z = np.sqrt((held.objective - found.objective) / (found.objective / 6))
        assert 0.99 * student(0.95, 6) <= z <= 1.3 * student(0.95, 6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_bounds_parameters_derived_quantities_and_predictions(fitted, method):
    ratio = derived("β/α", lambda p: p.beta / p.alpha)
    far = prediction(fitted.form, {"N": 1e11, "D": 2e12})
    bounds = intervals(fitted, method, quantities=["alpha", "a", ratio, far], count=60)
    assert list(bounds) == ["alpha", "a", "β/α", far.name]
    assert all(interval.low < interval.estimate < interval.high for interval in bounds.values())
    alpha, beta = fitted.estimates["alpha"], fitted.estimates["beta"]
    assert bounds["a"].estimate == pytest.approx(beta / (alpha + beta))
    narrow = intervals(fitted, method, quantities=["alpha"], count=60, level=0.5)["alpha"]
    assert narrow.high - narrow.low < bounds["alpha"].high - bounds["alpha"].low


def test_unequal_errors_widen_both_ends_under_a_bounded_influence():
    """The larger half of the runs scatters a hundred times as much as the smaller one, which a score does not show."""
    C, rng = np.geomspace(1e18, 1e20, 80), np.random.default_rng(10)
    errors = np.where(np.arange(80) > 40, 0.05, 0.0005) * rng.standard_normal(80)
    found = fit("power_law_c", {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(errors)})
    fitted = found.problem, found.u, found.objective, [parameter(found.form, "alpha")]
    (alone,), (widened,) = bound(*fitted, found.refits[:0]), bound(*fitted, found.refits)
    assert widened.high - widened.estimate > 1.1 * (alone.high - alone.estimate)
    assert widened.estimate - widened.low > 1.1 * (alone.estimate - alone.low)


def test_refits_are_the_same_for_a_seed_and_as_scattered_as_the_interval_states():
    found = fit("power_law_c", line(40), objective="log_squared")
    (first, failed), (second, _) = (bootstrap(found.problem, found.u, 400, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert failed == 0
    interval = intervals(found, "t")["alpha"]
    assert first[:, 1].std() == pytest.approx((interval.high - interval.low) / 2 / student(0.95, 38), rel=0.25)


def test_an_impossible_interval_is_refused(fitted):
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"method": "profil"}, "did you mean 'profile'"),
        ({"quantities": ["alfa"]}, "did you mean 'alpha'"),
        ({"level": 95}, "between 0 and 1"),
    )
    for choices, message in cases:
        with pytest.raises(ScalingError, match=message):
            intervals(fitted, **choices)


def test_an_end_that_the_points_do_not_close_is_open():
    C = np.geomspace(1e18, 1e19, 12)
    loss = (1.7 + (C / 3e18) ** -0.1) * np.exp(0.02 * np.random.default_rng(0).standard_normal(12))
    found = fit("power_law_floor_c", {"C": C, "loss": loss}, objective="log_squared")
    floor = intervals(found)["E"]
    assert floor.open_below
    assert floor.covers(-1e9)
    assert floor.to_json()["low"] is None
    assert "open to" in str(floor)
    (sentence,) = (why for why in found.not_identified if why.startswith("E is not separated from"))
    assert sentence.endswith("open below")


def test_an_end_on_the_wrong_side_of_the_estimate_is_open():
    """Below its estimate the quantity jumps above it, as the size of an optimum may: no lower end was found."""
    found = fit("power_law_n", {"N": (N := np.geomspace(1e6, 1e8, 12)), "loss": _noisy(N)})
    jump = found.estimates["alpha"] - 1e-6

    def formula(form, theta, seeds):
        alpha = form.named_duals(theta, seeds).alpha
        return Dual(np.where(alpha.value < jump, alpha.value + 1.0, alpha.value), alpha.gradient)

    interval = intervals(found, quantities=[Quantity("jump", formula, "linear")])["jump"]
    assert interval.low <= interval.estimate <= interval.high


def _noisy(N):
    return 2.0 + 0.02 * (N / 1e6) ** -0.8 + 1.2e-3 * np.random.default_rng(3).standard_normal(len(N))


def test_a_wide_exponent_is_not_identified_and_its_neighbours_are():
    found = fit("power_law_floor_n", {"N": (N := np.geomspace(1e6, 1e8, 12)), "loss": _noisy(N)})
    alpha = intervals(found)["alpha"]
    assert found.unidentified == ("alpha",)
    (sentence,) = (why for why in found.not_identified if why.startswith("alpha"))
    ends = f"{alpha.low:.3g} to {alpha.high:.3g}"
    assert sentence == f"alpha lies anywhere from {ends}: the interval is wider than the estimate"
    assert fit("chinchilla", WELL).unidentified == ()


def test_a_target_that_is_not_identified_has_no_value_and_states_the_points():
    found = scaling.fit(POORLY, targets=[{"N": 1e6, "D": 1e9}, {"C": 1e26}], intervals="t", starts=128)
    document = found.to_json()
    for row, names in ((document["predictions"][0], ("loss",)), (document["optima"][0], ())):
        assert row["identified"] is False
        assert row["interval_run"]["estimate"] is None
        assert all(row[name] is None for name in names)
    assert document["optima"][0]["N"]["estimate"] is None
    assert "not identified by chinchilla of 16 points, N 100M to 400M, D 10B to 40B" in str(found)
    with pytest.raises(ScalingError, match="the optimum is not identified"):
        found.optimum(1e26)
    known = scaling.fit(WELL, targets=[{"N": 1e10, "D": 1e12}, {"C": 1e22}], intervals="t", starts=128)
    assert known.document["predictions"][0]["identified"]
    assert known.document["optima"][0]["N"]["estimate"] == pytest.approx(known.optimum(1e22)["N"])
    assert "not identified" not in str(known)


# The best use of a budget, by one law and by those that compete with it.


def test_the_optimum_is_the_closed_form(fitted):
    """N_opt = G (C/6)^a with G = (αA/βB)^(1/(α+β)), a = β/(α+β): Hoffmann et al. 2022, eq. 4."""
    _, A, B, alpha, beta = fitted.theta
    size = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (BUDGET / 6) ** (beta / (alpha + beta))
    best = optimal(fitted, BUDGET)
    assert best.N.estimate == pytest.approx(size, rel=1e-8)
    assert best.D.estimate == pytest.approx(BUDGET / (6 * size), rel=1e-8)
    assert best.loss.estimate == pytest.approx(float(fitted.predict(N=size, D=BUDGET / (6 * size))))
    assert best.N.low < size < best.N.high
    with pytest.raises(ScalingError, match="no frontier"):
        optimal(fit("power_law_n", table(LAW, OPTIMAL)), BUDGET)
    assert best.D.low == pytest.approx(BUDGET / (6 * best.N.high))


def test_a_model_that_serves_is_smaller_and_sees_more_data(fitted):
    """The best of many sizes on C = 6ND + 2NT, which the closed form does not know."""
    served = 1e13
    sizes = np.exp(np.linspace(np.log(1e9), np.log(BUDGET / (2 * served)), 200_000)[:-1])
    losses = fitted.predict(N=sizes, D=(BUDGET - 2 * sizes * served) / (6 * sizes))
    best, alone = optimal(fitted, BUDGET, served=served), optimal(fitted, BUDGET)
    assert best.N.estimate == pytest.approx(sizes[losses.argmin()], rel=1e-4)
    assert 6 * best.N.estimate * best.D.estimate + 2 * best.N.estimate * served == pytest.approx(BUDGET)
    assert best.loss.estimate == pytest.approx(losses.min(), rel=1e-9)
    assert best.N.low < best.N.estimate < best.N.high < alone.N.low
    assert best.D.low < best.D.estimate < best.D.high


def test_the_output_names_the_law_that_puts_the_optimum_elsewhere():
    """Points of farseer's law, which chinchilla's fits nearly as well and extrapolates elsewhere."""
    points = table(named("farseer"), FARSEER)
    bent = scaling.fit(points, targets=[{"C": BUDGET}], intervals="t", starts=128)
    (best,) = bent.document["optima"]
    (other,) = (law for law in best["competing"] if not law["agrees"])
    assert other["law"] == "farseer"
    assert not best["N"]["low"] <= other["N"]["estimate"] <= best["N"]["high"]
    # A law that fits badly does not compete.
    assert all(law["residual_ratio"] <= 2.0 for law in best["competing"])
    (line,) = (line for line in str(bent).splitlines() if "the laws disagree" in line)
    assert "farseer: N " in line
    with pytest.warns(UserWarning, match=r"the laws disagree\. farseer: N "):
        assert bent.optimum(BUDGET)["N"] == pytest.approx(best["N"]["estimate"])


def test_laws_that_agree_add_no_line():
    points = table(LAW, OPTIMAL, 0.001)
    fitted = scaling.fit(points, targets=[{"C": 1e21}], intervals="t", starts=128)
    (best,) = fitted.document["optima"]
    assert all(law["agrees"] for law in best["competing"])
    assert "disagree" not in str(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.optimum(1e21)
