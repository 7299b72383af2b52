"""Rows of a table are compared pair by pair, with runs of the same size and tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from scaling.reports.answer import answer
from scaling.reports.markup import plain
from scaling.reports.runs import advantages
from scaling.reports.sections import advantages_table, exponents_table
from scaling.reports.write import write
from scaling.studies import findings
from scaling.studies.findings import find
from scaling.studies.question import Question
from tests.reports.conftest import ALPHA, BETA, loss_at


def row(name: str, size: int, tokens: str, loss: float | None) -> dict:
    status = "missing" if loss is None else "finished"
    named = f"row={name} width={size} tokens={tokens}"
    return {"run": named, "name": named, "row": name, "status": status, "N": 100 * size, "loss": loss}


@pytest.fixture
def found():
    losses = {("A", "1M"): 4.0, ("A", "2M"): 3.0, ("B", "1M"): 3.8, ("B", "2M"): 2.94, ("C", "1M"): 4.2}
    rows = [row(name, size, tokens, loss + 0.0) for size in (8, 16) for (name, tokens), loss in losses.items()]
    rows.append(row("C", 8, "2M", None))
    return SimpleNamespace(rows=tuple(rows), document=None, complete=False, reason="the study asks for none")


def test_each_run_is_paired_with_the_first_row(found):
    told = {(one.row, one.size): one.differences for one in advantages(found)}
    assert set(told) == {("B", 800), ("B", 1600), ("C", 800), ("C", 1600)}
    assert told["B", 800] == pytest.approx((-0.05, -0.02))
    assert told["C", 1600] == pytest.approx((0.05,))


def test_they_are_the_answer_of_a_study_without_a_law(found):
    said = answer(found)
    assert said.standing == "preliminary"
    assert "B −3.5% at N = 800 and −3.5% at N = 1,600" in said.sentence
    assert "−3.5% ± 2.1%" in advantages_table(found, advantages(found))


def test_without_rows_there_is_nothing_to_compare(study):
    assert advantages(study[2]) == ()


def test_the_page_of_a_law_a_row(made_study, tmp_path, monkeypatch):
    """Of the second row the held-out run alone is finished, so that no law predicts it."""
    monkeypatch.setattr(findings, "FIGURES", ())
    rows = "  row: [Self-Attention, Recurrent, Convolutional]\n  size:"
    changes = {"decoder": "table/layer_types", "  size:\n": f"{rows}\n", "chinchilla": "power_law_d"}
    ledger, found = made_study(tmp_path, changes, lambda place: None if 9 <= place < 18 else "finished")
    told, path = write(ledger, found)
    assert told.fit is not None, told.reason
    losses = [told.predicted_loss(row) for row in told.rows]
    assert [loss is None for loss in losses] == [9 <= place < 18 or place == 28 for place in range(30)]
    assert losses[0] == pytest.approx(told.rows[0]["loss"], rel=0.1)
    assert losses[0] != losses[18]
    assert "Loss relative to Self-Attention" in plain(answer(told).sentence)
    assert all(row["run"] in path.read_text() for row in told.rows)


GAINS = {"Vanilla Transformer": 0.0, "GEGLU": 0.2, "RMS Norm": 0.0, "ReLU": -0.2}


@pytest.mark.slow
def test_a_law_a_row_says_whose_lead_grows(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "FIGURES", ())  # which take as long as the laws
    table = [
        {
            "run": f"{place:016x}",
            "name": f"row={name} width={size} tokens={tokens}",
            "status": "finished",
            "held_out": int(size == 96),
            "row": name,
            "N": 60 * size**2,
            "D": tokens,
            "loss": loss_at(60 * size**2, tokens, place + 3 * len(name), ALPHA + gain),
        }
        for place, (name, size, tokens, gain) in enumerate(
            (name, size, tokens, gain)
            for name, gain in GAINS.items()
            for size in (16, 24, 32, 48, 64, 96)
            for tokens in (1_000, 4_000, 16_000)
        )
    ]
    question = Question("rows", "whose lead grows?", "x", {}, {"seed": [0]}, laws=("chinchilla",))
    found = find(question, table, tmp_path)
    assert found.document is not None, found.reason
    kept = json.loads((tmp_path / "fit.json").read_text())["rows"]
    assert kept["baseline"] == "Vanilla Transformer"
    told = {(one["row"], one["name"]): one for one in kept["exponents"]}
    for name, gain in GAINS.items():
        alpha, compute = told[name, "alpha"], (ALPHA + gain) * BETA / (ALPHA + gain + BETA)
        assert alpha["low"] <= ALPHA + gain <= alpha["high"]
        assert told[name, "compute"]["low"] <= compute <= told[name, "compute"]["high"]
    assert told["Vanilla Transformer", "alpha"]["difference"] is None
    said = plain(answer(found).sentence)
    assert "Vanilla Transformer" in said
    verdicts = {name: part for name in GAINS for part in said.split(";") if f"{name} by" in part}
    assert "it gains with compute" in verdicts["GEGLU"]
    assert "it loses with compute" in verdicts["ReLU"]
    assert "do not show whether it gains or loses" in verdicts["RMS Norm"]
    assert "RMS Norm" in exponents_table(kept)
    assert "row" not in found.document["points"]["pooled"]
    one_row = [{**row, "row": "GEGLU"} for row in table if row["row"] == "GEGLU"]
    alone = find(replace(question, name="alone"), one_row, tmp_path / "alone")
    assert alone.document is not None
    assert "rows" not in alone.document
