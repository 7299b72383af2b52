"""Points of whatever holds a table of runs: a file, a DataFrame, records, columns, or a ledger with its results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError
from scaling.ledger import Ledger, is_ledger

if TYPE_CHECKING:
    from scaling.laws.points import Points

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
