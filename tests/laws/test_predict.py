"""What a law predicts for runs, in one step and in two: the interval of its mean, that of a new run, and the error of
the form."""

from typing import Any

import numpy as np
import pytest
from scipy.stats import t

import scaling
from scaling.base.errors import ScalingError
from scaling.laws import Points, TwoStep, composed, fit, fit_two_steps, named, predict_runs
from scaling.laws.held_out import back_test, judge
from scaling.laws.intervals import METHODS, student
from scaling.laws.predict import Discrepancy
from tests.laws.studies import LAW, width

FEW: dict[str, Any] = {"starts": 64}


def bent(n=60, noise=0.003, bend=0.0, seed=0):
    """Runs of Chinchilla's law, but for a smooth `bend` of the effective size that no parameter describes."""
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log(1e7), np.log(1e9), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e11), n))
    wrong = bend * np.sin(2.0 * np.log10(N) + 1.0) * np.cos(1.5 * np.log10(D))
    loss = 1.7 + 400 * (N * np.exp(wrong)) ** -0.34 + 900 * (D * np.exp(wrong)) ** -0.3
    return Points({"N": N, "D": D, "loss": loss * np.exp(noise * rng.standard_normal(n))})


def test_among_the_points_both_intervals_of_a_straight_line_are_the_textbooks():
    C = np.geomspace(1e18, 1e22, 40)
    points = {"C": C, "loss": 20 * C**-0.05 * np.exp(0.01 * np.random.default_rng(0).standard_normal(40))}
    x, y = np.log(C), np.log(points["loss"])
    slope, constant = np.polyfit(x, y, 1)
    s = np.sqrt(np.sum((y - constant - slope * x) ** 2) / (len(x) - 2))
    law = fit("power_law_c", points, objective="log_squared")
    for compute, level in ((1e20, 0.5), (1e20, 0.99), (1e24, 0.9)):
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
    exact = fit("power_law_c", {name: column[:2] for name, column in points.items()})
    assert judge(exact, Points(points)).to_json()["covered"] is None, "without a degree of freedom"


@pytest.mark.parametrize(("objective", "method"), [*zip(("log_huber", "log_squared", "squared"), METHODS)])
def test_a_run_is_never_better_known_than_the_mean(objective, method):
    law = fit("chinchilla", bent(40, 0.02), objective=objective, **FEW)
    rows = [{"N": 1e9, "D": 2e10}, {"N": 1e13, "D": 1e15}, {"N": 1e5, "D": 1e6}]
    for here in predict_runs(law, rows, 0.9, method):
        assert here.run.low <= here.mean.low
        assert here.mean.high <= here.run.high
        assert here.run.low < here.estimate < here.run.high
        assert here.run.open_below or here.run.low >= 0
        assert width(here.run) > width(here.mean)


def test_where_the_mean_is_open_so_is_a_run():
    """Budgets that differ by a twentieth show nothing of one far away."""
    C, noise = np.geomspace(1e18, 1.05e18, 12), np.random.default_rng(7).standard_normal(12)
    points = {"C": C, "loss": (1.7 + 2e7 * C**-0.4) * np.exp(0.02 * noise)}
    law = fit("power_law_floor_c", points, objective="log_squared", **FEW)
    below, above = predict_runs(law, [{"C": 1e10}, {"C": 1e30}])
    assert below.mean.open_below
    assert below.run.open_below
    assert above.mean.open_above
    assert above.run.open_above


