"""Study: a planned study as a sweep with one parameter, the ids of its runs; W&B has no paired values.

Each run is `scaling train study=NAME run=ID runs=FOLDER`, and the plan in the ledger describes it. The most expensive
run comes first, so that its trunk is trained early, and as far as any branch needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from scaling.config import Config, load
from scaling.errors import ScalingError, nearest
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, entered
from scaling.studies.question import compared
from scaling.training.ranks import launched

KEYS = ("study", "run", "runs")


def tree(ledger: Ledger, study: str) -> dict[str, Any]:
    """The sweep's file. It names the ledger's folder as its user did, and not where that lies on this machine."""
    where = [] if ledger.root == Path("runs") else [f"runs={ledger.root}"]
    return {
        "name": study,
        "program": "scaling",
        "command": ["scaling", "train", f"study={study}", *where, "${args_no_hyphens}"],
        "method": "grid",
        "metric": {"name": "evaluate/loss", "goal": "minimize"},
        "parameters": {"run": {"values": _most_expensive_first(entered(ledger, study))}},
    }


def _most_expensive_first(plan: Plan) -> list[str]:
    def flops(run: Run) -> float:
        return run.flops + (plan.trunks[run.trunk.run].flops if run.trunk else 0.0)

    return list(dict.fromkeys(run.run for run in sorted(plan.runs, key=flops, reverse=True)))


def planned(words: Sequence[str]) -> Config:
    """The config of a planned study's run, which `study=` and `run=` name."""
    settings, ledger, plan, run = _loaded(words)
    logged = [f"{key}={value}" for key, value in settings.items() if key.startswith("log.")]
    words = compared(plan.question.base, (*run.overrides, f"runs={ledger.root}", *logged))
    return load(plan.question.base, words)


def prepare(words: Sequence[str]) -> None:
    """Bring the trunk of a planned study's run to where the run branches off. The ledger shows it, and W&B does not:
    in a sweep there, each W&B run is one of the runs that were asked for.
    """
    _, ledger, plan, run = _loaded(words, ["log.wandb=disabled"])
    if not launched() and ledger.result(run.run) is None:
        from scaling.studies.scheduler import grow  # imports Lightning, which a check of the sweep does without

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
    """A plan is written once, and a check asks for each of its runs."""
    return entered(Ledger.open(root), study, further)
