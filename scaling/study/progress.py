"""Progress: how far a study is, by what its runs have logged. A run that is settled is not looked at again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scaling.ledger import RESULTS, Ledger, Row
from scaling.study.plan import Job, Plan, Run
from scaling.study.settled import settled


@dataclass(frozen=True)
class Active:
    """A run or a trunk under way; `left` in seconds, at its last speed."""

    name: str
    row: Row
    left: float | None


@dataclass(frozen=True)
class Progress:
    """How many runs there are and have come to their end, and how much of the compute is done.

    `trunks` are those that runs still wait for.
    """

    planned: int
    settled: int
    share: float
    active: Sequence[Active]
    trunks: int = 0


class Watch:
    """Looks at a study again and again, at little cost."""

    def __init__(self, ledger: Ledger, found: Plan):
        self.ledger, self.found = ledger, found
        self.left: dict[str, Run] = {one.run: one for one in found.runs}
        self.whole = sum(one.flops for one in (*found.runs, *found.trunks.values()))
        self.passed = 0.0  # by runs that are settled

    def look(self) -> Progress:
        passed, active = 0.0, []
        for one in list(self.left.values()):
            row = self.ledger.status(one.run)
            if row.state in RESULTS or (row.state not in ("waiting", "running") and settled(self.ledger, one.run)):
                self.passed += one.flops
                del self.left[one.run]
                continue
            first = one.trunk[1] if one.trunk else 0
            passed += one.flops * max(0, (row.step or 0) - first) / max(1, one.steps - first)
            if row.state == "running":
                active.append(Active(one.name, row, _left(one, row)))
        trunks, needed = 0, {one.trunk[0] for one in self.left.values() if one.trunk}
        for name, trunk in self.found.trunks.items():
            row = self.ledger.status(name)
            grown = min(1.0, (row.step or 0) / trunk.steps)
            passed += trunk.flops * grown
            trunks += name in needed and grown < 1
            if row.state == "running":
                active.append(Active(f"trunk of {_branch(self.found, name)}", row, _left(trunk, row)))
        done = len(self.found.runs) - len(self.left)
        share = 1.0 if not self.left else min(1.0, (self.passed + passed) / self.whole)
        return Progress(len(self.found.runs), done, share, active, trunks)


def _left(job: Job, row: Row) -> float | None:
    if not row.step or not row.tokens_per_second:
        return None
    experiment = job.experiment
    return (experiment.tokens(job.steps) - experiment.tokens(row.step)) / row.tokens_per_second


def _branch(found: Plan, trunk: str) -> str:
    return next(one.name for one in found.runs if one.trunk and one.trunk[0] == trunk)
