"""Intervals, and optima with theirs: exact where that is known, open where the points leave them open, invariant."""

import warnings
from typing import Any

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.laws import derived, fit, intervals, optimal, parameter, prediction
from scaling.laws.intervals import METHODS, bound, student
from tests.laws.studies import FARSEER, LAW, grid, study, width

BUDGET = 1e23
FEW: dict[str, Any] = {"intervals": "t", "objective": "log_squared", "starts": 128}


def line(n=12, noise=0.01, floor=0.0):
    """A power law: under log-squared errors a straight line, where every interval is known."""
    C, rng = np.geomspace(1e18, 1e20, n), np.random.default_rng(0)
    return {"C": C, "loss": 3.0 * (C / 1e19) ** -0.1 * np.exp(noise * rng.standard_normal(n)) + floor}


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


def test_an_end_of_the_profile_is_where_the_objective_has_risen_enough():
    table = line(9, 0.003, floor=1.7)
    found = fit("power_law_floor_c", table, objective="log_squared")
    interval = intervals(found, quantities=["alpha"])["alpha"]
    for end in (interval.low, interval.high):
        held = fit("power_law_floor_c", table, objective="log_squared", fixed={"alpha": end})
        z = np.sqrt((held.objective - found.objective) / (found.objective / 6))
        assert 0.99 * student(0.95, 6) <= z <= 1.3 * student(0.95, 6)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_bounds_parameters_derived_quantities_and_predictions(fitted, method):
    ratio, far = derived("β/α", lambda p: p.beta / p.alpha), prediction(LAW, {"N": 1e11, "D": 2e12})
    bounds = intervals(fitted, method, quantities=["alpha", "a", ratio, far], count=40)
    assert list(bounds) == ["alpha", "a", "β/α", far.name]
    assert all(interval.low < interval.estimate < interval.high for interval in bounds.values())
    alpha, beta = fitted.estimates["alpha"], fitted.estimates["beta"]
    assert bounds["a"].estimate == pytest.approx(beta / (alpha + beta))
    assert bounds[far.name].estimate == pytest.approx(float(fitted.predict(N=1e11, D=2e12)))
    narrow = intervals(fitted, method, quantities=["alpha"], count=40, level=0.5)["alpha"]
    assert width(narrow) < width(bounds["alpha"])


def test_unequal_errors_widen_both_ends_under_a_bounded_influence():
    """The larger half of the runs scatters a hundred times as much as the smaller one, which a score does not show."""
    table, rng = line(80, 0.0), np.random.default_rng(10)
    table["loss"] *= np.exp(np.where(np.arange(80) > 40, 0.05, 0.0005) * rng.standard_normal(80))
    found = fit("power_law_c", table)
    problem = found.problem, found.u, found.objective, [parameter(found.form, "alpha")]
    (alone,), (widened,) = bound(*problem, found.refits[:0]), bound(*problem, found.refits)
    assert widened.high - widened.estimate > 1.1 * (alone.high - alone.estimate)
    assert widened.estimate - widened.low > 1.1 * (alone.estimate - alone.low)


def test_what_the_points_do_not_close_is_open_and_not_identified():
    C, noise = np.geomspace(1e18, 1e19, 12), np.random.default_rng(0).standard_normal(12)
    loss = (1.7 + (C / 3e18) ** -0.1) * np.exp(0.02 * noise)
    found = fit("power_law_floor_c", {"C": C, "loss": loss}, objective="log_squared")
    floor = intervals(found)["E"]
    assert floor.open_below
    assert floor.to_json()["low"] is None
    (sentence,) = (why for why in found.not_identified if why.startswith("E is not separated from"))
    assert sentence.endswith("open below")
    N, noise = np.geomspace(1e6, 1e8, 12), np.random.default_rng(3).standard_normal(12)
    table = {"N": N, "loss": 2.0 + 0.02 * (N / 1e6) ** -0.8 + 1.2e-3 * noise}
    found = fit("power_law_floor_n", table)
    alpha = intervals(found)["alpha"]
    ends = f"{alpha.low:.3g} to {alpha.high:.3g}"
    assert found.unidentified == ("alpha",)
    assert f"alpha lies anywhere from {ends}: the interval is wider than the estimate" in found.not_identified


