"""Predictions on record: predictions of runs that were made before they began, and their comparison with the results.

    runs/predictions/<run>-<first 12 digits of its SHA-256>.json    sealed, written once, never changed

A prediction is published like a result: exclusively, whole, with a checksum. Its score is not stored: it follows from
the prediction and the run's result, which are both kept. A prediction counts only if its content has the hash in its
name, and if it is older than the run's first attempt; the file's time does not matter.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.base.errors import plural, refuse
from scaling.ledger.document import publish, read_valid, text
from scaling.ledger.run import now

if TYPE_CHECKING:
    from scaling.ledger.store import Ledger

FOLDER = "predictions"
DIGITS = 12

Entry = dict[str, Any]


def register(ledger: Ledger, run: str, document: Mapping[str, Any]) -> tuple[Path, bool]:
    """Put a prediction about a run on record, and whether it was new; refused once the run has begun.

    The same prediction made twice is one.
    """
    refuse_begun(ledger, run)
    content = {"run": run, **document, "registered": now()}
    path = ledger.root / FOLDER / _name(content)
    new = publish(path, content)
    _, fault = _read(path)
    refuse(fault is not None, f"is {fault}", "delete the file and predict again", file=path)
    return path, new


def refuse_begun(ledger: Ledger, run: str) -> None:
    """A prediction about a run that is done, or under way, is none."""
    is_done, fix = ledger.result(run) is not None, "predict a run before it begins"
    refuse(is_done, f"run {run} is done, so its loss is known", fix, key="run")
    refuse(ledger.attempts(run), f"run {run} has begun", fix, key="run")


def registered(ledger: Ledger) -> list[Entry]:
    """Every prediction on record, the oldest first, scored where its run has ended, as `scaling predictions --json` has
    it (docs/json.md).

    Its standing is `waiting`, `scored`, `no loss` (the run diverged or was pruned), `late` (the run had begun before
    it), `altered` (its content does not have the hash in its name), or `damaged`.
    """
    entries = [_entry(ledger, path) for path in (ledger.root / FOLDER).glob("*.json")]
    return sorted(entries, key=lambda entry: (entry["registered"] or "", entry["prediction"]))


def _entry(ledger: Ledger, path: Path) -> Entry:
    document, standing = _read(path)
    run, loss, covered = path.name.partition("-")[0], None, None
    if standing is None:
        standing, loss = _score(ledger, run, document["registered"])
        if loss is not None and (interval := document["interval_run"]) is not None:
            low, high = interval["low"], interval["high"]
            covered = (low is None or low <= loss) and (high is None or loss <= high)
    fields = ("law", "predicted", "level", "interval_mean", "interval_run", "registered", "points", "version")
    return {
        "prediction": path.stem,
        "run": run,
        "standing": standing,
        **{key: document.get(key) for key in fields},
        "loss": loss,
        "covered": covered,
        "relative_error": None if loss is None else document["predicted"] / loss - 1.0,
    }


def _read(path: Path) -> tuple[dict[str, Any], str | None]:
    """A prediction, and why its file is not the one that was put on record; None where it is."""
    document = read_valid(path)
    if document is None:
        return {}, "damaged"
    return (document, None) if path.name == _name(document) else ({}, "altered")


def _score(ledger: Ledger, run: str, registered: str) -> tuple[str, float | None]:
    """The standing of a prediction about a run, and the run's loss where the prediction is scored."""
    result, begun = ledger.result(run), [record.start["time"] for record in ledger.attempts(run)]
    if begun and datetime.fromisoformat(min(begun)) < datetime.fromisoformat(registered):
        return "late", None
    if result is None:
        return "waiting", None
    if result["outcome"] != "finished" or result["loss"] is None:
        return "no loss", None
    return "scored", float(result["loss"])


def _name(document: Mapping[str, Any]) -> str:
    """The file of a prediction, by its content without the time at which it was put on record."""
    content = {key: value for key, value in document.items() if key != "registered"}
    return f"{content['run']}-{hashlib.sha256(text(content).encode()).hexdigest()[:DIGITS]}.json"


def calibration(entries: Sequence[Entry]) -> dict[str, Any]:
    """The track record in numbers: how many were scored, and how many losses were inside their interval by level.

    Files that were altered since are listed, and count as no prediction.
    """
    altered = [f"{entry['prediction']}.json" for entry in entries if entry["standing"] == "altered"]
    scored = [entry for entry in entries if entry["standing"] == "scored"]
    levels: dict[float, list[bool]] = {}
    for entry in scored:
        if entry["covered"] is not None:
            levels.setdefault(float(entry["level"]), []).append(entry["covered"])
    errors = [abs(entry["relative_error"]) for entry in scored]
    return {
        "predictions": len(entries) - len(altered),
        "scored": len(scored),
        "waiting": sum(entry["standing"] == "waiting" for entry in entries),
        "levels": [
            {"level": level, "scored": len(inside), "inside": sum(inside), "covered": sum(inside) / len(inside)}
            for level, inside in sorted(levels.items())
        ],
        "mean_absolute_relative_error": sum(errors) / len(errors) if errors else None,
        "altered": altered,
    }


def track_record(record: Mapping[str, Any]) -> str:
    """The calibration over all predictions in a sentence."""
    error = record["mean_absolute_relative_error"]
    inside = "{inside} of {scored} losses inside their {percent:g}% interval of a new run"
    parts = [f"{plural(record['predictions'], 'prediction')}, {record['scored']} scored, {record['waiting']} waiting"]
    parts += [inside.format(**level, percent=100 * level["level"]) for level in record["levels"]]
    parts += [] if error is None else [f"mean error {error:.2%}"]
    return "; ".join([*parts, *(f"altered since, and not counted: {FOLDER}/{file}" for file in record["altered"])])
