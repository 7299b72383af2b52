"""The runs of a ledger as rows of a table of points, from what their results hold: N, D, C, loss and definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from scaling.ledger.layout import NAME
from scaling.ledger.store import Ledger

DEFINITIONS = {
    "N_definition": "without embeddings",
    "D_definition": "tokens read, repeats counted",
    "loss_definition": "held-out cross-entropy, nats a token",
    "C_definition": "matrix products as they run, forward and backward",
}


def rows_of(folder: Path) -> list[dict[str, Any]] | None:
    """The rows of a ledger, or of the study whose folder in a ledger this is; None where there is no ledger."""
    if (folder / NAME).exists():
        ledger = Ledger.open(folder)
        studies = ledger.studies()
    elif folder.parent.name == "studies" and (folder.parent.parent / NAME).exists():
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
        "S": spec["trainer"].get("max_steps"),
        "lr": spec["optimizer"].get("lr"),
        "seed": spec.get("seed"),
        "tokenizer": spec["data"].get("fingerprint"),
    }
    if result is not None and "N" in result:
        row |= {"N": result["N"]["non_embedding"], "N_total": result["N"]["total"]}
        row |= {"D": result["tokens"], "C": result["C"]["exact"]}
    return row
