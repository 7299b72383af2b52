"""A task's score by way of the loss: both steps fitted, their errors in one interval, and what the runs do not show."""

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.laws import Points, TwoStep, composed, fit, fit_two_steps, named, predict_runs
from scaling.laws.held_out import back_test, judge
from scaling.laws.intervals import student
from scaling.laws.predict import Discrepancy

CHINCHILLA, SIGMOID = named("chinchilla"), named("task_sigmoid")
LOSS, SCORE = np.array([1.8, 480.0, 2000.0, 0.34, 0.36]), np.array([0.25, 0.7, 4.0, 2.9])
LAW = composed(CHINCHILLA, SIGMOID)
FAR = {"N": 8e9, "D": 3.2e11}
CHANCE = {"task_b": 0.25}


def study(noise=0.005, examples=2000, seed=0, shared=0.0, sizes: tuple[float, float] = (1e8, 3e9)):
    """30 runs; `shared` is an error of the score that a run's error of the loss brings, in scores per nat."""
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(*sizes, 5), 6)
    D = N * np.tile(np.geomspace(10, 320, 6), 5)
    error = noise * rng.standard_normal(len(N))
    loss = CHINCHILLA.predict(LOSS, {"N": N, "D": D}) * np.exp(error)
    score = rng.binomial(examples, SIGMOID.predict(SCORE, {"loss": loss})) / examples + shared * error
    columns = {"N": N, "D": D, "loss": loss, "accuracy": score}
    return columns | {"examples": np.full(len(N), float(examples)), "options": np.full(len(N), 4.0)}


@pytest.fixture(scope="module")
def both():
    return fit_two_steps(LAW, study(), fixed=CHANCE)


def width(interval):
    return interval.high - interval.low


def test_a_score_is_predicted_with_the_errors_of_both_steps(both):
    (ahead,) = predict_runs(both, [FAR])
    truth = SIGMOID.predict(SCORE, {"loss": CHINCHILLA.predict(LOSS, {n: [value] for n, value in FAR.items()})})
    assert ahead.mean.covers(truth[0])
    assert ahead.run.covers(truth[0])
    assert float(both.predict(**FAR)) == pytest.approx(ahead.estimate)
    (loss,) = predict_runs(both.loss, [FAR])
    (task,) = predict_runs(both.task, [{"loss": loss.estimate}])
    carried = np.abs(np.diff(both.task.predict(loss=np.array([loss.run.low, loss.run.high]))))[0]
    assert max(carried, width(task.run)) < 1.05 * width(ahead.run) < 1.05 * (carried + width(task.run))
    assert width(ahead.mean) < width(ahead.run)
    assert ahead.decades_outside["N"] == pytest.approx(np.log10(8e9 / 3e9), abs=1e-3)
    assert predict_runs(both, [{"N": 1e9, "D": 1e11}], method=None)[0].decades_outside == {}
    # Fewer examples widen it by the binomial noise that the runs of the fit lack.
    widths = [width(predict_runs(both, [{**FAR, "examples": count}])[0].run) for count in (1e9, 2000, 200, 50)]
    assert widths == sorted(widths)
    many, few = predict_runs(both.task, [{"loss": loss.estimate, "examples": count} for count in (1e9, 50)])
    noise = few.estimate * (1 - few.estimate) / 50 - Discrepancy(both.task).noise ** 2
    more = (few.estimate - few.run.low) ** 2 - (many.estimate - many.run.low) ** 2
    assert more == pytest.approx(student(0.95, both.task.degrees_of_freedom) ** 2 * noise)
    # No score is above one or below zero.
    (high,) = predict_runs(both, [{"N": 1e11, "D": 1e13, "examples": 20}])
    assert 0.99 < high.run.high <= 1.0
    direct = fit("direct_sigmoid", study(examples=60), fixed={"b": 0.25})
    (low,) = predict_runs(direct, [{"N": 1e7, "D": 1e7}], method="t")
    assert low.run.low >= 0.0


@pytest.mark.parametrize(("shared", "factor"), [(-2, 1.02), (2, 0.98)])
def test_errors_that_a_run_shares_between_the_steps_are_counted_once_more(shared, factor):
    """A run that is worse than its size in loss, and worse than its loss in score, is the less predictable."""
    paired = fit_two_steps(LAW, study(0.01, 20000, shared=shared), fixed=CHANCE)
    assert paired.correlation * shared > 0.8
    apart = TwoStep(paired.loss, paired.task, paired.rows)
    apart.__dict__["correlation"] = 0.0
    one, other = (predict_runs(each, [FAR])[0].run for each in (paired, apart))
    assert (width(one) > factor * width(other)) == (shared < 0)


def test_runs_without_a_score_take_part_in_the_first_step():
    columns = study()
    columns["accuracy"] = np.where(np.arange(30) % 3 == 0, np.nan, columns["accuracy"])
    part = fit_two_steps(LAW, columns, fixed=CHANCE)
    assert (len(part.loss.points), len(part.task.points)) == (30, 20)
    again = part.without(np.arange(30) >= 24)
    assert (len(again.loss.points), len(again.task.points)) == (24, 16)
    np.testing.assert_array_equal(again.rows, part.rows[:16])
    with pytest.raises(ScalingError, match="no run has a score"):
        fit_two_steps(LAW, columns | {"accuracy": np.full(30, np.nan)})


