"""Counts: what each planned run contributes to the points besides its loss, kept next to the plan.

To count a run is to build its model on the meta device by torch, whose import alone takes longer than a fit. So the
counts are kept, with a hash of themselves and of all that they follow from: the planned runs, whose ids are hashes of
their specs, and the code that counted them. Where it is another one, after an upgrade, an extension or an edit, they
are counted again.
"""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling import atomic, schema
from scaling.ledger import Ledger
from scaling.ledger.document import Damaged, read, seal, text
from scaling.training.point import canonical, point

if TYPE_CHECKING:
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
