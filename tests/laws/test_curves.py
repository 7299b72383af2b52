"""Whole curves: the laws, the errors, the fit, and what it predicts."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.coverage.studies import CURVE_TRUTH as TRUTH
from benchmarks.coverage.studies import RATE, curve_design, draw_curves
from scaling.base.errors import ScalingError
from scaling.laws.catalogue import CURVE_LAWS
from scaling.laws.curves import (
    POINTS,
    Curve,
    Sizes,
    columns_of,
    covariance,
    fit_curves,
    places_of,
)

SIZES = Sizes(trunk=0.001, run=0.001, length=0.3, evaluation=0.0003, training=0.02)
LAW = CURVE_LAWS["multi_power"]
TRUE = np.array([TRUTH[name] for name in LAW.parameter_names])


@pytest.fixture(scope="module")
def curves():
    return draw_curves(curve_design(), SIZES, np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(curves):
    return fit_curves(curves, starts=48)


def cosine(steps, warmup=97):
    way = np.clip((np.arange(steps) - warmup) / (steps - warmup), 0, 1)
    return RATE * np.minimum(1, (np.arange(steps) + 1) / warmup) * (0.55 + 0.45 * np.cos(np.pi * way))


def curve_at(steps, rates):
    return Curve("a", 1e5, np.array(steps), np.ones(len(steps)), np.ones(len(steps), int), rates, 1024.0)


@pytest.mark.parametrize("law", CURVE_LAWS.values(), ids=CURVE_LAWS)
def test_a_constant_rate_gives_chinchilla(law):
    curve = curve_at([500, 2000], np.full(2000, RATE))
    theta = np.array([TRUTH.get(name, 0.3) for name in law.parameter_names])
    floor = TRUTH["E"] + (TRUTH["C"] if law is CURVE_LAWS["multi_power"] else 0.0)
    known = floor + TRUTH["A"] * 1e5 ** -TRUTH["alpha"] + TRUTH["B"] * (1024.0 * curve.steps) ** -TRUTH["beta"]
    np.testing.assert_allclose(law.predict(theta, columns_of(curve, RATE, 0.999)), known, rtol=1e-12)


def test_the_multi_power_law_is_the_sum_of_its_paper():
    """Over every step of the schedule, as equations 3 to 5 have it; gathered falls come within 1% of it."""
    steps = 1500
    curve = curve_at([steps], cosine(steps))
    rates, area = curve.rates / RATE, np.cumsum(curve.rates / RATE) * 1024.0
    gain = 0.0
    for k in range(98, steps):
        inner = 1 + TRUTH["c"] * rates[k] ** -TRUTH["gamma"] * (area[-1] - area[k - 1])
        gain += (rates[k - 1] - rates[k]) * (1 - inner ** -TRUTH["kappa"])
    plain = TRUTH["E"] + TRUTH["C"] + TRUTH["A"] * 1e5 ** -TRUTH["alpha"] + TRUTH["B"] * area[-1] ** -TRUTH["beta"]
    ours = LAW.predict(TRUE, columns_of(curve, RATE, 0.999))[0]
    assert plain - ours == pytest.approx(TRUTH["C"] * gain, rel=0.01)


def test_errors_of_a_run_fall_apart_with_the_logarithm_of_the_step():
    """Of one run by exp(-|log s - log t| / ℓ), of one trunk by the trunk's alone, of two trunks not at all."""
    curve = curve_at([100, 200], np.full(400, RATE))
    places = places_of([curve, replace(curve, run="b", trunk="a"), replace(curve, run="c")])
    errors = covariance(replace(SIZES, trunk=0.002, run=0.003, length=np.log(2)), places)
    assert errors[0, 1:] == pytest.approx([4e-6 + 9e-6 / np.e, 4e-6, 4e-6, 0, 0])
    assert errors[0, 0] == pytest.approx(4e-6 + 9e-6 + SIZES.evaluation**2, rel=1e-4)


