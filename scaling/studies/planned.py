"""Planned: one run of a planned study, which `scaling train study=NAME run=ID runs=FOLDER` trains."""

from __future__ import annotations

from collections.abc import Sequence

from scaling.config import Config, load
from scaling.errors import ScalingError, nearest
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, entered
from scaling.studies.question import compared
from scaling.training.ranks import launched

KEYS = ("study", "run", "runs")


def planned(words: Sequence[str]) -> Config:
    """The config of the run that `study=` and `run=` name."""
    ledger, plan, run = _find(words)
    logged = [word for word in words if word.startswith("log.")]
    return load(plan.question.base, compared(plan.question.base, (*run.overrides, f"runs={ledger.root}", *logged)))


def prepare(words: Sequence[str]) -> None:
    """Bring the trunk of the run to where the run branches off. The ledger shows it, and W&B does not."""
    ledger, plan, run = _find(words, ["log.wandb=disabled"])
    if not launched() and ledger.result(run.run) is None:
        from scaling.studies.scheduler import grow  # imports Lightning, which a check of the words does without

        grow(ledger, plan, run)


def _find(words: Sequence[str], further: Sequence[str] = ()) -> tuple[Ledger, Plan, Run]:
    """The run that the words name; `further` words hold for its training."""
    settings = dict(word.split("=", 1) for word in words if "=" in word)
    for key in settings:
        if key not in KEYS and not key.startswith("log."):
            raise ScalingError("the plan sets what a run of a study is", key=key, value=settings[key])
    ledger = Ledger.open(settings.get("runs", "runs"))
    plan = entered(ledger, settings["study"], further)
    runs = {cell.run: cell for cell in plan.runs}
    name = settings.get("run", "")
    if name not in runs:
        raise ScalingError("the study has no such run", key="run", value=name, fix=nearest(name, runs))
    return ledger, plan, runs[name]
