"""Rows of a table are compared pair by pair, with runs of the same size and tokens."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from scaling.report.answer import answer
from scaling.report.rows import advantages
from scaling.report.sections import advantages_table


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
