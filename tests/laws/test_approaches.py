"""Approach 2 on IsoFLOP curves whose minima are known, and approach 1 on curves of a known law."""

import numpy as np
import pytest

import scaling
from scaling.laws.approaches import AT_THE_EDGE, INVERTED, KINDS, TOO_FEW, envelope, fit_power_law, isoflop
from scaling.laws.intervals import student
from scaling.laws.points import Points
from scaling.laws.report import minima
from tests.command_line import refuses
from tests.laws.conftest import width

BUDGETS = np.geomspace(1e18, 1e21, 5)
ALPHA, BETA = 0.34, 0.37


def valley(exponent=0.5, sizes=9, noise=0.0, seed=0):
    """Parabolas in log N around N* = 0.1 C^a, deep enough to be read, at `sizes` sizes a budget."""
    C, errors = np.repeat(BUDGETS, sizes), np.random.default_rng(seed).standard_normal(5 * sizes)
    shift = np.tile(np.geomspace(1 / 8, 10.4, sizes), len(BUDGETS))
    N = 0.1 * C**exponent * shift
    loss = 2 + 1e3 * C**-0.15 + 0.05 * np.log(shift) ** 2 + noise * errors
    return Points({"N": N, "D": C / (6 * N), "C": C, "loss": loss})


def training(sizes=25, evaluations=50):
    N = np.repeat(np.geomspace(1e7, 1e10, sizes), evaluations)
    D = N * np.tile(np.geomspace(1, 300, evaluations), sizes)
    loss = 1.8 + 480 * N**-ALPHA + 2100 * D**-BETA
    return Points({"run": np.array([f"run {n:.3e}" for n in N]), "N": N, "D": D, "C": 6 * N * D, "loss": loss})


def test_a_parabola_is_read_exactly_and_size_and_tokens_share_the_compute():
    table, exponent = valley(0.73), 0.73
    size, data = isoflop(table), isoflop(table, along="D")
    assert size.law.exponent.estimate == pytest.approx(exponent, rel=1e-9)
    assert size.law.coefficient == pytest.approx(0.1, rel=1e-7)
    assert [one.position.estimate for one in size.minima] == pytest.approx([*(0.1 * BUDGETS**exponent)], rel=1e-8)
    assert size.law.exponent.estimate + data.law.exponent.estimate == pytest.approx(1, abs=1e-9)
    jitter = 1 + 0.02 * np.sin(np.arange(45))  # a grid of real models cannot spend a budget exactly
    assert len(isoflop(table.with_column("C", table["C"] * jitter, "6ND")).minima) == 5
    fine = isoflop(valley(exponent, sizes=41), kind="akima")
    assert fine.law.exponent.estimate == pytest.approx(exponent, abs=1e-3)
    assert [one.loss for one in fine.minima] == pytest.approx(list(2 + 1e3 * BUDGETS**-0.15), rel=1e-5)


