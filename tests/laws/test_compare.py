"""Laws compared on the same points, and variants under one law."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.laws import (
    Points,
    average,
    compare,
    equivalent_compute,
    exponents,
    fit,
    fit_joint,
    how_variants_differ,
    named,
)

ALPHA, BETA = 0.3478, 0.3658
THETA = np.array([1.8172, 482.01, 2085.43, ALPHA, BETA])
LAW = named("chinchilla")
FAR = {"N": 1e11, "D": 2e12}


def study(n=60, noise=0.0, gain=1.0, steeper=0.0):
    """Runs of two variants, the second with `gain` times the compute's worth and a steeper fall in N."""
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(np.log(5e7), np.log(2e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    glu = np.arange(n) % 2 == 1
    k = np.where(glu, np.sqrt(gain), 1.0)
    theta = THETA + np.where(glu[:, None], [0, 0, 0, steeper, 0], 0.0)
    theta[glu, 1] *= 1e9**steeper
    loss = np.array([LAW.predict(t, {"N": [a], "D": [b]})[0] for t, a, b in zip(theta, N * k, D * k)])
    loss = loss * np.exp(noise * rng.standard_normal(n))
    return Points({"N": N, "D": D, "loss": loss, "arch": np.where(glu, "glu", "base")})


@pytest.mark.parametrize(("gain", "steeper", "verdict"), [(1.31, 0.0, "compute"), (1.0, 0.03, "exponents")])
def test_how_variants_differ_is_seen(gain, steeper, verdict):
    points = study(120, 0.002, gain, steeper)
    found = how_variants_differ("chinchilla", points, by="arch", objective="log_squared")
    assert found.best == verdict
    assert sum(found.weights.values()) == pytest.approx(1)


def test_exponents_of_variants_and_their_differences():
    points = study(120, 0.002, steeper=0.03)
    found = {(one.variant, one.name): one for one in exponents(fit_joint("chinchilla", points, "arch", "exponents"))}
    truths = {"base": {"alpha": ALPHA, "beta": BETA}, "glu": {"alpha": ALPHA + 0.03, "beta": BETA}}
    for values in truths.values():
        values["compute"] = values["alpha"] * values["beta"] / (values["alpha"] + values["beta"])
    assert set(found) == {(variant, name) for variant, values in truths.items() for name in values}
    for (variant, name), one in found.items():
        assert one.own.covers(truths[variant][name])
        assert (one.difference is None) == (variant == "base")
        if one.difference is not None:
            assert one.difference.covers(truths["glu"][name] - truths["base"][name])
            assert (one.difference.low > 0) == (name != "beta")
    with pytest.raises(ScalingError, match="share their exponents"):
        exponents(fit_joint("chinchilla", points, "arch", "coefficients"))
    with pytest.raises(ScalingError, match="no variants"):
        exponents(fit("chinchilla", points))


def test_what_a_variant_is_worth():
    points = study(60, 0.002, gain=1.31)
    worth = equivalent_compute(fit_joint("chinchilla", points, "arch", "compute"), "glu")
    assert worth.covers(1.31)
    assert worth.high / worth.low < 1.2
    freely = fit_joint("chinchilla", points, "arch", "coefficients", objective="log_squared")
    at_budget = equivalent_compute(freely, "glu", C=1e22, method="t")
    assert at_budget.estimate == pytest.approx(1.31, rel=0.1)

    # The same number by hand: the baseline at k times the budget reaches the variant's loss.
    def best(variant, C):
        names = ("E", f"A[{variant}]", f"B[{variant}]", "alpha", "beta")
        sizes = np.geomspace(1e8, 1e12, 40001)
        return LAW.predict(np.array([freely.estimates[n] for n in names]), {"N": sizes, "D": C / (6 * sizes)}).min()

    assert best("base", 1e22 * at_budget.estimate) == pytest.approx(best("glu", 1e22), rel=1e-8)
    reverse = equivalent_compute(fit_joint("chinchilla", points, "arch", "compute", baseline="glu"), "base")
    assert reverse.estimate == pytest.approx(1 / worth.estimate, rel=1e-4)


def test_joint_fits_refuse_what_they_cannot_answer():
    points = study()
    with pytest.raises(ScalingError, match="one variant"):
        fit_joint("chinchilla", points.where(points["arch"] == "glu"), "arch", "compute")
    with pytest.raises(ScalingError, match="did you mean 'base'"):
        fit_joint("chinchilla", points, "arch", "compute", baseline="bass")
    with pytest.raises(ScalingError, match="did you mean 'compute'"):
        fit_joint("chinchilla", points, "arch", "comput")  # type: ignore[arg-type]
    with pytest.raises(ScalingError, match="depends on the budget"):
        equivalent_compute(fit_joint("chinchilla", points, "arch", "coefficients"), "glu")
    with pytest.raises(ScalingError, match="not a variant"):
        equivalent_compute(fit("chinchilla", points), "glu")


def test_the_true_law_wins_and_the_average_is_near_it():
    points = study(60, 0.003)
    fits = {name: fit(name, points, objective="log_squared") for name in ("chinchilla", "kaplan_n_d", "power_law_n")}
    assert compare(fits).best == "chinchilla"
    assert average(fits, FAR).covers(float(LAW.predict(THETA, {"N": [1e11], "D": [2e12]})[0]))
    with pytest.raises(ScalingError, match="same points"):
        compare({"a": fits["chinchilla"], "b": fit("chinchilla", study(40))})