def test_the_law_and_its_errors_are_recovered_in_any_order_of_curves(curves, fitted):
    assert fitted.estimates["E"] == pytest.approx(TRUTH["E"], abs=0.02)
    assert fitted.estimates["beta"] == pytest.approx(TRUTH["beta"], abs=0.1)
    assert 0.0003 < np.hypot(fitted.sizes.trunk, fitted.sizes.run) < 0.003
    assert fitted.intervals()["E"].covers(TRUTH["E"])
    assert 0.99 < fitted.r_squared < 1
    assert fit_curves(curves[::-1], starts=48).estimates == pytest.approx(fitted.estimates, rel=1e-9)


def test_errors_that_shrink_with_size_are_found():
    shrinking = replace(SIZES, trunk=0.003, run=0.002, by_size=0.6, by_tokens=0.3, N=3e4, D=1e6)
    found = fit_curves(draw_curves(curve_design(), shrinking, np.random.default_rng(3)), starts=48)
    assert found.sizes.by_size == pytest.approx(0.6, abs=0.25)
    assert found.sizes.by_tokens == pytest.approx(0.3, abs=0.25)


def test_training_losses_count_by_their_noise(curves):
    """Noisy losses beside the evaluations leave the fit where it was, and their noise is found."""
    rng = np.random.default_rng(1)
    noisy = []
    for curve in curves[::2]:
        wild = curve.losses * np.exp(0.03 * rng.standard_normal(len(curve.steps)))
        both = {"steps": np.tile(curve.steps, 2), "losses": np.concatenate([curve.losses, wild])}
        noisy.append(replace(curve, **both, kinds=np.repeat([1, 0], len(curve.steps))))
    found = fit_curves(noisy, starts=48)
    assert found.sizes.training == pytest.approx(0.03, rel=0.25)
    assert found.sizes.evaluation < 0.002
    assert found.intervals(["E"])["E"].covers(TRUTH["E"])


def test_many_losses_of_a_kind_become_means_of_stretches():
    curve = replace(curve_at(np.arange(1, 2001), np.full(2000, RATE)), kinds=np.repeat([1, 0], [40, 1960]))
    thin = curve.thinned(0.0)
    assert (thin.kinds == 1).sum() == 40
    assert 60 < (thin.kinds == 0).sum() <= POINTS
    assert thin.counts is not None
    assert thin.counts.sum() == 2000
    assert curve.thinned().steps.min() > 200


def test_another_schedule_a_larger_size_and_the_end_of_a_begun_run_are_predicted(curves, fitted):
    """A run that lies 1% above the law stays above it, and its interval is narrower than a new run's."""
    goal = replace(fitted.curves[0].at([]), run="another", rates=cosine(3000), N=395264.0).at([3000])
    known = LAW.predict(TRUE, columns_of(goal, RATE, 0.999))
    assert fitted.predict(goal) == pytest.approx(known, rel=0.01)
    assert fitted.complete(goal)[0].covers(known[0])
    begun = replace(curves[-4], losses=curves[-4].losses * 1.01, rates=curves[-1].rates, run="begun", trunk="new")
    (after,), (before,) = fitted.complete(begun), fitted.complete(begun.at([]))
    assert after.estimate > before.estimate
    assert after.high / after.low < before.high / before.low


def test_one_size_needs_no_term_in_n(curves):
    found = fit_curves([curve for curve in curves if curve.N == 25088], starts=48)
    assert "alpha" in found.problem.fixed
    assert found.mean_error < 0.002


def test_what_bears_no_fit_is_refused(curves):
    with pytest.raises(ScalingError, match="2 validation sets"):
        fit_curves([replace(curves[0], validation="a"), replace(curves[1], validation="b")])
    with pytest.raises(ScalingError, match="2 sizes"):
        fit_curves([curve for curve in curves if curve.N in (5888, 13824)])
    with pytest.raises(ScalingError, match="is no law of curves"):
        fit_curves(curves, "multipower")
    with pytest.raises(ScalingError, match="has no schedule"):
        replace(curves[0], rates=np.array([]))
    with pytest.raises(ScalingError, match="its losses go to step"):
        replace(curves[0], rates=curves[0].rates[:10])
    with pytest.raises(ScalingError, match="no loss is left"):
        fit_curves(curves, after=1e12)
