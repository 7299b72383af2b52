"""What a law predicts for runs: the interval of its mean, that of a new run, and that the counted ones are these."""

import numpy as np
import pytest

from scaling.law import Fit, LogHuber, LogSquared, Points, Squared, fit, predict_runs
from scaling.law.held_out import judge
from scaling.law.interval import METHODS
from scaling.law.predictions import rows_of


def line(n=40, noise=0.01, seed=0):
    """A power law: under log-squared errors a straight line, whose intervals are in every textbook."""
    rng = np.random.default_rng(seed)
    C = np.geomspace(1e18, 1e22, n)
    return Points({"C": C, "loss": 20 * C**-0.05 * np.exp(noise * rng.standard_normal(n))})


def plane(n=48, noise=0.004, seed=0):
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log(1e7), np.log(1e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    loss = (1.7 + 400 * N**-0.34 + 900 * D**-0.3) * np.exp(noise * rng.standard_normal(n))
    return Points({"N": N, "D": D, "loss": loss})


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_among_the_points_both_intervals_of_a_straight_line_are_the_textbooks(level):
    from scipy.stats import t

    points = line()
    x, y = np.log(points["C"]), np.log(points["loss"])
    slope, constant = np.polyfit(x, y, 1)
    s = np.sqrt(np.sum((y - constant - slope * x) ** 2) / (len(x) - 2))
    law = fit("power_law_c", points, objective=LogSquared())
    for compute in (1e20, 1e24):
        at = np.log(compute)
        leverage = 1 / len(x) + (at - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
        wide = t.ppf(0.5 + level / 2, len(x) - 2) * s * np.sqrt([leverage, 1 + leverage])
        (here,) = predict_runs(law, [{"C": compute}], level, "t")
        assert here.mean is not None
        assert here.run is not None
        assert here.mean.level == here.run.level == level
        mean, run = (np.log([interval.low, interval.high]) for interval in (here.mean, here.run))
        assert mean == pytest.approx(constant + slope * at + wide[0] * np.array([-1, 1]), abs=1e-6)
        # A new run among the points has the textbook's interval but for its tails; beyond them the form may be wrong.
        ratio = np.ptp(run) / (2 * wide[1])
        assert 0.8 < ratio < 1.4 if compute < 1e22 else ratio > 2


@pytest.mark.parametrize("objective", [LogHuber(), LogSquared(), Squared()], ids=lambda objective: objective.name)
@pytest.mark.parametrize("method", METHODS)
def test_a_run_is_never_better_known_than_the_mean(objective, method):
    points = plane(noise=0.02)
    law = fit("chinchilla", points.with_column("run", np.arange(len(points)) // 4, ""), objective=objective)
    if method == "bootstrap_run":
        law = fit("chinchilla", law.points, objective=objective, clusters="run")
    rows = [{"N": 1e9, "D": 2e10}, {"N": 1e13, "D": 1e15}, {"N": 1e5, "D": 1e6}]
    for here in predict_runs(law, rows, 0.9, method):
        assert here.mean is not None
        assert here.run is not None
        assert 0 <= here.run.low <= here.mean.low
        assert here.mean.high <= here.run.high
        assert here.run.high - here.run.low > here.mean.high - here.mean.low
        assert here.run.low < here.estimate < here.run.high
        assert here.to_json()["interval"] == here.to_json()["interval_mean"] == here.mean.to_json()


def test_where_the_mean_is_open_so_is_a_run():
    """Budgets that differ by a twentieth tell nothing of one far away."""
    C, is_open = np.geomspace(1e18, 1.05e18, 12), 0
    for seed in (4, 7):
        loss = (1.7 + 2e7 * C**-0.4) * np.exp(0.02 * np.random.default_rng(seed).standard_normal(12))
        law = fit("power_law_floor_c", Points({"C": C, "loss": loss}))
        for far in predict_runs(law, [{"C": 1e10}, {"C": 1e30}]):
            assert far.mean is not None
            assert far.run is not None
            assert (far.run.open_below, far.run.open_above) == (far.mean.open_below, far.mean.open_above)
            ends = far.to_json()
            for end in ("low", "high"):
                assert (ends["interval_run"][end] is None) == (ends["interval_mean"][end] is None)
                is_open += ends["interval_run"][end] is None
    assert is_open


def test_without_a_method_or_a_degree_of_freedom_there_is_no_interval():
    law = fit("chinchilla", plane())
    (here,) = predict_runs(law, [{"N": 1e9, "D": 2e10}], method=None)
    assert here.mean is here.run is None
    ends = here.to_json()
    assert ends["interval_mean"] is ends["interval_run"] is ends["interval"] is None
    assert predict_runs(law, []) == []
    exact = fit("power_law_c", line(2))
    assert predict_runs(exact, [{"C": 1e24}])[0].run is None
    assert judge(exact, line()).to_json()["covered"] is None


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_new_runs_of_the_law_lie_inside_as_often_as_the_level(level):
    law = fit("chinchilla", plane(200, 0.01), objective=LogSquared())
    fresh = plane(2000, 0.01, seed=1)
    judged = judge(law, fresh, level, "t")
    assert judged.covered.mean() == pytest.approx(level, abs=0.04)
    assert judged.to_json()["level"] == level


def counted(law: Fit, held: Points, level: float) -> float:
    rows = predict_runs(law, rows_of(held, law), level, "t")
    return float(np.mean([here.run.covers(loss) for here, loss in zip(rows, held["loss"]) if here.run is not None]))


def test_a_higher_level_holds_more_runs():
    law, held = fit("chinchilla", plane()), plane(60, 0.008, seed=2)
    shares = [judge(law, held, level, "t").to_json()["covered"] for level in (0.3, 0.8, 0.99)]
    assert shares == [counted(law, held, level) for level in (0.3, 0.8, 0.99)]
    assert shares[0] < shares[1] < shares[2]
