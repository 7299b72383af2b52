"""The best use of a budget by other laws of the same points."""

import warnings

import numpy as np
import pytest

import scaling
from scaling.law import named

FARSEER = np.array([2.2, -0.10, -0.02, 0.33, 0.31, -0.10, 0.39, -0.23, -0.07])
BUDGET = 1e23


def table(form, theta, noise=0.003):
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(17.7, 23, 60)), np.exp(rng.uniform(21, 26, 60))
    return {"N": N, "D": D, "loss": form.predict(theta, {"N": N, "D": D}) * np.exp(noise * rng.standard_normal(60))}


@pytest.fixture(scope="module")
def bent():
    """Points of farseer's law, which chinchilla's fits nearly as well and extrapolates elsewhere."""
    return scaling.fit(table(named("farseer"), FARSEER), targets=[{"C": BUDGET}], intervals="t", starts=128)


def test_the_output_names_the_law_that_puts_the_optimum_elsewhere(bent):
    (best,) = bent.document["optima"]
    (other,) = (law for law in best["competing"] if not law["agrees"])
    assert other["law"] == "farseer"
    assert not best["N"]["low"] <= other["N"]["estimate"] <= best["N"]["high"]
    assert best["over_laws"]["N"]["low"] == min(best["N"]["low"], other["N"]["low"])
    assert best["over_laws"]["N"]["high"] == max(best["N"]["high"], other["N"]["high"])
    (line,) = (line for line in str(bent).splitlines() if "the laws disagree" in line)
    assert line.startswith("! C=1.0e23: the laws disagree. farseer: N ")
    with pytest.warns(UserWarning, match=r"the laws disagree\. farseer: N "):
        assert bent.optimum(BUDGET)["N"] == pytest.approx(best["N"]["estimate"])


def test_laws_that_agree_add_no_line():
    theta = np.array([1.8, 482.0, 2085.0, 0.35, 0.37])
    fitted = scaling.fit(table(named("chinchilla"), theta, 0.001), targets=[{"C": 1e21}], intervals="t", starts=128)
    (best,) = fitted.document["optima"]
    assert all(law["agrees"] for law in best["competing"])
    assert "disagree" not in str(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.optimum(1e21)


def test_a_law_that_fits_badly_does_not_compete(bent):
    (best,) = bent.document["optima"]
    assert all(law["residual_ratio"] <= 2.0 for law in best["competing"])
