"""The best use of a budget, by one law and by those that compete with it."""

import warnings

import numpy as np
import pytest

import scaling
from scaling.errors import ScalingError
from scaling.laws import Points, fit, named, optimal

LAW = named("chinchilla")
THETA = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])
FARSEER = np.array([2.2, -0.10, -0.02, 0.33, 0.31, -0.10, 0.39, -0.23, -0.07])
BUDGET = 1e23


def table(form, theta, noise=0.003):
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(17.7, 23, 60)), np.exp(rng.uniform(21, 26, 60))
    return {"N": N, "D": D, "loss": form.predict(theta, {"N": N, "D": D}) * np.exp(noise * rng.standard_normal(60))}


@pytest.fixture(scope="module")
def fitted():
    return fit(LAW, table(LAW, THETA))


def test_the_optimum_is_the_closed_form(fitted):
    """N_opt = G (C/6)^a with G = (αA/βB)^(1/(α+β)), a = β/(α+β): Hoffmann et al. 2022, eq. 4."""
    _, A, B, alpha, beta = fitted.theta
    size = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (BUDGET / 6) ** (beta / (alpha + beta))
    best = optimal(fitted, BUDGET)
    assert best.N.estimate == pytest.approx(size, rel=1e-8)
    assert best.D.estimate == pytest.approx(BUDGET / (6 * size), rel=1e-8)
    assert best.loss.estimate == pytest.approx(float(fitted.predict(N=size, D=BUDGET / (6 * size))))
    assert best.N.low < size < best.N.high
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


def test_the_frontier_of_a_law_in_more_columns_and_of_none():
    points = Points(table(LAW, THETA))
    repeated = fit("data_constrained", points.with_column("U", points["D"] / (1 + np.arange(60) % 5), "unique tokens"))
    scarce, plenty = (optimal(repeated, BUDGET, others={"U": u}, method="t") for u in (1e10, 1e13))
    assert scarce.loss.estimate > plenty.loss.estimate
    with pytest.raises(ScalingError, match="no frontier"):
        optimal(fit("power_law_n", points), BUDGET)


def test_the_output_names_the_law_that_puts_the_optimum_elsewhere():
    """Points of farseer's law, which chinchilla's fits nearly as well and extrapolates elsewhere."""
    points = table(named("farseer"), FARSEER)
    bent = scaling.fit(points, targets=[{"C": BUDGET}], intervals="t", starts=128)
    (best,) = bent.document["optima"]
    (other,) = (law for law in best["competing"] if not law["agrees"])
    assert other["law"] == "farseer"
    assert not best["N"]["low"] <= other["N"]["estimate"] <= best["N"]["high"]
    assert best["over_laws"]["N"]["low"] == min(best["N"]["low"], other["N"]["low"])
    assert best["over_laws"]["N"]["high"] == max(best["N"]["high"], other["N"]["high"])
    # A law that fits badly does not compete.
    assert all(law["residual_ratio"] <= 2.0 for law in best["competing"])
    (line,) = (line for line in str(bent).splitlines() if "the laws disagree" in line)
    assert "farseer: N " in line
    with pytest.warns(UserWarning, match=r"the laws disagree\. farseer: N "):
        assert bent.optimum(BUDGET)["N"] == pytest.approx(best["N"]["estimate"])


def test_laws_that_agree_add_no_line():
    points = table(LAW, THETA, 0.001)
    fitted = scaling.fit(points, targets=[{"C": 1e21}], intervals="t", starts=128)
    (best,) = fitted.document["optima"]
    assert all(law["agrees"] for law in best["competing"])
    assert "disagree" not in str(fitted)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.optimum(1e21)
