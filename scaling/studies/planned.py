"""Planned: one run of a planned study, which `scaling train study=NAME run=ID runs=FOLDER` trains."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from scaling.config import Config, load
from scaling.errors import ScalingError, nearest
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, entered
from scaling.studies.question import compared
from scaling.training.ranks import launched

KEYS = ("study", "run", "runs")


def planned(words: Sequence[str]) -> Config:
    """The config of the run that `study=` and `run=` name."""
    settings, ledger, plan, run = _loaded(words)
    logged = [f"{key}={value}" for key, value in settings.items() if key.startswith("log.")]
    words = compared(plan.question.base, (*run.overrides, f"runs={ledger.root}", *logged))
    return load(plan.question.base, words)


def prepare(words: Sequence[str]) -> None:
    """Bring the trunk of the run to where the run branches off. The ledger shows it, and W&B does not."""
    _, ledger, plan, run = _loaded(words, ["log.wandb=disabled"])
    if not launched() and ledger.result(run.run) is None:
        from scaling.studies.scheduler import grow  # imports Lightning, which a check of the words does without

        grow(ledger, plan, run)


def _loaded(words: Sequence[str], further: Sequence[str] = ()) -> tuple[dict[str, str], Ledger, Plan, Run]:
    """What the words set, and the run that they name; `further` words hold for its training."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    for key in settings:
        if key not in KEYS and not key.startswith("log."):
            raise ScalingError("the plan sets what a run of a study is", key=key, value=settings[key])
    ledger = Ledger.open(settings.get("runs", "runs"))
    plan = _entered(ledger.root, settings["study"], tuple(further))
    runs = {cell.run: cell for cell in plan.runs}
    run = settings.get("run", "")
    if run not in runs:
        raise ScalingError("the study has no such run", key="run", value=run, fix=nearest(run, runs))
    return settings, ledger, plan, runs[run]


@cache
def _entered(root: Path, study: str, further: tuple[str, ...]) -> Plan:
    """A plan is written once, and is read for the config and for the trunk."""
    return entered(Ledger.open(root), study, further)
