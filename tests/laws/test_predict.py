"""What a law predicts for runs: the interval of its mean, that of a new run, and the error of the form."""

import numpy as np
import pytest
from scipy.stats import t

from scaling.laws import Points, fit, predict_runs
from scaling.laws.held_out import judge
from scaling.laws.intervals import METHODS
from scaling.laws.predict import Discrepancy


def line(n=40, noise=0.01, seed=0):
    """A power law: under log-squared errors a straight line, whose intervals are in every textbook."""
    rng = np.random.default_rng(seed)
    C = np.geomspace(1e18, 1e22, n)
    return Points({"C": C, "loss": 20 * C**-0.05 * np.exp(noise * rng.standard_normal(n))})


def study(n=60, noise=0.003, bend=0.0, seed=0):
    """Runs of Chinchilla's law, but for a smooth `bend` of the effective size that no parameter describes."""
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log(1e7), np.log(1e9), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e11), n))
    wrong = bend * np.sin(2.0 * np.log10(N) + 1.0) * np.cos(1.5 * np.log10(D))
    loss = 1.7 + 400 * (N * np.exp(wrong)) ** -0.34 + 900 * (D * np.exp(wrong)) ** -0.3
    return Points({"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(n))})


def width(interval):
    return interval.high - interval.low


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_among_the_points_both_intervals_of_a_straight_line_are_the_textbooks(level):
    points = line()
    x, y = np.log(points["C"]), np.log(points["loss"])
    slope, constant = np.polyfit(x, y, 1)
    s = np.sqrt(np.sum((y - constant - slope * x) ** 2) / (len(x) - 2))
    law = fit("power_law_c", points, objective="log_squared")
    for compute in (1e20, 1e24):
        at = np.log(compute)
        leverage = 1 / len(x) + (at - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2)
        half = t.ppf(0.5 + level / 2, len(x) - 2) * s * np.sqrt([leverage, 1 + leverage])
        (here,) = predict_runs(law, [{"C": compute}], level, "t")
        assert here.mean.level == here.run.level == level
        mean, run = (np.log([interval.low, interval.high]) for interval in (here.mean, here.run))
        assert mean == pytest.approx(constant + slope * at + half[0] * np.array([-1, 1]), abs=1e-6)
        # A new run among the points has the textbook's interval but for its tails; beyond them the form may be wrong.
        ratio = np.ptp(run) / (2 * half[1])
        assert 0.8 < ratio < 1.4 if compute < 1e22 else ratio > 2


@pytest.mark.parametrize(("objective", "method"), [*zip(("log_huber", "log_squared", "squared"), METHODS)])
def test_a_run_is_never_better_known_than_the_mean(objective, method):
    points = study(48, 0.02)
    law = fit("chinchilla", points, objective=objective)
    rows = [{"N": 1e9, "D": 2e10}, {"N": 1e13, "D": 1e15}, {"N": 1e5, "D": 1e6}]
    for here in predict_runs(law, rows, 0.9, method):
        assert here.run.low <= here.mean.low
        assert here.mean.high <= here.run.high
        assert here.run.low < here.estimate < here.run.high
        assert here.run.open_below or here.run.low >= 0
        closed = np.isfinite([here.mean.low, here.mean.high]).all()
        assert width(here.run) > width(here.mean) or not closed
        assert here.to_json()["interval_mean"] == here.mean.to_json()


def test_where_the_mean_is_open_so_is_a_run():
    """Budgets that differ by a twentieth show nothing of one far away."""
    C, ends = np.geomspace(1e18, 1.05e18, 12), []
    for seed in (4, 7):
        loss = (1.7 + 2e7 * C**-0.4) * np.exp(0.02 * np.random.default_rng(seed).standard_normal(12))
        law = fit("power_law_floor_c", {"C": C, "loss": loss})
        for far in predict_runs(law, [{"C": 1e10}, {"C": 1e30}]):
            document = far.to_json()
            ends += [(document["interval_run"][end], document["interval_mean"][end]) for end in ("low", "high")]
    assert all((run is None) == (mean is None) for run, mean in ends)
    assert (None, None) in ends


def test_without_a_method_or_a_degree_of_freedom_there_is_no_interval():
    law = fit("chinchilla", study())
    (here,) = predict_runs(law, [{"N": 1e9, "D": 2e10}], method=None)
    assert here.mean is here.run is None
    assert predict_runs(law, []) == []
    exact = fit("power_law_c", line(2))
    assert predict_runs(exact, [{"C": 1e24}])[0].run is None
    assert judge(exact, line()).to_json()["covered"] is None


def test_new_runs_of_the_law_lie_inside_as_often_as_the_level():
    law = fit("chinchilla", study(200, 0.01), objective="log_squared")
    for level in (0.5, 0.8, 0.95):
        judged = judge(law, study(2000, 0.01, seed=1), level, "t")
        assert judged.covered.mean() == pytest.approx(level, abs=0.04)
        assert judged.to_json()["level"] == level


def test_a_form_that_is_wrong_is_told_from_noise():
    true, wrong = (Discrepancy(fit("chinchilla", study(bend=bend))) for bend in (0.0, 0.8))
    sizes = [float(np.sqrt(each.weights @ each.sizes**2)) for each in (true, wrong)]
    assert sizes[0] < 0.2 < sizes[1]
    assert true.noise == pytest.approx(0.003, rel=0.3)
    assert wrong.noise == pytest.approx(0.003, rel=0.5)


def test_larger_runs_of_a_wrong_form_lie_inside():
    """Studies whose form is wrong in a way that the fit does not know: the largest fifth by N."""
    inside, noise_alone = [], []
    for seed in range(8):
        points = study(bend=0.5, seed=seed)
        rest, larger = points.hold_out(points["N"] >= np.quantile(points["N"], 0.8))
        law = fit("chinchilla", rest, starts=128)
        judged = judge(law, larger, 0.95, "t")
        inside += judged.covered.tolist()
        predicted = np.array([one.estimate for one in judged.predictions])
        error = np.abs(np.log(predicted / judged.observed))
        noise_alone += (error < 2.0 * Discrepancy(law).noise).tolist()
    assert np.mean(noise_alone) < 0.8
    assert np.mean(inside) > 0.9
