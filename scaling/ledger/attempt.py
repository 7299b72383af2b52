"""Attempt: one worker's try at one run, from its claim to its exit. Everything it writes is in a folder of its own.

    attempts/NNN/claim.json    made exclusively: who works here
    attempts/NNN/heartbeat     moves while it does
    attempts/NNN/log.jsonl     what happened
    attempts/NNN/checkpoints/  what the next attempt can go on from
    attempts/NNN/exit.json     how it ended; absent where the process was killed
    attempts/NNN/retry.json    a failure that someone asked to try again: it counts no more

A takeover is simply the next number. A worker that was thought dead and wakes keeps writing to its own folder, where it
harms no one; `superseded` reports it at its next heartbeat.
"""

from __future__ import annotations

import logging
import os
import secrets
import traceback
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, get_args

from scaling.errors import DISK, ScalingError
from scaling.ledger import checkpoint, log
from scaling.ledger.checkpoint import Checkpoint
from scaling.ledger.document import Damaged, read, seal
from scaling.ledger.exclusive import Means, disk, publish
from scaling.ledger.forms import CLAIM, EXIT, Form, misfit
from scaling.ledger.heartbeat import Heartbeat, Lease
from scaling.ledger.machine import Machine, signature
from scaling.ledger.result import (
    FAILURES,
    INTERRUPTIONS,
    RESULTS,
    Interruption,
    Outcome,
    Verdict,
    publish_result,
)

RETRY = "retry.json"
TRACEBACK = 20_000  # characters of it that an exit keeps: the last ones name its origin
KEEP = 2  # checkpoints: the last, and the one before it should the last be damaged

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Record:
    """An attempt as others see it: its number and folder, its claim, and its exit where there is one."""

    number: int
    folder: Path
    claim: Mapping[str, Any]
    exit: Mapping[str, Any] | None

    @property
    def failed(self) -> bool:
        """Whether it ended as a failure that counts."""
        outcome = None if self.exit is None else self.exit.get("outcome")
        return outcome in FAILURES and not (self.folder / RETRY).exists()

    @property
    def heartbeat(self) -> Path:
        return self.folder / "heartbeat"

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"


def records(run: Path) -> list[Record]:
    """The attempts that were claimed, oldest first. A claim that cannot be read is one of which nothing is known."""
    entries = []
    for folder in _numbered(run):
        if (folder / "claim.json").exists():
            number = int(folder.name)
            entries.append(
                Record(number, folder, _read(folder / "claim.json", CLAIM) or {}, _read(folder / "exit.json", EXIT))
            )
    return entries


def claim(run: Path, number: int, machine: Machine, means: Means) -> Path | None:
    """Claim attempt `number` of the run; its folder, or None where another worker was first."""
    folder = run / "attempts" / f"{number:03d}"
    with disk("cannot claim a run"):
        folder.mkdir(parents=True, exist_ok=True)
    signed = {
        "run": run.name,
        "attempt": number,
        "token": secrets.token_hex(16),
        "claimed": now(),
        **signature(machine),
    }
    return folder if publish(folder / "claim.json", seal(signed), means) else None


