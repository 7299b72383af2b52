"""Ranks: the processes that train one run together. They are started here, by torchrun or by SLURM.

`torch.distributed.elastic.multiprocessing` starts the ranks of `trainer.devices`, watches them, and ends all when one
fails. torchrun states a rank's place in RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, and so does this module;
srun states it in variables of its own.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from scaling import parent
from scaling.errors import ScalingError, plural
from scaling.schema import extensions
from scaling.training import signals

if TYPE_CHECKING:
    from lightning.fabric.plugins.environments import ClusterEnvironment

    from scaling.config import Config

TIMEOUT = timedelta(minutes=10)  # in which a rank hears from the others: torch ends one that waits longer
LOOK = 0.1  # seconds between looks at the ranks
SLURM = {  # what srun sets in the place of torchrun's variables
    "RANK": "SLURM_PROCID",
    "WORLD_SIZE": "SLURM_NTASKS",
    "LOCAL_RANK": "SLURM_LOCALID",
    "LOCAL_WORLD_SIZE": "SLURM_NTASKS_PER_NODE",
}


class RankFailed(Exception):
    """A rank raised or was killed; the message is its traceback."""


@dataclass(frozen=True)
class Ranks:
    """This process's place among those that train a run."""

    number: int
    count: int
    local: int  # on this machine

    @property
    def first(self) -> bool:
        return self.number == 0

    @property
    def machines(self) -> int:
        return self.count // self.local

    def broadcast(self, value: Any) -> Any:
        """The first rank's value, on every rank."""
        if self.count == 1:
            return value
        from torch import distributed

        values = [value]
        distributed.broadcast_object_list(values)
        return values[0]


def _variables() -> Mapping[str, str]:
    """The variables of a rank. A script that sbatch runs has SLURM's variables too, but is no step of the job; workers
    of a study are steps that submitit starts, and no ranks.
    """
    if "RANK" in os.environ or "SLURM_STEP_ID" not in os.environ or "SUBMITIT_EXECUTOR" in os.environ:
        return os.environ
    return {name: os.environ[slurm] for name, slurm in SLURM.items() if slurm in os.environ}


def launched() -> bool:
    """Whether this process was started as one rank of several."""
    return int(_variables().get("WORLD_SIZE", 1)) > 1 and "RANK" in _variables()


def first() -> bool:
    """Whether this process is the first rank, or trains alone: the one that touches the ledger."""
    return not launched() or _variables()["RANK"] == "0"


def rank_count(config: Config) -> int:
    """The number of ranks of a run: that it was started with, else `trainer.devices`."""
    if launched():
        return int(_variables()["WORLD_SIZE"])
    import torch

    devices, gpus = config["trainer.devices"], torch.cuda.device_count()
    if devices == "auto":
        return max(1, gpus)
    if not isinstance(devices, int) or devices < 1:
        raise config.error("trainer.devices", "expected a number of devices, or auto")
    if devices > (gpus or os.cpu_count() or 1):
        cores = f"no GPU and {plural(os.cpu_count() or 1, 'core')}"
        what = f"the machine has {plural(gpus, 'GPU') if gpus else cores}"
        raise config.error("trainer.devices", what, "take fewer, or auto")
    return devices


def cluster() -> ClusterEnvironment:
    """Lightning's view of who started this process."""
    from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment

    if not launched():
        return LightningEnvironment()
    return TorchElasticEnvironment() if "RANK" in os.environ else SLURMEnvironment(auto_requeue=False)


@contextmanager
def joined() -> Iterator[Ranks]:
    """The ranks of this run, joined in a process group while the block lasts; alone there is none."""
    if not launched():
        yield Ranks(0, 1, 1)
        return
    import torch
    from torch import distributed

    environment, variables = cluster(), _variables()
    address = f"tcp://{environment.main_address}:{environment.main_port}"
    ranks = Ranks(environment.global_rank(), environment.world_size(), int(variables["LOCAL_WORLD_SIZE"]))
    # Small things (a claim, a signal) go by gloo wherever the gradients go.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with signals.unhandled():  # no handler of Python's runs while torch waits for the others
        distributed.init_process_group(backend, address, TIMEOUT, ranks.count, ranks.number)
    yield ranks
    # After an error the group stays: to leave it may wait for the others, who wait for this rank.
    distributed.barrier()  # the first may hold the others' meeting place, and may not leave before them
    if distributed.is_initialized():
        distributed.destroy_process_group()


