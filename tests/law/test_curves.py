"""Whole curves: the laws and their derivatives, the errors, the fit, and what it predicts."""

from dataclasses import replace

import numpy as np
import pytest

from scaling.coverage.curves import RATE, TRUTH, design, drawn
from scaling.errors import ScalingError
from scaling.law.curves import Curve, best_schedule, complete, fit, fit_curves, read_curves
from scaling.law.curves.complete import from_schedule
from scaling.law.curves.curve import columns_of, stacked
from scaling.law.curves.errors import GROUPS, CurveErrors, Sizes, covariance, places_of, some_trunks
from scaling.law.curves.fit import mean_error, r_squared
from scaling.law.forms.curve import CURVE_LAWS, MultiPower

SIZES = Sizes(trunk=0.001, run=0.001, length=0.3, evaluation=0.0003, training=0.02)
TRUE = np.array(list(TRUTH.values()))


@pytest.fixture(scope="module")
def curves():
    return drawn(design(), SIZES, np.random.default_rng(0))


@pytest.fixture(scope="module")
def fitted(curves):
    return fit_curves(curves, starts=96)


def cosine(steps, warmup=97):
    way = np.clip((np.arange(steps) - warmup) / (steps - warmup), 0, 1)
    return RATE * np.minimum(1, (np.arange(steps) + 1) / warmup) * (0.55 + 0.45 * np.cos(np.pi * way))


@pytest.mark.parametrize("law", CURVE_LAWS.values(), ids=CURVE_LAWS)
def test_derivatives_are_exact(law):
    columns = stacked([curve.thinned() for curve in design()], RATE, 0.999)
    theta = np.array([TRUTH.get(name, 0.3) for name in law.parameter_names])
    exact = law.jacobian(theta, columns)
    for place, value in enumerate(theta):
        step = np.zeros(len(theta))
        step[place] = 1e-6 * abs(value)
        numeric = (law.predict(theta + step, columns) - law.predict(theta - step, columns)) / (2 * step[place])
        np.testing.assert_allclose(exact[:, place], numeric, rtol=1e-4, atol=1e-9 * np.abs(numeric).max() + 1e-12)


@pytest.mark.parametrize("law", CURVE_LAWS.values(), ids=CURVE_LAWS)
def test_a_constant_rate_gives_chinchilla(law):
    curve = Curve("a", 1e5, np.array([500, 2000]), np.ones(2), np.ones(2, int), np.full(2000, RATE), 1024.0)
    theta = np.array([TRUTH.get(name, 0.3) for name in law.parameter_names])
    D = 1024.0 * curve.steps
    floor = TRUTH["E"] + (TRUTH["C"] if isinstance(law, MultiPower) else 0.0)
    known = floor + TRUTH["A"] * 1e5 ** -TRUTH["alpha"] + TRUTH["B"] * D ** -TRUTH["beta"]
    np.testing.assert_allclose(law.predict(theta, columns_of(curve, RATE, 0.999)), known, rtol=1e-12)


def test_the_multi_power_law_is_the_sum_of_its_paper():
    """Over every step of the schedule, as equation 3 to 5 have it; gathered falls come within 1% of it."""
    steps = 1500
    curve = Curve("a", 1e5, np.array([steps]), np.ones(1), np.ones(1, int), cosine(steps), 1024.0)
    rates, area = curve.rates / RATE, np.cumsum(curve.rates / RATE) * 1024.0
    gain = 0.0
    for k in range(98, steps):
        since = area[-1] - area[k - 1]
        inner = 1 + TRUTH["c"] * rates[k] ** -TRUTH["gamma"] * since
        gain += (rates[k - 1] - rates[k]) * (1 - inner ** -TRUTH["kappa"])
    plain = TRUTH["E"] + TRUTH["C"] + TRUTH["A"] * 1e5 ** -TRUTH["alpha"] + TRUTH["B"] * area[-1] ** -TRUTH["beta"]
    ours = MultiPower().predict(TRUE, columns_of(curve, RATE, 0.999))[0]
    assert plain - ours == pytest.approx(TRUTH["C"] * gain, rel=0.01)


def test_whitening_is_the_inverse_root_of_the_covariance(curves):
    some = [curve.thinned() for curve in curves[:6]]
    places = places_of(some)
    for sizes in (SIZES, replace(SIZES, by_size=0.5, by_tokens=0.3, N=2e4, D=1e6)):
        errors = CurveErrors(sizes, places)
        root = errors.whiten(np.eye(len(places.run))).T
        np.testing.assert_allclose(root @ covariance(sizes, places) @ root.T, np.eye(len(root)), atol=1e-8)
        assert errors.log_determinant == pytest.approx(np.linalg.slogdet(covariance(sizes, places))[1])


def test_the_law_and_its_errors_are_recovered(fitted):
    estimates = fitted.estimates
    assert estimates["E"] == pytest.approx(TRUTH["E"], abs=0.02)
    assert estimates["beta"] == pytest.approx(TRUTH["beta"], abs=0.1)
    assert 0.0003 < np.hypot(fitted.sizes.trunk, fitted.sizes.run) < 0.003
    assert fitted.intervals(["E"])["E"].covers(TRUTH["E"])
    assert fitted.r_squared > 0.99


