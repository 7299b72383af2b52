"""Local: jobs in processes of this machine, each of which does one job after another.

A fork server (`multiprocessing`) imports torch and Lightning once; processes are forked from it, and inherit no pipe
and no signal of the command. One that dies ends its own job alone, and the next job gets another process.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any

from scaling.base.signals import Stopped, leave, listening
from scaling.base.signals import name as name_of
from scaling.base.standard_error import keep_going
from scaling.config import schema
from scaling.executors import ONE_THREAD, End, Handle, Resources, Status, ended

LEAVING = 60.0  # seconds in which a process may save its run and leave
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")  # the last is that of tokenizers


class LocalHandle(Handle):
    """A job that waits for a process, or has one. `signal` is the one that its process died of or left for, else 0."""

    executor: Local

    def __init__(self, executor: Local, name: str, call: tuple[Any, ...], resources: Resources):
        super().__init__(executor, name)
        self.call, self.resources = call, resources
        self.cancelled, self.signal = False, 0

    def status(self) -> Status:
        if self.end is not None:
            return self.end.status
        return "waiting" if self in self.executor.queue else "running"

    def logs(self) -> str:
        return Path(self.executor.log).read_text(errors="replace") if self.executor.log else ""

    def cancel(self, number: int = signal.SIGTERM) -> None:
        if self in self.executor.queue:
            self.executor.queue.remove(self)
            self.end = End("cancelled")
        for worker in self.executor.workers:
            if worker.handle is self:
                self.cancelled = number == signal.SIGTERM
                worker.kill(number)


class Worker:
    """A process, the devices that it sees (none: the CPU alone), and the job that it does."""

    def __init__(self, place: tuple[str, ...], log: str):
        context = get_context("forkserver")
        self.place = place
        self.handle: LocalHandle | None = None
        self.pipe, theirs = context.Pipe()
        devices = {"CUDA_VISIBLE_DEVICES": ",".join(place)} if place else {}
        arguments = (theirs, log, {**os.environ, **devices}, schema.extensions())
        self.process = context.Process(target=serve, args=arguments, name="scaling")
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # or the process would run the command's script again
        try:
            self.process.start()
        finally:
            sys.modules["__main__"] = main
        theirs.close()

    def kill(self, number: int) -> None:
        if self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


class Local:
    """At most `slots` jobs at a time; those that take a GPU, or a fraction of one, have the `gpus` of this machine.
    What they print goes to `log`, or where this process's output goes.
    """

    def __init__(self, slots: int, log: Path | None = None, gpus: int = 0):
        self.slots, self.log = slots, "" if log is None else str(log.resolve())
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()  # a folder that may only be read is refused here, once
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.devices = seen.split(",") if seen else [str(index) for index in range(gpus)]
        self.queue: deque[LocalHandle] = deque()
        self.workers: list[Worker] = []
        modules = ["scaling.executors.server", "scaling.training.run", "scaling.executors.leaving"]
        get_context("forkserver").set_forkserver_preload(modules)
        forkserver.ensure_running()  # which imports while the command goes on

    def submit(
        self, name: str, function: Callable[..., Any], *arguments: Any, resources: Resources = ONE_THREAD
    ) -> LocalHandle:
        # A machine with fewer GPUs than a job asks for gives all that it has.
        resources = replace(resources, gpus=min(resources.gpus, len(self.devices)))
        handle = LocalHandle(self, name, (name, resources.threads, function, arguments), resources)
        self.queue.append(handle)
        self._begin()
        return handle

    def wait(self, timeout: float) -> None:
        busy = {worker.pipe: worker for worker in self.workers if worker.handle is not None}
        for pipe in wait(list(busy), timeout):
            self._take(busy[pipe])  # type: ignore[index]
        self._begin()

    def close(self, seconds: float = LEAVING) -> None:
        until = time.monotonic() + seconds
        try:
            for worker in self.workers:
                worker.pipe.close()  # which ends one that is idle
                if worker.handle is not None:
                    worker.kill(signal.SIGTERM)
            for worker in self.workers:
                worker.process.join(max(0.0, until - time.monotonic()))
        finally:  # one that is stuck, or that a person has no time for, loses what it did not save
            for worker in self.workers:
                worker.kill(signal.SIGKILL)
                worker.process.join()
            self.workers.clear()

    def _begin(self) -> None:
        """Hand the first jobs of the queue to processes, as long as there is room: in its order, so that a job that
        takes whole GPUs is not overtaken by small ones for ever.
        """
        while self.queue and (place := self.place(self.queue[0].resources.gpus)) is not None:
            idle = [worker for worker in self.workers if worker.handle is None]
            for worker in idle:
                if worker.place != place and {*worker.place} & {*place}:
                    self._discard(worker)  # it would keep memory of a device that another job needs
            worker = next((worker for worker in idle if worker.place == place), None)
            if worker is None:
                try:
                    worker = Worker(place, self.log)
                except (EOFError, ConnectionError):
                    self.queue.popleft().end = End("died", reason="the server that forks its process was killed")
                    continue
                self.workers.append(worker)
            try:
                worker.pipe.send(self.queue[0].call)
            except OSError:  # it died idle
                self._discard(worker)
                continue
            worker.handle = self.queue.popleft()

    def place(self, gpus: float) -> tuple[str, ...] | None:
        """The devices that a job gets now, those of the least use first; None where it has to wait."""
        busy = [worker for worker in self.workers if worker.handle is not None]
        if len(busy) >= self.slots:
            return None
        if not gpus:
            return ()
        used = dict.fromkeys(self.devices, 0.0)
        for worker in busy:
            assert worker.handle is not None
            for device in worker.place:
                used[device] += min(1.0, worker.handle.resources.gpus)
        free = sorted((device for device in used if used[device] + min(1.0, gpus) < 1.001), key=used.__getitem__)
        number = math.ceil(gpus)
        return tuple(free[:number]) if len(free) >= number else None

    def _take(self, worker: Worker) -> None:
        """Take the end of a worker's job: what it sends, or its death."""
        handle = worker.handle
        assert handle is not None
        try:
            handle.end = worker.pipe.recv()
            worker.handle = None
        except (EOFError, OSError):
            self._discard(worker)
            code = worker.process.exitcode or 0
            handle.signal = -code if code < 0 else max(0, code - 128)
            reason = f"its process was killed by {name_of(-code)}" if code < 0 else f"its process left with {code}"
            handle.end = End("cancelled" if handle.cancelled else "died", reason=reason)

    def _discard(self, worker: Worker) -> None:
        self.workers.remove(worker)
        worker.pipe.close()
        worker.process.join()


def serve(pipe: Connection, log: str, environment: Mapping[str, str], extensions: Sequence[str]) -> None:
    """Do the jobs that come through the pipe, until it closes: the whole life of a worker process."""
    os.setpgrp()  # the terminal's signals reach the command, which hands them on
    threading.Thread(target=_follow, daemon=True).start()
    if log:
        output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(output, stream.fileno())
    keep_going()
    os.environ.clear()
    os.environ.update(environment)
    try:
        with listening(to_the_end=True):
            import torch

            for path in extensions:
                schema.extend(path)
            with suppress(EOFError, OSError):  # the command closes the pipe, and needs no answer any more
                while True:
                    name, threads, function, arguments = pipe.recv()
                    os.environ.update(dict.fromkeys(THREADS, str(threads)))
                    torch.set_num_threads(threads)
                    pipe.send(ended(name, function, arguments))
    except Stopped as stopped:
        leave(stopped.code)
    leave(0)


def _follow() -> None:
    """End with the command, however that ended: what is killed cannot hang, and a run goes on from its checkpoint."""
    command = parent_process()
    assert command is not None
    command.join()
    os.kill(os.getpid(), signal.SIGKILL)
