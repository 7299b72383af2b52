"""Runs left out and predicted from the others: hold-outs, the back-test, and the choice of a law."""

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.laws import Points, fit, named
from scaling.laws.held_out import back_test, candidates, choose, cost_of

FARSEER = np.array([0.45, -0.11, 0.04, 0.09, 0.28, -0.16, 0.3, -0.17, -0.14])
CHINCHILLA = np.array([1.8, 480.0, 2080.0, 0.35, 0.37])


def table(law, theta, noise=1e-3):
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e8, 6e9, 8), np.geomspace(1e9, 5e11, 8)))
    mean = named(law).predict(theta, {"N": N, "D": D})
    return {"N": N, "D": D, "loss": mean * np.exp(noise * np.random.default_rng(0).standard_normal(len(N)))}


@pytest.fixture(scope="module")
def points():
    return Points(table("chinchilla", CHINCHILLA, 2e-3))


def test_the_back_test_leaves_out_the_largest_by_each_axis(points):
    tests = back_test(fit("chinchilla", points, starts=64), 0.9)
    assert {test["axis"] for test in tests} == {"N", "D", "C"}
    assert {test["runs"] for test in tests if test["axis"] == "N"} == {16, 32}  # whole levels
    assert all(test["level"] == 0.9 and test["decades_outside"] > 0 for test in tests)
    C = 6 * points["N"] * points["D"]
    assert all((test["from"] * (1 - 1e-9) <= C).sum() == test["runs"] for test in tests if test["axis"] == "C")
    assert np.mean([test["covered"] for test in tests]) >= 0.85
    assert back_test(fit("chinchilla", points.take(np.arange(0, 60, 5)), starts=64)) == []


def test_the_law_that_made_the_runs_is_chosen_and_extrapolates():
    points = Points(table("farseer", FARSEER))
    choice = choose(points, powers=(0.0, 0.5))
    assert choice.trials[0].form.name == "farseer"
    assert {trial.form.name for trial in choice.trials} == {"farseer", "chinchilla", "kaplan_n_d"}
    assert set(choice.rows) == {"cost", "N", "D", "spread"}
    assert choice.trials[0].score == min(trial.score for trial in choice.trials) >= 1
    far = {"N": np.array([2e10]), "D": np.array([2e12])}
    assert choice.fit(points).predict(**far) == pytest.approx(named("farseer").predict(FARSEER, far), rel=0.02)


def test_candidates_have_the_columns_of_the_table(points):
    repeated = points.with_column("U", np.geomspace(1e8, 1e9, 64), "unique tokens")
    assert [form.name for form in candidates(repeated)] == ["data_constrained"]
    mixture = {"p_1": np.linspace(0.1, 0.9, 9), "p_2": np.linspace(0.9, 0.1, 9), "loss": np.linspace(2, 3, 9)}
    assert [form.name for form in candidates(Points(mixture))] == ["mixture_exponential_2"]
    with pytest.raises(ScalingError, match="no law has its columns in the table"):
        candidates(Points({"a": np.arange(3.0), "loss": np.arange(1.0, 4.0)}))
    N, D = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert cost_of(Points({"N": N, "D": D})).tolist() == [3.0, 8.0]
    assert cost_of(Points({"N": N, "D": D, "cost": D})).tolist() == [3.0, 4.0]
    assert cost_of(Points({"x": N})) is None


def test_the_back_test_of_a_chosen_law_chooses_without_the_runs_it_leaves_out():
    """The runs of the largest loss bend the curve: the law that they choose is not the law that predicts them."""
    loss = np.linspace(2.0, 4.0, 30)
    bits = 0.3 + 0.2 * loss + 1e-3 * np.random.default_rng(1).standard_normal(30)
    bits += np.where(loss > 3.6, 0.8 * (loss - 3.6) ** 2, 0.0)
    table = {"loss": loss, "bits_per_byte": bits}
    chosen = scaling.fit(table, law="auto", hold_out="largest", intervals="none")
    assert chosen.document["law"] == "task_power"
    assert [test["law"] for test in chosen.document["back_test"]] == ["task_linear", "task_linear"]
