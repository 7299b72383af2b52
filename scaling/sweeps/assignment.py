"""Assignments: which W&B run an agent was given, and what it was to train; kept next to the ledger.

    runs/sweeps/<sweep>/agents/<agent>              the lock of an agent, while it lives
    runs/sweeps/<sweep>/assigned/<W&B run>.json     whose it is, its words, the run of the ledger

W&B forgets a run whose agent dies: grid search does not hand it out again. So every agent writes down what it is given
before it starts, and takes over what a dead one left; a dead agent is recognised as in the ledger, by its lock.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from scaling import atomic
from scaling.ledger.run import Lock, lock_state


@dataclass(frozen=True)
class Assignment:
    """One W&B run: its id, the agent that has it, the words of its command, and the run of the ledger they mean.

    Until the agent has asked what that is, `run` is empty, and the words are the drawn parameters alone.
    """

    name: str
    agent: str
    words: tuple[str, ...]
    run: str


@dataclass
class Roster:
    """The agents and assignments of one sweep, as one agent among them sees and writes them."""

    folder: Path
    own: str = field(default_factory=lambda: secrets.token_hex(8))

    def present(self) -> Lock:
        """Be seen alive by the others while the block lasts."""
        path = self.folder / "agents" / self.own
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path)
        lock.take()
        return lock

    def take(self, assignment: Assignment) -> Assignment:
        """Write an assignment down as our own."""
        ours = replace(assignment, agent=self.own)
        atomic.write_json(self.folder / "assigned" / f"{assignment.name}.json", asdict(ours))
        return ours

    def drop(self, assignment: Assignment) -> None:
        """Forget an assignment that no agent could train."""
        (self.folder / "assigned" / f"{assignment.name}.json").unlink(missing_ok=True)

    def assigned(self) -> Iterator[Assignment]:
        """Every assignment of the sweep, by any agent on any machine."""
        for path in sorted((self.folder / "assigned").glob("*.json")):
            try:
                document = json.loads(path.read_text())
            except FileNotFoundError:
                continue  # dropped meanwhile
            yield Assignment(document["name"], document["agent"], tuple(document["words"]), document["run"])

    def is_left(self, assignment: Assignment) -> bool:
        """Whether no agent trains it: its agent is gone, or is this one, which is at nothing when it asks."""
        lock = self.folder / "agents" / assignment.agent
        return assignment.agent == self.own or lock_state(lock) != "held"
