"""Study: a planned study as a sweep with one parameter, the ids of its runs; paired values are what W&B cannot say.

Each run is `scaling train study=NAME run=ID runs=FOLDER`, and the plan in the ledger says what that is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaling.config import Config, load
from scaling.errors import ScalingError, nearest
from scaling.ledger import Ledger
from scaling.study.record import entered

KEYS = ("study", "run", "runs")


def tree(ledger: Ledger, study: str) -> dict[str, Any]:
    """The sweep's file."""
    return {
        "name": study,
        "program": "scaling",
        "command": ["scaling", "train", f"study={study}", f"runs={ledger.root.resolve()}", "${args_no_hyphens}"],
        "method": "grid",
        "metric": {"name": "evaluate/loss", "goal": "minimize"},
        "parameters": {"run": {"values": ledger.runs_of(study)}},
    }


def planned(words: Sequence[str]) -> Config:
    """The config of a planned study's run, which `study=` and `run=` name."""
    told = dict(word.split("=", 1) for word in words if "=" in word)
    for key in told:
        if key not in KEYS and not key.startswith("log."):
            raise ScalingError("the plan says what a run of a study is", key=key, value=told[key])
    ledger = Ledger.open(told.get("runs", "runs"))
    plan = entered(ledger, told["study"])
    runs = {one.run: one for one in plan.runs}
    run = told.get("run", "")
    if run not in runs:
        raise ScalingError("the study has no such run", key="run", value=run, mend=nearest(run, runs))
    logged = [f"{key}={value}" for key, value in told.items() if key.startswith("log.")]
    return load(plan.question.base, [*runs[run].overrides, f"runs={ledger.root}", *logged])
