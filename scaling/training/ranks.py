"""Ranks: how many processes train one run together, which of them this is, and what the first sends to the others.

The supervisor and torchrun both start a rank with RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE in its environment.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scaling.errors import plural

if TYPE_CHECKING:
    from scaling.config import Config

PULSE = "SCALING_PULSE"  # the file descriptor at which a rank reports to its supervisor that it makes progress


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
        """The first rank's value, on every rank: plain values, since they travel as JSON."""
        if self.count == 1:
            return value
        import torch
        from torch import distributed

        text = json.dumps(value).encode() if self.first else b""
        length = torch.tensor(len(text))
        distributed.broadcast(length, 0)
        content = torch.zeros(int(length), dtype=torch.uint8)
        if self.first:
            content = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        distributed.broadcast(content, 0)
        return json.loads(bytes(content.tolist()))


def launched() -> bool:
    """Whether this process was started as one rank of several."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ


def first() -> bool:
    """Whether this process is the first rank, or trains alone: the one that touches the ledger."""
    return not launched() or os.environ["RANK"] == "0"


def rank_count(config: Config) -> int:
    """The number of ranks of a run: that it was started with, else `trainer.devices`."""
    if launched():
        return int(os.environ["WORLD_SIZE"])
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


@contextmanager
def joined() -> Iterator[Ranks]:
    """The ranks of this run, joined in a process group while the block lasts; alone there is none."""
    if not launched():
        yield Ranks(0, 1, 1)
        return
    import torch
    from torch import distributed

    environment = os.environ
    # Small things (a claim, a signal) go by gloo wherever the gradients go.
    distributed.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    yield Ranks(int(environment["RANK"]), int(environment["WORLD_SIZE"]), int(environment["LOCAL_WORLD_SIZE"]))
    # After an error the group stays: to leave it may wait for the others, who wait for this rank.
    distributed.barrier()  # the first holds the others' meeting place, and may not leave before them
    if distributed.is_initialized():
        distributed.destroy_process_group()


def pulse() -> None:
    """Report to the supervisor, where there is one, that this rank makes progress."""
    descriptor = os.environ.get(PULSE)
    if descriptor is not None:
        with contextlib.suppress(BlockingIOError):
            os.write(int(descriptor), b".")
