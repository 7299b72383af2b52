"""Every law: exact derivatives, recovery from random starts, its own name, its special cases."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.errors import ScalingError
from scaling.laws import LAWS, fit, named
from scaling.laws.curves import areas
from scaling.laws.dual import Dual, sigmoid
from scaling.laws.problem import named_objective

PF_DAY = 8.64e19
TRUTHS = {
    "power_law": [300.0, 0.15],
    "power_law_floor": [1.7, 3000.0, 0.2],
    "kaplan_n": [8.8e13, 0.076],
    "kaplan_d": [5.4e13, 0.095],
    "kaplan_c": [1.6e7 * PF_DAY, 0.057],
    "kaplan_c_min": [3.1e8 * PF_DAY, 0.05],
    "kaplan_n_d": [6.4e13, 1.8e13, 0.076, 0.103],
    "kaplan_n_s": [6.5e13, 2.1e3, 0.077, 0.76],
    "critical_batch": [2e8, 0.21],
    "chinchilla": [1.8172, 482.0, 2085.0, 0.3478, 0.3658],
    "data_constrained": [1.87, 521.0, 1488.0, 0.353, 0.36, 15.4, 5.3],
    "over_training": [1.84, 200.0, 250.0, 0.136],
    "shape": [1.5, 20.0, 3.0, 2085.0, 0.7, 0.9, 0.36],
    "annealing": [2.0, 0.6, 0.3, 0.4],
    "batch_size": [0.29, 0.33],
    "batch_size_n_d": [0.58, 0.05, 0.571],
    "learning_rate": [0.31, -0.125],
    "learning_rate_n_d": [1.79, -0.713, 0.307],
    "task_sigmoid": [0.25, 0.7, 3.0, 2.8],
    "task_exponential": [0.85, 2.0, 0.7],
    "task_linear": [-0.4, 0.5],
    "task_power": [0.3, 0.12, 1.7],
    "direct_sigmoid": [0.25, 0.7, 800.0, 3000.0, 0.3, 0.33, 2.0],
    "direct_bits": [0.4, 300.0, 900.0, 0.3, 0.33],
    "farseer": [1.5, -0.2, -0.1, 0.8, -0.1, 0.1, 0.35, 0.1, 0.15],
    "learning_rate_batch": [
        *(1.7, 482.0, 2085.0, 0.35, 0.37, 2e-3, -0.4, 0.2, 200.0, -0.05, 0.4),
        *(0.02, 0.03, -0.4, 0.1, -0.1, 0.1, -0.05),
    ],
    "vocabulary": [-6.0, 300.0, 2.0, 800.0, 0.3, 0.15, 0.3, 0.2],
    "routed_experts": [2.7, 0.08, 0.06, 0.01],
    "routed_experts_floor": [1.2, 1.4, 0.15, 0.1, 0.01, 5.0],
    "granularity": [1.7, 300.0, 200.0, 900.0, 0.6, 0.3, 0.33],
    "active_experts": [1.7, 0.5, 0.6, 0.3, 0.33, 0.1, 0.05, 0.02, -0.02],
    "sparse_experts": [1.7, 300.0, 0.3, 0.25, -0.05, 0.03, 900.0, 0.33],
    "sparse_weights": [1.7, 300.0, 200.0, 900.0, 0.7, 0.3, 0.33],
    "parallel_streams": [1.3, 100.0, 0.25, 0.35],
    "precision": [1.7, 300.0, 900.0, 0.3, 0.33, 3.0],
    "bi_mix": [1.5, 40.0, 0.12, 0.25],
    "mixture_exponential": [1.8, 1.4, -1.5, 0.6],
    "mixture_joint": [1.6, 0.4, 0.9, 0.3, 0.15, 0.5, 0.3, -0.1],
    "loss_to_loss": [1.2, 0.9, 1.3, 1.6],
}
"""A truth for each law, by the longest matching beginning of its name; broken laws make their own."""


def columns(n=60):
    rng = np.random.default_rng(1)

    def spread(low, high):
        return np.exp(rng.uniform(np.log(low), np.log(high), n))

    D = spread(1e9, 1e12)
    table = {
        "N": spread(1e7, 1e10),
        "D": D,
        "C": spread(1e17, 1e22),
        "C_min": spread(1e17, 1e22),
        "S_min": spread(1e3, 1e6),
        "M": spread(5, 640),
        "U": np.minimum(D, spread(5e8, 5e10)),
        "width": spread(128, 4096),
        "depth": spread(2, 64),
        "S1": spread(1, 300),
        "S2": rng.uniform(0, 0.5, n),
        "lr": spread(1e-4, 1e-2),
        "B": spread(16, 2048),
        "V": spread(4096, 65536),
        "H": spread(1e9, 1e12),
        "experts": spread(1, 512),
        "granularity": spread(1, 32),
        "K": spread(1, 4),
        "P": spread(1.5, 13),
        "density": spread(0.1, 1),
        "streams": spread(1, 8),
        "bits": spread(2, 16),
        "p": spread(0.02, 1),
        "loss": np.linspace(2, 4, n),
        "loss_a": np.linspace(2, 4, n),
    }
    mixture = rng.dirichlet(np.ones(3), n)
    return table | {f"p_{i + 1}": mixture[:, i] for i in range(3)}


def truth(form):
    if form.name.startswith("broken"):
        breaks = int(form.name[-1])
        column = columns()[form.inputs[0]]
        places = np.exp(np.quantile(np.log(column), np.linspace(0, 1, breaks + 2)[1:-1]))
        bends = [value for i, place in enumerate(places) for value in (0.12 * (-1) ** i, place, 0.3)]
        return np.array([1.5, 30.0, 0.08, *bends])
    return np.array(TRUTHS[max((name for name in TRUTHS if form.name.startswith(name)), key=len)])


def points_on(form):
    table = columns()
    return {name: table[name] for name in form.inputs} | {form.target: form.predict(truth(form), table)}


def once_a_class():
    """Broken laws of several breaks in N and D differ from those in C by the name of the column alone."""
    alike = [form.name.startswith("broken") and form.inputs != ("C",) for form in LAWS]
    return [pytest.param(form, marks=pytest.mark.slow if same else ()) for form, same in zip(LAWS, alike)]


@pytest.mark.parametrize("form", once_a_class(), ids=lambda form: form.name)
def test_the_best_of_100_random_starts_recovers_a_law_without_noise(form):
    found = fit(form, points_on(form), starts=100)
    np.testing.assert_allclose(found.theta, truth(form), rtol=1e-6)


@pytest.mark.parametrize("form", LAWS, ids=lambda form: form.name)
def test_the_jacobian_is_the_derivative_of_the_prediction(form):
    theta, table, step = truth(form), columns(), 1e-6
    exact = form.jacobian(theta, table)
    for index, value in enumerate(theta):
        beside = np.repeat(theta[None], 2, axis=0)
        beside[:, index] += np.array([-step, step]) * abs(value)
        below, above = form.predict(beside, table)
        numeric = (above - below) / (2 * step * abs(value))
        # A difference is right to about 10⁻¹⁰ of the prediction over the step.
        np.testing.assert_allclose(exact[:, index], numeric, rtol=1e-5, atol=1e-9 * above.max() / abs(value))


@pytest.mark.parametrize("form", LAWS, ids=lambda form: form.name)
def test_a_law_states_its_formula_citation_and_parameters(form):
    assert form.formula
    assert "arXiv" in form.citation
    assert named(form.name) is form
    for parameter in form.parameters:
        assert parameter.unit
        assert parameter.lower < parameter.upper


@pytest.mark.parametrize("form", LAWS, ids=lambda form: form.name)
def test_a_batch_of_parameters_predicts_as_one_by_one(form):
    batch = truth(form) * np.linspace(0.9, 1.1, 6).reshape(2, 3, 1)
    together = form.predict(batch, columns())
    assert together.shape == (2, 3, 60)
    np.testing.assert_array_equal(together[1, 2], form.predict(batch[1, 2], columns()))


def test_laws_have_names_of_their_own_and_an_unknown_one_gets_the_nearest():
    assert len({form.name for form in LAWS}) == len(LAWS)
    with pytest.raises(ScalingError, match="did you mean 'chinchilla'"):
        named("chinchila")


def test_special_cases():
    table = columns()
    E, A, B, alpha, _ = truth(named("chinchilla"))
    eta = alpha / 2
    balanced = {"C": 6 * table["N"] * table["D"], "M": table["D"] / table["N"]}
    np.testing.assert_allclose(
        named("chinchilla").predict(np.array([E, A, B, alpha, alpha]), table),
        named("over_training").predict(np.array([E, A * 6**eta, B * 6**eta, eta]), balanced),
    )
    once = table | {"U": table["D"]}
    small = once | {"N": once["N"] * 1e-9}
    repeated = named("data_constrained").predict(np.array([E, A, B, alpha, 0.36, 15.0, 5.0]), small)
    np.testing.assert_allclose(repeated, named("chinchilla").predict(np.array([E, A, B, alpha, 0.36]), small))
    flat = named("broken_c_1").predict(np.array([1.7, 3000.0, 0.2, 0.0, 1e19, 0.5]), table)
    np.testing.assert_allclose(flat, named("power_law_floor_c").predict(np.array([1.7, 3000.0, 0.2]), table))
    in_n = named("kaplan_n_d").predict(np.array([6.4e13, 1e-100, 0.076, 0.103]), table)
    np.testing.assert_allclose(in_n, named("kaplan_n").predict(np.array([6.4e13, 0.076]), table))


def test_whole_curves_under_annealing():
    """Two schedules of one model: S₁ and S₂ at every step predict both curves with one set of constants."""
    constant = np.full(4000, 1e-3)
    cosine = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * np.arange(4000) / 4000))
    S1, S2 = (np.concatenate(parts) for parts in zip(areas(constant, 0.99), areas(cosine, 0.99)))
    rates = np.cumsum(cosine)[-1]
    assert S1[-1] == pytest.approx(rates)
    direct = sum((cosine[k - 1] - cosine[k]) * 0.99 ** (i - k) for i in range(1, 100) for k in range(1, i + 1))
    assert areas(cosine, 0.99)[1][99] == pytest.approx(direct)
    kept = np.arange(200, 8000, 100)
    form = named("annealing")
    table = {"S1": S1[kept], "S2": S2[kept]}
    loss = form.predict(np.array([2.2, 0.5, 20.0, 0.5]), table)
    np.testing.assert_allclose(fit(form, table | {"loss": loss}).theta, [2.2, 0.5, 20.0, 0.5], rtol=1e-6)


@pytest.mark.parametrize(
    "objective",
    [named_objective("log_huber"), named_objective("log_squared"), named_objective("squared")],
    ids=lambda o: o.name,
)
def test_a_task_is_recovered_under_each_objective(objective):
    form = named("task_sigmoid")
    np.testing.assert_allclose(fit(form, points_on(form), objective=objective).theta, truth(form), rtol=1e-6)


@given(st.floats(-3, 3), st.floats(0.1, 3))
@settings(max_examples=50, deadline=None)
def test_plain_numpy_on_dual_numbers_carries_exact_derivatives(a, b):
    def formula(x, y):
        three = np.array([3.0])
        curved = (np.exp(x) - 2 / y) * np.logaddexp(0.0, x) ** 0.5 - sigmoid(x) * np.expm1(-y) + np.log(y)
        return curved + np.minimum(y, 1.5) / three - np.maximum(x, y) ** three + three**x * (three - y)

    x, y = Dual(np.array([a]), {0: np.ones(1)}), Dual(np.array([b]), {1: np.ones(1)})
    found, h = formula(x, y), 1e-6
    assert found.value == pytest.approx(formula(a, b))
    if abs(b - 1.5) > 1e-3 and abs(a - b) > 1e-3:
        slopes = [
            (formula(a + h, b) - formula(a - h, b)) / (2 * h),
            (formula(a, b + h) - formula(a, b - h)) / (2 * h),
        ]
        np.testing.assert_allclose([found.gradient[0], found.gradient[1]], slopes, rtol=1e-4, atol=1e-5)
