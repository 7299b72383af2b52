"""Record: a plan as the ledger keeps it, written once. Workers read it there, on whatever machine they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache, partial
from typing import Any

from scaling.config import load
from scaling.errors import ScalingError
from scaling.ledger import Ledger, run_id
from scaling.ledger.forms import of_study
from scaling.ledger.result import differences
from scaling.studies.plan import Job, Plan, Run
from scaling.studies.question import Question
from scaling.training.experiment import Experiment, assemble

SOME = 3  # differences told in one line
KEPT = 64  # experiments at hand in a worker: it asks again for those that others are at, and for no more than these


def enter(ledger: Ledger, name: str, found: Plan) -> None:
    """Write the plan and its runs into the ledger; a different plan of that name is refused, and what differs told."""
    document = _document(found)
    if name in ledger.studies():
        _same(ledger, name, document)
    for one in found.runs:
        ledger.add(one.experiment.spec)
    for trunk in found.trunks.values():
        ledger.add(trunk.experiment.spec)
    if name not in ledger.studies():
        ledger.save_plan(name, document)


def entered(ledger: Ledger, name: str, words: Sequence[str] = ()) -> Plan:
    """The plan that was entered under a name; `words` are further overrides, which may not change what is computed."""
    document = ledger.plan(name, of_study)
    try:
        question = Question(**document["study"])
    except TypeError as error:
        path = ledger.study_folder(name) / "plan.json"
        raise ScalingError(f"the plan is of another version: {error}", file=path, mend="plan again") from None
    runs = tuple(
        Run(
            run=one["run"],
            steps=one["steps"],
            flops=one["flops"],
            assembled=partial(_assembled, question.base, (*one["overrides"], *words), one["run"]),
            name=one["name"],
            overrides=tuple(one["overrides"]),
            held_out=one["held_out"],
            trunk=None if one["trunk"] is None else (one["trunk"]["run"], one["trunk"]["step"]),
        )
        for one in document["runs"]
    )
    last = {one.trunk[0]: one for one in sorted(runs, key=lambda one: one.trunk[1] if one.trunk else 0) if one.trunk}
    trunks = {
        one["run"]: Job(one["run"], one["steps"], one["flops"], None, partial(_trunk, last[one["run"]]))
        for one in document["trunks"]
    }
    return Plan(question, runs, trunks)


@lru_cache(maxsize=KEPT)
def _assembled(base: str, words: tuple[str, ...], run: str) -> Experiment:
    experiment = assemble(load(base, words))
    if run_id(experiment.spec) != run:
        raise ScalingError(
            "this is not the run that was planned: its data, its files or the words given here say otherwise",
            key="run",
            value=run,
            mend="give the changed study another name",
        )
    return experiment


def _trunk(last: Run) -> Experiment:
    found = last.experiment.trunk()
    assert found is not None
    return found[0]


def _document(found: Plan) -> dict[str, Any]:
    return {
        "study": asdict(found.question),
        "trunks": [{"run": one.run, "steps": one.steps, "flops": one.flops} for one in found.trunks.values()],
        "runs": [
            {
                "run": one.run,
                "name": one.name,
                "overrides": list(one.overrides),
                "held_out": one.held_out,
                "steps": one.steps,
                "flops": one.flops,
                "trunk": None if one.trunk is None else {"run": one.trunk[0], "step": one.trunk[1]},
            }
            for one in found.runs
        ],
    }


def _same(ledger: Ledger, name: str, document: Mapping[str, Any]) -> None:
    """Refuse a plan that asks for other runs, or another thing of them. Words that change no run may differ."""
    known, told = ledger.plan(name), []
    then, now = ({one["run"]: one for one in plan["runs"]} for plan in (known, document))
    for what, one, other in (("new", now, then), ("gone", then, now)):
        names = [entry["name"] for run, entry in one.items() if run not in other]
        if names:
            told.append(f"{_count(len(names))} {what} ({_some(names)})")
    told += [f"{then[run]['name']} is held out in one" for run in then if _moved(then[run], now.get(run))]
    asked = differences(*({key: plan["study"][key] for key in ("laws", "target")} for plan in (known, document)))
    told += [f"{key} was {before!r} and is {after!r}" for key, (before, after) in asked.items()]
    words = differences(*({"set": plan["study"]["set"]} for plan in (known, document)))
    if told:
        told += [f"{key} was {before!r} and is {after!r}" for key, (before, after) in words.items()]
        raise ScalingError(
            f"the study {name} has another plan: {'; '.join(told)}",
            mend="give the changed study another name; runs that both have are shared",
            file=ledger.study_folder(name) / "plan.json",
        )


def _moved(then: Mapping[str, Any], now: Mapping[str, Any] | None) -> bool:
    return now is not None and then["held_out"] != now["held_out"]


def _count(number: int) -> str:
    return "1 run is" if number == 1 else f"{number} runs are"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:SOME]) + (", …" if len(names) > SOME else "")
