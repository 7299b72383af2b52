"""Run: one folder, in which one worker at a time makes an attempt, until there is a result.

The system frees a lock in the moment in which its process ends, however it ends, and over NFS too. An attempt whose
process was killed leaves no `end` in the log. The first valid result is kept, and a later one is compared with it,
except for its section `circumstances`: wall time, host, hardware, versions, speed.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
import time
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, get_args

from scaling.base import atomic
from scaling.base.errors import DISK, ScalingError, disk
from scaling.ledger import checkpoint
from scaling.ledger.checkpoint import KEEP, Belongs, Checkpoint
from scaling.ledger.document import Log, differences, entries, parse, publish, read_valid, seal, text

Outcome = Literal["finished", "diverged", "pruned"]
Interruption = Literal["out_of_memory", "failed", "stopped"]
RESULTS = get_args(Outcome)  # ends that are an answer
INTERRUPTIONS = get_args(Interruption)  # ends after which the run is still to be done
FAILURES = ("out_of_memory", "failed")  # those that come back unless something is changed

LOCK, LOG, RESULT = "lock", "log.jsonl", "result.json"
LIFE = ("start", "end", "retry")  # the kinds of entries that the ledger writes
CIRCUMSTANCES = "circumstances"
TRACEBACK = 20_000  # characters of it that an end keeps: the last ones name its origin
LOOK = 1.0  # seconds between looks at whether a lock is still ours

logger = logging.getLogger(__name__)


class Lock:
    """The lock of a file as one object sees it: `take` it, and `release` it.

    A file system without locks grants it to whoever asks last; the holder before finds another token, and has lost it.
    """

    def __init__(self, path: Path):
        self.path = path
        self.holder = {"host": socket.gethostname(), "pid": os.getpid()}
        self._content = json.dumps({**self.holder, "token": secrets.token_hex(16)}).encode()
        self._handle: int | None = None
        self._lost, self._looked = False, 0.0

    def take(self) -> bool:
        """Hold the lock; False where another holds it."""
        with disk("cannot lock a run"):
            while self._handle is None:
                handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
                try:
                    if atomic.hold(handle):
                        with suppress(FileNotFoundError):  # it was released, and so removed, meanwhile
                            if os.path.samestat(self.path.stat(), os.fstat(handle)):
                                os.ftruncate(handle, 0)
                                os.write(handle, self._content)
                                self._handle = handle
                    elif not atomic.hold(handle, fcntl.LOCK_SH):  # else someone is looking at it
                        return False
                finally:
                    if self._handle != handle:
                        os.close(handle)
        return True

    def is_lost(self, since: float = LOOK) -> bool:
        """Whether the lock is another's by now: its file was removed, or a file server forgot who held it. It is looked
        at again where the last look is `since` seconds ago.
        """
        if not self._lost and time.monotonic() - self._looked >= since:
            self._looked = time.monotonic()
            with suppress(OSError):  # a look that fails is one missed: at worst the run is trained twice
                self._lost = not self.path.exists() or self.path.read_bytes() != self._content
        return self._lost

    def release(self) -> None:
        """Remove the lock, unless it is another's by now."""
        if self._handle is not None:
            with suppress(OSError):
                if not self.is_lost(since=0):
                    self.path.unlink()
            os.close(self._handle)
            self._handle = None


def lock_state(path: Path) -> Literal["free", "held", "abandoned"]:
    """Whether a lock is held; one whose process was killed is abandoned until the next worker takes it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return "free"
    try:
        return "abandoned" if atomic.hold(handle, fcntl.LOCK_SH) else "held"
    finally:
        os.close(handle)


@dataclass(frozen=True)
class Record:
    """An attempt as others see it: its number, the entry of its start, and that of its end where there is one.

    A failure is `forgiven` where someone has asked since to try the run again.
    """

    number: int
    start: Mapping[str, Any]
    end: Mapping[str, Any] | None = None
    forgiven: bool = False

    @property
    def failed(self) -> bool:
        """Whether it ended as a failure that counts."""
        return self.end is not None and self.end.get("outcome") in FAILURES and not self.forgiven


def records(life: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The attempts at a run, oldest first, by the entries of their starts and ends."""
    attempts: dict[int, Record] = {}
    for entry in life:
        number = entry.get("attempt", 0)
        if entry["kind"] == "retry":
            attempts = {n: replace(each, forgiven=True) for n, each in attempts.items()}
        elif entry["kind"] == "start":
            attempts[number] = Record(number, entry)
        elif number in attempts:
            attempts[number] = replace(attempts[number], end=entry)
    return list(attempts.values())


def spans(records: Iterable[Record]) -> list[tuple[datetime, datetime]]:
    """The start and the end of each attempt that has ended."""
    ended = [(record.start["time"], record.end["time"]) for record in records if record.end is not None]
    return [(datetime.fromisoformat(start), datetime.fromisoformat(end)) for start, end in ended]


def history(run: Path) -> list[dict[str, Any]]:
    """The log of the attempts at a run, as one history: a step that was trained again is taken from its last attempt.

    Entries of one step and one `kind` replace each other. Those without a step, and what was logged after the run was
    done, are left out.
    """
    last: dict[tuple[int, str], dict[str, Any]] = {}
    for entry in entries(run / LOG):
        if entry.get("outcome") in RESULTS:
            break
        if isinstance(entry.get("step"), int):
            last[entry["step"], str(entry.get("kind"))] = entry
    return [last[key] for key in sorted(last, key=lambda key: key[0])]