def test_a_target_that_is_not_identified_has_no_value_and_states_the_points():
    poor = grid(np.geomspace(1e8, 4e8, 4), np.geomspace(1e10, 4e10, 4), 0.01)
    found = scaling.fit(poor, targets=[{"N": 1e6, "D": 1e9}, {"C": 1e26}], **FEW)
    (prediction,), (optimum,) = found.to_json()["predictions"], found.to_json()["optima"]
    assert prediction["identified"] is optimum["identified"] is False
    assert prediction["loss"] is prediction["interval_run"]["estimate"] is optimum["N"]["estimate"] is None
    assert "not identified by chinchilla of 16 points, N 100M to 400M, D 10B to 40B" in str(found)
    with pytest.raises(ScalingError, match="the optimum is not identified"):
        found.optimum(1e26)


# The best use of a budget, by one law and by those that compete with it.


def test_the_optimum_is_the_closed_form_and_a_model_that_serves_is_smaller_and_sees_more_data(fitted):
    """N_opt = G (C/6)^a with G = (αA/βB)^(1/(α+β)), a = β/(α+β): Hoffmann et al. 2022, eq. 4; of a model that serves
    the best of many sizes on C = 6ND + 2NT, which the closed form does not know."""
    _, A, B, alpha, beta = fitted.theta
    size = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (BUDGET / 6) ** (beta / (alpha + beta))
    alone = optimal(fitted, BUDGET)
    assert alone.N.estimate == pytest.approx(size, rel=1e-8)
    assert alone.D.estimate == pytest.approx(BUDGET / (6 * size), rel=1e-8)
    assert alone.N.low < size < alone.N.high
    assert alone.D.low == pytest.approx(BUDGET / (6 * alone.N.high))
    served = 1e13
    sizes = np.exp(np.linspace(np.log(1e9), np.log(BUDGET / (2 * served)), 200_000)[:-1])
    losses = fitted.predict(N=sizes, D=(BUDGET - 2 * sizes * served) / (6 * sizes))
    best = optimal(fitted, BUDGET, served=served)
    assert best.N.estimate == pytest.approx(sizes[losses.argmin()], rel=1e-4)
    assert 6 * best.N.estimate * best.D.estimate + 2 * best.N.estimate * served == pytest.approx(BUDGET)
    assert best.loss.estimate == pytest.approx(losses.min(), rel=1e-9)
    assert best.N.high < alone.N.low


def test_the_output_names_the_law_that_puts_the_optimum_elsewhere():
    """Points of farseer's law, which chinchilla's fits nearly as well and extrapolates elsewhere."""
    bent = scaling.fit(study(60, **FARSEER), targets=[{"C": BUDGET}], **FEW)
    (best,) = bent.document["optima"]
    (other,) = (law for law in best["competing"] if not law["agrees"])
    assert other["law"] == "farseer"
    assert not best["N"]["low"] <= other["N"]["estimate"] <= best["N"]["high"]
    assert "the laws disagree. farseer: N " in str(bent)
    with pytest.warns(UserWarning, match=r"the laws disagree\. farseer: N "):
        assert bent.optimum(BUDGET)["N"] == pytest.approx(best["N"]["estimate"])
    alike = scaling.fit(study(60, 0.001, seed=1), targets=[{"C": 1e21}], **FEW)
    assert all(law["agrees"] for law in alike.document["optima"][0]["competing"])
    assert "disagree" not in str(alike)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert alike.optimum(1e21)["N"] == pytest.approx(alike.document["optima"][0]["N"]["estimate"])
