"""The choice of a law by what it predicts for the largest runs, the design of affordable runs, and the new inputs."""

import numpy as np
import pytest

import scaling
from scaling.errors import ScalingError
from scaling.law import Points, fit, named, predict_runs
from scaling.law.active import choose_runs
from scaling.law.choice import candidates, choose, cost_of, fit_chosen
from scaling.law.forms.mixture import MixtureExponential, MixtureJoint, best_mixture
from scaling.law.forms.tao import Vocabulary

FARSEER = np.array([0.45, -0.11, 0.04, 0.09, 0.28, -0.16, 0.3, -0.17, -0.14])


def grid(sizes, tokens):
    N, D = np.meshgrid(np.geomspace(*sizes), np.geomspace(*tokens))
    return {"N": N.ravel(), "D": D.ravel()}


def table(law, theta, noise=1e-3):
    columns = grid((1e8, 6e9, 8), (1e9, 5e11, 8))
    rng = np.random.default_rng(0)
    mean = named(law).predict(theta, columns)
    return columns | {"loss": mean * np.exp(noise * rng.standard_normal(len(mean)))}


@pytest.fixture(scope="module")
def chosen():
    points = Points(table("farseer", FARSEER))
    return points, choose(points, powers=(0.0, 0.5))


def test_the_law_that_made_the_runs_is_chosen_and_extrapolates(chosen):
    points, choice = chosen
    assert choice.best.form.name == "farseer"
    assert {trial.form.name for trial in choice.trials} == {"farseer", "chinchilla", "kaplan_n_d"}
    assert set(choice.rows) == {"cost", "N", "D", "spread"}
    assert choice.best.score == min(trial.score for trial in choice.trials) >= 1
    far = {"N": np.array([2e10]), "D": np.array([2e12])}
    assert fit_chosen(points, choice).predict(**far) == pytest.approx(named("farseer").predict(FARSEER, far), rel=0.02)


def test_a_simple_truth_chooses_no_worse_law():
    theta = np.array([1.8, 480.0, 2080.0, 0.35, 0.37])
    points = Points(table("chinchilla", theta))
    best = choose(points, ["chinchilla", "kaplan_n_d"], powers=(0.0,)).best
    assert best.form.name == "chinchilla"


def test_candidates_have_the_columns_of_the_table():
    points = Points(table("farseer", FARSEER) | {"U": np.geomspace(1e8, 1e9, 64)})
    assert [form.name for form in candidates(points)] == ["data_constrained"]
    with pytest.raises(ScalingError, match="no law has its columns in the table"):
        candidates(Points({"a": np.arange(3.0), "loss": np.arange(1.0, 4.0)}))


def test_the_cost_is_that_of_the_table_or_follows_from_its_columns():
    N, D = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert cost_of(Points({"N": N, "D": D})).tolist() == [3.0, 8.0]
    assert cost_of(Points({"N": N, "D": D, "cost": D})).tolist() == [3.0, 4.0]
    assert cost_of(Points({"x": N})) is None


def test_a_tenth_of_the_cost_is_spent_where_it_informs_the_targets():
    data = table("farseer", FARSEER)
    cost, form = data["N"] * data["D"], named("farseer")
    far = {"N": np.array([2e10]), "D": np.array([2e12])}
    rows = {name: data[name] for name in form.inputs}
    asked = []

    def observe(chosen):
        asked.extend(chosen.tolist())
        return data["loss"][chosen]

    budget = 0.1 * cost.sum()
    first = choose_runs([form], rows, observe, cost, budget, far)
    assert asked == first.tolist()
    assert len(set(asked)) == len(asked)
    assert cost[first].sum() <= budget
    np.testing.assert_array_equal(first, choose_runs([form], rows, lambda c: data["loss"][c], cost, budget, far))
    # As many of the cheapest runs as the budget pays for are worse.
    cheap = np.argsort(cost)[: np.searchsorted(np.cumsum(np.sort(cost)), budget)]
    truth = form.predict(FARSEER, far)[0]

    def error(chosen):
        points = {name: values[chosen] for name, values in data.items()}
        return abs(fit(form, points, starts=64).predict(**far)[0] / truth - 1)

    assert error(first) < error(cheap)


def test_the_best_mixture_of_known_laws_is_found():
    """Two domains whose losses pull apart: c + k exp(t p) each, so that the optimum has a closed form."""
    form = MixtureExponential(2)
    laws = [(form, np.array([1.0, 1.0, 2.0])), (form, np.array([1.0, 3.0, -1.0]))]
    p = best_mixture(laws, np.array([1.0, 1.0]))
    # d/dp₂ of exp(2 p₂) + 3 exp(-p₂) is zero where exp(3 p₂) = 3/2.
    np.testing.assert_allclose(p, [1 - np.log(1.5) / 3, np.log(1.5) / 3], atol=1e-5)


