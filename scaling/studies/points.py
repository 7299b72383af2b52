"""Points: the runs of a study or of a sweep as the rows of points.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.printing import csv_text
from scaling.ledger import Ledger
from scaling.studies.plan import Plan
from scaling.studies.tasks import scores

MISSING = "missing"
DEFINITIONS = {
    "N_definition": "without embeddings",
    "D_definition": "tokens read, repeats counted",
    "loss_definition": "held-out cross-entropy, nats a token",
    "C_definition": "matrix products as they run, forward and backward",
}


def row(
    run: str,
    name: str,
    result: Mapping[str, Any] | None,
    columns: Mapping[str, Any],
    held_out: bool = False,
    trunk: str | None = None,
) -> dict[str, Any]:
    """A run in points.csv; one that has not ended has a status and no loss. The losses on the domains of a mixture are
    numbered as their proportions are.
    """
    losses = {} if result is None else result.get("losses", {})
    is_beside = bool(columns.get("beside"))
    beside = is_beside and result is not None and result["outcome"] == "finished"
    return {
        "run": run,
        "name": name,
        "status": MISSING if result is None else "beside" if beside else result["outcome"],
        "held_out": int(held_out and not is_beside),
        "loss": None if result is None else result["loss"],
        "trunk": trunk or run,
        **{f"loss_domain_{number}": losses[domain] for number, domain in enumerate(sorted(losses), 1)},
        **columns,
    }


def rows(ledger: Ledger, plan: Plan) -> list[dict[str, Any]]:
    """One row a planned run, with every definition of N and C."""
    measured, table = scores(ledger, plan), []
    for run in plan.runs:
        columns = run.point if run.row is None else {"row": run.row, **run.point}
        trunk = None if run.trunk is None else run.trunk.run
        line = row(run.run, run.name, ledger.result(run.run), columns, run.held_out, trunk)
        table.append(line | measured[run.run])
    return table


def write_points(table: list[dict[str, Any]], path: Path) -> None:
    """The table as CSV: the same bytes for the same runs."""
    atomic.write(path, csv_text(table))
