"""A task's score by way of the loss: both steps fitted, their errors in one interval, and what the runs do not show."""

import numpy as np
import pytest

import scaling
from scaling.coverage.tasks import LOSS, SCORE, simulate
from scaling.errors import ScalingError
from scaling.law import Composed, Points, TwoStep, fit, fit_two_steps, named, predict_runs
from scaling.law.back_test import back_test
from scaling.law.held_out import predict_held_out

CHINCHILLA, SIGMOID = named("chinchilla"), named("task_sigmoid")
LAW = Composed(CHINCHILLA, SIGMOID)
FAR = {"N": 8e9, "D": 3.2e11}


def study(noise=0.005, examples=2000, seed=0, shared=0.0, sizes: tuple[float, float] = (1e8, 3e9)):
    """30 runs; `shared` is an error of the score that a run's error of the loss brings, in scores per nat."""
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(*sizes, 5), 6)
    D = N * np.tile(np.geomspace(10, 320, 6), 5)
    mean = CHINCHILLA.predict(np.array(list(LOSS.values())), {"N": N, "D": D})
    error = noise * rng.standard_normal(len(N))
    loss = mean * np.exp(error)
    chance = SIGMOID.predict(np.array(list(SCORE.values())), {"loss": loss})
    score = rng.binomial(examples, chance) / examples + shared * error
    columns = {"N": N, "D": D, "loss": loss, "accuracy": score}
    return columns | {"examples": np.full(len(N), float(examples)), "options": np.full(len(N), 4.0)}


def truth():
    columns = {name: np.array([value]) for name, value in FAR.items()}
    loss = CHINCHILLA.predict(np.array(list(LOSS.values())), columns)
    return float(SIGMOID.predict(np.array(list(SCORE.values())), {"loss": loss})[0])


def width(interval):
    return interval.high - interval.low


def test_a_score_is_predicted_with_the_errors_of_both_steps():
    both = fit_two_steps(LAW, study(), fixed={"task_b": 0.25})
    (prediction,) = predict_runs(both, [FAR])
    assert prediction.mean.covers(truth())
    assert prediction.run.covers(truth())
    assert width(prediction.run) > width(prediction.mean)
    assert float(both.predict(**FAR)) == pytest.approx(prediction.estimate)
    (loss,) = predict_runs(both.loss, [FAR])
    (task,) = predict_runs(both.task, [{"loss": loss.estimate}])
    carried = np.abs(np.diff(both.task.predict(loss=np.array([loss.run.low, loss.run.high]))))[0]
    for alone in (carried, width(task.run)):
        assert alone < 1.05 * width(prediction.run)
    assert width(prediction.run) < carried + width(task.run)
    assert prediction.extrapolation.decades["N"] == pytest.approx(np.log10(8e9 / 3e9), abs=1e-3)


def test_errors_that_a_run_shares_between_the_steps_are_counted_once_more():
    """A run that is worse than its size in loss, and worse than its loss in score, is the less predictable."""
    together, apart = (
        fit_two_steps(LAW, study(0.01, 20000, shared=shared), fixed={"task_b": 0.25}) for shared in (-2, 2)
    )
    assert together.correlation < -0.4
    assert apart.correlation > 0.4
    first, second = (predict_runs(each, [FAR])[0].run for each in (together, apart))
    alone = predict_runs(TwoStep(together.loss, together.task), [FAR])[0].run
    assert width(first) > 1.02 * width(alone)
    assert width(second) < 0.98 * width(predict_runs(TwoStep(apart.loss, apart.task), [FAR])[0].run)


def test_fewer_examples_widen_the_interval_of_a_score():
    both = fit_two_steps(LAW, study(), fixed={"task_b": 0.25})
    widths = [width(predict_runs(both, [{**FAR, "examples": count}])[0].run) for count in (1e9, 2000, 200, 50)]
    assert widths == sorted(widths)
    score = predict_runs(both, [FAR])[0].estimate
    assert widths[-1] > 2 * 1.96 * np.sqrt(score * (1 - score) / 50) * 0.75  # it ends at 1 above


def test_no_score_is_above_one_or_below_zero():
    both = fit_two_steps(LAW, study(examples=100), fixed={"task_b": 0.25})
    (high,) = predict_runs(both, [{"N": 1e11, "D": 1e13, "examples": 20}])
    assert high.run.high == 1.0
    (low,) = predict_runs(
        fit("direct_sigmoid", study(examples=60), fixed={"b": 0.25}), [{"N": 1e7, "D": 1e7}], method="t"
    )
    assert low.run.low >= 0.0


def test_runs_without_a_score_take_part_in_the_first_step():
    columns = study()
    columns["accuracy"] = np.where(np.arange(30) % 3 == 0, np.nan, columns["accuracy"])
    both = fit_two_steps(LAW, columns, fixed={"task_b": 0.25})
    assert (len(both.loss.points), len(both.task.points)) == (30, 20)
    again = both.without(np.arange(30) >= 24)
    assert (len(again.loss.points), len(again.task.points)) == (24, 16)
    np.testing.assert_array_equal(again.rows, both.rows[:16])
    judged = predict_held_out(LAW, Points(columns), columns["N"] == columns["N"].max(), method="t")
    assert len(judged.observed) == 4
    with pytest.raises(ScalingError, match="no run has a score"):
        fit_two_steps(LAW, columns | {"accuracy": np.full(30, np.nan)})


