"""Work: one warm process that trains whatever of a plan is not done and not in another's hands, dearest first."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from scaling.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.study.plan import Job, Plan, Run
from scaling.study.settled import hopeless, settled
from scaling.train.run import train_run, train_trunk
from scaling.train.signals import Stopped

PAUSE = 0.2  # seconds between looks where all that is left waits for someone else

Tell = Callable[[Mapping[str, Any]], None]


def work(ledger: Ledger, found: Plan, tell: Collection[Tell] = ()) -> None:
    """Train until nothing is left that this process could do."""
    left, branches = _dearest_first(found), _branches(found)
    while left:
        worked, kept = False, []
        for job in left:
            if _done(ledger, job, branches):
                continue
            worked |= _ready(ledger, job) and _try(ledger, job, tell)
            kept.append(job)
        left = kept
        if not worked and left:
            time.sleep(PAUSE)


def grow(ledger: Ledger, found: Plan, branch: Run) -> None:
    """Have the trunk of one run stand where it branches off: trained here, or waited for where another worker has it,
    which takes no longer than to train the run whole.
    """
    while branch.trunk is not None and not _ready(ledger, branch):
        if not _try(ledger, found.trunks[branch.trunk[0]], ()):
            time.sleep(PAUSE)


def _branches(found: Plan) -> dict[str, list[Run]]:
    branches: dict[str, list[Run]] = {name: [] for name in found.trunks}
    for one in found.runs:
        if one.trunk is not None:
            branches[one.trunk[0]].append(one)
    return branches


def _dearest_first(found: Plan) -> list[Job]:
    """All jobs by what hangs on them: a run's own work, a trunk's and that of its dearest branch after it."""
    after = {name: max(one.flops for one in runs) for name, runs in _branches(found).items()}
    jobs: list[Job] = [*found.trunks.values(), *found.runs]
    return sorted(jobs, key=lambda job: (-job.flops - after.get(job.run, 0.0), job.run))


def _done(ledger: Ledger, job: Job, branches: Mapping[str, Sequence[Run]]) -> bool:
    """Whether a run is settled, or a trunk has grown as far as the branches that are not settled want it."""
    if job.run not in branches:
        return settled(ledger, job.run)
    return all(_ready(ledger, one) or settled(ledger, one.run) for one in branches[job.run])


def _ready(ledger: Ledger, job: Job) -> bool:
    """Whether a job can begin: a branch waits for its trunk, unless that cannot be grown.

    A budget that was added to a study may branch off where its trunk has passed and kept nothing: it is trained whole.
    """
    if job.trunk is None or ledger.checkpoint(*job.trunk) is not None:
        return True
    trunk, step = job.trunk
    return ledger.reached(trunk) > step or hopeless(ledger, trunk)


def _try(ledger: Ledger, job: Job, tell: Collection[Tell]) -> bool:
    """Train one job; False where another worker has it. What goes wrong in training stays in that run's own record."""
    experiment = job.experiment
    try:
        if experiment.horizon:
            return train_run(experiment, ledger, tell) is not None
        return train_trunk(experiment, ledger, tell)
    except Stopped:
        raise
    except Exception as error:
        if isinstance(error, ScalingError) and error.code == DISK:
            raise
        # The attempt has written the reason down; the study goes on with the other runs.
        return True
