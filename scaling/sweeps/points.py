"""Read the points and curves of whatever holds runs: a table, a study, a sweep, a ledger, a project of W&B."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling.base.errors import ScalingError, refuse
from scaling.base.standard_error import say
from scaling.ledger import Ledger, is_ledger
from scaling.studies.findings import row, rows
from scaling.studies.plan import Run, entered
from scaling.training.point import DEFINITIONS

if TYPE_CHECKING:
    from scaling.laws.curves import Curve
    from scaling.laws.points import Points

WANDB, RUNS = "wandb:", "runs"


def read_points(source: Any, runs: str | Path = RUNS, **choices: Any) -> Points:
    """Points of whatever holds a table of runs; `choices` are those of `scaling.laws.points.load_points`.

    The runs of a project of W&B are pulled into a ledger of their own within `runs`, as by `scaling pull`.
    """
    from scaling.laws.points import Points, load_points, table_of

    if isinstance(source, Points):
        for name, chosen in choices.items():
            refuse(chosen, "these points are read already", key=name)
        return source
    if not isinstance(source, str | Path):
        return load_points(source, **choices)
    if str(source).startswith(WANDB):
        from scaling.sweeps.pull import pull

        source = pull(str(source).removeprefix(WANDB), None, runs, announce=say)["points"]
    folder = Path(source)
    found = _studies(folder) if folder.is_dir() and not table_of(folder).exists() else None
    if found is None:
        return load_points(folder, **choices)
    ledger, studies = found
    plans = [entered(ledger, study) for study in studies]
    by_run = {line["run"]: line for plan in plans for line in rows(ledger, plan)}
    table = list(by_run.values()) or [_unplanned(ledger, run) for run in ledger.runs()]
    refuse(not table, "the ledger holds no runs", "train some, or give a table of runs", file=folder)
    return load_points(table, name=str(folder), **choices)


def _studies(folder: Path) -> tuple[Ledger, list[str]] | None:
    """The ledger and the studies that a folder holds, or the one study whose folder it is; None where it is neither."""
    if is_ledger(folder):
        ledger = Ledger.open(folder)
        return ledger, ledger.studies()
    if folder.parent.name == "studies" and is_ledger(folder.parent.parent):
        return Ledger.open(folder.parent.parent), [folder.name]
    return None


def _unplanned(ledger: Ledger, run: str) -> dict[str, Any]:
    """A run of no study, by its spec and its result."""
    spec, result = ledger.spec(run), ledger.result(run)
    columns = {
        **dict.fromkeys(("N", "D", "C", "N_total")),
        **DEFINITIONS,
        "S": spec.get("trainer", {}).get("max_steps"),
        "lr": spec["optimizer"].get("lr"),
        "seed": spec.get("seed"),
        "tokenizer": spec["data"].get("fingerprint"),
    }
    if result is not None and "N" in result:
        columns |= {"N": result["N"]["non_embedding"], "N_total": result["N"]["total"]}
        columns |= {"D": result["tokens"], "C": result["C"]["exact"]}
    return row(run, run, result, columns)


def curves_of_study(folder: Path) -> Iterator[Curve]:
    """The curves of the study in this folder, or of the one study of this ledger."""
    from scaling.laws.curves import KINDS

    studies = _studies(folder)
    if studies is None:
        raise ScalingError(
            "is not the folder of a study", file=folder, fix="name runs/studies/NAME, or a table of curves"
        )
    ledger, names = studies
    refuse(len(names) != 1, f"holds {len(names)} studies", "name the folder of one: runs/studies/NAME", file=folder)
    plan = entered(ledger, names[0])
    diverged = {run.run for run in plan.runs if (ledger.result(run.run) or {}).get("outcome") == "diverged"}
    runs = [run for run in (*plan.trunks.values(), *plan.runs) if run.run not in diverged]
    logs = [
        [e for e in ledger.history(run.run) if e.get("kind") in KINDS and e.get("loss") is not None] for run in runs
    ]
    # Evaluations of another number of targets are of another sample: the one at the end of a run under `whole_at_end`,
    # whose loss lies off the others by the same amount in every run.
    targets = Counter(entry.get("targets") for log in logs for entry in log if entry["kind"] == "evaluate")
    sample = max(targets, key=lambda number: (targets[number], number or 0), default=None)
    for run, log in zip(runs, logs, strict=True):
        entries = [entry for entry in log if entry["kind"] == "train" or entry.get("targets") == sample]
        if entries:
            yield _curve(run, entries)


def _curve(run: Run, entries: Sequence[dict[str, Any]]) -> Curve:
    from scaling.laws.curves import KINDS, Curve

    experiment = run.experiment
    rates = [experiment.optimizer.lr * experiment.schedule.factor(step, experiment.steps) for step in range(run.steps)]
    return Curve(
        run.run if run.is_trunk else run.name,
        float(experiment.cost.parameters_non_embedding),
        np.array([entry["step"] for entry in entries]),
        np.array([float(entry["loss"]) for entry in entries]),
        np.array([KINDS[entry["kind"]] for entry in entries]),
        np.array(rates),
        experiment.tokens(run.steps) / run.steps,
        run.run if run.trunk is None else run.trunk.run,
        experiment.validation.source.fingerprint,
        held_out=run.held_out,
    )
