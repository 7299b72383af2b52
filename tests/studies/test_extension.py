"""A study that is extended by a size, a budget or a seed goes on; what asks another question is refused."""

from dataclasses import replace
from pathlib import Path

import pytest

from scaling.base.errors import ScalingError
from scaling.ledger import Ledger
from scaling.reports.write import write
from scaling.studies.plan import enter, entered, plan
from scaling.studies.question import Question, read
from scaling.training.run import train_run
from tests.serial import work

SMALL = Path(__file__).parent / "small.yaml"
NARROW, WIDE = {"width": 8, "heads": 1}, {"width": 16, "heads": 2}
GRID = {"size": [NARROW], "train.tokens": ["2k", "4k"]}


def question(**changes) -> Question:
    return replace(read(str(SMALL)), **{"grid": GRID, "held_out": {}, "laws": (), **changes})


def entered_as(folder: Path, asked: Question) -> tuple[Ledger, list[str]]:
    found = plan(asked, [f"runs={folder}"])
    ledger = found.ledger()
    return ledger, enter(ledger, found)


def test_a_study_is_extended_by_budgets_sizes_held_out_runs_and_grids(tmp_path):
    longer = {**GRID, "train.tokens": ["2k", "4k", "8k"]}
    larger = {**longer, "size": [NARROW, WIDE]}
    held_out = {"held_out": {"size": [WIDE], "train.tokens": ["16k"]}}
    several = [larger, {"kind": "TokensPerParameter", "multiples": [20], "axes": {"size": [WIDE]}}]
    ledger, added = entered_as(tmp_path, question())
    first = (tmp_path / "studies" / "small" / "plan.json").read_bytes()
    assert added == []
    for changes, count in (({"grid": longer}, 1), ({"grid": larger}, 3), ({"grid": larger, **held_out}, 1)):
        before = set(ledger.runs_of("small"))
        ledger, added = entered_as(tmp_path, question(**changes))
        assert len(added) == count
        assert set(ledger.runs_of("small")) > before
        assert len(ledger.runs_of("small")) == len(before) + count
    assert len(entered_as(tmp_path, question(grid=several, **held_out))[1]) == 1
    assert {one.run for one in entered(Ledger.open(tmp_path), "small").runs} == set(ledger.runs_of("small"))
    assert (tmp_path / "studies" / "small" / "plan.json").read_bytes() == first
    assert ledger.plan_file("small").name == "plan-5.json"
    with pytest.raises(ScalingError, match=r"1 run is gone \(width=16 heads=2 tokens="):
        entered_as(tmp_path, question(grid=larger, **held_out))  # an earlier file


REFUSED = [
    ({"set": {**question().set, "data.symbols": 32}}, r"2 runs are new .*2 runs are gone .*data.symbols"),
    ({"grid": {**GRID, "train.tokens": ["2k"]}}, r"1 run is gone \(width=8 heads=1 tokens=4k\)"),
    ({"grid": [GRID, {**GRID, "data.symbols": [32]}]}, r"data.symbols=32 is new to the study"),
    ({"laws": ("kaplan_d",), "grid": {**GRID, "train.tokens": ["2k", "4k", "8k"]}}, r"laws was"),
]


def test_another_question_under_the_same_name_is_refused(tmp_path):
    ledger, _ = entered_as(tmp_path, question())
    before = ledger.plan_file("small").read_bytes(), ledger.runs()
    for changes, line in REFUSED:
        with pytest.raises(ScalingError, match=line) as refusal:
            entered_as(tmp_path, question(**changes))
        assert "another name" in str(refusal.value)
        assert "\n" not in str(refusal.value)
    assert (ledger.plan_file("small").read_bytes(), ledger.runs()) == before


def test_only_new_runs_are_trained_from_shared_trunks_and_land_where_whole_runs_land(tmp_path):
    runs = tmp_path / "runs"
    for budgets in (["2k", "4k"], ["1k", "2k", "4k"], ["1k", "2k", "4k", "6k"]):
        ledger, _ = entered_as(runs, question(grid={**GRID, "train.tokens": budgets}))
        work(ledger, entered(ledger, "small"))
    by_budget = {one.name.partition("tokens=")[2]: one for one in entered(ledger, "small").runs}
    assert all(len(ledger.attempts(one.run)) == 1 for one in by_budget.values())
    results = {budget: ledger.result(one.run) for budget, one in by_budget.items()}
    short, middle, long, longest = (
        results[budget]["circumstances"]["from_step"] for budget in ("1k", "2k", "4k", "6k")
    )
    # A budget below the steps that the trunk kept is trained whole; a longer one takes the trunk further.
    assert short == 0 < middle < long < longest
    assert long == by_budget["4k"].trunk.step
    whole = train_run(by_budget["4k"].experiment, Ledger.create(tmp_path / "alone"))
    assert whole["circumstances"]["from_step"] == 0
    assert whole["loss"] == results["4k"]["loss"]
    _, page = write(ledger, entered(ledger, "small"))
    assert all(one.run in page.read_text() for one in by_budget.values())
