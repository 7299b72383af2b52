"""Approach 2 on IsoFLOP curves whose minima are known."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law.columns import from_columns
from scaling.laws.approaches import AT_THE_EDGE, INVERTED, KINDS, TOO_FEW, isoflop
from scaling.law.points import Points

BUDGETS = np.geomspace(1e18, 1e21, 5)


def valley(exponent=0.5, reach=8.0, sizes=9, budgets=BUDGETS):
    """Parabolas in log N around N* = 0.1 C^a, deep enough to be read, at `sizes` sizes a budget."""
    C = np.repeat(budgets, sizes)
    optimum = 0.1 * C**exponent
    N = optimum * np.tile(np.geomspace(1 / reach, reach * 1.3, sizes), len(budgets))
    loss = 2 + 1e3 * C**-0.15 + 0.05 * np.log(N / optimum) ** 2
    return from_columns({"N": N, "D": C / (6 * N), "C": C, "loss": loss})


@pytest.mark.parametrize("exponent", [0.3, 0.5, 0.73])
def test_a_parabola_is_read_exactly(exponent):
    found = isoflop(valley(exponent))
    assert found.law.exponent == pytest.approx(exponent, rel=1e-9)
    assert found.law.coefficient == pytest.approx(0.1, rel=1e-7)
    assert [minimum.position for minimum in found.minima] == pytest.approx(list(0.1 * BUDGETS**exponent), rel=1e-8)


def test_akima_reads_it_from_a_fine_grid():
    found = isoflop(valley(sizes=41), kind="akima")
    assert found.law.exponent == pytest.approx(0.5, abs=1e-3)
    losses = [minimum.loss for minimum in found.minima]
    assert losses == pytest.approx(list(2 + 1e3 * BUDGETS**-0.15), rel=1e-5)


def test_akima_is_the_lowest_point_of_its_interpolant():
    from scipy.interpolate import Akima1DInterpolator

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(0, 5, 9))
    losses = (3 + (x - 2.2) ** 2)[:, None] * np.exp(0.05 * rng.standard_normal((9, 20)))
    position, bottom, _ = KINDS["akima"](x, losses)
    dense = np.linspace(x[0], x[-1], 20_001)
    values = np.exp(Akima1DInterpolator(x, np.log(losses))(dense))
    inside = np.isfinite(position)
    assert inside.sum() > 10
    assert bottom[inside] == pytest.approx(values.min(axis=0)[inside], rel=1e-7)
    assert position[inside] == pytest.approx(dense[values.argmin(axis=0)][inside], abs=1e-3)


def test_size_and_tokens_share_the_compute():
    table = valley(0.6)
    size, data = isoflop(table), isoflop(table, along="D")
    assert size.law.exponent + data.law.exponent == pytest.approx(1, abs=1e-9)


def test_minima_at_the_edge_inverted_and_too_few_are_refused_with_their_reason():
    good = valley(budgets=BUDGETS[:3])
    N = np.array([1.0, 2.0, 4.0]) * 1e9
    extra = {
        "N": [*N, *N, 1e9],
        "C": [1e22] * 3 + [1e23] * 3 + [1e24],
        "loss": [3.0, 2.9, 2.85, 2.5, 2.9, 2.5, 2.0],
    }
    table = from_columns({name: [*good[name], *extra[name]] for name in extra})
    found = isoflop(table)
    assert [minimum.refused for minimum in found.minima] == [None, None, None, AT_THE_EDGE, INVERTED, TOO_FEW]
    assert found.law.exponent == pytest.approx(0.5, rel=1e-9)
    assert len(found.accepted) == 3


def test_no_law_without_two_minima():
    table = from_columns({"N": [1, 2, 4, 1, 2, 4], "C": [1, 1, 1, 9, 9, 9], "loss": [3, 2, 1, 3, 2, 1]})
    with pytest.raises(ScalingError, match=r"0 of 2 budgets have a minimum.*edge.*; add sizes on both sides"):
        isoflop(table)


def test_budgets_spent_almost_exactly_are_one_budget():
    table = valley()
    jitter = 1 + 0.02 * np.sin(np.arange(len(table)))
    assert len(isoflop(table.with_column("C", table["C"] * jitter, "6ND")).minima) == len(BUDGETS)


def test_permuted_rows_change_no_digit():
    table = valley()
    rng = np.random.default_rng(1)
    table = table.with_column("loss", table["loss"] + 0.003 * rng.standard_normal(len(table)), "noisy")
    shuffled = table.take(rng.permutation(len(table)))
    for kind in KINDS:
        one, other = (isoflop(points, kind=kind, noise=0.003, draws=50) for points in (table, shuffled))
        assert one.law == other.law
        assert np.array_equal(one.draws, other.draws)


def test_an_interval_knows_more_than_seed_noise():
    """Minima that leave a straight line by more than noise widen it: here each valley is shifted by up to a tenth."""
    table = valley()
    shift = np.exp(0.1 * np.cos(5 * np.log(table["C"])))
    bent = isoflop(table.with_column("N", table["N"] * shift, "bent"), noise=1e-4)
    low, high = bent.noise_interval()
    assert not low <= 0.5 <= high
    low, high = bent.interval()
    assert low <= 0.5 <= high


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers(kind):
    rng = np.random.default_rng(2)
    table, covered, studies = valley(sizes=7), 0, 60
    for _ in range(studies):
        noisy = table.with_column("loss", table["loss"] + 0.004 * rng.standard_normal(len(table)), "noisy")
        low, high = isoflop(noisy, kind=kind, noise=0.004, draws=200).interval()
        covered += low <= 0.5 <= high
    assert covered / studies >= 0.9


def test_an_unknown_kind_names_the_nearest():
    with pytest.raises(ScalingError, match="did you mean 'akima'"):
        isoflop(valley(), kind="akyma")


def lopsided(generator, sizes):
    """Points without noise of a law with two exponents, the exponent of the optimum, and the optimum of each budget."""
    alpha, beta = generator.uniform(0.2, 0.7, 2)
    A, B = 10 ** generator.uniform(1.5, 3.5, 2)
    C = np.geomspace(1e18, 1e21, 5)
    best = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (C / 6) ** (beta / (alpha + beta))
    half, drift = generator.uniform(0.7, 2.5), generator.uniform(-0.2, 0.2)
    shift = generator.uniform(-0.3, 0.3) + drift * np.linspace(-1, 1, 5)
    N = (best * np.exp(shift))[:, None] * np.exp(np.linspace(-half, half, sizes))
    loss = 2 + A * N**-alpha + B * (C[:, None] / 6 / N) ** -beta
    table = Points({"C": np.repeat(C, sizes), "N": N.ravel(), "D": (C[:, None] / 6 / N).ravel(), "loss": loss.ravel()})
    return table, beta / (alpha + beta), best


def test_a_parabolas_intervals_hold_its_bias():
    """Without noise an interval that knows only scatter is a point beside the truth: 0.4506 for 0.4516."""
    generator, beside, studies = np.random.default_rng(0), 0, 40
    for _ in range(studies):
        table, exponent, best = lopsided(generator, int(generator.integers(5, 12)))
        found = isoflop(table)
        low, high = found.interval()
        assert low <= exponent <= high
        scatter = found.law.interval()
        beside += not scatter[0] <= exponent <= scatter[1]
        if len(found.accepted) == len(best):
            inside = [one.interval()[0] <= size <= one.interval()[1] for one, size in zip(found.minima, best)]
            assert all(inside)
    assert beside > studies / 4


def test_three_sizes_bound_no_bias():
    table, _, best = lopsided(np.random.default_rng(1), 3)
    found = isoflop(table)
    assert found.bias == float("inf")
    assert found.interval() == (-np.inf, np.inf)
    for minimum, size in zip(found.minima, best, strict=True):
        low, high = minimum.interval()
        assert minimum.sizes[0] <= low <= size <= high <= minimum.sizes[-1]


def test_the_report_states_the_bias_and_the_interval_of_each_optimum():
    import scaling

    table, exponent, _ = lopsided(np.random.default_rng(2), 9)
    fitted = scaling.fit(table, law="isoflop_parabola")
    bias, interval = fitted.document["bias"]["a"], fitted.intervals["a"]
    assert bias["bound"] == 2 * max(map(abs, bias["shifts"]))
    assert interval.covers(exponent)
    assert "a: a parabola misreads a lopsided valley" in str(fitted)
    assert np.all(fitted.minima["N_low"] < fitted.minima["N"])
    assert np.all(fitted.minima["N"] < fitted.minima["N_high"])
    assert "bias" not in scaling.fit(table, law="isoflop_akima").document
