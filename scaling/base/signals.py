"""Signals: SIGINT, SIGTERM and SIGUSR1 end a command with 130, 143 and 138, whatever it is doing.

While a command is `listening`, the first of them raises `Stopped` where the program is. A block that is `deferred` is
not interrupted: it looks at `received` where it can stop (between steps), and `Stopped` follows at its end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    import torch

PRUNE = signal.SIGUSR2  # a sweep stops the run early; what it reached is its result
LOST = signal.NSIG  # in the place of a signal: another worker has taken the run over
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
PATIENCE = 5.0  # seconds in which a command that was stopped has to leave


class Stopped(BaseException):
    """The command was asked to stop. `step` is the one at which all ranks of a run agreed to, and saved."""

    def __init__(self, signal: int, step: int | None = None):
        self.signal, self.step = signal, step
        at = "" if step is None else f" at step {step}"
        super().__init__(
            "another worker has taken the run over" if signal == LOST else f"stopped by {name(signal)}{at}"
        )

    @property
    def code(self) -> int:
        """The exit code."""
        return 128 + self.signal


class Process:
    """What this process received: the first signal that asks it to end (0 for none), and whether a sweep asks for the
    early end of its run (`pruned`). A `command` is a process of ours, whose settings are ours to change.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.listening = self.command = self.leaving = self.raised = self.pruned = False
        self.received = self.deferrals = 0

    def handle(self, number: int, frame: FrameType | None) -> None:
        if number == PRUNE:
            self.pruned = True
        elif self.leaving:
            os._exit(128 + (self.received or number))
        elif not self.received:
            self.received = number
            if not self.deferrals:
                if self.command and _imports(frame):
                    _end(number, unsaid=True)
                stop(number)
        elif number == signal.SIGINT and self.deferrals:
            raise KeyboardInterrupt  # a person insists: what was deferred for is given up

    def limit(self) -> None:
        """End a command in a while, should something keep or swallow the exception."""
        if self.command:
            signal.signal(signal.SIGALRM, lambda *_: _end(self.received, unsaid=not self.leaving))
            signal.setitimer(signal.ITIMER_REAL, 0.0 if self.deferrals else PATIENCE)


process = Process()


def stop(number: int, step: int | None = None) -> NoReturn:
    """Raise `Stopped` for a signal that this process, or another rank of its run, received."""
    if number not in (PRUNE, LOST):
        number = process.received = process.received or number
        process.raised = True
        process.limit()
    raise Stopped(number, step)


@contextmanager
def listening(to_the_end: bool = False) -> Iterator[None]:
    """Take the signals, and end the block with `Stopped`, whatever an interruption turned into on its way; a block
    within another adds nothing. `to_the_end`: the process is a command of ours, which ends after the block.
    """
    if process.listening or not _is_main():
        yield
        return
    process.reset()
    before = {number: signal.getsignal(number) for number in (*ENDING, PRUNE)}
    try:
        process.listening, process.command = True, to_the_end
        if to_the_end:  # and when all others have left, the interpreter tidies up behind a command that is done
            atexit.register(_handle_by, signal.SIG_IGN)
        for number in before:
            signal.signal(number, process.handle)
        try:
            yield
        except BaseException as error:
            if process.received and not isinstance(error, Stopped):
                raise Stopped(process.received) from error
            raise
        if process.received:
            raise Stopped(process.received)
    finally:
        if to_the_end:
            process.leaving = True
        else:
            for number, handler in before.items():
                signal.signal(number, handler)
            process.reset()


def take_back() -> None:
    """Take the signals again, where a Trainer took one: it would wait for the other ranks within the handler."""
    _handle_by(process.handle)


def _handle_by(handler: Any) -> None:
    for number in ENDING if process.listening and _is_main() else ():
        signal.signal(number, handler)


@contextmanager
def unhandled() -> Iterator[None]:
    """Let a signal end this process at once, where it waits in a library and no handler of Python's would run."""
    try:
        _handle_by(signal.SIG_DFL)
        yield
    finally:
        take_back()


@contextmanager
def deferred() -> Iterator[None]:
    """Keep a signal that comes within the block for its end, so that the block is not left halfway."""
    if not _is_main():
        yield
        return
    process.deferrals += 1
    if process.raised:
        process.limit()  # what tidies up on the way out has its own bounds
    try:
        yield
    finally:
        process.deferrals -= 1
        if process.received and not process.deferrals:
            process.limit()
    if process.received and not process.raised and not process.deferrals:
        stop(process.received)


def leave(code: int) -> NoReturn:
    """End a process that was stopped, or a rank that failed, without the seconds that the interpreter takes."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def agreed(ranks: int, device: torch.device, lost: bool = False) -> int:
    """The signal that some rank of the run received, for all at one moment; 0 for none, LOST where one lost the run."""
    received = LOST if lost else process.received or (PRUNE if process.pruned else 0)
    if ranks == 1:
        return received
    import torch  # here, since commands listen before they import anything that is slow
    import torch.distributed

    flag = torch.tensor(received, device=device)
    torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
    return int(flag)


def _is_main() -> bool:
    """Whether this is the main thread, the only one that may set handlers, and the one in which they run."""
    return threading.current_thread() is threading.main_thread()


def _imports(frame: FrameType | None) -> bool:
    """Whether an import is under way. torch's calls Python from C++, where an exception aborts the process."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _end(number: int, unsaid: bool) -> NoReturn:
    """End the process from within a handler, with the line that nothing above it will print any more."""
    if unsaid:
        with suppress(OSError):
            os.write(2, f"scaling: stopped by {name(number)}\n".encode())
    os._exit(128 + number)


def name(number: int) -> str:
    """SIGTERM for 15."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
