"""What a law is for: the frontier, variants' worth, comparison, hold-out, design, tasks."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law import (
    LogSquared,
    Points,
    average,
    compare,
    design,
    equivalent_compute,
    expected_interval,
    exponents,
    fit,
    fit_joint,
    how_variants_differ,
    intervals,
    largest_scale_out,
    leave_one_scale_out,
    named,
    optimal,
    prediction,
    simulated_intervals,
)
from scaling.law.noise import student
from scaling.law.sensitivity import DELTAS, sensitivity

TRUTH = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
THETA = np.array(list(TRUTH.values()))
LAW = named("chinchilla")


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
    decade = 10 ** np.round(2 * np.log10(N)) / 2
    return Points({"N": N, "D": D, "loss": loss, "arch": np.where(glu, "glu", "base"), "scale": decade})


def test_the_optimum_is_the_closed_form():
    """N_opt = G (C/6)^a with G = (αA/βB)^(1/(α+β)), a = β/(α+β): Hoffmann et al. 2022, eq. 4."""
    found = fit(LAW, study(noise=0.003))
    _, A, B, alpha, beta = found.theta
    size = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (1e23 / 6) ** (beta / (alpha + beta))
    best = optimal(found, 1e23)
    assert best.N.estimate == pytest.approx(size, rel=1e-8)
    assert best.D.estimate == pytest.approx(1e23 / (6 * size), rel=1e-8)
    assert best.loss.estimate == pytest.approx(float(found.predict(N=size, D=1e23 / (6 * size))))
    assert best.N.low < size < best.N.high
    assert best.D.low == pytest.approx(1e23 / (6 * best.N.high))


def test_a_model_that_serves_is_smaller_and_sees_more_data():
    """The best of many sizes on C = 6ND + 2NT, which the closed form does not know."""
    found, C, served = fit(LAW, study(noise=0.003)), 1e23, 1e13
    sizes = np.exp(np.linspace(np.log(1e9), np.log(C / (2 * served)), 200_000)[:-1])
    losses = found.predict(N=sizes, D=(C - 2 * sizes * served) / (6 * sizes))
    best = optimal(found, C, served=served)
    assert best.N.estimate == pytest.approx(sizes[losses.argmin()], rel=1e-4)
    assert 6 * best.N.estimate * best.D.estimate + 2 * best.N.estimate * served == pytest.approx(C)
    assert best.loss.estimate == pytest.approx(losses.min(), rel=1e-9)
    alone = optimal(found, C)
    assert best.N.high < alone.N.low
    assert best.loss.estimate > alone.loss.estimate
    assert best.N.low < best.N.estimate < best.N.high
    assert best.D.low < best.D.estimate < best.D.high


def test_the_frontier_of_a_law_in_more_columns_and_of_none():
    table = study(noise=0.003)
    repeated = fit("data_constrained", table.with_column("U", table["D"] / (1 + np.arange(60) % 5), "unique tokens"))
    scarce, plenty = (optimal(repeated, 1e23, others={"U": u}, method="t") for u in (1e10, 1e13))
    assert scarce.loss.estimate > plenty.loss.estimate
    with pytest.raises(ScalingError, match="no frontier"):
        optimal(fit("power_law_n", table), 1e23)


@pytest.mark.parametrize(("gain", "steeper", "verdict"), [(1.31, 0.0, "compute"), (1.0, 0.03, "exponents")])
def test_how_variants_differ_is_seen(gain, steeper, verdict):
    points = study(120, 0.002, gain, steeper)
    found = how_variants_differ("chinchilla", points, by="arch", objective=LogSquared())
    assert found.best == verdict
    assert sum(found.comparison.weights.values()) == pytest.approx(1)


def test_exponents_of_variants_and_their_differences():
    points = study(120, 0.002, steeper=0.03)
    told = {(one.variant, one.name): one for one in exponents(fit_joint("chinchilla", points, "arch", "exponents"))}
    assert set(told) == {(v, name) for v in ("base", "glu") for name in ("compute", "alpha", "beta")}
    alpha, beta = TRUTH["alpha"], TRUTH["beta"]
    compute = [a * beta / (a + beta) for a in (alpha, alpha + 0.03)]
    for variant, a, c in zip(("base", "glu"), (alpha, alpha + 0.03), compute):
        assert told[variant, "alpha"].own.covers(a)
        assert told[variant, "beta"].own.covers(beta)
        assert told[variant, "compute"].own.covers(c)
    assert told["base", "alpha"].difference is None
    for name, truth in (("alpha", 0.03), ("compute", compute[1] - compute[0])):
        difference = told["glu", name].difference
        assert difference is not None
        assert difference.covers(truth)
        assert difference.low > 0
    beside = told["glu", "beta"].difference
    assert beside is not None
    assert beside.covers(0)
    with pytest.raises(ScalingError, match="share their exponents"):
        exponents(fit_joint("chinchilla", points, "arch", "coefficients"))
    with pytest.raises(ScalingError, match="no variants"):
        exponents(fit("chinchilla", points))


def test_what_a_variant_is_worth():
    points = study(60, 0.002, gain=1.31)
    worth = equivalent_compute(fit_joint("chinchilla", points, "arch", "compute"), "glu")
    assert worth.covers(1.31)
    assert worth.high / worth.low < 1.2
    freely = fit_joint("chinchilla", points, "arch", "coefficients", objective=LogSquared())
    at_budget = equivalent_compute(freely, "glu", C=1e22, method="t")
    assert at_budget.estimate == pytest.approx(1.31, rel=0.1)
    # The same number by hand: the baseline at k times the budget reaches the variant's loss.
    constants = freely.estimates

    def law(variant):
        return np.array(
            [
                constants["E"],
                constants[f"A[{variant}]"],
                constants[f"B[{variant}]"],
                constants["alpha"],
                constants["beta"],
            ]
        )

    def best(theta, C):
        sizes = np.geomspace(1e8, 1e12, 40001)
        return LAW.predict(theta, {"N": sizes, "D": C / (6 * sizes)}).min()

    assert best(law("base"), 1e22 * at_budget.estimate) == pytest.approx(best(law("glu"), 1e22), rel=1e-8)
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


def test_the_true_law_wins_and_the_average_is_near_it():
    points = study(60, 0.003)
    fits = {
        name: fit(name, points, objective=LogSquared()) for name in ("chinchilla", "kaplan_n_d", "power_law_floor_n")
    }
    assert compare(fits).best == "chinchilla"
    far = {"N": 1e11, "D": 2e12}
    assert average(fits, far).covers(float(LAW.predict(THETA, {"N": [1e11], "D": [2e12]})[0]))
    with pytest.raises(ScalingError, match="same points"):
        compare({"a": fits["chinchilla"], "b": fit("chinchilla", study(40))})


def test_the_average_is_t_times_the_standard_error_of_buckland():
    points = study(24, 0.1)  # enough noise for both laws to count
    fits = {name: fit(name, points, objective=LogSquared()) for name in ("chinchilla", "kaplan_n_d")}
    weights, far = compare(fits).weights, {"N": 1e11, "D": 2e12}
    assert min(weights.values()) > 0.1
    bounds = {
        name: next(iter(intervals(each, "t", quantities=[prediction(each.form, far)]).values()))
        for name, each in fits.items()
    }
    centre = sum(weights[name] * np.log(bound.estimate) for name, bound in bounds.items())
    width = 0.0
    for name, bound in bounds.items():
        t = student(0.95, fits[name].degrees_of_freedom)
        error = 0.5 * np.log(bound.high / bound.low) / t
        width += t * weights[name] * np.hypot(error, np.log(bound.estimate) - centre)
    assert np.log(average(fits, far).high) == pytest.approx(centre + width, rel=1e-9)


def test_scales_left_out_are_predicted():
    points = study(60, 0.002)
    every = leave_one_scale_out("chinchilla", points, "scale", objective=LogSquared())
    assert sum(len(held.observed) for held in every.values()) == 60
    largest = largest_scale_out("chinchilla", points, "scale", objective=LogSquared())
    np.testing.assert_array_equal(largest.observed, points["loss"][points["scale"] == points["scale"].max()])
    told = largest.to_json()
    assert told["largest_relative_error"] < 0.02
    covered = np.concatenate([held.covered for held in every.values()])
    assert covered.mean() > 0.8


def grid():
    C = np.repeat(np.geomspace(1e17, 1e20, 5), 5)
    N = np.sqrt(C / 120) * np.tile(np.geomspace(0.2, 5, 5), 5)
    return {"N": N, "D": C / (6 * N)}, C


def test_a_design_beats_random_plans_of_the_same_cost():
    candidates, cost = grid()
    target = prediction(LAW, {"N": 1e10, "D": 2e11})
    plan = design(LAW, TRUTH, candidates, cost, 2e20, 0.005, target)
    assert plan.cost <= 2e20
    assert plan.repeats.max() == 1
    rng = np.random.default_rng(0)
    for _ in range(10):
        order = rng.permutation(len(cost))
        kept = order[np.cumsum(cost[order]) <= 2e20]
        if len(kept) > 6:
            rows = {name: column[kept] for name, column in candidates.items()}
            assert plan.expected.width <= expected_interval(LAW, TRUTH, rows, 0.005, target).width * 1.001
    with pytest.raises(ScalingError, match="raise the budget"):
        design(LAW, TRUTH, candidates, cost, 3e17, 0.005, target)


def test_simulation_agrees_with_information_where_noise_is_small():
    candidates, _ = grid()
    target = prediction(LAW, {"N": 1e9, "D": 2e10})
    expected = expected_interval(LAW, TRUTH, candidates, 0.002, target)
    simulated = simulated_intervals(LAW, TRUTH, candidates, 0.002, [target], studies=150)[target.name]
    assert np.log(simulated.width) == pytest.approx(np.log(expected.width), rel=0.15)
    assert simulated.coverage is not None
    assert simulated.coverage > 0.88


def test_sensitivity_is_that_of_fits_to_fewer_points_and_under_other_penalties():
    points = study(30, noise=0.003)
    found = fit(LAW, points)
    seen = sensitivity(found)
    assert (seen.parameter, seen.estimate) == ("E", found.estimates["E"])
    for row in (0, 17):
        mask = np.arange(30) == row
        assert seen.without[row] == pytest.approx(found.without(mask).estimates["E"], rel=1e-4)
    squares = fit(LAW, points, objective=LogSquared()).estimates["E"]
    assert seen.by_delta[0] == pytest.approx(squares, rel=1e-5)
    assert seen.by_delta[DELTAS.index(1e-3)] == pytest.approx(found.estimates["E"], rel=1e-4)
