"""Plan: a question's grid as runs of the ledger, each with its experiment, and the trunks that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scaling.config import load
from scaling.errors import ScalingError
from scaling.ledger import Ledger, run_id
from scaling.study.question import Question
from scaling.train.experiment import Experiment, assemble


@dataclass(frozen=True)
class Run:
    """One run of a study; `trunk` names the run it may branch from, and the step."""

    run: str
    name: str
    overrides: tuple[str, ...]
    held_out: bool
    experiment: Experiment
    trunk: tuple[str, int] | None

    @property
    def flops(self) -> float:
        """What is left to compute once the trunk stands."""
        experiment = self.experiment
        own = experiment.tokens(experiment.steps) - (experiment.tokens(self.trunk[1]) if self.trunk else 0)
        return own * experiment.cost.flops_train_per_token


@dataclass(frozen=True)
class Plan:
    question: Question
    runs: tuple[Run, ...]
    trunks: Mapping[str, Experiment]  # by run id, as far as the last branch wants it

    def ledger(self) -> Ledger:
        """The ledger that its runs belong to, made where there is none."""
        return Ledger.create(self.runs[0].experiment.config["runs"])

    def document(self) -> dict[str, Any]:
        """What the ledger keeps: which runs, and why."""
        question = self.question
        return {
            "question": question.question,
            "base": question.base,
            "law": question.law,
            "runs": [
                {
                    "run": one.run,
                    "name": one.name,
                    "overrides": list(one.overrides),
                    "held_out": one.held_out,
                    "trunk": None if one.trunk is None else {"run": one.trunk[0], "step": one.trunk[1]},
                }
                for one in self.runs
            ],
        }


def plan(question: Question, overrides: Sequence[str] = ()) -> Plan:
    """Every run of a question, checked; `overrides` hold for all of them."""
    runs, trunks = [], {}
    for cell, held_out in question.cells():
        words = (*question.overrides(cell), *overrides)
        experiment = assemble(load(question.base, (f"log.group={question.name}", *words)))
        found = experiment.trunk()
        trunk = None
        if found is not None:
            name, step = run_id(found[0].spec), found[1]
            trunk = (name, step)
            if name not in trunks or trunks[name].steps < step:
                trunks[name] = found[0]
        runs.append(Run(run_id(experiment.spec), _name(cell), tuple(words), held_out, experiment, trunk))
    _distinct(runs)
    shared = {one.trunk[0] for one in runs if one.trunk and _branches(runs, one.trunk[0]) > 1}
    # A trunk with one branch saves nothing: that run trains its own stable phase.
    runs = [one if one.trunk and one.trunk[0] in shared else replace(one, trunk=None) for one in runs]
    return Plan(question, tuple(runs), {name: trunk for name, trunk in trunks.items() if name in shared})


def enter(ledger: Ledger, name: str, found: Plan) -> None:
    """Write the plan and its runs into the ledger; a different plan of that name is refused."""
    for one in found.runs:
        ledger.add(one.experiment.spec)
    for trunk in found.trunks.values():
        ledger.add(trunk.spec)
    ledger.save_plan(name, found.document())


def _name(cell: Mapping[str, Any]) -> str:
    return " ".join(f"{key}={_short(value)}" for key, value in cell.items())


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{inner}" for key, inner in value.items())
    return str(value)


def _branches(runs: Sequence[Run], trunk: str) -> int:
    return sum(one.trunk is not None and one.trunk[0] == trunk for one in runs)


def _distinct(runs: Sequence[Run]) -> None:
    seen: dict[str, str] = {}
    for one in runs:
        if one.run in seen:
            raise ScalingError(
                f"two cells are one run: {seen[one.run]!r} and {one.name!r}",
                key="grid",
                mend="an axis does not change what is computed, or the held-out runs stand in the grid",
            )
        seen[one.run] = one.name