def test_two_steps_are_held_out_and_back_tested_as_one_law_is():
    columns = study()
    rest, tested = Points(columns).hold_out(columns["N"] == columns["N"].max())
    judged = judge(fit_two_steps(LAW, rest, fixed=CHANCE), tested, method="t")
    assert np.abs(judged.relative_errors).max() < 0.05
    assert judged.covered.all()
    assert {test["axis"] for test in back_test(judged.fit)} == {"N", "D", "C"}
    for steps, what in (((CHINCHILLA, CHINCHILLA), "is not a law of a task"), ((SIGMOID, SIGMOID), "of the loss")):
        with pytest.raises(ScalingError, match=what):
            composed(*steps)


@pytest.mark.parametrize(
    ("law", "more", "options", "fixed"),
    [
        ("task_sigmoid", {}, {}, {"b": 0.25}),
        ("two_step", {"chance": np.full(30, 0.2)}, {}, {"task_b": 0.2}),
        ("two_step", {}, {"fix": {"task_b": 0.3, "task_a": 0.7}}, {"task_b": 0.3, "task_a": 0.7}),
        ("two_step", {}, {"bounds": {"alpha": (0.2, 0.5)}}, {"task_b": 0.25}),
    ],
)
def test_the_table_states_the_chance_level(law, more, options, fixed):
    fitted = scaling.fit(study(examples=100) | more, law=law, intervals="none", **options)
    assert fitted.document["fixed"] == fixed
    prefix = "task_" if law == "two_step" else ""
    assert fitted.estimates[f"{prefix}b"] + fitted.estimates[f"{prefix}a"] <= 1.0 + 1e-9


def test_a_chance_level_that_varies_is_refused_and_an_error_has_the_other_one():
    columns = study(examples=100)
    wrong = {**columns, "error": 1.0 - columns["accuracy"]}
    assert scaling.fit(wrong, law="task_exponential", intervals="none").document["fixed"] == {"epsilon": 0.75}
    columns["options"][3] = 2
    with pytest.raises(ScalingError, match="options: has 2 values"):
        scaling.fit(columns, law="task_sigmoid")


def test_what_the_losses_do_not_show_of_a_sigmoid_is_named():
    low = scaling.fit(study(examples=300, sizes=(1e5, 1e6)), law="two_step")
    assert any("do not identify the sigmoid" in doubt and "its scatter of" in doubt for doubt in low.doubts)
    columns = study(examples=5000)
    seen = columns["accuracy"] < 0.55
    part = {name: column[seen] for name, column in columns.items()}
    (sentence,) = (doubt for doubt in scaling.fit(part, law="task_sigmoid").doubts if "levels off" in doubt)
    assert "of the way from chance (0.25)" in sentence
    for other in (scaling.fit(part, law="task_sigmoid", fix={"a": 0.7}), scaling.fit(columns, law="task_sigmoid")):
        assert not any("levels off" in doubt for doubt in other.doubts)


def test_a_loss_on_one_set_is_predicted_from_another():
    rng = np.random.default_rng(0)
    first = np.linspace(2.2, 4.0, 40)
    second = 1.2 + 0.9 * (first - 1.6) ** 1.3
    columns = {"loss_a": first, "loss_b": second * np.exp(0.003 * rng.standard_normal(40))}
    found = scaling.fit(columns, law="loss_to_loss", fix={"E_a": 1.6})
    assert found.estimates["kappa"] == pytest.approx(1.3, abs=0.1)
    # Below the floor the law has no value of its own.
    inside, below = found.predict(loss_a=[2.0, 1.5]).to_dict("records")
    assert inside["run_low"] < 1.2 + 0.9 * 0.4**1.3 < inside["run_high"]
    assert below["loss_b"] == pytest.approx(found.estimates["E_b"], abs=1e-6)


def test_a_score_of_zero_has_an_error_in_its_own_unit():
    table = study(examples=20)
    least = int(np.argmin(table["N"] * table["D"]))
    table["accuracy"][least] = 0.0
    held = {**table, "held_out": np.arange(30) == least}
    fitted = scaling.fit(held, law="two_step", intervals="t", starts=64)
    (run,) = fitted.document["held_out"]["points"]
    assert run["relative_error"] is None
    assert run["error"] == pytest.approx(run["predicted"])
    assert f"largest error {run['error']:.4f}" in str(fitted)
    assert f"+{run['error']:.4f}" in fitted.format("markdown")
    table["accuracy"][table["D"] == table["D"].max()] = 0.0
    fitted = scaling.fit(table, law="direct_sigmoid", hold_out="largest", intervals="none", starts=64)
    row = next(test for test in fitted.document["back_test"] if test["axis"] == "D")
    assert row["mean_absolute_relative_error"] is None
    assert f"{row['mean_absolute_error']:.4f}" in str(fitted)
