"""Decisions of an adaptive study, on record in the ledger before anything follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaling.base.errors import ScalingError
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, disk, publish, read

FOLDER = "decisions"

Decision = Mapping[str, Any]


def decisions(ledger: Ledger, study: str) -> list[Decision]:
    """The recorded decisions of a study, in their order; empty where it is not adaptive."""
    folder, recorded = ledger.study_folder(study) / FOLDER, list[Decision]()
    while True:
        path = folder / f"{len(recorded) + 1:04d}.json"
        try:
            document = read(path)
        except Damaged as damage:
            fix = "delete it and the decisions after it; they are then made again"
            raise ScalingError(f"the decision is damaged: {damage}", file=path, fix=fix) from None
        if document is None:
            if not any(other.name > path.name for other in folder.glob("[0-9]*.json")):
                return recorded
            if not path.exists():  # it was not written since
                fix = "put it back, or delete the decisions after it; they are then made again"
                raise ScalingError("the decision is missing, and later ones are here", file=path, fix=fix)
            continue
        recorded.append({key: value for key, value in document.items() if key != "sha256"})


def decide(ledger: Ledger, study: str, number: int, document: Decision) -> None:
    """Put the decision of this number on record; where another command was quicker, its decision stands."""
    path = ledger.study_folder(study) / FOLDER / f"{number:04d}.json"
    with disk("cannot write a decision"):
        path.parent.mkdir(parents=True, exist_ok=True)
    publish(path, document)


def is_open(made: Sequence[Decision]) -> bool:
    """Whether further runs may be chosen."""
    return bool(made) and "concluded" not in made[-1]
