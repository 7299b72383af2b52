"""A study that is extended by a size, a budget or a seed goes on; what asks another question is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.ledger import Ledger
from scaling.reports.write import write
from scaling.studies.plan import enter, entered, plan
from scaling.studies.question import Question, read
from tests.serial import work

SMALL = Path(__file__).parent / "small.yaml"
NARROW, WIDE = {"width": 8, "heads": 1}, {"width": 16, "heads": 2}
GRID = {"size": [NARROW], "train.tokens": ["2k", "4k"]}


def question(**changes) -> Question:
    return replace(read(str(SMALL)), **{"grid": GRID, "held_out": {}, "laws": (), **changes})


def entered_as(folder: Path, asked: Question, *words: str) -> tuple[Ledger, list[str]]:
    found = plan(asked, [f"runs={folder}", *words])
    ledger = found.ledger()
    return ledger, enter(ledger, "small", found)


def runs(ledger: Ledger) -> set[str]:
    return set(ledger.runs_of("small"))


EXTENSIONS = {
    "a budget": {"grid": {**GRID, "train.tokens": ["2k", "4k", "8k"]}},
    "a size": {"grid": {**GRID, "size": [NARROW, WIDE]}},
    "a grid of another kind": {
        "grid": [GRID, {"kind": "TokensPerParameter", "multiples": [20], "axes": {"size": [WIDE]}}]
    },
    "a held-out run": {"held_out": {"size": [WIDE], "train.tokens": ["8k"]}},
}


@pytest.mark.parametrize("name", EXTENSIONS)
def test_a_study_is_extended_by(name, tmp_path):
    ledger, added = entered_as(tmp_path, question())
    assert added == []
    before, first = runs(ledger), (tmp_path / "studies" / "small" / "plan.json").read_bytes()
    ledger, added = entered_as(tmp_path, question(**EXTENSIONS[name]))
    assert added
    assert runs(ledger) > before
    assert len(runs(ledger)) == len(before) + len(added)
    assert {one.run for one in entered(Ledger.open(tmp_path), "small").runs} == runs(ledger)
    assert (tmp_path / "studies" / "small" / "plan.json").read_bytes() == first
    assert ledger.studies() == ["small"]


REFUSED = {
    "other data": ({"set": {"data.symbols": 32}}, r"2 runs are new .*2 runs are gone .*data.symbols"),
    "a budget less": ({"grid": {**GRID, "train.tokens": ["2k"]}}, r"1 run is gone \(width=8 heads=1 tokens=4k\)"),
    "new runs of other data": (
        {"grid": [GRID, {**GRID, "data.symbols": [32]}]},
        r"data.symbols=32 is new to the study",
    ),
    "new runs of another length": ({"grid": [GRID, {**GRID, "size.length": [8]}]}, r"size.length=8 is new"),
    "another law": ({"laws": ("kaplan_d",), "grid": {**GRID, "train.tokens": ["2k", "4k", "8k"]}}, r"laws was"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_another_question_under_the_same_name_is_refused(name, tmp_path):
    changes, said = REFUSED[name]
    asked = question()
    if "set" in changes:
        changes = {"set": {**asked.set, **changes["set"]}}
    ledger, _ = entered_as(tmp_path, asked)
    before = (runs(ledger), ledger.runs())
    with pytest.raises(ScalingError, match=said) as told:
        entered_as(tmp_path, question(**changes))
    assert "another name" in str(told.value)
    assert "\n" not in str(told.value)
    assert (runs(ledger), ledger.runs()) == before


def test_it_is_extended_twice_and_an_earlier_file_is_refused_then(tmp_path):
    budgets = ["2k", "4k", "8k", "16k"]
    for count in (2, 3, 4):
        ledger, added = entered_as(tmp_path, question(grid={**GRID, "train.tokens": budgets[:count]}))
        assert len(added) == (0 if count == 2 else 1)
    assert ledger.plan_file("small").name == "plan-3.json"
    with pytest.raises(ScalingError, match=r"1 run is gone \(width=8 heads=1 tokens=16k\)"):
        entered_as(tmp_path, question(grid={**GRID, "train.tokens": budgets[:3]}))


def test_only_new_runs_are_trained_and_the_page_shows_all(tmp_path):
    for budgets in (["2k", "4k"], ["2k", "4k", "16k"]):
        ledger, _ = entered_as(tmp_path, question(grid={**GRID, "train.tokens": budgets}))
        work(ledger, entered(ledger, "small"))
    names = ledger.runs_of("small")
    assert len(names) == 3
    assert all(len(ledger.attempts(run)) == 1 for run in names)
    longest = [one for one in ledger.plan("small")["runs"] if one["name"].endswith("tokens=16k")]
    assert all(ledger.result(one["run"])["circumstances"]["from_step"] > 0 for one in longest)  # the trunk went on
    _, page = write(ledger, entered(ledger, "small"))
    assert all(run in page.read_text() for run in names)
