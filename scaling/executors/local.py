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
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import forkserver, get_context, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType

from scaling.base.signals import Stopped, leave, listening
from scaling.base.signals import name as name_of
from scaling.base.standard_error import keep_going
from scaling.config import schema
from scaling.executors import End, Executor, Handle, ended

LEAVING = 60.0  # seconds in which a process may save its run and leave
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")  # the last is that of tokenizers


class Worker:
    """A process, the devices that it sees (none: the CPU alone), and the job that it does."""

    def __init__(self, devices: tuple[str, ...], log: str):
        context = get_context("forkserver")
        self.devices = devices
        self.handle: Handle | None = None
        self.pipe, theirs = context.Pipe()
        seen = {"CUDA_VISIBLE_DEVICES": ",".join(devices)} if devices else {}
        arguments = (theirs, log, {**os.environ, **seen}, schema.extensions())
        self.process = context.Process(target=serve, args=arguments, name="scaling")
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")  # or the process would run the command's script again
        try:
            self.process.start()
        finally:
            sys.modules["__main__"] = main
        theirs.close()

    def kill(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.process.pid or 0, number)

    def leave(self) -> None:
        """Let the process end: it is idle, or has died."""
        self.pipe.close()
        self.process.join()

    def end(self) -> End:
        """The end of the job, of which something is in the pipe: what the process sends, or its death."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.leave()
            code = self.process.exitcode or 0
            reason = f"its process was killed by {name_of(-code)}" if code < 0 else f"its process left with {code}"
            return End("died", reason=reason, signal=-code if code < 0 else max(0, code - 128))


class Local(Executor):
    """At most `slots` jobs at a time; those that take a GPU, or a fraction of one, have the `gpus` of this machine.
    What they print goes to `log`, or where this process's output goes.
    """

    def __init__(self, slots: int, log: Path | None = None, gpus: int = 0):
        super().__init__(slots, "" if log is None else str(log.resolve()))
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.touch()  # a folder that may only be read is refused here, once
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.devices = seen.split(",") if seen else [str(index) for index in range(gpus)]
        self.workers: list[Worker] = []
        modules = ["scaling.executors.server", "scaling.training.run", "scaling.executors.leaving"]
        get_context("forkserver").set_forkserver_preload(modules)
        forkserver.ensure_running()  # which imports while the command goes on

    def begin(self) -> None:
        """In the order of the jobs, so that one that takes whole GPUs is not overtaken by small ones for ever."""
        while self.waiting and (devices := self.place(self.waiting[0].resources.gpus)) is not None:
            handle = self.waiting.pop(0)
            idle = [worker for worker in self.workers if worker.handle is None]
            worker = next((worker for worker in idle if worker.devices == devices), None)
            if worker is None:
                for other in idle:
                    if {*other.devices} & {*devices}:  # it would keep memory of a device that another job needs
                        self.workers.remove(other)
                        other.leave()
                try:
                    worker = Worker(devices, self.log)
                except (EOFError, ConnectionError):
                    handle.end = End("died", reason="the server that forks its process was killed")
                    continue
                self.workers.append(worker)
            worker.handle, handle.place = handle, worker
            with suppress(OSError):  # of one that died idle, which is seen as it is waited for
                worker.pipe.send((handle.resources.threads, *handle.call))

    def place(self, gpus: float) -> tuple[str, ...] | None:
        """The devices that a job gets now, those of the least use first; None where it has to wait. A machine with
        fewer GPUs than a job asks for gives all that it has.
        """
        busy = [worker for worker in self.workers if worker.handle is not None]
        used = dict.fromkeys(self.devices, 0.0)
        for worker in busy:
            for device in worker.devices:
                used[device] += min(1.0, worker.handle.resources.gpus)  # type: ignore[union-attr]
        number = min(math.ceil(gpus), len(used))
        free = sorted((device for device in used if used[device] + min(1.0, gpus) < 1.001), key=used.__getitem__)
        return tuple(free[:number]) if len(busy) < self.slots and len(free) >= number else None

    def wait(self, timeout: float) -> None:
        busy = {worker.pipe: (worker, handle) for worker in self.workers if (handle := worker.handle) is not None}
        for pipe in wait(list(busy), timeout):
            worker, handle = busy[pipe]  # type: ignore[index]
            worker.handle, handle.end = None, worker.end()
            if worker.pipe.closed:
                self.workers.remove(worker)
        self.begin()

    def kill(self, handle: Handle, number: int) -> None:
        handle.place.kill(number)

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
                    threads, *call = pipe.recv()
                    os.environ.update(dict.fromkeys(THREADS, str(threads)))
                    torch.set_num_threads(threads)
                    pipe.send(ended(*call))
    except Stopped as stopped:
        leave(stopped.code)
    leave(0)


def _follow() -> None:
    """End with the command, however that ended: what is killed cannot hang, and a run goes on from its checkpoint."""
    command = parent_process()
    assert command is not None
    command.join()
    os.kill(os.getpid(), signal.SIGKILL)
