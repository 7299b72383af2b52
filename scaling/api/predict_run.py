"""Predictions on record: predict a run from points before it begins, and see how such predictions held."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.runs import RUNS
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.config import Config
    from scaling.law.points import Points


def predict_run(given: Config, points: Any, law: str = "chinchilla", **choices: Any) -> dict[str, Any]:
    """Fit `law` to `points` and put its prediction of the run that a config describes on record in its ledger.

    `choices` are those of `scaling.fit`. The record holds the law, its estimates, both intervals, a hash of the points,
    the version of the code and the time. A run that has begun is refused.
    """
    from scaling.api.fit import fit
    from scaling.ledger import Ledger
    from scaling.ledger.registered import refuse_begun, register
    from scaling.training.experiment import assemble
    from scaling.training.point import point
    from scaling.training.values import checked
    from scaling.version import __version__

    experiment = assemble(checked(given))
    ledger = Ledger.create(given["runs"])
    run = ledger.add(experiment.spec)
    refuse_begun(ledger, run)
    columns = point(experiment)
    fitted = fit(points, law, hold_out="none", **choices)
    if fitted.law is None or fitted.law.form.target != "loss":
        raise ScalingError("predicts no loss of a run", key="law", value=law, fix="take chinchilla")
    missing = [name for name in fitted.law.form.axes if name not in columns]
    if missing:
        raise ScalingError(
            f"{fitted.law.form.name} needs {missing[0]}, which a run of this kind does not have",
            key="law",
            value=law,
            fix=f"take a law in {', '.join(name for name in ('N', 'D', 'C', 'U') if name in columns)}",
        )
    _refuse_another_loss(fitted.points, columns)
    row = {name: float(columns[name]) for name in fitted.law.form.axes}
    predicted = fitted.predict(**row)
    prediction = predicted.prediction if hasattr(predicted, "prediction") else None
    assert prediction is not None
    json = prediction.to_json()
    document = {
        "law": fitted.law.form.name,
        "formula": fitted.law.form.formula,
        "estimates": fitted.estimates,
        "row": row,
        "predicted": float(predicted),
        "level": fitted.level,
        "interval_mean": _bounded(json["interval_mean"]),
        "interval_run": _bounded(json["interval_run"]),
        "points": _source(fitted.points, points),
        "version": __version__,
    }
    path, new = register(ledger, run, document)
    return {**document, "run": run, "prediction": path.stem, "already": not new}


def _refuse_another_loss(points: Points, columns: Mapping[str, Any]) -> None:
    """A law of the loss on other tokens, or on another validation set, predicts another loss."""
    for name in ("tokenizer", "validation"):
        stated = points.definitions.get(name)
        if stated is not None and name in columns and stated != columns[name]:
            raise ScalingError(
                f"of the points is {stated}, and of the run {columns[name]}: their losses differ",
                key=name,
                fix="give points of runs that are evaluated alike",
            )


def _bounded(interval: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if interval is None else {key: interval[key] for key in ("estimate", "low", "high", "level", "method")}


def _source(points: Points, given: Any) -> dict[str, Any]:
    """Which points: where they are from, how many, and a hash of every column."""
    digest = hashlib.sha256()
    for name in sorted(points.columns):
        digest.update(repr((name, points[name].tolist())).encode())
    source = points.source or (str(given) if isinstance(given, str | Path) else type(given).__name__)
    return {"source": source, "fitted": len(points), "sha256": digest.hexdigest()}


def track_record(runs: str | Path = RUNS) -> dict[str, Any]:
    """Every prediction on record in a ledger, and how many of their losses were inside their intervals."""
    from scaling.ledger import Ledger
    from scaling.ledger.registered import calibration, registered

    entries = registered(Ledger.open(runs))
    return {**calibration(entries), "entries": [entry.to_json() for entry in entries]}