def test_new_runs_lie_inside_as_often_as_the_level_and_larger_ones_of_a_wrong_form_too():
    """The largest fifth by N of studies whose form is wrong in a way that the fit does not know."""
    law = fit("chinchilla", bent(200, 0.01), objective="log_squared", **FEW)
    for level in (0.5, 0.95):
        assert judge(law, bent(1000, 0.01, seed=1), level, "t").covered.mean() == pytest.approx(level, abs=0.05)
    true, wrong = (Discrepancy(fit("chinchilla", bent(bend=bend), **FEW)) for bend in (0.0, 0.8))
    sizes = [float(np.sqrt(each.weights @ each.sizes**2)) for each in (true, wrong)]
    assert sizes[0] < 0.2 < sizes[1]
    assert true.noise == pytest.approx(0.003, rel=0.3)
    assert wrong.noise == pytest.approx(0.003, rel=0.5)
    inside, noise_alone = [], []
    for seed in range(6):
        points = bent(bend=0.5, seed=seed)
        rest, larger = points.hold_out(points["N"] >= np.quantile(points["N"], 0.8))
        law = fit("chinchilla", rest, objective="log_squared", **FEW)
        judged = judge(law, larger, 0.95, "t")
        inside += judged.covered.tolist()
        error = np.abs(np.log([one.estimate for one in judged.predictions] / judged.observed))
        noise_alone += (error < 2.0 * Discrepancy(law).noise).tolist()
    assert np.mean(noise_alone) < 0.8
    assert np.mean(inside) > 0.9


# A task's score by way of the loss: both steps fitted, their errors in one interval, and what the runs do not show.

SIGMOID = named("task_sigmoid")
LOSS, SCORE = np.array([1.8, 480.0, 2000.0, 0.34, 0.36]), np.array([0.25, 0.7, 4.0, 2.9])
STEPS = composed(LAW, SIGMOID)
FAR = {"N": 8e9, "D": 3.2e11}
CHANCE = {"task_b": 0.25}


def scores(noise=0.005, examples=2000, shared=0.0, sizes: tuple[float, float] = (1e8, 3e9)):
    """30 runs; `shared` is an error of the score that a run's error of the loss brings, in scores per nat."""
    rng, N = np.random.default_rng(0), np.repeat(np.geomspace(*sizes, 5), 6)
    D, error = N * np.tile(np.geomspace(10, 320, 6), 5), noise * rng.standard_normal(len(N))
    loss = LAW.predict(LOSS, {"N": N, "D": D}) * np.exp(error)
    score = rng.binomial(examples, SIGMOID.predict(SCORE, {"loss": loss})) / examples + shared * error
    columns = {"N": N, "D": D, "loss": loss, "accuracy": score}
    return columns | {"examples": np.full(len(N), float(examples)), "options": np.full(len(N), 4.0)}


def test_a_score_is_predicted_with_the_errors_of_both_steps():
    both = fit_two_steps(STEPS, scores(), fixed=CHANCE, **FEW)
    (ahead,) = predict_runs(both, [FAR], method="t")
    truth = SIGMOID.predict(SCORE, {"loss": LAW.predict(LOSS, {n: [value] for n, value in FAR.items()})})
    assert ahead.mean.covers(truth[0])
    assert ahead.run.covers(truth[0])
    assert float(both.predict(**FAR)) == pytest.approx(ahead.estimate)
    (loss,) = predict_runs(both.loss, [FAR], method="t")
    (task,) = predict_runs(both.task, [{"loss": loss.estimate}], method="t")
    carried = np.abs(np.diff(both.task.predict(loss=np.array([loss.run.low, loss.run.high]))))[0]
    assert max(carried, width(task.run)) < 1.05 * width(ahead.run) < 1.05 * (carried + width(task.run))
    # Fewer examples widen it by the binomial noise that the runs of the fit lack.
    many, few = predict_runs(both.task, [{"loss": loss.estimate, "examples": count} for count in (1e9, 50)], method="t")
    noise = few.estimate * (1 - few.estimate) / 50 - Discrepancy(both.task).noise ** 2
    more = (few.estimate - few.run.low) ** 2 - (many.estimate - many.run.low) ** 2
    assert more == pytest.approx(student(0.95, both.task.degrees_of_freedom) ** 2 * noise)
    # No score is above one or below zero.
    (high,) = predict_runs(both, [{"N": 1e11, "D": 1e13, "examples": 20}], method="t")
    assert 0.99 < high.run.high <= 1.0
    direct = fit("direct_sigmoid", scores(examples=60), fixed={"b": 0.25}, **FEW)
    assert predict_runs(direct, [{"N": 1e7, "D": 1e7}], method="t")[0].run.low >= 0.0


