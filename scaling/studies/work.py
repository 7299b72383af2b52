"""Work: one warm process that trains what of a plan is not done and no other worker trains, most expensive first."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaling.errors import DISK, ScalingError
from scaling.ledger import Ledger
from scaling.studies.plan import Job, Plan, Run
from scaling.studies.progress import failures, hopeless, settled
from scaling.training.run import Observers, train_run

PAUSE = 0.2  # seconds between looks where all that is left waits for someone else
TRIES = 3  # of a job whose trouble no attempt recorded
IN_A_ROW = 10  # such troubles, after which they are not the jobs' own
DEATHS = 2  # of workers at a run, after which all others come first: it may be what kills them
WAIT = 1.0  # seconds until such a job is tried again, twice as long each time

Tell = Callable[[Mapping[str, Any]], None]


@dataclass
class Troubles:
    """Jobs that this worker could not train, where no attempt recorded why: a refused spec, a folder that cannot be
    written, ranks that die before they claim.
    """

    reasons: dict[str, list[str]] = field(default_factory=dict)  # by run
    waiting: dict[str, float] = field(default_factory=dict)  # by run: when it may be tried again
    in_a_row: int = 0

    def add(self, run: str, reason: str) -> None:
        reasons = self.reasons.setdefault(run, [])
        reasons.append(reason)
        self.in_a_row += 1
        self.waiting[run] = time.monotonic() + WAIT * 2 ** (len(reasons) - 1)

    def may_try(self, run: str) -> bool:
        return not self.given_up(run) and time.monotonic() >= self.waiting.get(run, 0.0)

    def given_up(self, run: str) -> bool:
        return len(self.reasons.get(run, ())) >= TRIES or self.in_a_row >= IN_A_ROW

    def raise_given_up(self) -> None:
        """One line where a job was given up."""
        runs = [run for run in self.reasons if self.given_up(run)]
        if runs:
            what = f"gave up {len(runs)} {'run' if len(runs) == 1 else 'runs'}; {runs[0]}: {self.reasons[runs[0]][-1]}"
            raise ScalingError(what, code=1)


def work(ledger: Ledger, plan: Plan, tell: Collection[Tell] = (), outdated: Callable[[], bool] = lambda: False) -> None:
    """Train until nothing is left that this process could do; refused where it gave up runs that it cannot train.

    Ends as well where the plan is `outdated` while all that is left waits for someone else.
    """
    left, branches, troubles = _most_expensive_first(plan), _branches(plan), Troubles()
    left.sort(key=lambda job: _deaths(ledger, job.run) >= DEATHS)
    while left:
        worked, kept = False, []
        for job in left:
            if troubles.given_up(job.run) or _done(ledger, job, branches):
                continue
            kept.append(job)
            if troubles.may_try(job.run) and _ready(ledger, job, troubles):
                worked |= _try(ledger, job, tell, troubles)
        left = kept
        if not worked and left:
            if outdated():
                return
            time.sleep(PAUSE)
    troubles.raise_given_up()


def grow(ledger: Ledger, plan: Plan, branch: Run) -> None:
    """Bring the trunk of one run to where it branches off: trained here, or waited for where another worker has it,
    which takes no longer than to train the run whole.
    """
    troubles = Troubles()
    while branch.trunk is not None and not _ready(ledger, branch, troubles):
        trunk = plan.trunks[branch.trunk[0]]
        if not troubles.may_try(trunk.run) or not _try(ledger, trunk, (), troubles):
            time.sleep(PAUSE)


def _branches(plan: Plan) -> dict[str, list[Run]]:
    branches: dict[str, list[Run]] = {name: [] for name in plan.trunks}
    for run in plan.runs:
        if run.trunk is not None:
            branches[run.trunk[0]].append(run)
    return branches


def _most_expensive_first(plan: Plan) -> list[Job]:
    """All jobs by what hangs on them: a run's own work, a trunk's and that of its most expensive branch after it."""
    after = {name: max(run.flops for run in runs) for name, runs in _branches(plan).items()}
    jobs: list[Job] = [*plan.trunks.values(), *plan.runs]
    return sorted(jobs, key=lambda job: (-job.flops - after.get(job.run, 0.0), job.run))


def _deaths(ledger: Ledger, run: str) -> int:
    """How many attempts at a run were cut off by the death of their process."""
    records = ledger.attempts(run)
    return sum(record.end is None and (record is not records[-1] or not ledger.is_held(run)) for record in records)


def _done(ledger: Ledger, job: Job, branches: Mapping[str, Sequence[Run]]) -> bool:
    """Whether a run is settled, or a trunk has reached the step that the branches that are not settled need."""
    if job.run not in branches:
        return settled(ledger, job.run)
    return all(_ready(ledger, branch) or settled(ledger, branch.run) for branch in branches[job.run])


def _ready(ledger: Ledger, job: Job, troubles: Troubles | None = None) -> bool:
    """Whether a job can begin: a branch waits for its trunk, unless that cannot be trained.

    A budget that was added to a study may branch off where its trunk has passed and kept nothing: it is trained whole.
    """
    if job.trunk is None or ledger.checkpoint(*job.trunk) is not None:
        return True
    trunk, step = job.trunk
    hopeful = not hopeless(ledger, trunk) and not (troubles is not None and troubles.given_up(trunk))
    return ledger.reached(trunk) > step or not hopeful


def _try(ledger: Ledger, job: Job, tell: Collection[Tell], troubles: Troubles) -> bool:
    """Train one job; False where another worker has it, or where it could not be tried.

    What goes wrong in training stays in that run's own record. Standard error, which is a worker's log, has it too.
    """
    before = failures(ledger, job.run)
    try:
        experiment = job.experiment
        trained = train_run(experiment, ledger, Observers(tell))
    except Exception as error:
        if isinstance(error, ScalingError) and error.code == DISK:
            raise
        print(f"run {job.run}: {_reason(error)}", file=sys.stderr, flush=True)
        if failures(ledger, job.run) > before:
            return True  # the attempt has recorded it; the study goes on with the other runs
        troubles.add(job.run, " ".join(str(error).split()))
        return False
    troubles.in_a_row = 0
    return trained is not None


def _reason(error: Exception) -> str:
    """One line for what a person can fix, else the traceback."""
    return str(error) if isinstance(error, ScalingError) else "".join(traceback.format_exception(error))
