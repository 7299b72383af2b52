"""`scaling compare`: what one set of runs is worth against another."""

from __future__ import annotations

import json

import numpy as np
import pytest

import scaling
from scaling.cli import main
from scaling.errors import ScalingError
from scaling.laws import Points
from scaling.laws.advantage import advantage

NOISE = 0.003


def ladder(k=1.0, seeds=3, seed=0, cost=6.0, noise=NOISE):
    """Five sizes at 20 tokens a parameter: L = 2 + 8 (k C / 10¹²)^-0.06."""
    rng = np.random.default_rng(seed)
    N = np.repeat(np.geomspace(1e5, 3e7, 5), seeds)
    C = cost * 20 * N**2
    loss = (2 + 8 * (k * C / 1e12) ** -0.06) * np.exp(noise * rng.standard_normal(len(N)))
    return {"N": N, "D": 20 * N, "C": C, "loss": loss}


def grid(k=1.0, cost=6.0):
    """Chinchilla's law exactly, of a model whose tokens are worth as many more as k says, at equal split."""
    N, D = (each.ravel() for each in np.meshgrid(np.geomspace(1e6, 1e8, 5), np.geomspace(2e7, 2e9, 5)))
    loss = 1.8 + 400 * (N * k**0.5) ** -0.34 + 400 * (D * k**0.5) ** -0.34
    return {"N": N, "D": D, "C": cost * N * D, "loss": loss}


def table(path, columns, **more):
    lines = [
        ",".join([*columns, *more]),
        *(",".join([*map(repr, map(float, row)), *more.values()]) for row in zip(*columns.values())),
    ]
    path.write_text("\n".join(lines))
    return str(path)


def points(columns):
    return Points({name: np.asarray(column) for name, column in columns.items()})


def test_k_is_that_of_the_simulated_runs():
    found = advantage(points(ladder(1.0)), points(ladder(1.4, seed=1)))
    assert found.law.form.inputs[0] == "C"
    assert found.k.covers(1.4)
    assert found.k.low > 1
    assert found.difference(found.budget).high < 0
    assert found.probability(found.budget) > 0.99
    assert found.budget == pytest.approx(6 * 20 * 3e7**2)


@pytest.mark.parametrize("cost", [6.0, 9.0])
def test_k_of_a_grid_counts_what_a_token_costs(cost):
    """Exact losses of Chinchilla's law; B sees 1.5 times the compute, and each of its tokens costs `cost` FLOPs."""
    found = advantage(points(grid()), points(grid(1.5, cost)))
    assert found.law.form.inputs[:2] == ("N", "D")
    assert found.k.estimate == pytest.approx(1.5 * 6 / cost, rel=1e-3)


def test_equal_sets_are_seldom_better():
    """At most 5% of equal pairs are called better; of thirty, four or more would be, once in 70 times."""
    pairs = [(points(ladder(seed=2 * i)), points(ladder(seed=2 * i + 1))) for i in range(30)]
    assert sum(advantage(a, b).k.low > 1 for a, b in pairs) <= 3


def test_at_a_loss_k_is_of_the_budget_where_b_has_it():
    found = advantage(points(ladder(noise=0.0)), points(ladder(1.4, noise=0.0)), loss=3.0)
    assert found.budget == pytest.approx(1e12 * 8 ** (1 / 0.06) / 1.4, rel=1e-3)
    assert found.k.estimate == pytest.approx(1.4, rel=1e-3)


def test_rows_of_a_table_and_the_exit_code(tmp_path, capsys):
    a, b = ladder(), ladder(1.4, seed=1)
    both = {name: np.concatenate([a[name], b[name]]) for name in a}
    path = tmp_path / "rows.csv"
    table(path, both)
    head, *lines = path.read_text().splitlines()
    rows = ["relu"] * 15 + ["gelu"] * 15
    path.write_text("\n".join([head + ",row", *(f"{line},{row}" for line, row in zip(lines, rows))]))
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


def test_the_face_takes_columns():
    result = scaling.compare(points(ladder()), points(ladder(0.7, seed=1)))
    assert result.verdict == "worse"
    assert "B is worse" in str(result)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("{a} {a}", "is compared with itself"),
        ("{a} {b} --at D=3", "at D: is no place"),
        ("{a} {b} --at C=1 loss=2", "is one place"),
        ("{a} {b} --at loss=1", "reaches it at no budget"),
        ("{a} {b}:norm=LayerNorm", "there is no column 'norm'"),
        ("{a} nowhere", "nowhere"),
        ("{a} wandb:me/project", "scaling pull me/project"),
        ("{a} {c}", "two definitions"),
    ],
)
def test_what_compares_nothing_is_one_line(words, message, tmp_path, capsys):
    named = {name: table(tmp_path / f"{name}.csv", ladder(seed=i)) for i, name in enumerate("ab")}
    named["a"] = table(tmp_path / "a.csv", ladder(), tokenizer="gpt2")
    named["c"] = table(tmp_path / "c.csv", ladder(), tokenizer="llama")
    assert main(["compare", *words.format(**named).split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_two_kinds_of_loss_are_refused():
    a, b = (Points(points(ladder()).columns, {"loss": unit}) for unit in ("nats a token", "bits a byte"))
    with pytest.raises(ScalingError, match="loss: the sets state two definitions"):
        advantage(a, b)
