"""Laws compared on the same points, variants under one law, and what one set of runs is worth against another."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.laws import Points, compare, exponents, fit, fit_joint, named, prediction
from scaling.laws.compare import advantage, akaike_weights, mean_interval

ALPHA, BETA = 0.3478, 0.3658
THETA = np.array([1.8172, 482.01, 2085.43, ALPHA, BETA])
LAW = named("chinchilla")
NOISE = 0.003


def study(n=60, noise=0.0, steeper=0.0):
    """Runs of two variants, of which the second has a steeper fall in N."""
    rng = np.random.default_rng(0)
    N, D = np.exp(rng.uniform(np.log(5e7), np.log(2e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    glu = np.arange(n) % 2 == 1
    loss = LAW.predict(THETA, {"N": N, "D": D})
    loss = np.where(glu, loss + 482.01 * N**-ALPHA * ((N / 1e9) ** -steeper - 1), loss)
    loss = loss * np.exp(noise * rng.standard_normal(n))
    return Points({"N": N, "D": D, "loss": loss, "arch": np.where(glu, "glu", "base")})


def test_exponents_of_variants_and_their_differences():
    points = study(120, 0.002, steeper=0.03)
    found = {(one.variant, one.name): one for one in exponents(fit_joint("chinchilla", points, "arch"))}
    truths = {"base": {"alpha": ALPHA, "beta": BETA}, "glu": {"alpha": ALPHA + 0.03, "beta": BETA}}
    for values in truths.values():
        values["compute"] = values["alpha"] * values["beta"] / (values["alpha"] + values["beta"])
    assert set(found) == {(variant, name) for variant, values in truths.items() for name in values}
    for (variant, name), one in found.items():
        assert one.own.covers(truths[variant][name])
        assert (one.difference is None) == (variant == "base")
        if one.difference is not None:
            assert one.difference.covers(truths["glu"][name] - truths["base"][name])
            assert (one.difference.low > 0) == (name != "beta")
    with pytest.raises(ScalingError, match="one variant"):
        fit_joint("chinchilla", points.where(points["arch"] == "glu"), "arch")
    with pytest.raises(ScalingError, match="did you mean 'base'"):
        fit_joint("chinchilla", points, "arch", baseline="bass")
    with pytest.raises(ScalingError, match="no variants"):
        exponents(fit("power_law_floor_n", points, starts=64))


def test_the_true_law_wins_and_a_mean_over_laws_holds_their_disagreement():
    points, far = study(60, 0.003), {"N": 1e11, "D": 2e12}
    names = ("kaplan_n_d", "chinchilla", "power_law_n")
    fits = {name: fit(name, points, objective="log_squared", starts=256) for name in names}
    weighed = compare(fits)
    assert next(iter(weighed)) == "chinchilla"
    best, n, k = fits["chinchilla"], 60, 6
    criterion = n * np.log(np.mean(best.residuals**2)) + 2 * k + 2 * k * (k + 1) / (n - k - 1)
    assert weighed["chinchilla"][0] == pytest.approx(criterion)
    assert sum(weight for _, weight in weighed.values()) == pytest.approx(1)
    with pytest.raises(ScalingError, match="same points"):
        compare({"a": fits["chinchilla"], "b": fit("power_law_n", study(40))})
    two = [fits["chinchilla"], fits["kaplan_n_d"]]
    found = mean_interval(two, lambda form: prediction(form, far))
    assert found.estimate == pytest.approx(akaike_weights(two) @ [float(each.predict(**far)) for each in two])
    assert found.covers(float(LAW.predict(THETA, {name: [value] for name, value in far.items()})[0]))


# Two sets of runs.


def ladder(k=1.0, seed=0, noise=NOISE):
    """Five sizes at 20 tokens a parameter, three seeds each: L = 2 + 8 (k C / 10¹²)^-0.06."""
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(1e5, 3e7, 5), 3)
    C = 6.0 * 20 * N**2
    loss = (2 + 8 * (k * C / 1e12) ** -0.06) * np.exp(noise * rng.standard_normal(len(N)))
    return {"N": N, "D": 20 * N, "C": C, "loss": loss}


def grid(k=1.0, cost=6.0):
    """Chinchilla's law exactly, of a model whose tokens are worth as many more as k says, at equal split."""
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 1e8, 5), np.geomspace(2e7, 2e9, 5)))
    loss = 1.8 + 400 * (N * k**0.5) ** -0.34 + 400 * (D * k**0.5) ** -0.34
    return {"N": N, "D": D, "C": cost * N * D, "loss": loss}


def table(path, columns, **more):
    lines = [",".join(map(str, [*row, *more.values()])) for row in zip(*columns.values())]
    path.write_text("\n".join([",".join([*columns, *more]), *lines]))
    return str(path)