class Attempt:
    """A claimed attempt. As a context it beats, and leaves an exit behind however the block ends.

    One that is `anew` trains a run that is done: from its start, without touching the checkpoints of other attempts.
    Leaving the block by an exception writes the exit `failed` (`stopped` for an interrupt or a full disk) with the
    reason; leaving it without `finish` or `end` writes `stopped`.
    """

    def __init__(self, folder: Path, lease: Lease, means: Means, pinned: Collection[int], anew: bool = False):
        self.folder, self.number = folder, int(folder.name)
        self.run = folder.parent.parent
        self.run_id = self.run.name
        self.pinned = frozenset(pinned)
        self.anew = anew
        self.superseded = False
        self._means: Means = means
        self._ended = False
        self.heartbeat = Heartbeat(folder / "heartbeat", lease, at_each_beat=self._look_around)
        self.log = log.Log(folder / "log.jsonl")

    def resume(self, belongs: Callable[[Checkpoint], bool] = lambda _: True) -> Checkpoint | None:
        """The latest whole checkpoint of any attempt at this run, or None to begin afresh; warns of damaged ones.

        One that does not belong to the run counts as damaged.
        """
        folders = [] if self.anew else [folder / "checkpoints" for folder in _numbered(self.run)]
        newest = checkpoint.latest(folders, belongs)
        self.log.write({"kind": "resume", "from_step": None if newest is None else newest.step})
        return newest

    @contextmanager
    def checkpoint(
        self, step: int, note: Mapping[str, Any] | None = None, pinned: Collection[int] = ()
    ) -> Iterator[Path]:
        """A folder to write the checkpoint of `step` into; it counts once the block has ended well.

        Then the log is synced as well, and checkpoints that are no longer needed are dropped; those of `pinned` steps
        are needed for now.
        """
        own = self.folder / "checkpoints"
        self.log.sync()
        with checkpoint.writing(own, step, note or {}) as folder:
            yield folder
        checkpoint.prune(own, [] if self.anew else self._older(), KEEP, self.pinned.union(pinned))

    def saved(self, step: int) -> Checkpoint | None:
        """The whole checkpoint of a step by this attempt, or by those that it goes on from."""
        return checkpoint.at([self.folder / "checkpoints", *([] if self.anew else self._older())], step)

    def history(self) -> list[dict[str, Any]]:
        """What all attempts at the run logged so far, as one history."""
        return log.merged(record.log for record in records(self.run))

    def finish(self, outcome: Outcome, result: Mapping[str, Any]) -> Verdict:
        """Publish the run's result and end. The verdict: it is kept, or how it differs from the kept one."""
        if outcome not in RESULTS:
            raise ValueError(f"{outcome!r} is not a result; end the attempt instead")
        self.log.sync()
        verdict = publish_result(self.run, self.number, outcome, result, self._means)
        ending: dict[str, Any] = {"outcome": outcome, "reason": None, "first": verdict.first}
        if verdict.differences:
            ending["differences"] = {key: list(pair) for key, pair in verdict.differences.items()}
            key, (stands, repeated) = next(iter(verdict.differences.items()))
            logger.warning(
                "run %s: attempt %d found another result than attempt %s, which is kept: %s is %r there, now %r",
                *(self.run_id, self.number, verdict.stands.get("attempt"), key, stands, repeated),
            )
            self._leave_weights_that_stand()
        self._exit(ending)
        if verdict.differences:
            with suppress(OSError):
                os.utime(self.run)  # the index knows a run's folder by its time, and reads it again
        return verdict

    def _leave_weights_that_stand(self) -> None:
        """Drop what this attempt saved of a step whose checkpoint is there from the attempts whose result is kept."""
        for step, path in checkpoint.steps(self.folder / "checkpoints").items():
            if checkpoint.at(self._older(), step) is not None:
                checkpoint.drop(path)

    def _older(self) -> list[Path]:
        """The folders with the checkpoints of the attempts before this one."""
        return [path / "checkpoints" for path in _numbered(self.run) if int(path.name) < self.number]

    def end(self, outcome: Interruption, reason: str, error: BaseException | None = None) -> None:
        """End without a result: the run is still to be done, and another attempt may go on from the last checkpoint.

        The exit keeps the traceback of the error that ended it.
        """
        if outcome not in INTERRUPTIONS:
            raise ValueError(f"{outcome!r} is not one of {', '.join(get_args(Interruption))}")
        ending = {"outcome": outcome, "reason": reason}
        if error is not None and outcome in FAILURES:
            ending["traceback"] = "".join(traceback.format_exception(error))[-TRACEBACK:]
        self._exit(ending)

    def __enter__(self) -> Attempt:
        with disk("cannot write the heartbeat"):
            self.heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if not self._ended:
                self._leave(error)
        finally:
            self.close()

    def close(self) -> None:
        self.heartbeat.stop()
        self.log.close()

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            return self.end("stopped", "left without a result")
        stopped = not isinstance(error, Exception) or (isinstance(error, ScalingError) and error.code == DISK)
        try:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self.end("stopped" if stopped else "failed", reason, error)
        except ScalingError as disk_full:
            # The error that is under way is more specific; without an exit the attempt counts as gone, which it is.
            logger.warning("the end of attempt %d of run %s was not written: %s", self.number, self.run_id, disk_full)

    def _exit(self, ending: Mapping[str, Any]) -> None:
        if self._ended:
            raise ValueError("the attempt has ended already")
        self._ended = True
        publish(self.folder / "exit.json", seal({**ending, "ended": now()}), self._means)

    def _look_around(self) -> None:
        self.superseded = any(record.number > self.number for record in records(self.run))


def now() -> str:
    """The time for people to read; nothing is ever decided by it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _numbered(run: Path) -> list[Path]:
    folder = run / "attempts"
    if not folder.is_dir():
        return []
    return sorted((path for path in folder.iterdir() if path.name.isdecimal()), key=lambda path: int(path.name))


def _read(path: Path, form: Form) -> dict[str, Any] | None:
    try:
        return read(path, partial(misfit, form=form))
    except Damaged:
        return None