def test_a_fitted_mixture_has_the_known_best_mixture():
    """The losses of three domains at sixty mixtures and sizes, with noise: the fit finds the optimum of the truth."""
    form, rng = MixtureJoint(3), np.random.default_rng(3)
    mixture = rng.dirichlet(np.ones(3), 60)
    columns = {f"p_{i + 1}": mixture[:, i] for i in range(3)} | {"N": np.geomspace(1e7, 1e9, 60)[rng.permutation(60)]}
    truths = [
        np.array([1.5, 0.4, *weights, 0.5, 0.3, 0.0])
        for weights in ((0.9, 0.1, 0.05), (0.1, 0.8, 0.1), (0.05, 0.1, 0.7))
    ]
    fitted = []
    for theta in truths:
        loss = form.predict(theta, columns) * np.exp(1e-3 * rng.standard_normal(60))
        fitted.append(fit(form, columns | {"loss": loss}, starts=24).theta)
    weights = np.array([0.5, 0.3, 0.2])
    known = best_mixture([(form, theta) for theta in truths], weights, N=1e9)
    found = best_mixture([(form, theta) for theta in fitted], weights, N=1e9)
    assert known.max() > known.min() + 0.1
    np.testing.assert_allclose(found, known, atol=0.03)


def test_proportions_that_do_not_sum_to_one_are_refused():
    columns = {"p_1": np.array([0.5, 0.2, 0.4, 0.9, 0.1]), "p_2": np.array([0.5, 0.8, 0.6, 0.4, 0.9])}
    with pytest.raises(ScalingError, match=r"p_1, p_2 of row 4 does not sum to 1") as error:
        fit("mixture_exponential_2", columns | {"loss": np.linspace(2, 3, 5)})
    assert "column of its fraction" in str(error.value)
    assert named("mixture_exponential_7").inputs == tuple(f"p_{i}" for i in range(1, 8))
    with pytest.raises(ScalingError, match="there is no law"):
        named("mixture_exponential_1")


def test_every_missing_column_of_a_law_is_named():
    with pytest.raises(ScalingError, match=r"'K' \(.*\), 'P' \(.*\)") as error:
        fit("sparse_experts", grid((1e7, 1e9, 4), (1e8, 1e10, 4)) | {"loss": np.linspace(2, 3, 16)})
    assert "--map K=COLUMN P=COLUMN" in str(error.value)


def test_the_best_vocabulary_of_a_known_law_is_found_and_losses_may_be_negative():
    form = Vocabulary()
    theta = np.array([-6.0, 300.0, 20.0, 800.0, 0.3, 0.3, 0.3, 0.2])
    vocabularies = np.geomspace(1e3, 1e7, 20001)
    many = {"N": np.full(20001, 1e8), "H": np.full(20001, 1e10), "V": vocabularies}
    least = vocabularies[form.predict(theta, many).argmin()]
    assert form.best_vocabulary(theta, 1e10) == pytest.approx(least, rel=1e-3)
    rng = np.random.default_rng(0)
    columns = {
        "N": np.exp(rng.uniform(17, 21, 80)),
        "V": np.exp(rng.uniform(8, 11, 80)),
        "H": np.exp(rng.uniform(21, 25, 80)),
    }
    loss = form.predict(theta, columns) + 1e-3 * rng.standard_normal(80)
    found = fit(form, columns | {"loss_u": loss}, starts=64)
    row = {"N": 2e9, "V": 5e4, "H": 2e11}
    [prediction] = predict_runs(found, [row], method="t")
    assert prediction.estimate < 0
    assert prediction.run.low < prediction.mean.low < prediction.estimate < prediction.mean.high < prediction.run.high


def test_the_back_test_of_a_chosen_law_chooses_without_the_runs_it_leaves_out():
    """The runs of the largest loss bend the curve: the law that they choose is not the law that predicts them."""
    loss = np.linspace(2.0, 4.0, 30)
    bits = 0.3 + 0.2 * loss + 1e-3 * np.random.default_rng(1).standard_normal(30)
    bits += np.where(loss > 3.6, 0.8 * (loss - 3.6) ** 2, 0.0)
    table = {"loss": loss, "bits_per_byte": bits}
    chosen = scaling.fit(table, law="auto", hold_out="largest", intervals="none")
    assert chosen.document["law"] == "task_power"
    assert [test["law"] for test in chosen.document["back_test"]] == ["task_linear", "task_linear"]
    assert list(scaling.fit(table, law="auto", intervals="none").back_test["law"]) == ["task_linear", "task_linear"]
