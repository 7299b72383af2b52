"""Decisions: which run an adaptive study trains next, and why, each in a file of its own before the run begins.

    studies/NAME/decisions/0001.json    sealed, written once, never changed

A decision follows from the study, its goal and the results that it names as known, and from nothing else: not from the
time, nor from which worker was faster. So a study that is killed goes on with the decisions on record and makes the
same ones after them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, disk, publish, read, seal
from scaling.studies.question import named

if TYPE_CHECKING:
    from scaling.studies.plan import Plan

FOLDER = "decisions"
PAUSE = 0.2  # seconds between looks for a further decision

Decision = Mapping[str, Any]


def decisions(ledger: Ledger, study: str) -> list[Decision]:
    """Those on record, in their order; empty where the study is not adaptive."""
    folder, found = ledger.study_folder(study) / FOLDER, list[Decision]()
    while True:
        path = folder / f"{len(found) + 1:04d}.json"
        try:
            document = read(path)
        except Damaged as damage:
            fix = "delete it and the decisions after it; they are then made again"
            raise ScalingError(f"the decision is damaged: {damage}", file=path, fix=fix) from None
        if document is None:
            if not any(other.name > path.name for other in folder.glob("[0-9]*.json")):
                return found
            if not path.exists():  # it was not written since
                fix = "put it back, or delete the decisions after it; they are then made again"
                raise ScalingError("the decision is missing, and later ones are here", file=path, fix=fix)
            continue
        found.append({key: value for key, value in document.items() if key != "sha256"})


def decide(ledger: Ledger, study: str, number: int, document: Decision) -> None:
    """Put the decision of this number on record, on the disk before anything follows from it."""
    folder = ledger.study_folder(study) / FOLDER
    with disk("cannot write a decision"):
        folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{number:04d}.json"
    if not publish(path, seal(document)):
        fix = "let one command at a time run the study"
        raise ScalingError("another command decided at the same time", file=path, fix=fix)


def is_open(made: Sequence[Decision]) -> bool:
    """Whether further runs may be chosen."""
    return bool(made) and "concluded" not in made[-1]


def plans(ledger: Ledger, study: str, words: Sequence[str]) -> Iterator[tuple[Plan, Callable[[], bool]]]:
    """The plan of a study, and each further one that its decisions make of it, with what shows that there is another.

    Waits for further decisions until they are concluded; a study that is not adaptive has one plan.
    """
    from scaling.studies.record import entered

    while True:
        path = ledger.plan_file(study)

        def has_another(before: Any = path) -> bool:
            return ledger.plan_file(study) != before

        yield entered(ledger, study, words), has_another
        while not has_another():
            if not is_open(decisions(ledger, study)):
                # The last plan is entered before the conclusion.
                if has_another():
                    break
                return
            time.sleep(PAUSE)


def name_parts(goal: str, budget: float | None) -> list[str]:
    """What the name of an adaptive study shows besides that of its grid."""
    return [f"adaptive={goal.replace('%', ' percent')}", *([] if budget is None else [f"budget={budget:g}"])]


def options(study: str, made: Sequence[Decision]) -> tuple[str, list[str]]:
    """The name of an adaptive study's grid, and the options that make it adaptive; of another study nothing."""
    for budget in (None, *(one["budget"] for one in made[:1])):
        goal = made[0]["goal"] if made else ""
        if made and study.endswith(ending := named("", None, name_parts(goal, budget))):
            given = [] if budget is None else ["--budget", f"{budget:g}"]
            return study.removesuffix(ending), ["--adaptive", goal, *given]
    return study, []
