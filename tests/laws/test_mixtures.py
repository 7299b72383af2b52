"""Laws of mixtures of data and of the vocabulary: the best of what they describe, and columns that they cannot have."""

import numpy as np
import pytest

from scaling.errors import ScalingError
from scaling.laws import fit, named, predict_runs
from scaling.laws.catalogue import best_mixture, best_vocabulary, mixture_exponential, mixture_joint, vocabulary


def test_the_best_mixture_of_known_laws_is_found():
    """Two domains whose losses pull apart: c + k exp(t p) each, so that the optimum has a closed form."""
    form = mixture_exponential(2)
    laws = [(form, np.array([1.0, 1.0, 2.0])), (form, np.array([1.0, 3.0, -1.0]))]
    p = best_mixture(laws, np.array([1.0, 1.0]))
    # d/dp₂ of exp(2 p₂) + 3 exp(-p₂) is zero where exp(3 p₂) = 3/2.
    np.testing.assert_allclose(p, [1 - np.log(1.5) / 3, np.log(1.5) / 3], atol=1e-5)


def test_a_fitted_mixture_has_the_known_best_mixture():
    """The losses of three domains at sixty mixtures and sizes, with noise: the fit finds the optimum of the truth."""
    form, rng = mixture_joint(3), np.random.default_rng(3)
    mixture = rng.dirichlet(np.ones(3), 60)
    columns = {f"p_{i + 1}": mixture[:, i] for i in range(3)} | {"N": np.geomspace(1e7, 1e9, 60)[rng.permutation(60)]}
    truths, fitted = [], []
    for domain in ((0.9, 0.1, 0.05), (0.1, 0.8, 0.1), (0.05, 0.1, 0.7)):
        truths.append(np.array([1.5, 0.4, *domain, 0.5, 0.3, 0.0]))
        loss = form.predict(truths[-1], columns) * np.exp(1e-3 * rng.standard_normal(60))
        fitted.append(fit(form, columns | {"loss": loss}, starts=24).theta)
    weights = np.array([0.5, 0.3, 0.2])
    known, found = (best_mixture([(form, theta) for theta in each], weights, N=1e9) for each in (truths, fitted))
    assert known.max() > known.min() + 0.1
    np.testing.assert_allclose(found, known, atol=0.03)


def test_proportions_that_do_not_sum_to_one_and_missing_columns_are_refused():
    columns = {"p_1": np.array([0.5, 0.2, 0.4, 0.9, 0.1]), "p_2": np.array([0.5, 0.8, 0.6, 0.4, 0.9])}
    with pytest.raises(ScalingError, match=r"p_1, p_2 of row 4 does not sum to 1"):
        fit("mixture_exponential_2", columns | {"loss": np.linspace(2, 3, 5)})
    assert named("mixture_exponential_7").inputs == tuple(f"p_{i}" for i in range(1, 8))
    with pytest.raises(ScalingError, match="there is no law"):
        named("mixture_exponential_1")
    sizes = {"N": np.geomspace(1e7, 1e9, 16), "D": np.geomspace(1e8, 1e10, 16), "loss": np.linspace(3, 2, 16)}
    with pytest.raises(ScalingError, match=r"'K' \(.*\), 'P' \(.*\)") as error:
        fit("sparse_experts", sizes)
    assert "--map K=COLUMN P=COLUMN" in str(error.value)


def test_the_best_vocabulary_of_a_known_law_is_found_and_losses_may_be_negative():
    theta = np.array([-6.0, 300.0, 20.0, 800.0, 0.3, 0.3, 0.3, 0.2])
    vocabularies = np.geomspace(1e3, 1e7, 20001)
    many = {"N": np.full(20001, 1e8), "H": np.full(20001, 1e10), "V": vocabularies}
    least = vocabularies[vocabulary.predict(theta, many).argmin()]
    assert best_vocabulary(theta, 1e10) == pytest.approx(least, rel=1e-3)
    rng = np.random.default_rng(0)
    columns = {n: np.exp(rng.uniform(*ends, 80)) for n, ends in {"N": (17, 21), "V": (8, 11), "H": (21, 25)}.items()}
    loss = vocabulary.predict(theta, columns) + 1e-3 * rng.standard_normal(80)
    found = fit(vocabulary, columns | {"loss_u": loss}, starts=64)
    [ahead] = predict_runs(found, [{"N": 2e9, "V": 5e4, "H": 2e11}], method="t")
    assert ahead.run.low < ahead.mean.low < ahead.estimate < ahead.mean.high < min(ahead.run.high, 0)
