"""Work: one warm process that trains whatever of a plan is not done and not in another's hands, dearest first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from scaling.ledger import Ledger
from scaling.study.plan import Plan, Run
from scaling.train.experiment import Experiment
from scaling.train.run import train_run, train_trunk

RETRIES = 1  # of a run that failed; a divergence is a result and is not tried again
PAUSE = 0.2  # seconds between looks where all that is left waits for someone else

Tell = Callable[[Mapping[str, Any]], None]


def work(ledger: Ledger, found: Plan, tell: Collection[Tell] = ()) -> None:
    """Train until nothing is left that this process could do."""
    while left := [one for one in found.runs if not _settled(ledger, one.run)]:
        if not any(_try(ledger, job, tell) for job in _jobs(ledger, found, left)):
            time.sleep(PAUSE)


def _jobs(ledger: Ledger, found: Plan, left: list[Run]) -> list[Run | Experiment]:
    """What could be trained now: trunks that are not grown, then runs whose trunk stands, each the dearest first."""
    needed: dict[str, int] = {}
    ready: list[Run | Experiment] = []
    for one in sorted(left, key=lambda run: run.flops, reverse=True):
        if one.trunk is None or ledger.checkpoint(*one.trunk) is not None or _hopeless(ledger, one.trunk[0]):
            ready.append(one)
        else:
            needed[one.trunk[0]] = max(needed.get(one.trunk[0], 0), one.trunk[1])
    trunks = [found.trunks[name] for name in needed]
    trunks.sort(key=lambda trunk: trunk.tokens(trunk.steps) * trunk.cost.flops_train_per_token, reverse=True)
    return [*trunks, *ready]


def _try(ledger: Ledger, job: Run | Experiment, tell: Collection[Tell]) -> bool:
    """Train one job; False where another worker has it. What goes wrong stays in that run's own record."""
    try:
        if isinstance(job, Experiment):
            return train_trunk(job, ledger, tell)
        return train_run(job.experiment, ledger, tell) is not None
    except Exception:
        # The attempt has written the reason down; the study goes on with the other runs.
        return True


def _settled(ledger: Ledger, run: str) -> bool:
    return ledger.result(run) is not None or _hopeless(ledger, run)


def _hopeless(ledger: Ledger, run: str) -> bool:
    """Whether a run has failed more often than it is tried again."""
    failures = [record for record in ledger.attempts(run) if record.exit and record.exit["outcome"] == "failed"]
    return len(failures) > RETRIES