def start_ranks(config: Config, ranks: int, steps: int | None = None, threads: int = 1, shown: bool = True) -> None:
    """Train a run on `ranks` processes of this machine, to its end, or its trunk up to `steps`. Each rank has `threads`
    threads, unless OMP_NUM_THREADS sets the number. The first prints its progress where it is `shown`.

    A signal that ends a command is passed on to every rank: they agree, save and leave. Then it ends this process too.
    """
    from torch.distributed import TCPStore
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

    folders = tempfile.TemporaryDirectory(prefix="scaling-")
    silent = quiet("torch.distributed.elastic.multiprocessing")  # which logs every end
    with signals.listening(), signals.deferred(), silent, folders as folder:
        config.save(Path(folder) / "config.yaml")
        meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {
            **parent.named(),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the ranks meet at this process
            "TORCHELASTIC_RUN_ID": Path(folder).name,
            "WORLD_SIZE": str(ranks),
            "LOCAL_WORLD_SIZE": str(ranks),
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        }
        trunk = "" if steps is None else str(steps)
        words = ("-m", "scaling.training.rank", f"{folder}/config.yaml", trunk, "shown" if shown else "", *extensions())
        signals.begin_run()
        with signals.pending(), _handlers_kept():  # a signal waits until the handlers are ours again
            group = start_processes(
                "rank",
                sys.executable,
                dict.fromkeys(range(ranks), words),
                {rank: {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)},
                DefaultLogsSpecs(folder, {rank: Std.ALL if rank else Std.OUT for rank in range(ranks)}),
            )
        passed_on = 0
        try:
            while (result := group.wait(LOOK, LOOK)) is None:
                number = signals.received() or (signals.PRUNE if signals.pruned() else 0)
                if number != passed_on:
                    passed_on = number
                    for process in group.pids().values():
                        with suppress(ProcessLookupError):
                            os.kill(process, number)
        finally:
            group.close(signal.SIGKILL)
        _judge(result.failures, ranks)


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Without what the loggers of these names log."""
    levels = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def _handlers_kept() -> Iterator[None]:
    """Put back the handlers of signals that torch replaces as it starts processes."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
    handlers = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():
                signal.signal(number, handler)


def _judge(failures: Mapping[int, Any], ranks: int) -> None:
    """Raise what the ranks ended by, if they did not end well: the first error that one of them has written."""
    if signals.received():
        signals.stop(signals.received())
    written = [failure for failure in failures.values() if os.path.exists(failure.error_file)]
    silent = [failure for failure in failures.values() if failure not in written]
    if written:
        first = min(written, key=lambda failure: os.stat(failure.error_file).st_mtime_ns)
        name, _, text = first.message["message"].partition(": ")
        if name == ScalingError.__name__:
            raise ScalingError(text, code=first.exitcode)
        killed = [f"rank {one.local_rank} ended with code {one.exitcode}" for one in silent if one.exitcode < 0]
        others = f" ({', '.join(killed)})" if killed else ""
        raise RankFailed(f"rank {first.local_rank} of {ranks}{others}:\n{first.message['extraInfo']['py_callstack']}")
    if silent:
        code = silent[0].exitcode  # the first that ended; the others were asked to
        number = -code if code < 0 else code - 128
        if number in signals.ENDING:
            signals.stop(number)
        raise RankFailed(f"rank {silent[0].local_rank} of {ranks} ended with code {code}")


def fail(error: BaseException, code: int = 1) -> NoReturn:
    """End a rank that failed: report the error to who started it, and wait for nobody. To be called where the error is
    handled.
    """
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler

    if file := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        os.environ["TORCHELASTIC_ERROR_FILE"] = f"{file}.part"
        with suppress(OSError):  # whole or not at all: this rank may be killed as it writes
            get_error_handler().record_exception(error)
            os.replace(f"{file}.part", file)
    signals.leave(code)
