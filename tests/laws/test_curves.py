"""Whole curves: the laws, the errors, the fit, what it predicts, and `scaling fit-curves` on a table."""

import re
from dataclasses import replace

import numpy as np
import pandas
import pytest

import scaling
from benchmarks.coverage.studies import CURVE_TRUTH as TRUTH
from benchmarks.coverage.studies import RATE, curve_design, draw_curves
from scaling.laws.catalogue import CURVE_LAWS
from scaling.laws.curves import Curve, Sizes, columns_of, covariance, fit_curves, places_of, read_curves
from scaling.laws.points import load_points
from tests.command_line import refuses

SIZES = Sizes(trunk=0.001, run=0.001, length=0.3, evaluation=0.0003, training=0.02)
LAW = CURVE_LAWS["multi_power"]


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


def test_a_constant_rate_gives_chinchilla_and_the_multi_power_law_is_the_sum_of_its_paper():
    """Over every step of the schedule, as equations 3 to 5 have it; gathered falls come within 1% of it."""
    power = TRUTH["E"] + TRUTH["A"] * 1e5 ** -TRUTH["alpha"]
    curve = curve_at([500, 2000], np.full(2000, RATE))
    for law in CURVE_LAWS.values():
        theta = np.array([TRUTH.get(name, 0.3) for name in law.parameter_names])
        known = power + (TRUTH["C"] if law is LAW else 0.0) + TRUTH["B"] * (1024.0 * curve.steps) ** -TRUTH["beta"]
        np.testing.assert_allclose(law.predict(theta, columns_of(curve, RATE, 0.999)), known, rtol=1e-12)
    steps, gain = 1500, 0.0
    curve = curve_at([steps], cosine(steps))
    rates, area = curve.rates / RATE, np.cumsum(curve.rates / RATE) * 1024.0
    for k in range(98, steps):
        inner = 1 + TRUTH["c"] * rates[k] ** -TRUTH["gamma"] * (area[-1] - area[k - 1])
        gain += (rates[k - 1] - rates[k]) * (1 - inner ** -TRUTH["kappa"])
    plain = power + TRUTH["C"] + TRUTH["B"] * area[-1] ** -TRUTH["beta"]
    true = np.array([TRUTH[name] for name in LAW.parameter_names])
    assert plain - LAW.predict(true, columns_of(curve, RATE, 0.999))[0] == pytest.approx(TRUTH["C"] * gain, rel=0.01)


def test_errors_of_a_run_fall_apart_with_the_logarithm_of_the_step():
    """Of one run by exp(-|log s - log t| / ℓ), of one trunk by the trunk's alone, of two trunks not at all."""
    curve = curve_at([100, 200], np.full(400, RATE))
    places = places_of([curve, replace(curve, run="b", trunk="a"), replace(curve, run="c")])
    errors = covariance(replace(SIZES, trunk=0.002, run=0.003, length=np.log(2)), places)
    noise = SIZES.evaluation**2
    assert errors[0] == pytest.approx([13e-6 + noise, 4e-6 + 9e-6 / np.e, 4e-6, 4e-6, 0, 0], rel=1e-4)


def test_the_law_and_its_errors_are_recovered(fitted):
    assert fitted.estimates["E"] == pytest.approx(TRUTH["E"], abs=0.02)
    assert fitted.estimates["beta"] == pytest.approx(TRUTH["beta"], abs=0.1)
    assert 0.0003 < np.hypot(fitted.sizes.trunk, fitted.sizes.run) < 0.003
    assert fitted.intervals()["E"].covers(TRUTH["E"])
    shrinking = replace(SIZES, trunk=0.003, run=0.002, by_size=0.6, by_tokens=0.3, N=3e4, D=1e6)
    found = fit_curves(draw_curves(curve_design(), shrinking, np.random.default_rng(3)), starts=48)
    assert (found.sizes.by_size, found.sizes.by_tokens) == pytest.approx((0.6, 0.3), abs=0.25)


def test_another_schedule_a_larger_size_and_the_end_of_a_begun_run_are_predicted(curves, fitted):
    """A run that lies 1% above the law stays above it, and its interval is narrower than a new run's."""
    goal = replace(fitted.curves[0].at([]), run="another", rates=cosine(3000), N=395264.0).at([3000])
    known = LAW.predict(np.array([TRUTH[name] for name in LAW.parameter_names]), columns_of(goal, RATE, 0.999))
    assert fitted.predict(goal) == pytest.approx(known, rel=0.01)
    assert fitted.complete(goal)[0].covers(known[0])
    begun = replace(curves[-4], losses=curves[-4].losses * 1.01, rates=curves[-1].rates, run="begun", trunk="new")
    (after,), (before,) = fitted.complete(begun), fitted.complete(begun.at([]))
    assert after.estimate > before.estimate
    assert after.high / after.low < before.high / before.low


def test_a_table_of_curves_is_fitted_and_what_bears_no_fit_is_refused_in_one_line(curves):
    frames = []
    for curve in curves[::2]:  # the largest size is held out
        rows = {"run": curve.run, "N": curve.N, "trunk": curve.trunk, "kind": "evaluate", "step": curve.steps}
        rows |= {"tokens": curve.steps * 1024, "lr": curve.rates[curve.steps - 1], "loss": curve.losses}
        frames.append(pandas.DataFrame({**rows, "held_out": int(curve.N == 221184)}))
    table = pandas.concat(frames)
    fitted = scaling.fit_curves(table, law="annealed_curve")
    document = fitted.to_json()
    assert (document["law"], document["curves"]) == ("annealed_curve", 12)
    assert {row["N"] for row in document["held_out"]} == {221184.0}
    assert all(abs(row["relative_error"]) < 0.02 for row in document["held_out"])
    assert re.search(r"\nα .+ to ", str(fitted)), "as `scaling fit` prints it"
    assert "[" not in str(fitted)
    last = table.groupby("run")["step"].transform("max") == table["step"]
    kinds = np.where(last, "evaluate", "train")
    for curve in read_curves(load_points(table.assign(lr=table["lr"].where(~last, 0.0), kind=kinds))):
        assert curve.rates[-1] == 0.0, "a schedule may end at zero"
        assert curve.kinds.tolist() == [0] * (len(curve.steps) - 1) + [1]
    for what, wrong in {
        "2 sizes": table[table["N"].isin([5888, 25088, 221184])],
        "losses: are equal, or too few for multi_power": table.assign(loss=3.0),
        "losses: are equal, or too few .*; log more often": table.groupby("N").head(1).assign(lr=1e-3, step=1),
        "is not a kind of loss": table.assign(kind="loss"),
        "has a step outside 1 to": table.assign(step=table["tokens"] * 1e6),
        f"names no run, in row 8 of the {len(table):,} rows in use": table.assign(
            run=table["run"].mask(np.arange(len(table)) == 7)
        ),
        "has no tokens at a step": table.assign(tokens=0.0 * table["tokens"] - 1),
        "a curve without a schedule cannot predict another curve": table.drop(columns="lr"),
        "validation": table.assign(validation=np.where(table["N"] > 3e4, "a", "b")),
        "learning rates below 0, missing, or all 0": table.assign(lr=table["lr"].where(~last, -1e-3)),
    }.items():
        refuses(what, scaling.fit_curves, wrong)
