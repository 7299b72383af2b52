"""Predict a run from points before it begins, and score such predictions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from scaling.base import __version__
from scaling.base.errors import ScalingError, plural, refuse
from scaling.base.numbers import OpenFraction
from scaling.base.printing import interval, tabulate
from scaling.ledger import Ledger
from scaling.studies.predictions import calibration, refuse_begun, register, registered, track_record
from scaling.verbs.fit import fit
from scaling.verbs.train import Overlays
from scaling.verbs.verb import RUNS, Flag, Result, verb


@verb
def predict_run(
    model: str | None = None,
    *overrides: str,
    points: Annotated[Any, "the runs that the law is fitted to, as for `scaling fit`"] = None,
    law: Annotated[str, "the law, as for `scaling fit`"] = "chinchilla",
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    level: OpenFraction = 0.95,
    overlays: Overlays = (),
    **settings: Any,
) -> Result:
    """Put a prediction of a run's loss on record before the run begins. It is scored when the run has ended.

        scaling predict-run decoder size=ladder/1M train.tokens=20M --points runs/studies/quickstart
        scaling predict-run study=quickstart run=0123456789abcdef --points small.csv --law auto

    The record has the law, its estimates, both intervals, a hash of the points, the version of the code and the time.
    A run that has begun is refused. `scaling predictions` lists the predictions with their scores.
    """
    from scaling.laws.predict import predict_runs
    from scaling.laws.report import caveats
    from scaling.sweeps.cells import resolved
    from scaling.training.experiment import assemble
    from scaling.training.point import point

    refuse(points is None, "is missing", "add --points TABLE", key="points")
    config = resolved([*filter(None, (model, *overrides))], overlays)
    experiment, ledger = assemble(config), Ledger.create(config["runs"])
    run = ledger.add(experiment.spec)
    refuse_begun(ledger, run)
    of_run = point(experiment)
    fitted = fit(points, law=law, rename=rename, level=level, hold_out="none")
    if fitted.law is None or fitted.law.form.target != "loss":
        raise ScalingError("predicts no loss of a run", key="law", value=law, fix="take chinchilla")
    form, definitions = fitted.law.form, fitted.points.definitions
    missing = next((name for name in form.axes if name not in of_run), None)
    what = f"{form.name} needs {missing}, which a run of this kind does not have"
    fix = f"take a law in {', '.join(name for name in ('N', 'D', 'C', 'U') if name in of_run)}"
    refuse(missing, what, fix, key="law", value=law)
    for name in ("tokenizer", "validation"):
        stated, of_this_run = definitions.get(name), of_run.get(name)
        what = f"of the points is {stated}, and of the run {of_this_run}: their losses differ"
        differ = stated is not None and of_this_run is not None and of_this_run != stated
        refuse(differ, what, "give points of runs that are evaluated alike", key=name)
    row = {name: float(of_run[name]) for name in form.axes}
    (predicted,) = predict_runs(fitted.law, [row], fitted.level, fitted.method)
    columns = sorted(fitted.points.columns)
    digest = hashlib.sha256("".join(repr((name, fitted.points[name].tolist())) for name in columns).encode())
    source = fitted.points.source or (str(points) if isinstance(points, str | Path) else type(points).__name__)
    document = {
        "law": form.name,
        "formula": form.formula,
        "estimates": fitted.estimates,
        "row": row,
        "predicted": predicted.estimate,
        "level": fitted.level,
        "interval_mean": predicted.mean and predicted.mean.to_json(),
        "interval_run": predicted.run and predicted.run.to_json(),
        "points": {"source": source, "fitted": len(fitted.points), "sha256": digest.hexdigest()},
        "version": __version__,
    }
    path, new = register(ledger, run, document)
    outside = caveats(document, [{**row, **predicted.to_json()}], form.axes)
    loss = ", ".join(filter(None, (f"loss {predicted.estimate:.4f}", _of_a_new_run(document))))
    by = f"{form.name} of {plural(len(fitted.points), 'run')}"
    text = f"run {run}: {loss}, by {by}; on record as {path.stem}{'' if new else ' (on record already)'}"
    return Result({**document, "run": run, "prediction": path.stem, "already": not new}, [text, *outside])


@verb
def predictions(*, runs: str | Path = RUNS) -> Result:
    """List the predictions on record with their scores, and count how many losses were inside their intervals.

    scaling predictions
    """
    entries, rows = registered(Ledger.open(runs)), []
    for entry in entries:
        outcome = entry["standing"]
        if entry["loss"] is not None:
            inside = {True: ", inside", False: ", outside", None: ""}[entry["covered"]]
            outcome = f"came out as {entry['loss']:.4f}, error {entry['relative_error']:+.2%}{inside}"
        cells = [entry[key] for key in ("prediction", "registered", "law", "predicted")]
        rows.append([*cells, _of_a_new_run(entry), outcome])
    titles, record = ["prediction", "on record since", "law", "predicted", "interval", "outcome"], calibration(entries)
    return Result({**record, "entries": entries}, [track_record(record), tabulate(titles, rows)])


def _of_a_new_run(document: Mapping[str, Any]) -> str:
    """The interval of a new run; empty if there is none."""
    of_run = document["interval_run"]
    return "" if of_run is None else f"{100 * of_run['level']:g}% interval of a new run {interval(of_run)}"
