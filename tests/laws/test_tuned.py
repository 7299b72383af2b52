"""What rungs lose by their learning rate, and what that does to the exponents of a law."""

from __future__ import annotations

import numpy as np
import pytest

from scaling.laws import fit
from scaling.laws.horizon import best_points, effect, rungs, tuned

CURVATURE = 0.03


def ladder(best, noise=5e-4, batch=False):
    """Sixteen rungs of N and D, each trained at half, once and twice the rate 1e-3; `best` is the best rate of N."""
    rng = np.random.default_rng(0)
    N, D = (np.repeat(each.ravel(), 3) for each in np.meshgrid(np.geomspace(1e5, 1e7, 4), np.geomspace(2e6, 2e8, 4)))
    rate = np.tile([0.5e-3, 1e-3, 2e-3], 16)
    excess = CURVATURE / 2 * np.log(rate / best(N)) ** 2
    loss = (1.8 + 20 * N**-0.3 + 40 * D**-0.3) * np.exp(excess + noise * rng.standard_normal(len(N)))
    columns = {"N": N, "D": D, "loss": loss, "lr": rate}
    return columns | ({"batch": np.full(len(N), 16.0)} if batch else {}), rate == 1e-3


def test_what_a_rung_loses_and_its_best_rate_are_those_of_the_simulation():
    columns, used = ladder(lambda N: 2e-3)
    found = rungs(columns, used)
    assert len(found) == 16
    left = np.expm1(CURVATURE / 2 * np.log(2) ** 2)
    assert np.mean([rung.left.covers(left) for rung in found]) > 0.8
    assert np.mean([rung.best.covers(2e-3) for rung in found]) > 0.8
    assert all(rung.left.low > 0 and rung.used == 1e-3 for rung in found)


def test_tuned_rungs_lose_nothing_that_is_shown():
    assert sum(rung.left.low > 0 for rung in rungs(*ladder(lambda N: 1e-3))) <= 2


def test_runs_beside_a_rung_that_leave_no_degree_of_freedom_tell_nothing():
    columns, used = ladder(lambda N: 1e-3)
    three = {name: column[:3] for name, column in columns.items()}
    assert rungs(three, used[:3]) == []
    assert rungs({name: column[used] for name, column in columns.items()}, used[used]) == []


def test_the_batch_is_judged_at_the_rate_of_the_rung_alone():
    columns, used = ladder(lambda N: 1e-3, batch=True)
    more = {name: np.concatenate([column, column[used], column[used]]) for name, column in columns.items()}
    more["batch"][48:64], more["batch"][64:] = 8.0, 32.0
    more["loss"][64:] *= 1.01
    told = {rung.knob for rung in rungs(more, np.concatenate([used, np.zeros(32, bool)]))}
    assert told == {"lr", "batch"}


def test_a_rate_that_falls_with_size_changes_the_exponent_of_size():
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25)
    at_used = {name: columns[name][used] for name in ("N", "D", "loss")}
    change = {each.name: each for each in effect(fit("chinchilla", at_used, starts=64), rungs(columns, used))}
    assert change["alpha"].estimate == pytest.approx(-0.047, abs=0.01)
    assert change["alpha"].high < 0
    assert change["beta"].covers(0.0)


def test_the_best_points_of_rungs_give_the_law_of_the_best_rate():
    columns, used = ladder(lambda N: 1e-3 * (N / 1e6) ** -0.25, noise=2e-5)
    table = [
        {**dict(zip(columns, map(float, values), strict=True)), "name": f"{row}", "beside": "", "held_out": 0, "B": 64}
        for row, values in enumerate(zip(*columns.values(), strict=True))
    ]
    for row in np.flatnonzero(~used):
        table[row]["beside"] = f"{row // 3 * 3 + 1}"
    points = best_points(tuned(fit("chinchilla", {name: columns[name][used] for name in ("N", "D", "loss")}), table))
    assert {point["knob"] for point in points} == {"lr"}
    assert all(point["low"] < point["lr"] < point["high"] and point["B"] == 64 for point in points)
    law = fit("learning_rate_n", {name: [point[name] for point in points] for name in ("N", "lr")})
    assert law.estimates["b_N"] == pytest.approx(-0.25, abs=0.02)
