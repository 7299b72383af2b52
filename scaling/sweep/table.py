"""Table: a sweep's runs as rows of points.csv, in the format that studies, tables and fits read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from scaling.train.point import plain

if TYPE_CHECKING:
    from scaling.sweep.trial import Trial


def name(cell: Mapping[str, Any]) -> str:
    """A run's name within its sweep: what sets it apart, whole numbers spelled as such."""
    return " ".join(f"{key}={plain(value)}" for key, value in sorted(cell.items()))


def row(run: str, name: str, status: str, loss: float | None, point: Mapping[str, Any]) -> dict[str, Any]:
    return {"run": run, "name": name, "status": status, "held_out": 0, "loss": loss, **point}


def rows(trials: Iterable[Trial]) -> list[dict[str, Any]]:
    """A row a run that was trained; cells that are one run are one row."""
    found: dict[str, dict[str, Any]] = {}
    for trial in trials:
        report = trial.report
        if report is not None and report.run is not None:
            told = row(report.run, name(trial.cell), report.outcome, report.loss, report.point)
            found.setdefault(report.run, told)
    return ordered(found.values())


def ordered(table: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One order, in whatever order agents and servers had the runs."""
    return sorted(table, key=lambda row: (row["name"], row["run"]))
