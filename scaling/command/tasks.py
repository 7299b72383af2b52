"""List the tasks that are shipped: what is predicted, the metric, and the examples of each split where it is prepared.

scaling tasks
scaling tasks runs=/shared/runs      with the counts of what is prepared next to that folder
"""

from __future__ import annotations

import argparse
import json
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="one JSON document: a list of tasks")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.api.tasks import task_rows

    rows = task_rows(arguments.runs or RUNS)
    print(json.dumps(rows, indent=2) if arguments.json else _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    columns = ["task", "answer", "metric", "labels", "train", "validation", "test", "about"]
    cells = [columns, *([_cell(row[column]) for column in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
