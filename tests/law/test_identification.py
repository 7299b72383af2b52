"""What a law does not identify is no answer: one rule for exponents, predictions and optima."""

import numpy as np
import pytest

import scaling
from scaling.errors import ScalingError
from scaling.law import fit, intervals, named
from scaling.law.autodiff import Dual
from scaling.law.forms import Parameter
from scaling.law.identification import is_exponent, is_wide, is_wide_prediction, is_wide_size
from scaling.law.quantity import Quantity

THETA = np.array([1.8, 482.0, 2085.0, 0.35, 0.37])


def runs(sizes, budgets, noise, seed=0):
    N, D = (axis.ravel() for axis in np.meshgrid(sizes, budgets))
    rng = np.random.default_rng(seed)
    loss = named("chinchilla").predict(THETA, {"N": N, "D": D}) * np.exp(noise * rng.standard_normal(len(N)))
    return {"N": N, "D": D, "loss": loss}


WELL = runs(np.geomspace(1e7, 1e10, 5), np.geomspace(1e9, 1e12, 5), 0.001)
POORLY = runs(np.geomspace(1e8, 4e8, 4), np.geomspace(1e10, 4e10, 4), 0.01)


def test_an_exponent_is_known_where_its_interval_is_no_wider_than_its_estimate():
    assert not is_wide(0.41, 0.25, 0.6)
    assert is_wide(0.41, 0.07, 0.96)
    assert is_exponent(named("chinchilla").parameters[3])
    assert not is_exponent(Parameter("gamma", "1", "linear", -1.0, 1.0, (0.0, 1.0)))  # its sign is what is asked
    assert is_wide_size(1e9, 2e11)
    assert not is_wide_size(1e9, 9e10)
    assert is_wide_prediction("loss", 2.0, 0.0, 1.3e29)
    assert not is_wide_prediction("accuracy", 0.05, 0.01, 0.12)


def test_a_wide_exponent_is_not_identified_and_its_neighbours_are():
    found = fit("power_law_floor_n", {"N": (N := np.geomspace(1e6, 1e8, 12)), "loss": _noisy(N)})
    low, high = (intervals(found)["alpha"].low, intervals(found)["alpha"].high)
    assert high - low > found.estimates["alpha"]
    assert "alpha" in found.unidentified
    (sentence,) = (why for why in found.not_identified if why.startswith("alpha"))
    assert sentence == f"alpha lies anywhere from {low:.3g} to {high:.3g}: the interval is wider than the estimate"
    assert "E" not in found.unidentified
    assert fit("chinchilla", WELL).unidentified == ()


def _noisy(N):
    return 2.0 + 0.02 * (N / 1e6) ** -0.8 + 1.2e-3 * np.random.default_rng(3).standard_normal(len(N))


def test_a_target_that_is_not_identified_has_no_value_and_says_what_was_tried():
    found = scaling.fit(POORLY, targets=[{"N": 1e6, "D": 1e9}, {"C": 1e26}], intervals="t", starts=128)
    for row, names in ((found.document["predictions"][0], ("loss",)), (found.document["optima"][0], ())):
        assert row["identified"] is False
        assert row["interval_run"]["estimate"] is None
        assert all(row[name] is None for name in names)
    assert found.document["optima"][0]["N"]["estimate"] is None
    text = str(found)
    assert "not identified by chinchilla of 16 points, N 100M to 400M, D 10B to 40B" in text
    assert repr(found.predict(N=1e6, D=1e9)).startswith("not identified")
    with pytest.raises(ScalingError, match="the optimum is not identified"):
        found.optimum(1e26)


def test_a_target_that_is_identified_has_its_value():
    found = scaling.fit(WELL, targets=[{"N": 1e10, "D": 1e12}, {"C": 1e22}], intervals="t", starts=128)
    assert found.document["predictions"][0]["identified"]
    assert found.document["optima"][0]["identified"]
    assert found.document["optima"][0]["N"]["estimate"] == pytest.approx(found.optimum(1e22)["N"])
    assert "not identified" not in str(found)
    assert repr(found.predict(N=1e10, D=1e12)).startswith("2.0")


def test_an_end_on_the_wrong_side_of_the_estimate_is_open():
    """Below its estimate the quantity jumps above it, as the size of an optimum may: no lower end was found."""
    found = fit("power_law_n", {"N": (N := np.geomspace(1e6, 1e8, 12)), "loss": _noisy(N)})
    jump = found.estimates["alpha"] - 1e-6

    def formula(form, theta, seeds):
        alpha = form.named_duals(theta, seeds).alpha
        return Dual(np.where(alpha.value < jump, alpha.value + 1.0, alpha.value), alpha.gradient)

    interval = intervals(found, quantities=[Quantity("jump", formula, "linear")])["jump"]
    assert interval.open_below or interval.low <= interval.estimate
    assert interval.open_above or interval.high >= interval.estimate
