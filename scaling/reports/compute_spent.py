"""How a study was made: the compute that was spent, on which hardware, for how long, with which versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaling.ledger import Ledger, Record
from scaling.ledger.listing import hardware
from scaling.ledger.run import INTERRUPTIONS, spans

if TYPE_CHECKING:
    from scaling.studies.plan import Plan


@dataclass(frozen=True)
class ComputeSpent:
    """`flops` were spent on finished runs and trunks, `apart` would have been without shared trunks."""

    flops: float
    apart: float
    attempts: int
    interrupted: int
    """Attempts that ended without a result and are no trunk's."""
    worker_seconds: float
    elapsed_seconds: float
    """From the first claim to the last exit."""
    day: str
    """Of the first claim."""
    hardware: Mapping[str, int]
    """How many runs on each."""
    versions: Mapping[str, tuple[str, ...]]


def compute_spent(ledger: Ledger, plan: Plan) -> ComputeSpent:
    """From the results and attempts of a study's runs and trunks."""
    results = {cell.run: result for cell in plan.runs if (result := ledger.result(cell.run)) is not None}
    attempts = {run: ledger.attempts(run) for run in (*(cell.run for cell in plan.runs), *plan.trunks)}
    worked = [span for records in attempts.values() for span in spans(records)]
    where = [result.get("circumstances", {}) for result in results.values()]
    trained = [trunk for name, trunk in plan.trunks.items() if attempts[name]]
    branched = {cell.run: cell.trunk[0] for cell in plan.runs if cell.trunk}
    spent = sum(cell.flops for cell in plan.runs if cell.run in results) + sum(trunk.flops for trunk in trained)
    whole = sum(_whole(result) for result in results.values())
    versions: dict[str, set[str]] = {}
    for circumstances in where:
        for name, version in circumstances.get("versions", {}).items():
            versions.setdefault(name, set()).add(str(version))
    return ComputeSpent(
        flops=spent,
        apart=whole if branched else spent,
        attempts=sum(map(len, attempts.values())),
        interrupted=sum(_interrupted(record) for cell in plan.runs for record in attempts[cell.run]),
        worker_seconds=sum((end - begin).total_seconds() for begin, end in worked),
        elapsed_seconds=(max(e for _, e in worked) - min(b for b, _ in worked)).total_seconds() if worked else 0.0,
        day=str(min(b for b, _ in worked).date()) if worked else "",
        hardware=Counter(map(hardware, where)),
        versions={name: tuple(sorted(values)) for name, values in sorted(versions.items())},
    )


def _whole(result: Mapping[str, Any]) -> float:
    """The FLOPs of the run from its first step on; a run that diverged has no such figure."""
    return result.get("C", {}).get("exact", 0.0)


def _interrupted(record: Record) -> bool:
    return record.end is not None and record.end.get("outcome") in INTERRUPTIONS