def test_k_is_that_of_the_simulated_runs():
    found = advantage(Points(ladder(1.0)), Points(ladder(1.4, seed=1)))
    assert found.law.form.inputs[0] == "C"
    assert found.k.covers(1.4)
    assert found.k.low > 1
    assert found.difference(found.budget).high < 0
    assert found.probability(found.budget) > 0.99
    assert found.budget == pytest.approx(6 * 20 * 3e7**2)
    for level in (1e-300, 0.5):
        assert replace(found, level=level).probability(found.budget) == found.probability(found.budget)
    exact = advantage(Points(ladder(noise=0.0)), Points(ladder(1.4, noise=0.0)), loss=3.0)
    assert exact.budget == pytest.approx(1e12 * 8 ** (1 / 0.06) / 1.4, rel=1e-3)
    assert exact.k.estimate == pytest.approx(1.4, rel=1e-3)


@pytest.mark.parametrize("cost", [6.0, 9.0])
def test_k_of_a_grid_counts_what_a_token_costs(cost):
    """Exact losses of Chinchilla's law; B sees 1.5 times the compute, and each of its tokens costs `cost` FLOPs."""
    found = advantage(Points(grid()), Points(grid(1.5, cost)))
    assert found.law.form.inputs[:2] == ("N", "D")
    assert found.k.estimate == pytest.approx(1.5 * 6 / cost, rel=1e-3)


def test_equal_sets_are_seldom_better():
    """At most 5% of equal pairs are called better; of fifteen, three or more would be, once in 27 times."""
    pairs = [(Points(ladder(seed=2 * i)), Points(ladder(seed=2 * i + 1))) for i in range(15)]
    assert sum(advantage(a, b).k.low > 1 for a, b in pairs) <= 2


def test_rows_of_a_table_and_the_exit_code(tmp_path, capsys):
    a, b = ladder(), ladder(1.4, seed=1)
    both = {name: np.concatenate([a[name], b[name]]) for name in a} | {"row": ["relu"] * 15 + ["gelu"] * 15}
    path = table(tmp_path / "rows.csv", both)
    assert main(["compare", f"{path}:relu", f"{path}:gelu", "--at-least", "1.01"]) == 0
    printed = capsys.readouterr().out
    assert "gelu is better" in printed
    assert "k of at least 1.01 is shown" in printed
    assert main(["compare", f"{path}:relu", f"{path}:row=gelu", "--at-least", "1.4", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["passes"] is False
    assert document["verdict"] == "better"
    assert document["k"]["low"] < 1.4 < document["k"]["high"]
    assert document["noise"]["seeds"] == pytest.approx(NOISE, rel=0.5)
    assert [each["C"] for each in document["order"]] == pytest.approx([document["C"] * x for x in (1, 10, 100)])
    result = scaling.compare(Points(a), Points(ladder(0.7, seed=1)))
    assert result.verdict == "worse"
    assert "B is worse" in str(result)
    assert scaling.compare(Points(a), Points(ladder(seed=3))).verdict == "undecided"


def test_held_out_runs_are_left_out():
    held_out = np.arange(15) >= 12
    wrong = ladder(1.4, seed=1) | {"held_out": held_out}
    wrong["loss"] = np.where(held_out, 3 * wrong["loss"], wrong["loss"])
    result = scaling.compare(Points(ladder()), Points(wrong))
    assert result.to_json()["candidate"]["runs"] == 12
    assert result.verdict == "better"


def test_rows_of_any_name(tmp_path, capsys):
    rows = "24 layers d_ff=1536", "<b>'top': 1</b>"
    a, b = ladder(), ladder(1.4, seed=1)
    both = {name: np.concatenate([a[name], b[name]]) for name in a} | {"row": [rows[0]] * 15 + [rows[1]] * 15}
    path = table(tmp_path / "rows.csv", both)
    assert main(["compare", f"{path}:row='{rows[0]}'", f"{path}:{rows[1]}"]) == 0
    printed = capsys.readouterr().out
    assert f"{rows[1]} is better" in printed
    assert f"probability that {rows[1]} is better: >0.999 at C" in printed


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{a} {a}", "is compared with itself"),
        ("{a} {b} --at D=3", "at.D: a comparison has no such key"),
        ("{a} {b} --at C=1 loss=2", "is one place"),
        ("{a} {b} --at loss=1", "reaches it at no budget"),
        ("{a} {b}:norm=LayerNorm", "there is no column 'norm'"),
        ("{a} nowhere", "nowhere"),
        ("{a} wandb:me/project/sweep/run", "expected ENTITY/PROJECT"),
        ("{a} {c}", "two definitions"),
        ("{grid} {a}", "a.csv: all 15 points lie on D = 20 N: chinchilla is not identified"),
        ("{grid} {grid}:N=1e8", "grid.csv: N=100000000.0: has one value"),
        ("{a} {a}:N<=1e6", "a.csv: 2 distinct scales (C) cannot determine 3 parameters"),
    ],
)
def test_what_compares_nothing_is_one_line(words, message, tmp_path, capsys):
    tokenizers = {"a": {"tokenizer": "gpt2"}, "b": {}, "c": {"tokenizer": "llama"}}
    named = {name: table(tmp_path / f"{name}.csv", ladder(), **more) for name, more in tokenizers.items()}
    named["grid"] = table(tmp_path / "grid.csv", grid())
    assert main(["compare", *words.format(**named).split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