def test_errors_that_shrink_with_size_are_found():
    shrinking = replace(SIZES, trunk=0.003, run=0.002, by_size=0.6, by_tokens=0.3, N=3e4, D=1e6)
    rng = np.random.default_rng(3)
    found = [fit_curves(drawn(design(), shrinking, rng), starts=96) for _ in range(5)]
    assert np.mean([one.sizes.by_size for one in found]) == pytest.approx(0.6, abs=0.2)
    assert sum(one.intervals(["E"])["E"].covers(TRUTH["E"]) for one in found) >= 4


def test_many_trunks_are_fitted_from_some_of_them_first(monkeypatch):
    """Whole trunks of the least and the largest size among them, and the law is that of a fit of all."""
    each = [replace(c, run=f"{c.run}-{n}", trunk=f"{c.group}-{n}") for n in range(4) for c in design()]
    many = drawn(each, SIZES, np.random.default_rng(5))
    places = places_of(many)
    rows = some_trunks(places)
    kept = np.unique(places.group[rows])
    assert len(kept) == GROUPS < len(np.unique(places.group))
    assert len(rows) == np.isin(places.group, kept).sum()
    assert {places.log_size[rows].min(), places.log_size[rows].max()} == {places.log_size.min(), places.log_size.max()}
    monkeypatch.setattr(fit, "GATHERED", 1)
    from_some = fit_curves(many, starts=96)
    monkeypatch.setattr(fit, "GATHERED", len(rows) * len(many))
    from_all = fit_curves(many, starts=96)
    assert len(from_some.problem.observed) == len(from_all.problem.observed)
    for name, value in from_all.estimates.items():
        if name in ("E", "alpha", "beta"):
            assert from_some.estimates[name] == pytest.approx(value, rel=0.02)
            assert from_some.intervals([name])[name].covers(TRUTH[name])


def test_the_order_of_curves_changes_nothing(curves, fitted):
    again = fit_curves(curves[::-1], starts=96)
    assert again.estimates == pytest.approx(fitted.estimates, rel=1e-9)


def test_training_losses_count_by_their_noise(curves):
    """Noisy losses beside the evaluations leave the fit where it was, and their noise is found."""
    rng = np.random.default_rng(1)
    noisy = []
    for curve in curves:
        wild = replace(curve, losses=curve.losses * np.exp(0.03 * rng.standard_normal(len(curve.steps))))
        both = {name: np.concatenate([getattr(curve, name), getattr(wild, name)]) for name in ("steps", "losses")}
        noisy.append(replace(curve, **both, kinds=np.repeat([1, 0], len(curve.steps))))
    found = fit_curves(noisy, starts=96)
    assert found.sizes.training == pytest.approx(0.03, rel=0.25)
    assert found.sizes.evaluation < 0.002
    assert found.intervals(["E"])["E"].covers(TRUTH["E"])


def test_another_schedule_and_a_larger_size_are_predicted(fitted):
    goal = from_schedule(fitted, fitted.curves[0], cosine(3000), N=395264.0)
    known = MultiPower().predict(TRUE, columns_of(goal, RATE, 0.999))
    assert fitted.predict(goal) == pytest.approx(known, rel=0.01)
    (interval,) = complete(fitted, goal)
    assert interval.low < known[0] < interval.high


def test_the_beginning_of_a_run_narrows_its_end(curves, fitted):
    """A run that lies 1% above the law stays above it, and its interval is narrower than a new run's."""
    whole = curves[-1]
    begun = replace(curves[-4], losses=curves[-4].losses * 1.01, rates=whole.rates, run="begun", trunk="new")
    (after,), (before,) = complete(fitted, begun), complete(fitted, begun.at([]))
    assert after.estimate > before.estimate
    assert after.high / after.low < before.high / before.low


def test_the_best_schedule_gains_over_the_usual_ones(fitted):
    best = best_schedule(fitted, 1e5, 2e6, 1024.0)
    assert best.gain > 0
    assert np.all(np.diff(best.rates[97:]) <= 1e-12)
    assert len(best.rates) == round(2e6 / 1024)


def test_one_size_needs_no_term_in_n(curves):
    found = fit_curves([curve for curve in curves if curve.N == 25088], starts=96)
    assert "alpha" in found.problem.fixed
    assert mean_error(np.exp(found.problem.observed), found.form.predict(found.theta, found.problem.columns)) < 0.002


def test_r_squared_is_one_of_a_perfect_prediction():
    values = np.array([1.0, 2.0, 3.0])
    assert r_squared(values, values) == 1.0
    assert r_squared(values, np.full(3, 2.0)) == 0.0


def table(curve):
    rows = {"run": [curve.run] * len(curve.steps), "N": [curve.N] * len(curve.steps), "step": curve.steps}
    rows |= {"tokens": curve.steps * 1024.0, "lr": curve.rates[curve.steps - 1], "loss": curve.losses}
    return rows


def test_a_table_of_curves_is_read(tmp_path, curves):
    import pandas

    file = tmp_path / "curves.csv"
    pandas.concat([pandas.DataFrame(table(curve)) for curve in curves]).to_csv(file, index=False)
    found = read_curves(file)
    assert [curve.run for curve in found] == [curve.run for curve in curves]
    assert found[0].tokens_per_step == 1024.0
    np.testing.assert_allclose(found[3].losses, curves[3].losses)
    text = file.read_text().replace(",lr,", ",rate,", 1)
    file.write_text(text)
    with pytest.raises(ScalingError, match="without a schedule"):
        read_curves(file)


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
