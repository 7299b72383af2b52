"""Rows of a table are compared pair by pair, with runs of the same size and tokens; and how runs were trained."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from scaling.base.markup import plain, to_html
from scaling.config.compose import load
from scaling.laws.points import SETUP
from scaling.reports.answer import advantages, answer, scatter
from scaling.reports.provenance import setup
from scaling.reports.sections import exponents, rows
from scaling.studies import findings
from scaling.studies.findings import find
from scaling.studies.question import Question
from scaling.training.experiment import assemble
from scaling.verbs.fit import read_curves
from tests.reports.conftest import ALPHA, BETA, loss_at, make_study


def row(name: str, size: int, tokens: str, loss: float | None) -> dict:
    status = "missing" if loss is None else "finished"
    named = f"row={name} width={size} tokens={tokens}"
    return {"run": named, "name": named, "row": name, "status": status, "N": 100 * size, "loss": loss}


def test_each_run_is_paired_with_the_first_row_and_that_is_the_answer_without_a_law():
    losses = {("A", "1M"): 4.0, ("A", "2M"): 3.0, ("B", "1M"): 3.8, ("B", "2M"): 2.94, ("C", "1M"): 4.2}
    table = [row(name, size, tokens, loss + 0.0) for size in (8, 16) for (name, tokens), loss in losses.items()]
    table.append(row("C", 8, "2M", None))
    found: Any = SimpleNamespace(rows=tuple(table), document=None, complete=False, reason="the study asks for none")
    pairs = advantages(found)
    assert set(pairs) == {("B", 800), ("B", 1600), ("C", 800), ("C", 1600)}
    assert pairs["B", 800] == pytest.approx([-0.05, -0.02])
    assert pairs["C", 1600] == pytest.approx([0.05])
    said = answer(found)
    assert said.standing == "preliminary"
    assert "B −3.5% at N = 800 and −3.5% at N = 1,600" in said.sentence
    assert scatter(pairs["B", 800]) == "−3.5% ± 2.1%"
    assert "−3.5% ± 2.1%" in to_html(rows(found))


GAINS = {"Vanilla Transformer": 0.0, "GEGLU": 0.2, "RMS Norm": 0.0, "ReLU": -0.2}


@pytest.mark.slow
def test_a_law_a_row_states_whose_lead_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "FIGURES", ())  # which take as long as the laws
    table = []
    for name, gain in GAINS.items():
        for size, tokens in product((16, 24, 32, 48, 64, 96), (1_000, 4_000, 16_000)):
            place, N = len(table), 60 * size**2
            line = row(name, size, str(tokens), loss_at(N, tokens, place + 3 * len(name), ALPHA + gain))
            table.append({**line, "run": f"{place:016x}", "held_out": int(size == 96), "N": N, "D": tokens})
    question = Question("rows", "whose lead grows?", "x", {}, {"seed": [0]}, laws=("chinchilla",))
    found = find(question, table, tmp_path)
    kept = json.loads((tmp_path / "fit.json").read_text())["rows"]
    assert kept["baseline"] == "Vanilla Transformer"
    by_name = {(one["row"], one["name"]): one for one in kept["exponents"]}
    for name, gain in GAINS.items():
        alpha, compute = by_name[name, "alpha"], (ALPHA + gain) * BETA / (ALPHA + gain + BETA)
        assert alpha["low"] <= ALPHA + gain <= alpha["high"]
        assert by_name[name, "compute"]["low"] <= compute <= by_name[name, "compute"]["high"]
    sentence = plain(answer(found).sentence)
    verdicts = {name: part for name in GAINS for part in sentence.split(";") if f"{name} by" in part}
    assert "it gains with compute" in verdicts["GEGLU"]
    assert "it loses with compute" in verdicts["ReLU"]
    assert "do not show whether it gains or loses" in verdicts["RMS Norm"]
    assert [line[0] for line in exponents(kept).rows] == list(GAINS)
    one_row = [{**line, "row": "GEGLU"} for line in table if line["row"] == "GEGLU"]
    assert "rows" not in (find(replace(question, name="alone"), one_row, tmp_path / "alone").document or {"rows": 0})


# How the runs were trained


def specs(*words: list[str]) -> list[dict]:
    return [assemble(load("decoder", ["train.tokens=200k", "schedule.warmup=4", *more])).spec for more in words]


def test_the_setup_states_what_agrees_and_what_differs():
    alike = specs(["seed=0"], ["seed=1"])
    answers = setup(alike, [{"passes": 0.0}, {"passes": 3.25}])
    assert set(answers) == set(SETUP) - {"hypothesis", "noise"}
    assert answers["optimizer"] == "AdamW; gradient_clip_val 1.0"
    assert answers["lr"] == "lr 0.003; Standard"
    assert answers["tokenizer"].startswith("none: the data are symbols; vocabulary ")
    assert "; block.mixer Attention; " in answers["architecture"]
    assert answers["data"].endswith("repeated up to 3.25 times")
    assert setup(alike[:1], [{"passes": 1.0}])["data"].endswith("nothing is repeated")
    assert "repeated" not in setup(alike, [{"passes": 1.0}, None])["data"]
    (other,) = specs(["optimizer.lr=0.004", "optimizer.weight_decay=0.2", "train.tokens=400k"])
    answers = setup([alike[0], other])
    assert "0.003 to 0.004, 2 values" in answers["lr"]
    assert "weight_decay its default or 0.2" in answers["optimizer"]
    assert "max_steps 49 to 98, 2 values" in answers["schedule"]


def test_evaluations_of_another_sample_are_no_part_of_a_curve(tmp_path):
    """Under `whole_at_end` the last evaluation is of more windows, and its loss is off the others' by a constant."""
    ledger, plan = make_study(tmp_path, outcome=lambda _: None)
    for one in plan.runs:
        with ledger.claim(one.run) as attempt:
            attempt.log.write({"kind": "train", "step": 1, "loss": 4.0})
            for step, loss, targets in ((1, 3.9, 100), (2, 3.5, 100), (3, 3.2, 900)):
                attempt.log.write({"kind": "evaluate", "step": step, "loss": loss, "targets": targets})
    curves = read_curves(ledger.root / "studies" / "small")
    assert len(curves) == len(plan.runs)
    for curve in curves:
        assert curve.steps[curve.kinds == 1].tolist() == [1, 2]
        assert curve.steps[curve.kinds == 0].tolist() == [1]
