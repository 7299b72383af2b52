"""What a W&B run shows of a run of the ledger."""

from __future__ import annotations

import math
from typing import Any

import pytest

from scaling.sweeps.wandb_run import STEP, WandbRun, entries, nested, spec

POINT = {"N": 1000, "D": 2000, "C": 1.2e7, "N_total": 1500, "C_definition": "as they run", "C_6N": 1.2e7, "S": 20}


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


def test_a_section_that_is_whole_is_not_changed_by_what_a_sweep_asked_for():
    config = {"trainer.devices": 2, "trainer": {"max_steps": 9}, "size.width": 8, "seed": 1}
    assert nested(config) == {"trainer": {"max_steps": 9}, "size": {"width": 8}, "seed": 1}


def test_the_spec_is_the_config_without_what_stands_beside_it():
    one = shown(config={"run": "a" * 16, "point": POINT, "row": "GeLU", "seed.x": 1, "seed": {"x": 1}, "_wandb": {}})
    assert spec(one) == {"seed": {"x": 1}}


def test_rows_become_the_entries_of_a_log():
    history = [
        {"_step": 0, STEP: 1, "tokens": 64.0, "train/loss": 3.5, "train/mfu": "NaN", "flops": 1.0},
        {"_step": 1, STEP: 1, "tokens": 64.0, "evaluate/loss": 3.25},
    ]
    one, two = entries(history)
    assert math.isnan(one.pop("mfu"))
    assert one == {"kind": "train", "step": 1, "tokens": 64, "loss": 3.5}
    assert two == {"kind": "evaluate", "step": 1, "tokens": 64, "loss": 3.25}


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
