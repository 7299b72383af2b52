"""What a law predicts for runs, in one step and in two; runs left out, the choice of a law, and what a fit prints."""

import re
from typing import Any

import numpy as np
import pandas
import pytest
from scipy.stats import t

import scaling
from scaling.laws import Points, TwoStep, composed, fit, fit_two_steps, named, predict_runs
from scaling.laws.held_out import back_test, candidates, choose, judge
from scaling.laws.intervals import METHODS, student
from scaling.laws.predict import Discrepancy
from tests.command_line import refuses
from tests.laws.conftest import FARSEER, LAW, grid, study, width

FEW: dict[str, Any] = {"starts": 64}
WIDE = np.geomspace(1e8, 6e9, 8), np.geomspace(1e9, 5e11, 8)
SIGMOID, FAR, CHANCE = named("task_sigmoid"), {"N": 8e9, "D": 3.2e11}, {"task_b": 0.25}
LOSS, SCORE = np.array([1.8, 480.0, 2000.0, 0.34, 0.36]), np.array([0.25, 0.7, 4.0, 2.9])
STEPS = composed(LAW, SIGMOID)


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


@pytest.mark.parametrize(("objective", "method"), [*zip(("log_huber", "log_squared", "squared"), METHODS)])
def test_a_run_is_never_better_known_than_the_mean(objective, method):
    law = fit("chinchilla", bent(40, 0.02), objective=objective, **FEW)
    for here in predict_runs(law, [{"N": 1e9, "D": 2e10}, {"N": 1e13, "D": 1e15}, {"N": 1e5, "D": 1e6}], 0.9, method):
        assert here.run.low <= here.mean.low <= here.mean.high <= here.run.high
        assert here.run.low < here.estimate < here.run.high
        assert here.run.open_below or here.run.low >= 0
        assert width(here.run) > width(here.mean)


def test_new_runs_lie_inside_as_often_as_the_level_and_larger_ones_of_a_wrong_form_too():
    """The largest fifth by N of studies whose form is wrong in a way that the fit does not know."""
    law = fit("chinchilla", bent(200, 0.01), objective="log_squared", **FEW)
    for level in (0.5, 0.95):
        assert judge(law, bent(1000, 0.01, seed=1), level, "t").covered.mean() == pytest.approx(level, abs=0.05)
    inside = []
    for seed in range(6):
        points = bent(bend=0.5, seed=seed)
        rest, larger = points.hold_out(points["N"] >= np.quantile(points["N"], 0.8))
        law = fit("chinchilla", rest, objective="log_squared", **FEW)
        inside += judge(law, larger, 0.95, "t").covered.tolist()
    assert np.mean(inside) > 0.9


def scores(examples=2000, sizes: tuple[float, float] = (1e8, 3e9), noise=0.005, shared=0.0):
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


def test_errors_that_a_run_shares_between_the_steps_are_counted_once_more():
    """A run that is worse than its size in loss, and worse than its loss in score, is the less predictable."""
    for shared, factor in ((-2, 1.02), (2, 0.98)):
        paired = fit_two_steps(STEPS, scores(20000, noise=0.01, shared=shared), fixed=CHANCE, **FEW)
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
    judged = judge(again, Points(columns).hold_out(np.arange(30) >= 24)[1], method="t")
    assert len(judged.observed) == 5
    assert np.abs(judged.relative_errors).max() < 0.05
    unknown = "task_z: is not a parameter of the law; did you mean 'task_"
    refuses(unknown, fit_two_steps, STEPS, columns, fixed={"task_z": 1.0})
    refuses("no run has a score", fit_two_steps, STEPS, columns | {"accuracy": np.full(30, np.nan)})


@pytest.mark.filterwarnings("error")
def test_what_the_losses_do_not_show_of_a_sigmoid_is_named():
    def doubts(table, **fix):
        return "".join(scaling.fit(table, law="task_sigmoid", intervals="t", fix=fix, **FEW).doubts)

    assert "do not identify the sigmoid" in doubts(scores(examples=300, sizes=(1e5, 1e6)))
    columns = scores(examples=5000)
    part = {name: column[columns["accuracy"] < 0.55] for name, column in columns.items()}
    assert "of the way from chance (0.25)" in doubts(part)
    assert "levels off" not in doubts(part, a=0.7) + doubts(columns)


def test_a_score_of_zero_has_an_error_in_its_own_unit():
    table = scores(examples=20)
    table["accuracy"][[0, 1]] = 0.0  # a run that is held out, and the largest loss of the others
    table["held_out"] = np.arange(30) == 0
    fitted = scaling.fit(table, law="task_sigmoid", hold_out="largest", intervals="none", **FEW)
    (run,), row = fitted.document["held_out"]["points"], fitted.document["back_test"][0]
    assert run["relative_error"] is row["mean_absolute_relative_error"] is None
    assert run["error"] == pytest.approx(run["predicted"])
    for text in (f"largest error {run['error']:.4f}", f"{row['mean_absolute_error']:.4f}"):
        assert text in str(fitted)
    assert f"+{run['error']:.4f}" in fitted.format("markdown")


def table(count=40, noise=0.003, seed=0):
    columns = study(count, noise, seed)
    return pandas.DataFrame({"run": [f"r{seed}-{place}" for place in range(count)], **columns})


