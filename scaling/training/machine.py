"""Machine: how many threads a run is worth, how its processor counts, what the device can do at most, and what of all
this a run's numbers depend on.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from scaling.base import __version__
from scaling.config.document import document
from scaling.config.files import shipped
from scaling.kernels.compiled import library
from scaling.training.ranks import rank_count

if TYPE_CHECKING:
    from scaling.training.experiment import Experiment

# FLOPs of an update for each thread, about a second of one core. Threads with less work gain little on an idle
# machine; where another process wants one of their cores they wait for one another far longer than they compute.
EACH = 2e10
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")

# malloc.h's names; a block beyond the most still comes from the kernel and goes back to it.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 1 << 30

SUBNORMAL = 1e-39  # below float32's smallest normal number, 1.2e-38


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def suited(experiment: Experiment, most: int) -> int:
    """The threads that a run is worth, by what it computes at once, of at most `most`.

    It depends on nothing that changes between two attempts at a run: another number of threads is another rounding.
    """
    rows = experiment.config["train.micro_batch"] or experiment.size.size(0) // rank_count(experiment.config)
    flops = experiment.cost.flops_train_per_token * experiment.row_tokens * rows
    return max(1, min(most, int(flops / EACH)))


@contextmanager
def chosen(experiment: Experiment) -> Iterator[None]:
    """Train in float32 by default and with `train.threads` while the block lasts, where they are auto with the number
    that suits the run.

    OMP_NUM_THREADS counts where it is set, and so does a smaller number that the caller has set in torch. Where a GPU
    computes, the CPU's threads are left as they are.
    """
    before, number = torch.get_num_threads(), experiment.config["train.threads"]
    if number == "auto":
        left = torch.cuda.is_available() or any(variable in os.environ for variable in VARIABLES)
        number = before if left else suited(experiment, min(before, cores()))
    dtype = torch.get_default_dtype()
    torch.set_num_threads(number)
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_default_dtype(dtype)


def keep_freed() -> None:
    """Let glibc keep the memory that tensors on the CPU leave.

    By default it returns what is large to the kernel, which clears every page of it again at the next step: thousands
    of page faults, and up to a tenth of a small model's step (docs/performance.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            libc.mallopt(option, MOST)


@contextmanager
def flushed() -> Iterator[None]:
    """Count numbers below float32's normal ones as zero within.

    As a model trains, ever more of what it computes lies there, and some processors are slow over it: after three
    thousand steps a step took nearly twice its time (docs/performance.md).
    """
    before = torch.tensor(SUBNORMAL, dtype=torch.float32, device="cpu") * 1 == 0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(bool(before))


@dataclass(frozen=True)
class Device:
    """The limits of a device: dense operations per second by precision, and bytes of memory."""

    bf16: float
    float32: float
    memory: float
    source: str

    def peak(self, precision: str) -> float:
        """Operations per second in a run's precision; both of bfloat16 multiply in it."""
        return self.float32 if precision == "32-true" else self.bf16


@cache
def devices() -> dict[str, Device]:
    """The devices of configs/devices.yaml by name."""
    tree = document(shipped() / "devices.yaml").tree
    return {name: Device(**{**fields, "memory": float(fields["memory"])}) for name, fields in tree.items()}


def peak(precision: str) -> float | None:
    """The most operations per second of one device of this machine, by which a run's fraction of it is counted (model
    FLOP utilisation; Chowdhery et al. 2022, appendix B); None where that is not known.
    """
    if precision == "32-true" or not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((device.peak(precision) for part, device in devices().items() if part in name), None)


def environment() -> dict[str, Any]:
    """Hardware and versions: two runs on a CPU are comparable to the bit where these agree."""
    return {
        "processor": processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "kernels": "compiled" if library() is not None else "torch",
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {"scaling": __version__, **{name: version(name) for name in ("torch", "lightning", "numpy")}},
    }


def processor() -> str:
    """The processor's own name, where Linux reports it; else its architecture."""
    with suppress(OSError):
        if names := re.findall(r"^model name\s*:(.+)$", Path("/proc/cpuinfo").read_text(errors="replace"), re.M):
            return " ".join(names[0].split())
    return platform.processor() or platform.machine()
