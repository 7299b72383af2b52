"""Bring runs back from W&B."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.api.runs import RUNS
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.studies.plan import Plan
    from scaling.sweeps.pull.copy import Copy
    from scaling.sweeps.pull.pull import Pulled


def bring(
    name: str,
    to: str | None = None,
    planned: Callable[[], tuple[str, Plan] | None] = lambda: None,
    runs: str = RUNS,
) -> tuple[Copy, Pulled, Path]:
    """Pull what `name` names, and write its points; a plan makes them those of its study.

    The folder is `to`, or else one of its own in the folder `runs` of the ledger.
    """
    from scaling.sweeps.pull import offline, online

    folder = Path(name)
    place = None if folder.exists() else online.find(name)
    study_plan = planned()
    # Only now what takes seconds to import.
    from scaling.studies.findings import rows, write_points
    from scaling.studies.record import enter
    from scaling.sweeps.pull.copy import Copy
    from scaling.sweeps.pull.pull import points, pull

    source = offline.Offline(folder) if place is None else online.Online(place)
    under = folder.resolve().name if place is None else str(place).replace("/", "-")
    copy = Copy(Path(to or Path(runs, "pulled", under)))
    pulled = pull(source, copy, _progress)
    table = points(pulled, copy)
    if study_plan is not None:
        enter(copy.ledger, *study_plan)
        table = rows(copy.ledger, study_plan[1])
    if not table:
        raise ScalingError("none of its runs are ours", key="PROJECT", value=name)
    path = copy.ledger.root / "points.csv"
    write_points(table, path)
    return copy, pulled, path


def _progress(done: int, all: int) -> None:
    if done == all or done % 50 == 0:
        print(f"{done} of {all} histories", file=sys.stderr, flush=True)
