"""Every law: exact derivatives, recovery from random starts, its own name, its special cases and its optimum."""

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.laws import LAWS, fit, named
from scaling.laws.curves import areas

# A truth for each law, by the longest matching beginning of its name; broken laws make their own.
TRUTHS = """
    power_law 300 0.15, power_law_floor 1.7 3000 0.2, kaplan_n 8.8e13 0.076, kaplan_d 5.4e13 0.095,
    kaplan_c 1.3824e27 0.057, kaplan_c_min 2.6784e28 0.05, kaplan_n_d 6.4e13 1.8e13 0.076 0.103,
    kaplan_n_s 6.5e13 2100 0.077 0.76, critical_batch 200000000 0.21, chinchilla 1.8172 482 2085 0.3478 0.3658,
    data_constrained 1.87 521 1488 0.353 0.36 15.4 5.3, over_training 1.84 200 250 0.136,
    shape 1.5 20 3 2085 0.7 0.9 0.36, annealing 2 0.6 0.3 0.4, batch_size 0.29 0.33,
    batch_size_d_width 0.58 0.571 -0.1, batch_size_n_d 0.58 0.05 0.571, learning_rate 0.31 -0.125,
    learning_rate_n_d 1.79 -0.713 0.307, learning_rate_d_width 1.79 -0.1 -0.713,
    learning_rate_d_width_b 1.79 -0.1 -0.713 0.3, task_sigmoid 0.25 0.7 3 2.8, task_exponential 0.85 2 0.7,
    task_linear -0.4 0.5, task_power 0.3 0.12 1.7, direct_sigmoid 0.25 0.7 800 3000 0.3 0.33 2,
    direct_bits 0.4 300 900 0.3 0.33, farseer 1.5 -0.2 -0.1 0.8 -0.1 0.1 0.35 0.1 0.15,
    learning_rate_batch 1.7 482 2085 0.35 0.37 0.002 -0.4 0.2 200 -0.05 0.4 0.02 0.03 -0.4 0.1 -0.1 0.1 -0.05,
    vocabulary -6 300 2 800 0.3 0.15 0.3 0.2, routed_experts 2.7 0.08 0.06 0.01,
    routed_experts_floor 1.2 1.4 0.15 0.1 0.01 5, granularity 1.7 300 200 900 0.6 0.3 0.33,
    active_experts 1.7 0.5 0.6 0.3 0.33 0.1 0.05 0.02 -0.02, sparse_experts 1.7 300 0.3 0.25 -0.05 0.03 900 0.33,
    sparse_weights 1.7 300 200 900 0.7 0.3 0.33, parallel_streams 1.3 100 0.25 0.35, precision 1.7 300 900 0.3 0.33 3,
    bi_mix 1.5 40 0.12 0.25, mixture_exponential 1.8 1.4 -1.5 0.6, mixture_joint 1.6 0.4 0.9 0.3 0.15 0.5 0.3 -0.1,
    loss_to_loss 1.2 0.9 1.3 1.6
"""

RANGES = """
    N 1e7 1e10, D 1e9 1e12, C 1e17 1e22, C_min 1e17 1e22, S_min 1e3 1e6, M 5 640, U 5e8 5e10, width 128 4096,
    depth 2 64, S1 1 300, S2 1e-3 0.5, lr 1e-4 1e-2, B 16 2048, V 4096 65536, H 1e9 1e12, experts 1 512,
    granularity 1 32, K 1 4, P 1.5 13, density 0.1 1, streams 1 8, bits 2 16, p 0.02 1
"""


def columns(n=60):
    rng = np.random.default_rng(1)
    ranges = (line.split() for line in RANGES.split(","))
    table = {name: np.exp(rng.uniform(np.log(float(low)), np.log(float(high)), n)) for name, low, high in ranges}
    table["U"] = np.minimum(table["D"], table["U"])
    table |= {f"p_{i}": part for i, part in enumerate(rng.dirichlet(np.ones(3), n).T, 1)}
    return table | dict.fromkeys(("loss", "loss_a"), np.linspace(2, 4, n))


