"""Laws compared on the same points, and the exponents of variants under one law."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.laws import Points, compare, exponents, fit, fit_joint, named, prediction
from scaling.laws.compare import akaike_weights, mean_interval

ALPHA, BETA = 0.3478, 0.3658
THETA = np.array([1.8172, 482.01, 2085.43, ALPHA, BETA])
LAW = named("chinchilla")


def study(n=60, noise=0.0, steeper=0.0):
    """Runs of two variants, of which the second has a steeper fall in N."""
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(np.log(5e7), np.log(2e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    glu = np.arange(n) % 2 == 1
    loss = LAW.predict(THETA, {"N": N, "D": D})
    loss = np.where(glu, loss + 482.01 * N**-ALPHA * ((N / 1e9) ** -steeper - 1), loss)
    loss = loss * np.exp(noise * rng.standard_normal(n))
    return Points({"N": N, "D": D, "loss": loss, "arch": np.where(glu, "glu", "base")})


def test_exponents_of_variants_and_their_differences():
    points = study(120, 0.002, steeper=0.03)
    found = {(one.variant, one.name): one for one in exponents(fit_joint("chinchilla", points, "arch"))}
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


def test_joint_fits_refuse_what_they_cannot_answer():
    points = study()
    with pytest.raises(ScalingError, match="one variant"):
        fit_joint("chinchilla", points.where(points["arch"] == "glu"), "arch")
    with pytest.raises(ScalingError, match="did you mean 'base'"):
        fit_joint("chinchilla", points, "arch", baseline="bass")
    with pytest.raises(ScalingError, match="no variants"):
        exponents(fit("chinchilla", points))


def test_the_true_law_wins():
    points = study(60, 0.003)
    fits = {name: fit(name, points, objective="log_squared") for name in ("kaplan_n_d", "chinchilla", "power_law_n")}
    weighed = compare(fits)
    assert next(iter(weighed)) == "chinchilla"
    assert sum(weight for _, weight in weighed.values()) == pytest.approx(1)
    with pytest.raises(ScalingError, match="same points"):
        compare({"a": fits["chinchilla"], "b": fit("chinchilla", study(40))})


def test_a_mean_over_laws_has_their_weights_and_holds_their_disagreement():
    points, far = study(60, 0.003), {"N": 1e11, "D": 2e12}
    fits = [fit(name, points, objective="log_squared") for name in ("chinchilla", "kaplan_n_d")]
    found = mean_interval(fits, lambda form: prediction(form, far))
    estimates = [float(each.predict(**far)) for each in fits]
    assert found.estimate == pytest.approx(akaike_weights(fits) @ estimates)
    assert found.covers(float(LAW.predict(THETA, {name: [value] for name, value in far.items()})[0]))
