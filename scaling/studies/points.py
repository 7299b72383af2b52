"""Points of a study: its runs as the table that fits read, with their counts and curves."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scaling import atomic, schema
from scaling.errors import ScalingError
from scaling.laws.curves import Curve
from scaling.ledger import Ledger, is_ledger
from scaling.ledger.document import Damaged, read, seal, text
from scaling.studies.record import entered
from scaling.training.point import canonical, point

if TYPE_CHECKING:
    from scaling.laws.points import Points
    from scaling.studies.plan import Plan


PACKAGE = Path(__file__).parents[1]
COUNTING = ("torch", "numpy")  # packages that count with ours


def counts(ledger: Ledger, plan: Plan) -> list[dict[str, Any]]:
    """The point of each planned run, in the order of the plan."""
    path = ledger.study_folder(plan.question.name) / "counts.json"
    try:
        kept = read(path) or {}
    except Damaged:
        kept = {}
    points = kept.get("points")
    if points is None or kept.get("hash") != _hash(plan, points):
        points = {run.run: point(run.experiment) for run in plan.runs}
        atomic.write(path, seal({"hash": _hash(plan, points), "points": points}))
    return [canonical(points[run.run]) for run in plan.runs]


def _hash(plan: Plan, points: Any) -> str:
    """The hash of the counts by run, and of all that they follow from."""
    digest = hashlib.sha256(text([[run.run, run.overrides] for run in plan.runs]).encode())
    digest.update(text(points).encode())
    digest.update(text([plan.question.base, *map(version, COUNTING)]).encode())
    for path in (*sorted(PACKAGE.rglob("*.py")), *map(Path, schema.extensions())):
        digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}".encode())
    return digest.hexdigest()


KIND = {"train": 0, "evaluate": 1}


def curves_of_study(folder: Path) -> Iterator[Curve]:
    """The curves of the study in this folder, or of the one study of this ledger."""
    root = folder.parent.parent if folder.parent.name == "studies" else folder
    if not is_ledger(root):
        raise ScalingError("is no study's folder", file=folder, fix="name runs/studies/NAME, or a table of curves")
    ledger = Ledger.open(root)
    names = ledger.studies() if root == folder else [folder.name]
    if len(names) != 1:
        what = f"holds {len(names)} studies"
        raise ScalingError(what, file=folder, fix="name the folder of one: runs/studies/NAME")
    plan = entered(ledger, names[0], [f"runs={ledger.root}"])
    jobs = [(job, job.run, False) for job in plan.trunks.values()]
    jobs += [(run, run.run if run.trunk is None else run.trunk[0], run.held_out) for run in plan.runs]
    logs = [
        [e for e in ledger.history(job.run) if e.get("kind") in KIND and e.get("loss") is not None] for job, *_ in jobs
    ]
    sample = _sample(logs)
    for (job, trunk, held_out), log in zip(jobs, logs, strict=True):
        entries = [entry for entry in log if entry["kind"] == "train" or entry.get("targets") == sample]
        if entries:
            yield _curve(job, trunk, held_out, entries)


def _sample(logs: Sequence[Sequence[dict[str, Any]]]) -> Any:
    """The number of targets of most evaluations. Evaluations of another number are of another sample: the one at the
    end of a run under `whole_at_end`, whose loss lies off the others by the same amount in every run.
    """
    targets = Counter(entry.get("targets") for log in logs for entry in log if entry["kind"] == "evaluate")
    return max(targets, key=lambda number: (targets[number], number or 0), default=None)


def _curve(job: Any, trunk: str, held_out: bool, entries: Sequence[dict[str, Any]]) -> Curve:
    experiment = job.experiment
    rates = [experiment.optimizer.lr * experiment.schedule.factor(step, experiment.steps) for step in range(job.steps)]
    return Curve(
        getattr(job, "name", job.run),
        float(experiment.cost.parameters_non_embedding),
        np.array([entry["step"] for entry in entries]),
        np.array([float(entry["loss"]) for entry in entries]),
        np.array([KIND[entry["kind"]] for entry in entries]),
        np.array(rates),
        experiment.tokens(job.steps) / job.steps,
        trunk,
        experiment.held_out.fingerprint,
        held_out=held_out,
    )


DEFINITIONS = {
    "N_definition": "without embeddings",
    "D_definition": "tokens read, repeats counted",
    "loss_definition": "held-out cross-entropy, nats a token",
    "C_definition": "matrix products as they run, forward and backward",
}


def read_points(source: Any, **choices: Any) -> Points:
    """Points of whatever holds a table of runs; `choices` are those of `scaling.laws.points.load_points`."""
    from scaling.laws.points import Points, load_points, table_of

    if isinstance(source, Points):
        if any(choices.values()):
            raise ScalingError("these points are read already", key=next(name for name in choices if choices[name]))
        return source
    if not isinstance(source, str | Path):
        return load_points(source, **choices)
    if str(source).startswith("wandb:"):
        fix = f"fetch its runs by `scaling pull {str(source)[6:].strip('/')}` and name the folder that it writes"
        raise ScalingError("is a project of W&B, not a table", key="points", value=source, fix=fix)
    folder = Path(source)
    rows = _rows_of(folder) if folder.is_dir() and not table_of(folder).exists() else None
    if rows is None:
        return load_points(folder, **choices)
    if not rows:
        raise ScalingError("is a ledger of no runs", file=folder, fix="train some, or give a table of runs")
    return load_points(rows, name=str(folder), **choices)


def _rows_of(folder: Path) -> list[dict[str, Any]] | None:
    """The rows of a ledger, or of the study whose folder in a ledger this is; None where there is no ledger."""
    if is_ledger(folder):
        ledger = Ledger.open(folder)
        studies = ledger.studies()
    elif folder.parent.name == "studies" and is_ledger(folder.parent.parent):
        ledger = Ledger.open(folder.parent.parent)
        studies = [folder.name]
    else:
        return None
    planned = {entry["run"]: entry for study in studies for entry in ledger.plan(study)["runs"]}
    return [_row(ledger, run, planned.get(run)) for run in (planned or ledger.runs())]


def _row(ledger: Ledger, run: str, plan: dict[str, Any] | None) -> dict[str, Any]:
    spec, result = ledger.spec(run), ledger.result(run)
    row = {
        "run": run,
        "name": run if plan is None else plan.get("name", run),
        "held_out": int(plan is not None and plan.get("held_out", False)),
        "status": "missing" if result is None else result["outcome"],
        "loss": None if result is None else result["loss"],
        **dict.fromkeys(("N", "D", "C", "N_total")),
        "trunk": run if plan is None or not plan.get("trunk") else plan["trunk"]["run"],
        **DEFINITIONS,
        "S": spec.get("trainer", {}).get("max_steps"),
        "lr": spec["optimizer"].get("lr"),
        "seed": spec.get("seed"),
        "tokenizer": spec["data"].get("fingerprint"),
    }
    if result is not None and "N" in result:
        row |= {"N": result["N"]["non_embedding"], "N_total": result["N"]["total"]}
        row |= {"D": result["tokens"], "C": result["C"]["exact"]}
    return row