def truth(form):
    if form.name.startswith("broken"):
        breaks = int(form.name[-1])
        column = columns()[form.inputs[0]]
        places = np.exp(np.quantile(np.log(column), np.linspace(0, 1, breaks + 2)[1:-1]))
        bends = [value for i, place in enumerate(places) for value in (0.12 * (-1) ** i, place, 0.3)]
        return np.array([1.5, 30.0, 0.08, *bends])
    truths = (line.split() for line in TRUTHS.split(","))
    return np.array(max((len(name), *map(float, values)) for name, *values in truths if form.name.startswith(name))[1:])


# Broken laws in N and D differ from those in C by the name of the column alone.
ONCE_A_CLASS = [form for form in LAWS if not form.name.startswith("broken") or form.inputs == ("C",)]


@pytest.mark.parametrize("form", ONCE_A_CLASS, ids=lambda form: form.name)
def test_the_best_of_100_random_starts_recovers_a_law_without_noise(form):
    points = {name: columns()[name] for name in form.inputs} | {form.target: form.predict(truth(form), columns())}
    np.testing.assert_allclose(fit(form, points, starts=100).theta, truth(form), rtol=1e-6)


@pytest.mark.parametrize("form", LAWS, ids=lambda form: form.name)
def test_a_law_has_the_derivative_of_its_prediction_and_predicts_in_batches(form):
    theta, table, step = truth(form), columns(), 1e-6
    exact = form.jacobian(theta, table)
    for index, value in enumerate(theta):
        beside = np.repeat(theta[None], 2, axis=0)
        beside[:, index] += np.array([-step, step]) * abs(value)
        below, above = form.predict(beside, table)
        numeric = (above - below) / (2 * step * abs(value))
        # A difference is right to about 10⁻¹⁰ of the prediction over the step.
        np.testing.assert_allclose(exact[:, index], numeric, rtol=1e-5, atol=1e-9 * above.max() / abs(value))
    batch = theta * np.linspace(0.9, 1.1, 6).reshape(2, 3, 1)
    np.testing.assert_array_equal(form.predict(batch, table)[1, 2], form.predict(batch[1, 2], table))


def test_a_law_states_its_name_formula_citation_and_parameters():
    for form in LAWS:
        assert named(form.name) is form
        assert " = " in form.formula
        assert "arXiv" in form.citation
        assert all(parameter.unit and parameter.lower < parameter.upper for parameter in form.parameters)
    with pytest.raises(ScalingError, match="there is no law"):
        named("mixture_exponential_1")


def test_special_cases():
    table = columns()
    E, A, B, alpha, _ = truth(named("chinchilla"))
    balanced = table | {"C": 6 * table["N"] * table["D"], "M": table["D"] / table["N"]}
    small = table | {"U": table["D"], "N": table["N"] * 1e-9}
    a, b = A * 6 ** (alpha / 2), B * 6 ** (alpha / 2)
    for name, theta, other, same, at in (
        ("over_training", [E, a, b, alpha / 2], "chinchilla", [E, A, B, alpha, alpha], balanced),
        ("data_constrained", [E, A, B, alpha, 0.36, 15.0, 5.0], "chinchilla", [E, A, B, alpha, 0.36], small),
        ("broken_c_1", [1.7, 3000.0, 0.2, 0.0, 1e19, 0.5], "power_law_floor_c", [1.7, 3000.0, 0.2], table),
        ("kaplan_n_d", [6.4e13, 1e-100, 0.076, 0.103], "kaplan_n", [6.4e13, 0.076], table),
    ):
        expected = named(other).predict(np.array(same), at)
        np.testing.assert_allclose(named(name).predict(np.array(theta), at), expected)


def test_the_areas_under_a_schedule_and_its_falls():
    cosine = 1e-3 * (0.55 + 0.45 * np.cos(np.pi * np.arange(4000) / 4000))
    direct = sum((cosine[k - 1] - cosine[k]) * 0.99 ** (i - k) for i in range(1, 100) for k in range(1, i + 1))
    S1, S2 = areas(cosine, 0.99)
    assert (S1[-1], S2[99]) == pytest.approx((cosine.sum(), direct))


def test_proportions_that_do_not_sum_to_one_are_refused():
    table = {"p_1": np.array([0.5, 0.2, 0.4, 0.9, 0.1]), "p_2": np.array([0.5, 0.8, 0.6, 0.4, 0.9])}
    with pytest.raises(ScalingError, match=r"p_1, p_2 of row 4 has a negative proportion or does not sum to 1"):
        fit("mixture_exponential_2", table | {"loss": np.linspace(2, 3, 5)})
