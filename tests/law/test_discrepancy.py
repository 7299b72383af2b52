"""How far a law's form may be wrong: what residuals show of it, and what it adds to the interval of a new run."""

import numpy as np
import pytest

from scaling.laws import Points, fit, predict_runs
from scaling.laws.held_out import judge
from scaling.laws.predict import LARGEST, discrepancy, extrapolation
from scaling.laws.problem import named_objective


def study(n=60, noise=0.003, bend=0.0, seed=0, decades=2.0):
    """Runs of Chinchilla's law, but for a smooth `bend` of the effective size that no parameter describes."""
    rng = np.random.default_rng(seed)
    N = np.exp(rng.uniform(np.log(1e7), np.log(1e7 * 10**decades), n))
    D = np.exp(rng.uniform(np.log(1e9), np.log(1e9 * 10**decades), n))
    wrong = bend * np.sin(2.0 * np.log10(N) + 1.0) * np.cos(1.5 * np.log10(D))
    loss = 1.7 + 400 * (N * np.exp(wrong)) ** -0.34 + 900 * (D * np.exp(wrong)) ** -0.3
    return Points({"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(n))})


def test_a_form_that_is_wrong_is_told_from_noise():
    true, wrong = (discrepancy(fit("chinchilla", study(bend=bend))) for bend in (0.0, 0.8))
    assert true.size < 0.2 < wrong.size
    assert true.noise == pytest.approx(0.003, rel=0.3)
    assert wrong.noise == pytest.approx(0.003, rel=0.5)


@pytest.mark.parametrize(
    "objective",
    [named_objective("log_huber"), named_objective("log_squared"), named_objective("squared")],
    ids=lambda objective: objective.name,
)
def test_the_interval_of_a_run_grows_with_its_distance(objective):
    law = fit("chinchilla", study(bend=0.3), objective=objective)
    rows = [{"N": 1e8 * factor, "D": 1e10 * factor} for factor in (1.0, 30.0, 300.0, 3000.0)]
    widths = [np.log(here.run.high / here.run.low) for here in predict_runs(law, rows, method="t") if here.run]
    assert np.all(np.diff(widths) > 0)


def test_larger_runs_of_a_wrong_form_lie_inside():
    """Seventy-five pairs of studies whose form is wrong in a way that nobody told the fit: the largest fifth by N."""
    inside = noise_alone = count = 0
    for seed in range(30):
        points = study(n=60, bend=0.5, seed=seed)
        held = points["N"] >= np.quantile(points["N"], 0.8)
        rest, larger = points.hold_out(held)
        law = fit("chinchilla", rest, starts=128)
        judged = judge(law, larger, 0.95, "t")
        inside += int(judged.covered.sum())
        wide = 2.0 * discrepancy(law).noise
        noise_alone += int((np.abs(np.log(judged.predicted / judged.observed)) < wide).sum())
        count += len(larger)
    assert noise_alone < 0.8 * count
    assert 0.9 * count < inside


def test_rows_in_any_order_and_repeated_weights_change_nothing():
    points = study()
    law = fit("chinchilla", points)
    shuffled = fit("chinchilla", points.take(np.random.default_rng(1).permutation(len(points))))
    rows = {"N": np.array([1e8, 1e10]), "D": np.array([1e10, 1e12])}
    assert discrepancy(shuffled).half_widths(rows, 0.95) == pytest.approx(discrepancy(law).half_widths(rows, 0.95))
    weighted = fit("chinchilla", points, weights=np.full(len(points), 3.0))
    assert discrepancy(weighted).half_widths(rows, 0.95) == pytest.approx(discrepancy(law).half_widths(rows, 0.95))


def test_many_points_are_represented_by_some():
    law = fit("chinchilla", study(n=3 * LARGEST, noise=0.01, bend=0.3), starts=64)
    process = discrepancy(law)
    assert len(process.root) == LARGEST
    assert process.noise == pytest.approx(0.01, rel=0.2)


def test_points_on_the_law_have_no_noise():
    N, D = (column.reshape(-1) for column in np.meshgrid(np.geomspace(1e7, 1e9, 5), np.geomspace(1e9, 1e11, 5)))
    law = fit("chinchilla", Points({"N": N, "D": D, "loss": 1.7 + 400 * N**-0.34 + 900 * D**-0.3}))
    half = discrepancy(law).half_widths({"N": np.array([1e10]), "D": np.array([1e12])}, 0.95)
    assert half == pytest.approx(0.0, abs=1e-6)


def test_the_distance_is_in_decades_beyond_the_points():
    law = fit("chinchilla", study())
    N, D = law.problem.columns["N"], law.problem.columns["D"]
    assert not extrapolation(law, {"N": float(np.median(N)), "D": float(np.median(D))})
    far = extrapolation(law, {"N": 100 * float(N.max()), "D": 0.1 * float(D.min())})
    assert far.decades == pytest.approx({"N": 2.0, "D": -1.0}, abs=1e-3)
    assert str(far) == "2 decades above the largest N, 1 decade below the smallest D"
    assert not far.is_tested
