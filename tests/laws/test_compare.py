"""Laws compared on the same points, variants under one law, two sets of runs, and the best mixture of domains."""

import json

import numpy as np
import pytest

import scaling
from scaling.laws import Points, compare, exponents, fit, fit_joint, prediction
from scaling.laws.compare import advantage, akaike_weights, mean_interval
from scaling.verbs.command_line import main
from tests.command_line import printed, refused, refuses
from tests.laws.conftest import LAW, THETA, study, write


def test_exponents_of_variants_and_their_differences():
    table, glu = study(120, 0.002), np.arange(120) % 2 == 1
    _, A, _, alpha, beta = THETA
    more = A * table["N"] ** -alpha * ((table["N"] / 1e9) ** -0.03 - 1)
    points = Points({**table, "loss": table["loss"] + glu * more, "arch": np.where(glu, "glu", "base")})
    found = {(one.variant, one.name): one for one in exponents(fit_joint("chinchilla", points, "arch", starts=64))}
    base, glu = ({"alpha": a, "beta": beta, "compute": a * beta / (a + beta)} for a in (alpha, alpha + 0.03))
    assert len(found) == 6
    for name in base:
        assert found["base", name].own.covers(base[name])
        assert found["glu", name].own.covers(glu[name])
        assert found["base", name].difference is None
        difference = found["glu", name].difference
        assert difference.covers(glu[name] - base[name])
        assert (difference.low > 0) == (name != "beta")


def test_the_true_law_wins_and_a_mean_over_laws_holds_their_disagreement():
    points, far, names = study(60), {"N": 1e11, "D": 2e12}, ("kaplan_n_d", "chinchilla", "power_law_n")
    fits = {name: fit(name, points, objective="log_squared", starts=64) for name in names}
    weighed, best, n, k = compare(fits), fits["chinchilla"], 60, 6
    assert next(iter(weighed)) == "chinchilla"
    criterion = n * np.log(np.mean(best.residuals**2)) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert weighed["chinchilla"][0] == pytest.approx(criterion)
    two = [best, fits["kaplan_n_d"]]
    found = mean_interval(two, lambda form: prediction(form, far))
    assert found.estimate == pytest.approx(akaike_weights(two) @ [float(each.predict(**far)) for each in two])
    assert found.covers(float(LAW.predict(THETA, {name: [value] for name, value in far.items()})[0]))


def ladder(k=1.0, seed=0, noise=0.003):
    """Five sizes at 20 tokens a parameter, three seeds each: L = 2 + 8 (k C / 10¹²)^-0.06."""
    N, errors = np.repeat(np.geomspace(1e5, 3e7, 5), 3), noise * np.random.default_rng(seed).standard_normal(15)
    C = 6.0 * 20 * N**2
    return {"N": N, "D": 20 * N, "C": C, "loss": (2 + 8 * (k * C / 1e12) ** -0.06) * np.exp(errors)}


def field(k=1.0, cost=6.0):
    """Chinchilla's law exactly, of a model whose tokens are worth as many more as k says, at equal split."""
    N, D = (axis.ravel() for axis in np.meshgrid(np.geomspace(1e6, 1e8, 5), np.geomspace(2e7, 2e9, 5)))
    loss = 1.8 + 400 * (N * k**0.5) ** -0.34 + 400 * (D * k**0.5) ** -0.34
    return {"N": N, "D": D, "C": cost * N * D, "loss": loss}


def test_k_is_that_of_the_simulated_runs_and_counts_what_a_token_costs():
    found = advantage(Points(ladder(1.0)), Points(ladder(1.4, seed=1)))
    assert found.k.covers(1.4)
    assert found.k.low > 1
    assert found.difference(found.budget).high < 0
    assert found.budget == pytest.approx(6 * 20 * 3e7**2)
    exact = advantage(Points(ladder(noise=0.0)), Points(ladder(1.4, noise=0.0)), loss=3.0)
    assert exact.budget == pytest.approx(1e12 * 8 ** (1 / 0.06) / 1.4, rel=1e-3)
    assert exact.k.estimate == pytest.approx(1.4, rel=1e-3)
    # B sees 1.5 times the compute, and each of its tokens costs 9 FLOPs for 6.
    assert advantage(Points(field()), Points(field(1.5, 9.0))).k.estimate == pytest.approx(1.5 * 6 / 9, rel=1e-3)
    # At most 5% of equal pairs are called better; of fifteen, three or more would be, once in 27 times.
    pairs = [(Points(ladder(seed=2 * i)), Points(ladder(seed=2 * i + 1))) for i in range(15)]
    assert sum(advantage(a, b).k.low > 1 for a, b in pairs) <= 2