@pytest.mark.parametrize(("shared", "factor"), [(-2, 1.02), (2, 0.98)])
def test_errors_that_a_run_shares_between_the_steps_are_counted_once_more(shared, factor):
    """A run that is worse than its size in loss, and worse than its loss in score, is the less predictable."""
    paired = fit_two_steps(STEPS, scores(0.01, 20000, shared=shared), fixed=CHANCE, **FEW)
    assert paired.correlation * shared > 0.8
    apart = TwoStep(paired.loss, paired.task, paired.rows)
    apart.__dict__["correlation"] = 0.0
    one, other = (predict_runs(each, [FAR], method="t")[0].run for each in (paired, apart))
    assert (width(one) > factor * width(other)) == (shared < 0)


def test_two_steps_are_held_out_as_one_law_is_and_runs_without_a_score_take_part_in_the_first():
    columns = scores()
    columns["accuracy"] = np.where(np.arange(30) % 6 == 0, np.nan, columns["accuracy"])
    part = fit_two_steps(STEPS, columns, fixed=CHANCE, objective="squared", **FEW)
    again = part.without(np.arange(30) >= 24, 64)
    assert [len(step.points) for step in (part.loss, part.task, again.loss, again.task)] == [30, 25, 24, 20]
    np.testing.assert_array_equal(again.rows, part.rows[:20])
    judged = judge(again, Points(columns).hold_out(np.arange(30) >= 24)[1], method="t")
    assert len(judged.observed) == 5
    assert np.abs(judged.relative_errors).max() < 0.05
    assert judged.covered.all()
    assert {test["axis"] for test in back_test(part, refit=lambda mask: part.without(mask, 24))} == {"N", "D", "C"}
    with pytest.raises(ScalingError, match="no run has a score"):
        fit_two_steps(STEPS, columns | {"accuracy": np.full(30, np.nan)})


def test_the_table_states_the_chance_level():
    columns = scores(examples=100)
    chance, error = {"chance": np.full(30, 0.2)}, {"error": 1.0 - columns["accuracy"]}
    for law, more, fixed in (("two_step", chance, {"task_b": 0.2}), ("task_exponential", error, {"epsilon": 0.75})):
        fitted = scaling.fit(columns | more, law=law, intervals="none", objective="squared", **FEW)
        assert fitted.document["fixed"] == fixed
        assert sum(fitted.estimates.get(name, 0.0) for name in ("task_a", "task_b")) <= 1.0 + 1e-9


@pytest.mark.filterwarnings("error")
def test_what_the_losses_do_not_show_of_a_sigmoid_is_named():
    low = scaling.fit(scores(examples=300, sizes=(1e5, 1e6)), law="task_sigmoid", intervals="t", **FEW)
    assert any("do not identify the sigmoid" in doubt and "its scatter of" in doubt for doubt in low.doubts)
    columns = scores(examples=5000)
    part = {name: column[columns["accuracy"] < 0.55] for name, column in columns.items()}
    (sentence,) = (doubt for doubt in scaling.fit(part, law="task_sigmoid", **FEW).doubts if "levels off" in doubt)
    assert "of the way from chance (0.25)" in sentence
    for table, fix in ((part, {"a": 0.7}), (columns, {})):
        assert not any("levels off" in doubt for doubt in scaling.fit(table, law="task_sigmoid", fix=fix, **FEW).doubts)


def test_a_score_of_zero_has_an_error_in_its_own_unit():
    table = scores(examples=20)
    table["accuracy"][[0, 1]] = 0.0  # a run that is held out, and the largest loss of the others
    table["held_out"] = np.arange(30) == 0
    fitted = scaling.fit(table, law="task_sigmoid", hold_out="largest", intervals="none", **FEW)
    (run,) = fitted.document["held_out"]["points"]
    assert run["relative_error"] is None
    assert run["error"] == pytest.approx(run["predicted"])
    assert f"largest error {run['error']:.4f}" in str(fitted)
    assert f"+{run['error']:.4f}" in fitted.format("markdown")
    row = fitted.document["back_test"][0]
    assert row["mean_absolute_relative_error"] is None
    assert f"{row['mean_absolute_error']:.4f}" in str(fitted)
