"""Agent: one a node. It takes runs from the W&B server, has `scaling train` start the ranks, and loses none.

    what others left   →   train it   →   ask the server   →   write the assignment down   →   train it   →   …

A run is trained by a process of its own, as W&B's agent does it, so that whatever kills it leaves the agent. What the
server hands out is written next to the ledger first: after a kill or a requeue, any agent of the sweep finds it there,
and the ledger shows whether it is done. An agent leaves when the server has no more runs and every assigned one is
done.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from scaling import parent
from scaling.errors import BAD_INPUT, DISK, ScalingError
from scaling.ledger import Ledger
from scaling.studies.run_status import settled
from scaling.sweeps.assignment import Assignment, Roster
from scaling.sweeps.check import experiment
from scaling.sweeps.command import words_of
from scaling.sweeps.server import Path, Server
from scaling.training.signals import PRUNE, deferred, received
from scaling.training.wandb_settings import AGENT, SWEEP

BEAT = 5.0  # seconds between heartbeats, as of W&B's own agent
LOOK = 0.1  # seconds between looks at the run
GRACE = 3.0  # seconds in which the server may still answer once a signal has come
TRIES = 3  # of a run by one agent, where its process dies or fails


@dataclass
class Agent:
    """One agent's life; `count` runs at most are taken from the server."""

    server: Server
    path: Path
    overrides: Sequence[str]  # for every run, on this node
    environment: Mapping[str, str]  # of the runs
    ledger: Ledger
    roster: Roster
    tell: Callable[[str], None]
    count: int | None = None
    tries: dict[str, int] = field(default_factory=dict)
    taken: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # why runs came to nothing, by their names

    @staticmethod
    def of(
        server: Server,
        path: Path,
        overrides: Sequence[str],
        environment: Mapping[str, str],
        tell: Callable[[str], None],
        count: int | None = None,
    ) -> Agent:
        """An agent of a sweep that the server knows, over the ledger that the sweep's command and overrides name."""
        tree = yaml.safe_load(server.sweep(path)["config"])
        roots = [word for word in (*words_of(tree["command"], tree["program"]), *overrides) if word.startswith("runs=")]
        ledger = Ledger.create(roots[-1].removeprefix("runs=") if roots else "runs")
        roster = Roster(ledger.root / "sweeps" / path.sweep)
        return Agent(server, path, overrides, environment, ledger, roster, tell, count)

    def serve(self) -> None:
        """Train until nothing is left."""
        with self.roster.present():
            agent = self.server.register(self.path)
            while True:
                if self._leftovers(agent):
                    continue
                if self.count is not None and self.taken >= self.count:
                    return
                with deferred():  # the server hands a run out no second time: it is written down at once
                    taken = self._taken(agent)
                if taken is not None:
                    assignment = self._understood(taken)
                    if assignment is not None:
                        self._train(agent, assignment)
                elif next(self._open(), None) is None:
                    return
                else:
                    time.sleep(BEAT)  # an agent that has one of them may yet die

    def _taken(self, agent: str) -> Assignment | None:
        """The server's next run, written down as ours; None where it has none."""
        commands = _answer(lambda: self.server.heartbeat(agent, [])) or []
        command = next((entry for entry in commands if entry.get("type") in ("run", "resume")), None)
        if command is None:
            return None
        self.taken += 1
        given = tuple(f"{key}={line['value']}" for key, line in command["args"].items())
        return self.roster.take(Assignment(command["run_id"], "", given, ""))

    def _understood(self, assignment: Assignment) -> Assignment | None:
        """The assignment with the run it means, None where that is refused. The sweep is read again: it may be edited
        while it runs.
        """
        tree = yaml.safe_load(self.server.sweep(self.path)["config"])
        words = (*words_of(tree["command"], tree["program"]), *assignment.words)
        try:
            run = self.ledger.add(experiment([*words, *self.overrides]).spec)
        except ScalingError as error:
            if error.code != BAD_INPUT:
                raise  # a full disk is no fault of the run's
            self._report(assignment, "refused", str(error))
            self.roster.drop(assignment)
            return None
        return self.roster.take(replace(assignment, words=words, run=run))

    def _leftovers(self, agent: str) -> bool:
        """Train one assigned run that no agent trains; False where there is none."""
        for left in self._open():
            if not self.roster.is_left(left):
                continue
            if not left.run:
                assignment = self._understood(self.roster.take(left))
            else:
                # Its agent is gone; the process that trained it may not be.
                assignment = None if self.ledger.is_held(left.run) else self.roster.take(left)
            if assignment is not None:
                self._train(agent, assignment)
                return True
        return False

    def _open(self) -> Iterator[Assignment]:
        """Assigned runs that may still be trained, by whomever."""
        for assignment in self.roster.assigned():
            done = bool(assignment.run) and settled(self.ledger, assignment.run)
            if not done and self.tries.get(assignment.name, 0) < TRIES:
                yield assignment

    def _train(self, agent: str, assignment: Assignment) -> None:
        self.tries[assignment.name] = self.tries.get(assignment.name, 0) + 1
        words = [sys.executable, "-m", "scaling", "train", *assignment.words, *self.overrides]
        variables = {
            **parent.named(),
            AGENT: self.roster.own,
            SWEEP: self.path.sweep,
            "WANDB_RUN_ID": assignment.name,
            "WANDB_PROJECT": self.path.project,
            "WANDB_ENTITY": self.path.entity,
        }
        with deferred():  # a signal is handed on to the run
            process = subprocess.Popen(
                words,
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                process_group=0,
            )
            try:
                self._watch(agent, assignment, process)
            except BaseException:
                process.terminate()
                process.wait()
                raise
            self._judge(assignment, process.returncode)

    def _watch(self, agent: str, assignment: Assignment, process: subprocess.Popen[bytes]) -> None:
        """Until the run's process ends: beat, and hand on what the server and the scheduler ask for."""
        beat, pruned, signalled = time.monotonic() + BEAT, False, False
        while process.poll() is None:
            time.sleep(LOOK)
            if received() and not signalled:
                process.send_signal(signal.SIGTERM)  # it saves at its next step, and leaves
                signalled = True
            if time.monotonic() >= beat and not received():
                beat = time.monotonic() + BEAT
                pruned = pruned or self._stops(agent, assignment)
            # A process that does not train yet would die of it, and leave no result.
            if pruned and not signalled and self.ledger.status(assignment.run).step is not None:
                process.send_signal(PRUNE)
                signalled = True

    def _stops(self, agent: str, assignment: Assignment) -> bool:
        """Whether the server requests that the run stop. One that is out of reach is no reason to stop it."""
        try:
            commands = _answer(lambda: self.server.heartbeat(agent, [assignment.name], patience=0.0), grace=0.0)
        except ScalingError:
            return False
        return any(command.get("type") in ("stop", "exit") for command in commands or ())

    def _judge(self, assignment: Assignment, code: int) -> None:
        result = self.ledger.result(assignment.run)
        if result is not None:
            self._report(assignment, result["outcome"], result.get("reason"))
        elif code == BAD_INPUT and self.ledger.status(assignment.run).state == "running":
            self.tries[assignment.name] -= 1  # another process was quicker
        elif code == BAD_INPUT:
            self.tries[assignment.name] = TRIES
            self._report(assignment, "refused", "it printed why")
        elif code == DISK:
            raise ScalingError(
                "the disk is full or failing", fix="free some space and start the agent again", code=DISK
            )
        elif not received():
            self._report(assignment, "failed", f"its process ended with code {code}")

    def _report(self, assignment: Assignment, outcome: str, reason: str | None) -> None:
        """Report the outcome of a run; a failure is kept until a later try has a result."""
        self.failed.pop(assignment.name, None)
        if outcome in ("failed", "refused"):
            self.failed[assignment.name] = f"{outcome}: {reason}"
        why = f": {reason}" if reason else ""
        self.tell(f"{assignment.name}: run {assignment.run or '-'} {outcome}{why}")


def _answer(ask: Callable[[], list[dict[str, Any]]], grace: float = GRACE) -> list[dict[str, Any]] | None:
    """What the server answers, who may be out of reach for long; None where a signal came meanwhile."""
    answers: list[list[dict[str, Any]] | ScalingError] = []

    def wait() -> None:
        try:
            answers.append(ask())
        except ScalingError as error:
            answers.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    while thread.is_alive() and not received():
        thread.join(LOOK)
    thread.join(grace)
    if not answers:
        return None
    if isinstance(answers[0], ScalingError):
        raise answers[0]
    return answers[0]
