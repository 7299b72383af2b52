"""What a W&B run shows of a run of the ledger."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from scaling.ledger.document import flat
from scaling.sweeps.wandb_run import STEP, WandbRun, cell, entries, missing, nested, result, spec

POINT = {"N": 1000, "D": 2000, "C": 1.2e7, "N_total": 1500, "C_definition": "as they run", "C_6N": 1.2e7, "S": 20}
KEY = some.text("abcdef_", min_size=1, max_size=4)
TREE = some.dictionaries(
    KEY, some.recursive(some.integers(), lambda inner: some.dictionaries(KEY, inner, min_size=1), max_leaves=6)
)


def shown(path: str = "me/proj/one", outcome: str | None = "finished", **changes: Any) -> WandbRun:
    summary = {"outcome": outcome, "loss": 2.5, "step": 20, "evaluate/loss": 2.5, "tokens": 2000}
    about = {
        "path": path,
        "name": path,
        "state": "finished" if outcome else "crashed",
        "created": "2026-01-01",
        "config": {"run": "a" * 16, "attempt": 1, "point": POINT},
        "summary": summary if outcome else {},
    }
    return WandbRun(**{**about, **changes})


@given(TREE)
def test_dotted_keys_open_and_close(tree):
    assert nested(flat(tree)) == tree


def test_a_section_that_is_whole_is_not_changed_by_what_a_sweep_asked_for():
    config = {"trainer.devices": 2, "trainer": {"max_steps": 9}, "size.width": 8, "seed": 1}
    assert nested(config) == {"trainer": {"max_steps": 9}, "size": {"width": 8}, "seed": 1}


def test_the_spec_is_the_config_without_what_stands_beside_it():
    one = shown(config={"run": "a" * 16, "point": POINT, "row": "GeLU", "seed.x": 1, "seed": {"x": 1}, "_wandb": {}})
    assert spec(one) == {"seed": {"x": 1}}


def test_what_a_sweep_drew_is_found_dotted_or_nested():
    one = shown(config={"optimizer.lr": 0.1, "optimizer": {"lr": 0.1, "beta": 0.9}, "row": "GeLU"})
    assert cell(one, ["optimizer.beta", "optimizer.lr", "row", "gone"]) == {
        "optimizer.beta": 0.9,
        "optimizer.lr": 0.1,
        "row": "GeLU",
    }


def test_rows_become_the_entries_of_a_log():
    history = [
        {"_step": 0, STEP: 1, "tokens": 64.0, "train/loss": 3.5, "train/mfu": "NaN", "flops": 1.0},
        {"_step": 1, STEP: 1, "tokens": 64.0, "evaluate/loss": 3.25},
    ]
    one, two = entries(history)
    assert math.isnan(one.pop("mfu"))
    assert one == {"kind": "train", "step": 1, "tokens": 64, "loss": 3.5}
    assert two == {"kind": "evaluate", "step": 1, "tokens": 64, "loss": 3.25}


def test_a_result_holds_what_the_ledger_wants():
    found = result(shown())
    assert (found["loss"], found["step"], found["tokens"]) == (2.5, 20, 2000)
    assert found["N"] == {"non_embedding": 1000, "total": 1500}
    assert found["C"] == {"exact": 1.2e7, "6N": 1.2e7}
    assert found["circumstances"] == {"wandb": "me/proj/one"}


@pytest.mark.parametrize(
    ("state", "outcome", "ends"),
    [
        ("finished", "finished", "finished"),
        ("finished", "diverged", "diverged"),
        ("finished", "pruned", "pruned"),
        ("finished", "stopped", "stopped"),
        ("failed", None, "failed"),
        ("crashed", None, "stopped"),
        ("killed", None, "stopped"),
        ("finished", None, "stopped"),
        ("running", None, None),
        ("pending", None, None),
    ],
)
def test_every_end_has_a_name(state, outcome, ends):
    assert shown(outcome=outcome, state=state).outcome == ends


@pytest.mark.parametrize(
    ("rows", "lacks"),
    [
        (20, []),
        (19, ["19 of 20 rows", "its rows end at 18, and W&B's at 19"]),
        (0, ["0 of 20 rows", "its rows end at None, and W&B's at 19"]),
    ],
)
def test_what_a_history_lacks_is_counted(rows, lacks):
    history = [{"_step": step, "train/loss": 1.0} for step in range(rows)]
    assert missing(history, shown(lines=20, last=19)) == lacks