def test_two_steps_are_held_out_and_back_tested_as_one_law_is():
    points = Points(study())
    judged = predict_held_out(LAW, points, points["N"] == points["N"].max(), method="t", fixed={"task_b": 0.25})
    assert np.abs(judged.relative_errors).max() < 0.05
    assert judged.covered.all()
    tests = back_test(judged.fit)
    assert {test.axis for test in tests} == {"N", "D", "C"}


def test_what_are_no_two_steps_is_refused():
    with pytest.raises(ScalingError, match="chinchilla is not a law of a task"):
        Composed(CHINCHILLA, CHINCHILLA)
    with pytest.raises(ScalingError, match="task_sigmoid is not a law of the loss"):
        Composed(SIGMOID, SIGMOID)


def test_the_table_states_the_chance_level():
    columns = study(examples=100)
    fitted = scaling.fit(columns, law="task_sigmoid")
    assert fitted.document["fixed"] == {"b": 0.25}
    assert fitted.estimates["b"] + fitted.estimates["a"] <= 1.0
    both = scaling.fit({**columns, "chance": np.full(30, 0.2)}, law="two_step")
    assert both.document["fixed"] == {"task_b": 0.2}
    assert both.document["law"] == "chinchilla,task_sigmoid"
    other = scaling.fit(columns, law="two_step", bounds={"alpha": (0.2, 0.5)}, intervals="none").estimates
    assert other["task_b"] + other["task_a"] <= 1.0
    given = scaling.fit(columns, law="two_step", fix={"task_b": 0.3, "task_a": 0.7}).document
    assert given["fixed"] == {"task_b": 0.3, "task_a": 0.7}
    wrong = {**columns, "accuracy": 1.0 - columns["accuracy"]}
    assert scaling.fit({**wrong, "error": wrong["accuracy"]}, law="task_exponential").document["fixed"] == {
        "epsilon": 0.75
    }
    columns["options"][3] = 2
    with pytest.raises(ScalingError, match="options: has 2 values"):
        scaling.fit(columns, law="task_sigmoid")


def test_losses_that_show_only_chance_do_not_identify_the_sigmoid():
    low = scaling.fit(study(examples=300, sizes=(1e5, 1e6)), law="two_step")
    (sentence,) = (doubt for doubt in low.doubts if "do not identify the sigmoid" in doubt)
    assert "its scatter of" in sentence


def test_losses_that_do_not_reach_the_upper_level_are_named():
    columns = study(examples=5000)
    seen = columns["accuracy"] < 0.55
    part = scaling.fit({name: column[seen] for name, column in columns.items()}, law="task_sigmoid")
    (sentence,) = (doubt for doubt in part.doubts if "levels off" in doubt)
    assert "of the way from chance (0.25)" in sentence
    held = scaling.fit({name: column[seen] for name, column in columns.items()}, law="task_sigmoid", fix={"a": 0.7})
    assert not any("levels off" in doubt for doubt in held.doubts)
    assert not any("levels off" in doubt for doubt in scaling.fit(columns, law="task_sigmoid").doubts)


def test_scores_below_chance_are_no_error():
    columns = study(examples=200, sizes=(1e6, 3e9))
    assert columns["accuracy"].min() < 0.25
    assert scaling.fit(columns, law="two_step").document["fixed"] == {"task_b": 0.25}


def test_a_loss_on_one_set_is_predicted_from_another():
    rng = np.random.default_rng(0)
    first = np.linspace(2.2, 4.0, 40)
    second = 1.2 + 0.9 * (first - 1.6) ** 1.3
    columns = {"loss_a": first, "loss_b": second * np.exp(0.003 * rng.standard_normal(40))}
    found = scaling.fit(columns, law="loss_to_loss", fix={"E_a": 1.6})
    assert found.estimates["kappa"] == pytest.approx(1.3, abs=0.1)
    ahead = found.predict(loss_a=2.0)
    assert ahead.interval_run.covers(1.2 + 0.9 * 0.4**1.3)
    below = found.predict(loss_a=1.5)  # below the floor, where the law has no value of its own
    assert float(below) == pytest.approx(found.estimates["E_b"], abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "examples", "chance"), [(0.005, 500, True), (0.005, 5000, False)])
def test_simulated_coverage_of_a_known_two_step_law(noise, examples, chance):
    cell = simulate(noise, examples, chance, 150)
    assert cell.refused <= 5
    assert cell.mean >= 0.9
    assert cell.run >= 0.9


@pytest.mark.parametrize("law", ["direct_sigmoid", "two_step"])
def test_a_held_out_score_of_zero_has_an_error_in_its_own_unit(law):
    table = study(examples=20)
    least = int(np.argmin(table["N"] * table["D"]))
    table["accuracy"][least] = 0.0
    held = {**table, "held_out": np.arange(30) == least}
    fitted = scaling.fit(held, law=law, intervals="t", starts=64)
    (run,) = fitted.document["held_out"]["points"]
    assert run["relative_error"] is None
    assert run["error"] == pytest.approx(run["predicted"])
    assert f"held out: largest error {run['error']:.4f}" in str(fitted)
    assert f"+{run['error']:.4f}" in fitted.format("markdown")
    assert f"largest error {run['error']:.4f}" in fitted.checklist["answer"].iloc[-1]


def test_a_back_test_on_scores_of_zero_counts_their_errors():
    table = study(examples=20)
    largest = table["D"] == table["D"].max()
    table["accuracy"][largest] = 0.0
    fitted = scaling.fit(table, law="direct_sigmoid", hold_out="largest", intervals="none", starts=64)
    row = next(test for test in fitted.document["back_test"] if test["axis"] == "D")
    assert row["mean_absolute_relative_error"] is None
    assert f"{row['mean_absolute_error']:.4f}" in str(fitted)