def test_the_back_test_leaves_out_the_largest_by_each_axis():
    points = Points(grid(*WIDE, 2e-3))
    law, C = fit("chinchilla", points, objective="log_squared", starts=64), 6 * points["N"] * points["D"]
    tests = back_test(law, 0.9)
    assert {test["axis"] for test in tests} == {"N", "D", "C"}
    assert {test["runs"] for test in tests if test["axis"] == "N"} == {16, 32}  # whole levels
    assert all((test["from"] * (1 - 1e-9) <= C).sum() == test["runs"] for test in tests if test["axis"] == "C")
    assert np.mean([test["covered"] for test in tests]) >= 0.85


def test_the_law_that_made_the_runs_is_chosen_and_extrapolates():
    points, far = Points(grid(*WIDE, 1e-3, **FARSEER)), {"N": np.array([2e10]), "D": np.array([2e12])}
    choice = choose(points, powers=(0.0,))
    assert choice.trials[0].form.name == "farseer"
    assert {trial.form.name for trial in choice.trials} == {"farseer", "chinchilla", "kaplan_n_d"}
    assert choice.trials[0].score == min(trial.score for trial in choice.trials) >= 1
    true = FARSEER["form"].predict(FARSEER["theta"], far)
    assert choice.fit(points).predict(**far) == pytest.approx(true, rel=0.02)


def test_candidates_have_the_columns_of_the_table():
    repeated = {**study(64), "U": np.geomspace(1e8, 1e9, 64)}
    mixture = {"p_1": np.linspace(0.1, 0.9, 9), "p_2": np.linspace(0.9, 0.1, 9), "loss": np.linspace(2, 3, 9)}
    for points, name in ((repeated, "data_constrained"), (mixture, "mixture_exponential_2")):
        assert [form.name for form in candidates(Points(points))] == [name]


def test_the_back_test_of_a_chosen_law_chooses_without_the_runs_it_leaves_out():
    """The runs of the largest loss bend the curve: the law that they choose is not the law that predicts them."""
    loss = np.linspace(2.0, 4.0, 30)
    bits = 0.3 + 0.2 * loss + 1e-3 * np.random.default_rng(1).standard_normal(30)
    bits += np.where(loss > 3.6, 0.8 * (loss - 3.6) ** 2, 0.0)
    chosen = scaling.fit({"loss": loss, "bits_per_byte": bits}, law="auto", hold_out="largest", intervals="none")
    assert chosen.document["law"] == "task_power"
    assert [test["law"] for test in chosen.document["back_test"]] == ["task_linear", "task_linear"]
    assert "loss ≥ " in str(chosen)


def test_a_law_that_is_chosen_holds_the_score_of_guessing_where_the_table_states_it():
    table = Points({name: column for name, column in scores().items() if name != "N"})
    assert choose(table, ["task_sigmoid"], powers=[0.0]).fit(table).estimates["b"] == 0.25


def printed(text: str) -> list[bool]:
    """Whether each held-out run lies inside the interval of a new run, as a reader of the text sees it."""
    number = r"-?[\d.]+(?:e[+-]?\d+)?"
    line = rf"r1-\d+\W.*?({number})\W+{number}\W+{number} to {number}\W+({number}) to ({number})\W+(yes|no)"
    found = [(float(low) <= float(loss) <= float(high), word) for loss, low, high, word in re.findall(line, text)]
    assert [word == "yes" for _, word in found] == [inside for inside, _ in found]
    return [inside for inside, _ in found]


def test_the_printed_intervals_are_the_counted_ones():
    """The runs of the test scatter more than the others, so that some of them lie outside."""
    runs = pandas.concat([table().assign(held_out=0), table(12, 0.006, 1).assign(held_out=1)])
    fitted = scaling.fit(runs, objective="log_squared", intervals="t", level=0.5, starts=64)
    test = fitted.document["held_out"]
    inside = sum(point["covered"] for point in test["points"])
    assert 0 < inside == round(12 * test["covered"]) < 12
    for name in fitted.formats:
        text = fitted.format(name).replace("\\", "")
        assert sum(printed(text)) == inside
        assert len(printed(text)) == 12
        assert f"{inside} of 12 runs lie inside the 50% interval of a new run" in text
        assert set(re.findall(r"([\d.]+%) interval", text)) == {"50%"}
    without = scaling.fit(runs, objective="log_squared", intervals="none", starts=24)
    assert without.document["held_out"]["covered"] is without.document["held_out"]["level"] is None
    assert not any(word in without.format(name) for name in without.formats for word in ("interval", "inside"))


def test_the_head_states_the_points_and_how_close_the_law_comes():
    runs = table()
    runs.loc[7, "loss"] = 9.0
    out = str(scaling.fit(runs, intervals="t", starts=128))
    worst = r"largest residual at N=\S+ D=\S+ \(r0-7\): loss 9.0000, fitted"
    assert re.search(rf"R² -?[\d.]+, mean error [\d.]+%, {worst}", out)
    for text in ("40 points, 5 parameters", "N_opt ∝ C^a", "95% interval (Student's t)", "\n  C: ", "\nα "):
        assert text in out


def test_a_law_that_predicts_the_held_out_runs_better_is_named():
    choices: dict[str, Any] = {"hold_out": "6*N*D>1e21", "objective": "log_squared", "intervals": "none", "starts": 64}
    wrong, right = (scaling.fit(table(60, 0.0), law=law, **choices) for law in ("kaplan_n_d", "chinchilla"))
    assert re.search(r"chinchilla predicts the held-out runs better \(mean error \S+% against \S+%\)", str(wrong))
    assert "better" not in str(right)
