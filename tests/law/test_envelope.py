"""Approach 1 on curves of a known Chinchilla law."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.law.columns import from_columns
from scaling.laws.approaches import envelope

ALPHA, BETA = 0.34, 0.37


def curves(sizes=25, evaluations=50):
    N = np.repeat(np.geomspace(1e7, 1e10, sizes), evaluations)
    D = N * np.tile(np.geomspace(1, 300, evaluations), sizes)
    loss = 1.8 + 480 * N**-ALPHA + 2100 * D**-BETA
    return from_columns({"run": [f"run {n:.3e}" for n in N], "N": N, "D": D, "C": 6 * N * D, "loss": loss})


def test_the_exponents_are_those_of_the_law():
    found = envelope(curves(), budgets=400)
    assert found.N_law.exponent == pytest.approx(BETA / (ALPHA + BETA), abs=0.01)
    assert found.D_law.exponent == pytest.approx(ALPHA / (ALPHA + BETA), abs=0.01)
    low, high = found.N_law.interval()
    assert low <= BETA / (ALPHA + BETA) <= high


def test_the_envelope_lies_on_the_lowest_curve_and_leaves_the_open_ends():
    found = envelope(curves(), budgets=200)
    assert found.refused > 0
    assert np.allclose(6 * found.N * found.D, found.C, rtol=1e-9)
    assert found.loss == pytest.approx(1.8 + 480 * found.N**-ALPHA + 2100 * found.D**-BETA, rel=1e-3)
    assert found.N.min() > 1e7
    assert found.N.max() < 1e10


def test_permuted_rows_change_no_digit():
    table = curves(sizes=8)
    shuffled = table.take(np.random.default_rng(0).permutation(len(table)))
    assert envelope(table, budgets=100).N_law == envelope(shuffled, budgets=100).N_law


def test_two_sizes_make_no_envelope():
    with pytest.raises(ScalingError, match="three sizes or more"):
        envelope(curves(sizes=2))


def test_an_open_envelope_is_refused():
    table = curves(sizes=5)
    with pytest.raises(ScalingError, match="not closed"):
        envelope(table.with_column("loss", 5 - np.log10(table["N"]) / 10 + 0 * table["loss"], "the largest is best"))


def test_a_run_of_two_sizes_is_refused():
    table = curves(sizes=4)
    names = table["run"].copy()
    names[:] = "one"
    with pytest.raises(ScalingError, match="two sizes"):
        envelope(table.with_column("run", names, ""))