def hardware(circumstances: Mapping[str, Any]) -> str:
    """A result's machine in words."""
    ranks = circumstances.get("ranks", 1)
    if circumstances.get("device", "cpu") != "cpu":
        return f"{ranks} × {circumstances['device']}"
    parts = [f"{circumstances.get('processor', 'a processor')} CPU", f"{circumstances.get('cores', '?')} cores"]
    parts += [circumstances["instructions"]] if circumstances.get("instructions") else []
    threads = circumstances.get("threads", "?")
    return f"{', '.join(parts)}, {threads} thread{'' if threads == 1 else 's'} a worker"


def read_result(run: Path) -> dict[str, Any] | None:
    """The valid result of the run in this folder; None where there is none, or a damaged one (which counts as none)."""
    result = read_valid(run / RESULT, run=run.name)
    return result if result is not None and result.get("outcome") in RESULTS else None


def _claims(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if key not in (CIRCUMSTANCES, "attempt")}


class Attempt:
    """An attempt at a run whose lock is held. As a context it logs an end, however the block ends.

    Leaving the block by an exception logs the end `failed` (`stopped` for an interrupt or a full disk) with the reason;
    leaving it without `finish` or `end` logs `stopped`.
    """

    def __init__(self, run: Path, number: int, lock: Lock, pinned: Collection[int] = ()):
        self.run, self.run_id, self.number, self.pinned = run, run.name, number, frozenset(pinned)
        self._lock, self._ended = lock, False
        self._belongs: Belongs = lambda _: True
        self._saved: list[int] = []  # the last steps that this attempt has saved or begun with
        self.log = Log(run / LOG)
        self.log.write({"kind": "start", "attempt": number, "time": now(), **lock.holder})
        self.log.sync()

    @property
    def superseded(self) -> bool:
        """Whether another worker may have taken the run over: going on is harmless, and wasted."""
        return self._lock.is_lost()

    def resume(self, belongs: Belongs = lambda _: True) -> Checkpoint | None:
        """The latest whole checkpoint, or None to begin afresh; warns of damaged ones.

        One that does not belong to the run counts as damaged.
        """
        self._belongs = belongs
        newest = checkpoint.find(self.run, belongs=belongs)
        self._saved = [] if newest is None else [newest.step]
        self.log.write({"kind": "resume", "from_step": None if newest is None else newest.step})
        return newest

    @contextmanager
    def checkpoint(
        self, step: int, note: Mapping[str, Any] | None = None, pinned: Collection[int] = ()
    ) -> Iterator[Path]:
        """A folder to write the checkpoint of `step` into; it counts once the block has ended well.

        Then the log is synced as well, and checkpoints before it that are no longer needed are dropped; those of
        `pinned` steps are needed for now.
        """
        self.log.sync()
        with checkpoint.writing(self.run, step, note or {}, self._belongs) as folder:
            yield folder
        self._saved = [*(each for each in self._saved if each != step), step][-KEEP:]
        if len(self._saved) == KEEP and not self._lock.is_lost(since=0):
            needed = {*self._saved, *self.pinned, *pinned}
            for each, path in checkpoint.steps(self.run).items():
                if each < step and each not in needed:
                    checkpoint.drop(path)

    def finish(self, outcome: Outcome, result: Mapping[str, Any]) -> Mapping[str, Any]:
        """Publish the run's result unless a valid one is there, and end; returns the result that is kept.

        Where that is another's, the log has each key in which they differ, with the kept value and this attempt's.
        """
        self.log.sync()
        valid = ours = {"run": self.run_id, "attempt": self.number, "outcome": outcome, **result}
        ending: dict[str, Any] = {"outcome": outcome, "reason": None}
        if not publish(self.run / RESULT, ours):
            standing = read_result(self.run)
            if standing is None:
                with disk("cannot write the result"):
                    atomic.write(self.run / RESULT, seal(ours))  # in the place of a damaged one
            else:
                valid, changes = standing, differences(_claims(standing), _claims(parse(text(ours).encode())))
                if changes:
                    ending["differences"] = {key: list(pair) for key, pair in changes.items()}
                    logger.warning(
                        "run %s: attempt %d found another result than attempt %s (kept): %s is %r there, now %r",
                        *(self.run_id, self.number, valid["attempt"], *next((k, *pair) for k, pair in changes.items())),
                    )
        self._end(ending)
        return valid

    def end(self, outcome: Interruption, reason: str, error: BaseException | None = None) -> None:
        """End without a result: the run is still to be done, and another attempt may go on from the last checkpoint.

        The log keeps the traceback of the error that ended it.
        """
        ending = {"outcome": outcome, "reason": reason}
        if error is not None and outcome in FAILURES:
            ending["traceback"] = "".join(traceback.format_exception(error))[-TRACEBACK:]
        self._end(ending)

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if not self._ended:
                stopped = not isinstance(error, Exception) or (isinstance(error, ScalingError) and error.code == DISK)
                reason = "left without a result" if error is None else f"{type(error).__name__}: {error}"
                self.end("stopped" if stopped else "failed", " ".join(reason.split()), error)
        except ScalingError as disk_full:
            if error is None:
                raise
            # The error that is under way is more specific; without an end the attempt counts as gone, which it is.
            logger.warning("the end of attempt %d of run %s was not written: %s", self.number, self.run_id, disk_full)
        finally:
            self._lock.release()

    def _end(self, ending: Mapping[str, Any]) -> None:
        self._ended = True
        self.log.write({"kind": "end", "attempt": self.number, "time": now(), **ending})
        self.log.sync()


def now() -> str:
    """The time for people to read; nothing is ever decided by it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
