"""The printed intervals of held-out runs are the counted ones, at every level and in every format."""

from __future__ import annotations

import re
from functools import cache

import numpy as np
import pytest
from rich.console import Console

from scaling.fit_report.formats import latex, markdown
from scaling.fit_report.report import fit_report
from scaling.fit_report.tables import coverage, held_out, tables
from scaling.fit_report.terminal import show
from scaling.law import Fit, LogHuber, LogSquared, Points, Squared, fit, fit_joint
from scaling.law.interval import Method
from scaling.law.joint import Joint, coded

NUMBER = r"-?[\d.]+(?:e[+-]?\d+)?"


def runs(n: int, noise: float, seed: int) -> Points:
    rng = np.random.default_rng(seed)
    N, D = np.exp(rng.uniform(np.log(1e7), np.log(1e10), n)), np.exp(rng.uniform(np.log(1e9), np.log(1e12), n))
    arch = np.where(np.arange(n) % 2 == 0, "base", "glu")
    scale = np.where(arch == "glu", 0.98, 1.0)
    loss = scale * (1.7 + 400 * N**-0.34 + 900 * D**-0.3) * np.exp(noise * rng.standard_normal(n))
    names = np.array([f"r{seed}-{place}" for place in range(n)])
    return Points({"run": names, "N": N, "D": D, "C": 6 * N * D, "loss": loss, "arch": arch})


@cache
def study(law: str, objective: str) -> tuple[Fit, Points]:
    """A fit and runs that scatter more than those it was fitted to, so that some lie outside."""
    chosen = {"log-huber": LogHuber(), "log-squared": LogSquared(), "squared": Squared()}[objective]
    train, test = runs(40, 0.003, 0), runs(12, 0.006, 1)
    if law == "joint":
        found = fit_joint("chinchilla", train, "arch", "coefficients", objective=chosen)
        assert isinstance(found.form, Joint)
        return found, coded(test, "arch", found.form.variants)
    return fit(law, train, objective=chosen), test


def document(law="chinchilla", objective="log-huber", method: Method | None = "profile", level=0.95):
    found, test = study(law, objective)
    targets = [] if law == "joint" else [{name: float(test[name].max()) for name in found.form.inputs}]
    return fit_report(found, method=method, level=level, held_out=test, targets=targets).to_json()


def terminal(document) -> str:
    console = Console(width=80, record=True, highlight=False, soft_wrap=True)
    show(document, console)
    return console.export_text()


def printed(text: str) -> list[tuple[float, float, float]]:
    """Loss, low and high end of each held-out run's interval of a new run, as a reader of the text sees them."""
    line = rf"r1-\d+\W.*?({NUMBER})\W+{NUMBER}\W+{NUMBER} to {NUMBER}\W+({NUMBER}) to ({NUMBER})\W+(?:yes|no)"
    return [tuple(map(float, found)) for found in re.findall(line, text)]  # type: ignore[misc]


CASES = [
    *(("chinchilla", "log-huber", "profile", level) for level in (0.3, 0.5, 0.9, 0.95, 0.999)),
    *(("chinchilla", "log-huber", method, 0.8) for method in ("t", "bootstrap_case", "bootstrap_residual")),
    *(("chinchilla", objective, "t", 0.6) for objective in ("log-squared", "squared")),
    ("power_law_floor_c", "log-squared", "profile", 0.7),
    ("joint", "log-squared", "t", 0.5),
    ("joint", "log-huber", "profile", 0.9),
]


@pytest.mark.parametrize(("law", "objective", "method", "level"), CASES)
def test_the_printed_intervals_are_the_counted_ones(law, objective, method, level):
    told = document(law, objective, method, level)
    tested = told["held_out"]
    inside = round(12 * tested["covered"])
    assert inside == sum(point["covered"] for point in tested["points"])
    for text in (terminal(told), markdown(told), latex(told)):
        seen = printed(text)
        assert len(seen) == 12
        assert sum(low <= loss <= high for loss, low, high in seen) == inside
    for point in tested["points"]:
        run = point["interval_run"]
        assert point["covered"] == (run["low"] <= point["loss"] <= run["high"])
        assert run["level"] == point["interval_mean"]["level"] == tested["level"] == level
        assert run["low"] <= point["interval_mean"]["low"] <= point["interval_mean"]["high"] <= run["high"]


@pytest.mark.parametrize(("level", "words"), [(0.9, "90%"), (0.5, "50%"), (0.999, "99.9%"), (0.95, "95%")])
def test_the_words_follow_the_level(level, words):
    told = document(method="t", level=level)
    inside = round(12 * told["held_out"]["covered"])
    for text in (terminal(told), markdown(told), latex(told).replace("\\", "")):
        assert f"{inside} of 12 runs inside their {words} interval of a new run" in text
        assert set(re.findall(r"([\d.]+%) interval", text)) == {words}
    for table in list(tables(told))[1:]:
        assert [title for title in table.titles if "interval" in title] == [
            f"{words} interval of the mean",
            f"{words} interval of a new run",
        ]


def test_a_loss_just_outside_is_printed_so_that_it_is_seen():
    told = document(method="t")
    point = told["held_out"]["points"][0]
    point["interval_run"] = {**point["interval_run"], "low": 2.0, "high": point["loss"] - 1e-7}
    point["covered"] = False
    table = held_out(told)
    assert table is not None
    high = table.rows[0][table.titles.index("95% interval of a new run")].split(" to ")[1]
    assert float(table.rows[0][table.titles.index("loss")]) > float(high)


def test_without_intervals_nothing_is_counted():
    told = document(method=None)
    assert told["held_out"]["covered"] is told["held_out"]["level"] is None
    assert coverage(told["held_out"]) is None
    for text in (terminal(told), markdown(told), latex(told)):
        assert "interval" not in text
        assert "inside" not in text


def test_one_run_and_the_best_use_of_a_budget():
    found, test = study("chinchilla", "log-huber")
    one = test.where(np.arange(12) == 0)
    told = fit_report(
        found, method="t", level=0.9, held_out=one, targets=[{"C": 1e22}, {"N": 1e11, "D": 1e13}]
    ).to_json()
    assert "inside its 90% interval of a new run" in terminal(told) or "outside its 90%" in terminal(told)
    best, target = told["optima"][0], told["predictions"][0]
    for row in (best, target):
        assert row["interval"] == row["interval_mean"]
        assert row["interval_run"]["low"] < row["interval_mean"]["low"] < row["interval_mean"]["high"]
        assert row["interval_mean"]["high"] < row["interval_run"]["high"]
        for text in (terminal(told), markdown(told)):
            assert f"{row['interval_run']['low']:.4f} to {row['interval_run']['high']:.4f}" in text
    assert best["interval_mean"]["estimate"] == pytest.approx(best["loss"]["estimate"])
