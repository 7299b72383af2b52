"""Ranks: the processes that train one run together. They are started here, by torchrun or by SLURM.

The ranks of `trainer.devices` are jobs of the local executor, which ends all when one fails. torchrun states a rank's
place in RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, and so does this module; srun states it in variables of its
own.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from scaling.base import signals
from scaling.base.errors import ScalingError, plural, refuse

if TYPE_CHECKING:
    from lightning.fabric.plugins.environments import ClusterEnvironment

    from scaling.config.document import Config
    from scaling.executors import Handle

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


def _variables() -> Mapping[str, str]:
    """The variables of a rank. A script that sbatch runs has SLURM's variables too, but is not a step of the job; the
    workers of a study are steps that submitit starts, and not ranks.
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
        count, each = (int(_variables().get(name, 0)) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        what = f"there are {count} ranks in all, and {each or 'an unstated number'} on this machine"
        fix = "start the same number on each: torchrun --nproc-per-node=N, or srun --ntasks-per-node=N"
        refuse(not each or count % each, what, fix)
        return count
    import torch

    devices, gpus = config["trainer.devices"], torch.cuda.device_count()
    if devices == "auto":
        return max(1, gpus)
    cores = os.cpu_count() or 1
    there = plural(gpus, "GPU") if gpus else f"no GPU and {plural(cores, 'core')}"
    config.refuse(devices > (gpus or cores), "trainer.devices", f"the machine has {there}", "take fewer, or auto")
    return devices


def cluster() -> ClusterEnvironment:
    """Lightning's view of who started this process."""
    from lightning.fabric.plugins.environments import LightningEnvironment, SLURMEnvironment, TorchElasticEnvironment

    if not launched():
        return LightningEnvironment()
    return TorchElasticEnvironment() if "RANK" in os.environ else SLURMEnvironment(auto_requeue=False)


def local_count() -> int:
    """The number of ranks of this run on this machine, this process among them."""
    return int(_variables()["LOCAL_WORLD_SIZE"]) if launched() else 1


def broadcast(value: Any) -> Any:
    """The first rank's value, on every rank that has joined."""
    values = [value]
    if launched():
        from torch import distributed

        distributed.broadcast_object_list(values)
    return values[0]


@contextmanager
def joined() -> Iterator[None]:
    """Join the ranks of this run in a process group while the block lasts; alone there is none."""
    if not launched():
        yield
        return
    import torch
    from torch import distributed

    lightning = cluster()
    address = f"tcp://{lightning.main_address}:{lightning.main_port}"
    # Small things (a claim, a signal) go by gloo wherever the gradients go.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    with signals.unhandled():  # no handler of Python's runs while torch waits for the others
        distributed.init_process_group(backend, address, TIMEOUT, lightning.world_size(), lightning.global_rank())
    yield
    # After an error the group stays: to leave it may wait for the others, who wait for this rank.
    distributed.barrier()  # the first may hold the others' meeting place, and may not leave before them
    if distributed.is_initialized():
        distributed.destroy_process_group()


def start_ranks(count: int, threads: int, function: Callable[..., None], *arguments: Any) -> None:
    """Call a function on `count` ranks of this machine. Each has `threads` threads, unless OMP_NUM_THREADS sets the
    number. The first may print on standard error.

    A signal that ends a command is passed on to every rank: they agree, save and leave. Then it ends this process too.
    """
    from torch.distributed import TCPStore

    from scaling.executors import Resources
    from scaling.executors.local import Local

    with signals.listening(), signals.deferred():
        meeting = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(meeting.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the ranks meet at this process
            "TORCHELASTIC_RUN_ID": "scaling",
            "WORLD_SIZE": str(count),
            "LOCAL_WORLD_SIZE": str(count),
        }
        signals.process.pruned = False
        named = os.environ.get("OMP_NUM_THREADS", "")
        resources = Resources(threads=int(named) if named.isdecimal() else threads)
        group, passed_on = Local(count), 0
        try:
            handles = [
                group.submit(f"rank {rank}", _as_rank, rank, shared, function, arguments, resources=resources)
                for rank in range(count)
            ]
            while any(handle.end is None for handle in handles) and not any(map(_fault, handles)):
                group.wait(LOOK)
                number = signals.process.received or (signals.PRUNE if signals.process.pruned else 0)
                for handle in handles if number != passed_on else ():
                    handle.cancel(number)
                passed_on = number
        finally:
            group.close(0.0)
        stopped = [signals.process.received, *(handle.end.signal for handle in handles if handle.end is not None)]
        if number := next(filter(signals.ENDING.__contains__, stopped), 0):
            signals.stop(number)
        # What was killed is the cause of what the others found.
        faults = {handle: fault for handle in handles if (fault := _fault(handle)) is not None}
        for handle, (text, code) in sorted(faults.items(), key=lambda each: each[0].status() != "died"):
            raise RankFailed(f"{handle.name} of {count}: {text}") if code is None else ScalingError(text, code=code)


def _fault(handle: Handle) -> tuple[str, int | None] | None:
    """The error of a rank and its exit code; a rank that a signal stopped has not failed."""
    if handle.end is None or handle.end.signal in signals.ENDING:
        return None
    return handle.end.value if handle.end.status == "done" else (str(handle.end.reason), None)


def _as_rank(
    rank: int, variables: Mapping[str, str], function: Callable[..., None], arguments: tuple[Any, ...]
) -> tuple[str, int | None] | None:
    """Call the function as one rank of several, in a process of its own; returns what it failed by."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2) if rank else (1,):
        os.dup2(nowhere, stream)
    os.environ.update(variables, RANK=str(rank), LOCAL_RANK=str(rank))
    try:
        function(*arguments)
        return None
    except ScalingError as error:
        return str(error), error.code
    except Exception as error:
        return "".join(traceback.format_exception(error)), None