def test_rows_of_a_table_of_any_name_and_the_exit_code(tmp_path, capsys):
    names = "24 layers d_ff=1536", "<b>'top': 1</b>"
    a, b = ladder(), ladder(1.4, seed=1)
    both = {name: np.concatenate([a[name], b[name]]) for name in a} | {"row": np.repeat(names, 15)}
    path = write(tmp_path / "rows.csv", both)
    words = ["compare", f"{path}:row='{names[0]}'", f"{path}:{names[1]}"]
    output = printed(capsys, *words, "--at-least", "1.01")
    for text in ("is better", "probability that <b>'top': 1</b> is better: >0.999 at C", "k of at least 1.01 is shown"):
        assert text in output
    assert main([*words, "--at-least", "1.4", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["passes"], document["verdict"]) == (False, "better")
    for k, verdict in ((0.7, "worse"), (1.0, "undecided")):
        assert scaling.compare(Points(a), Points(ladder(k, seed=3))).verdict == verdict
    held_out = np.arange(15) >= 12  # held-out runs are left out
    result = scaling.compare(Points(a), Points({**b, "held_out": held_out, "loss": b["loss"] * (1 + 2 * held_out)}))
    assert (result.to_json()["candidate"]["runs"], result.verdict) == (12, "better")


def test_what_compares_nothing_is_one_line(tmp_path, capsys):
    a, grid = (write(tmp_path / f"{name}.csv", columns) for name, columns in (("a", ladder()), ("grid", field())))
    b, c = (write(tmp_path / f"{name}.csv", {**ladder(), "tokenizer": name}) for name in "bc")
    comma = write(tmp_path / "comma.csv", {**ladder(), "D": "1.000,5"})
    (tmp_path / "runs/studies/relu").mkdir(parents=True)
    for words, message in (
        ([a, a], "is compared with itself"),
        ([a, b, "--at", "loss=1"], "reaches it at no budget"),
        ([b, c], "two definitions"),
        ([a, "rleu"], "rleu: there is no such table or study; did you mean 'relu'?"),
        ([comma, a], "comma.csv: D='1.000,5': is not a number"),
        ([grid, a], "a.csv: all 15 points lie on D = 20 N: chinchilla is not identified"),
    ):
        assert message in refused(capsys, "compare", *words, "--runs", tmp_path / "runs")


def swarm(most=0.98):
    """Two domains whose losses pull apart."""
    second, rng = np.linspace(0.005, most, 24), np.random.default_rng(0)
    losses = np.array([1 + np.exp(2 * second), 1 + 3 * np.exp(-second)]) * np.exp(1e-3 * rng.standard_normal((2, 24)))
    columns = {"p_1": 1 - second, "p_2": second, "N": np.full(24, 1e6), "loss": losses.mean(0)}
    return columns | {f"loss_domain_{place}": column for place, column in enumerate(losses, 1)}


def test_the_best_mixture_of_known_laws_is_found_and_weights_move_it():
    document, best = scaling.mixture(swarm()).to_json(), np.log(1.5) / 3  # the minimum of exp(2 p₂) + 3 exp(−p₂)
    second = document["proportions"]["p_2"]
    assert second["low"] < best < second["high"] < second["low"] + 0.02
    assert document["loss"]["estimate"] == pytest.approx(1 + (np.exp(2 * best) + 3 * np.exp(-best)) / 2, rel=1e-3)
    assert document["gain"]["low"] > 0
    heavier = scaling.mixture(swarm(), weights={"loss_domain_2": 3.0}).to_json()  # exp(3 p₂) = 9/2
    assert heavier["proportions"]["p_2"]["estimate"] == pytest.approx(np.log(4.5) / 3, abs=0.01)
    assert "train one there" in str(scaling.mixture(swarm(most=0.6), weights={"loss_domain_2": 9.0}))
    refuses("the law joint needs the size of the model; write --at N=1e9", scaling.mixture, swarm(), law="joint")


def test_runs_of_two_tables_with_one_name_share_no_error_and_only_laws_of_compute_are_compared():
    table = study(36, 0.002)

    def sets(first: str, second: str) -> list[Points]:
        names = ([f"{prefix}{number}" for number in range(36)] for prefix in (first, second))
        return [Points({**table, "run": np.array(each, object)}) for each in names]

    same, apart = (advantage(*sets(*names), names=("a", "b")).k for names in (("r", "r"), ("r", "s")))
    assert (same.low, same.high) == pytest.approx((apart.low, apart.high))
    for law in ("over_training", "batch_size_c"):
        refuses("is not a law of the loss in N and D, or in C", advantage, *sets("r", "s"), names=("a", "b"), law=law)
