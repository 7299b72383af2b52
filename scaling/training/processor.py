"""Processor: the settings of a CPU before a small model trains on it."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

# malloc.h's names; a block beyond the most still comes from the kernel and goes back to it.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 1 << 30

SUBNORMAL = 1e-39  # below float32's smallest normal number, 1.2e-38


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
    before = flushes()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def flushes() -> bool:
    """Whether this thread counts such numbers as zero."""
    return (torch.tensor(SUBNORMAL, dtype=torch.float32, device="cpu") * 1).item() == 0
