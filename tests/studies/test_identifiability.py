"""What a plan says of the law before a run is trained: too few points, and laws that cannot be supposed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import scaling
from scaling.laws import LAWS, named
from scaling.studies.identifiability import lacking, predicted_interval, smallest_grid
from scaling.studies.question import Question, read

SMALL = str(Path(__file__).parent / "small.yaml")


def _rows(sizes: list[float], budgets: list[float]) -> list[dict[str, Any]]:
    return [{"N": n, "D": d, "C": 6 * n * d, "held_out": False} for n in sizes for d in budgets]


def _asked(**supposed: float) -> Question:
    return replace(read(SMALL), suppose=supposed)


def _range(first: float, count: int) -> list[float]:
    return [first * 2**index for index in range(count)]


@pytest.mark.parametrize(("sizes", "budgets"), [(3, 3), (7, 2), (20, 1), (1, 20)])
def test_too_few_points_for_five_parameters_are_told_with_the_smallest_grid(sizes: int, budgets: int) -> None:
    # Seeds of a point are one point.
    missing = lacking(named("chinchilla"), 2 * _rows(_range(1e4, sizes), _range(1e5, budgets)))
    assert missing is not None
    assert (missing["separable"] < 5) == (min(sizes, budgets) <= 2)
    assert f"{sizes * budgets} points cannot identify the 5 parameters" in missing["sentence"]
    assert "5 sizes × 3 budgets" in missing["sentence"]


@pytest.mark.parametrize("law", [law for law in LAWS if law.axes == law.inputs], ids=lambda law: law.name)
def test_the_smallest_grid_of_a_law_identifies_it(law: Any) -> None:
    levels = smallest_grid(law)
    rows: list[dict[str, float]] = [{}]
    for place, (axis, count) in enumerate(levels.items()):
        values = [(1e4, 3e6, 2e5, 1e3)[place] * 1.7**index for index in range(count)]
        if axis.startswith("p_"):
            values = [0.05 + 0.4 * index / count for index in range(count)]
        rows = [{**row, axis: value} for row in rows for value in values]
    for given in set(law.axes) - set(law.free_axes):  # the proportion that is left
        rows = [
            {**row, given: 1.0 - sum(value for axis, value in row.items() if axis.startswith("p_"))} for row in rows
        ]
    assert lacking(law, rows) is None
    assert lacking(law, rows[: 3 * len(law.parameter_names) - 1]) is not None


def test_published_constants_are_not_supposed_outside_their_range() -> None:
    small = predicted_interval(_asked(), _rows(_range(1e4, 5), _range(1e5, 3)), {}, [512] * 15)
    assert small is not None
    assert "published" in small["reason"]
    assert "low" not in small
    large = predicted_interval(_asked(), _rows(_range(1e8, 5), _range(1e10, 3)), {}, [32000] * 15)
    assert large is not None
    assert large["low"] < large["loss"] < large["high"] < math.log(32000)
    beyond = predicted_interval(
        replace(_asked(), target={"N": 1e12, "D": 1e10}), _rows(_range(1e8, 5), _range(1e10, 3)), {}, [9] * 15
    )
    assert beyond is not None
    assert "1e+12" in beyond["reason"]


@pytest.mark.parametrize(("floor", "said"), [(7.0, "above ln V"), (-9.0, "no loss")])
def test_a_law_that_predicts_an_impossible_loss_is_not_supposed(floor: float, said: str) -> None:
    question = _asked(E=floor, A=40.0, B=200.0, alpha=0.5, beta=0.6)
    told = predicted_interval(question, _rows(_range(1e4, 5), _range(1e5, 3)), {}, [512] * 15)
    assert told is not None
    assert said in told["reason"]
    assert "low" not in told


def test_a_plan_supposes_an_earlier_fit_only_where_it_was_identified(tmp_path: Path) -> None:
    estimates = {"E": 1.5, "A": 5.0, "B": 30.0, "alpha": 0.5, "beta": 0.6}
    file = tmp_path / "studies" / "small" / "report" / "fit.json"
    file.parent.mkdir(parents=True)
    document = {"law": "chinchilla", "question": read(SMALL).question, "estimates": estimates}
    for more, supposed in (
        ({"not_identified": []}, estimates),
        ({"not_identified": ["E is not separated from A"]}, None),
    ):
        file.write_text(json.dumps(document | more))
        outlook = scaling.plan(SMALL, runs=str(tmp_path)).outlook
        assert outlook is not None
        assert outlook.get("supposed") == supposed