def test_minima_at_the_edge_inverted_and_too_few_are_refused_with_their_reason():
    N, losses = [1e9, 2e9, 4e9, 1e9, 2e9, 4e9, 1e9], [3.0, 2.9, 2.85, 2.5, 2.9, 2.5, 2.0]
    extra = {"N": N, "C": [1e22] * 3 + [1e23] * 3 + [1e24], "loss": losses}
    points = Points({name: np.array([*valley().columns[name], *extra[name]]) for name in extra})
    found, shuffled = (isoflop(each) for each in (points, points.take(np.random.default_rng(1).permutation(52))))
    assert found.law == shuffled.law, "permuted rows change no digit"
    assert [minimum.refused for minimum in found.minima] == [*[None] * 5, AT_THE_EDGE, INVERTED, TOO_FEW]
    assert found.law.exponent.estimate == pytest.approx(0.5, rel=1e-9)
    refuses("the seed noise moves the minimum to the edge", isoflop, valley(), kind="akima", noise=5.0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_interval_covers(kind):
    found = [isoflop(valley(sizes=7, noise=0.004, seed=s), kind=kind, noise=0.004, draws=60) for s in range(40)]
    assert np.mean([each.law.exponent.covers(0.5) for each in found]) >= 0.9


def lopsided(generator, sizes):
    """Points without noise of a law with two exponents, the exponent of the optimum, and the optimum of each budget."""
    alpha, beta = generator.uniform(0.2, 0.7, 2)
    A, B = 10 ** generator.uniform(1.5, 3.5, 2)
    best = (alpha * A / (beta * B)) ** (1 / (alpha + beta)) * (BUDGETS / 6) ** (beta / (alpha + beta))
    half, drift = generator.uniform(0.7, 2.5), generator.uniform(-0.2, 0.2)
    shift = generator.uniform(-0.3, 0.3) + drift * np.linspace(-1, 1, 5)
    N = ((best * np.exp(shift))[:, None] * np.exp(np.linspace(-half, half, sizes))).ravel()
    C = np.repeat(BUDGETS, sizes)
    points = {"C": C, "N": N, "D": C / 6 / N, "loss": 2 + A * N**-alpha + B * (C / 6 / N) ** -beta}
    return Points(points), beta / (alpha + beta), best


def test_a_parabolas_intervals_hold_its_bias():
    """Without noise an interval that knows only scatter is a point beside the truth: 0.4506 for 0.4516."""
    generator, beside, studies = np.random.default_rng(0), 0, 40
    for _ in range(studies):
        table, exponent, best = lopsided(generator, int(generator.integers(5, 12)))
        found = isoflop(table)
        assert found.law.exponent.low <= exponent <= found.law.exponent.high < found.law.exponent.low + 0.1
        accepted = [one for one in found.minima if one.position]
        alone = fit_power_law(*np.array([(one.C, one.position.estimate) for one in accepted]).T)
        beside += not alone.exponent.covers(exponent)
        if len(accepted) == len(best):
            assert all(one.position.covers(size) for one, size in zip(found.minima, best))
    assert beside > studies / 4
    found = isoflop(lopsided(np.random.default_rng(1), 3)[0])  # three sizes bound no bias
    assert found.law.exponent.open_below
    assert found.law.exponent.open_above
    table, exponent, _ = lopsided(np.random.default_rng(2), 9)
    fitted = scaling.fit(table, law="isoflop_parabola")
    assert fitted.intervals["a"].covers(exponent)
    assert "a: a parabola misreads a lopsided valley" in str(fitted)
    for row in fitted.document["minima"]:  # refused along D alone
        row["refused"] = AT_THE_EDGE
    table = minima(fitted.document)
    assert table is not None
    assert {tuple(row[1:]) for row in table.rows} == {(AT_THE_EDGE, "", "", "", "")}


def test_the_envelope_lies_on_the_lowest_curve_and_has_the_exponents_of_the_law():
    found, a = envelope(training(), budgets=400), BETA / (ALPHA + BETA)
    assert found.N_law.exponent.estimate == pytest.approx(a, abs=0.01)
    assert found.D_law.exponent.estimate == pytest.approx(1 - a, abs=0.01)
    assert found.N_law.exponent.covers(a)
    assert found.refused > 0
    assert np.allclose(6 * found.N * found.D, found.C, rtol=1e-9)
    assert found.loss == pytest.approx(1.8 + 480 * found.N**-ALPHA + 2100 * found.D**-BETA, rel=1e-3)
    # The error is a jackknife over the runs.
    table = training(sizes=9)
    rest = (table.where(table["run"] != run) for run in np.unique(table["run"]))
    exponents = [envelope(points, budgets=100).N_law.exponent.estimate for points in rest]
    exponent = envelope(table, budgets=100).N_law.exponent
    assert width(exponent) == pytest.approx(2 * student(0.95, 8) * np.sqrt(8 * np.var(exponents)))
    largest_best = table.with_column("loss", 5 - np.log10(table["N"]) / 10, "the largest is best")
    for wrong, what in ((training(sizes=3), "four sizes or more"), (largest_best, "not closed")):
        refuses(what, envelope, wrong)
