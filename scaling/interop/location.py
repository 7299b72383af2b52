"""The folder of the model that a word of a command names. torch is not needed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.ledger import Ledger

CONFIG, SPEC = "config.yaml", "spec.json"
FORMS = (SPEC, CONFIG, "config.json")  # of a run, of a folder of ours, of one of transformers
SHOWN = 40  # names in an error


def locate(name: str | os.PathLike[str], runs: str | Path = "runs") -> Path:
    """The folder that is named, or that of a run of the ledger at `runs`: by the beginning of its id, or by the
    beginning of a study's name and a row of it, `STUDY:ROW`. The ledger of a run's folder is two folders above it.
    """
    word, folder = os.fspath(name), Path(os.path.expanduser(name))
    if not folder.is_dir():
        ledger = Ledger.open(runs)
        folder = ledger.folder(_row_of(ledger, word) if ":" in word else ledger.find(word)).absolute()
    elif (folder / SPEC).is_file():
        folder = folder.resolve()
    what, fix = f"it holds neither {CONFIG} nor {SPEC}", "name a run, or import it first"
    refuse(not any((folder / form).is_file() for form in FORMS), what, fix, file=folder)
    return folder


def _row_of(ledger: Ledger, name: str) -> str:
    """The run of `STUDY:ROW`: the one study whose name begins so (a table's ends in a digest of its rows), and its row
    by all of its name, or by words of it that no other run has.
    """
    study, _, row = name.partition(":")
    names = ledger.studies()
    studies = [study] if study in names else [each for each in names if study and each.startswith(study)]
    what = f"{len(studies)} studies begin so: {listed(studies)}"
    refuse(len(studies) > 1, what, "write more of the name", key="RUN", value=study)
    study = studies[0] if studies else study
    planned = {str(entry.get("name")): entry["run"] for entry in ledger.plan(study)["runs"]}
    meant = [row] if row in planned else [name for name in planned if set(row.split()) <= set(name.split())]
    if not meant:  # a study may have thousands of names to search for near ones
        raise ScalingError(f"the study {study} has no such run", key="RUN", value=row, fix=nearest(row, planned))
    what = f"{len(meant)} runs of the study {study} are meant: {listed([*map(repr, meant)])}"
    refuse(len(meant) > 1, what, "name one of them", key="RUN", value=row)
    return planned[meant[0]]


def listed(names: Sequence[str]) -> str:
    """The first of many names, in an error."""
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
