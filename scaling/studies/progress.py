"""Progress: how far a study is, by what its runs have logged. A run that is settled is not looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaling.ledger import RESULTS, Ledger, Row
from scaling.studies.calibration import Speed
from scaling.studies.estimate import evaluating
from scaling.studies.plan import Job, Plan, Run
from scaling.studies.run_status import settled


@dataclass(frozen=True)
class Active:
    """A run or a trunk under way; `left` in seconds, at its last speed."""

    name: str
    row: Row
    left: float | None


@dataclass(frozen=True)
class Progress:
    """How many runs there are and have come to their end, and how much of the compute is done. `failed` of those that
    have come to their end have no result, and are tried no more.

    `trunks` are those that runs still wait for; `left` is in seconds, None while no run has reported its speed.
    """

    planned: int
    settled: int
    share: float
    active: Sequence[Active]
    trunks: int = 0
    left: float | None = None
    failed: int = 0


class Watch:
    """Looks at a study again and again, at little cost."""

    def __init__(self, ledger: Ledger, plan: Plan):
        self.ledger, self.plan = ledger, plan
        self.left: dict[str, Run] = {run.run: run for run in plan.runs}
        self.whole = sum(run.flops for run in (*plan.runs, *plan.trunks.values()))
        self.passed, self.failed = 0.0, 0  # by runs that are settled
        self.timed: dict[float, float] = {}  # seconds of a step by its FLOPs, as runs under way last reported

    def look(self) -> Progress:
        passed, active, todo = 0.0, list[Active](), list[tuple[float, float]]()
        for run in list(self.left.values()):
            row = self.ledger.status(run.run)
            if row.state in RESULTS or (row.state not in ("waiting", "running") and settled(self.ledger, run.run)):
                finished = row.state in RESULTS or self.ledger.result(run.run) is not None
                self.passed += run.flops * finished
                self.failed += not finished
                del self.left[run.run]
                continue
            first = run.trunk[1] if run.trunk else 0
            at, each = max(first, row.step or 0), run.flops / max(1, run.steps - first)
            passed += each * (at - first)
            # A branch may have no steps of its own; what its evaluation takes is then not known.
            todo.append((each, run.steps - at + (evaluating(run.experiment) / each if each else 0.0)))
            if row.state == "running":
                active.append(self._heard(run.name, run, row, each))
        trunks, needed = 0, {run.trunk[0] for run in self.left.values() if run.trunk}
        for name, trunk in self.plan.trunks.items():
            row = self.ledger.status(name)
            at, each = min(row.step or 0, trunk.steps), trunk.flops / max(1, trunk.steps)
            passed += each * at
            if name in needed and at < trunk.steps:
                trunks += 1
                todo.append((each, trunk.steps - at))
            if row.state == "running":
                active.append(self._heard(f"trunk of {_branch(self.plan, name)}", trunk, row, each))
        done = len(self.plan.runs) - len(self.left)
        share = 1.0 if not self.left and not self.failed else min(1.0, (self.passed + passed) / self.whole)
        return Progress(len(self.plan.runs), done, share, active, trunks, self._left(todo, len(active)), self.failed)

    def _heard(self, name: str, job: Job, row: Row, each: float) -> Active:
        """A run under way; its reported speed is kept, by the FLOPs of its step."""
        if not row.step or not row.tokens_per_second:
            return Active(name, row, None)
        experiment = job.experiment
        left = (experiment.tokens(job.steps) - experiment.tokens(row.step)) / row.tokens_per_second
        if row.step < job.steps:
            model = float(f"{each:.9g}")  # one key for a trunk and its branches, whose quotients may differ in a bit
            self.timed[model] = left / (job.steps - row.step)
        return Active(name, row, left)

    def _left(self, todo: Sequence[tuple[float, float]], workers: int) -> float | None:
        """Until the last worker is done: FLOPs alone would promise too much where small models are still to come."""
        if not self.timed or not todo or not workers:
            return None
        speed = Speed(tuple(sorted(self.timed.items())))
        seconds = [speed.seconds(each) * steps for each, steps in todo]
        return max(sum(seconds) / workers, max(seconds))


def _branch(plan: Plan, trunk: str) -> str:
    return next(run.name for run in plan.runs if run.trunk and run.trunk[0] == trunk)
