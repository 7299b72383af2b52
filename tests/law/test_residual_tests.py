"""A size whose points lie off the law together is named, and independent errors seldom name one."""

import numpy as np
import pytest

from scaling.law import fit, named
from scaling.law.residual_tests import FALSE_ALARMS, off_size

THETA = np.array([1.8, 482.0, 2085.0, 0.35, 0.37])


def grid(shift=0.0):
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e7, 1e9, 6), np.geomspace(1e9, 1e11, 4)))
    noise = 0.001 * np.random.default_rng(0).standard_normal(24)
    law = named("chinchilla").predict(THETA, {"N": N, "D": D})
    return {"N": N, "D": D, "loss": law * np.exp(noise + shift * np.isclose(N, 10**7.4)), "trunk": N}


def patterns(found):
    return [reason for reason in found.unreliable if "does not fit this size" in reason]


def test_a_size_above_the_law_is_named_with_its_distance():
    table = grid(0.02)
    found = fit("chinchilla", table)
    rows = np.isclose(table["N"], 10**7.4)
    above = (table["loss"] - found.predict(N=table["N"], D=table["D"]))[rows]
    (reason,) = patterns(found)
    distance = f"{above.min():.2g} to {above.max():.2g} nats"
    assert reason == f"All 4 points of N = 2.512e+07 lie above the law by {distance}: the form does not fit this size"
    assert patterns(fit("chinchilla", grid())) == []


def test_points_that_share_errors_may_owe_their_distance_to_these():
    table = grid(0.02)
    (reason,) = patterns(fit("chinchilla", table, shared="trunk"))
    assert reason.endswith("or it is the error that these points share, which the intervals hold")


@pytest.mark.parametrize(("sizes", "budgets"), [(6, 4), (10, 8)])
def test_independent_errors_name_a_size_as_seldom_as_is_stated(sizes, budgets):
    x, y = (axis.ravel() for axis in np.meshgrid(np.arange(sizes), np.arange(budgets)))
    jacobian = np.array(
        [np.ones(len(x)), np.exp(-0.8 * x), x * np.exp(-0.8 * x), np.exp(-0.9 * y), y * np.exp(-0.9 * y)]
    )
    columns, rng = {"N": np.exp(x), "D": np.exp(y)}, np.random.default_rng(0)
    studies = 600
    named_sizes = sum(off_size(rng.standard_normal(len(x)), jacobian, columns) is not None for _ in range(studies))
    assert named_sizes / studies <= FALSE_ALARMS + 2.5 * np.sqrt(FALSE_ALARMS / studies)


def test_sizes_that_no_two_points_share_are_not_tested():
    rng = np.random.default_rng(0)
    N = np.geomspace(1e7, 1e9, 20)
    assert off_size(rng.standard_normal(20), np.ones((1, 20)), {"N": N}) is None
