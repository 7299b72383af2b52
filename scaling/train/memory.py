"""Memory: what a step frees stays with the process, for the next step to take."""

from __future__ import annotations

import ctypes
import platform

# malloc.h's names; a block beyond the most still comes from the kernel and goes back to it.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
MOST = 1 << 30


def keep_freed() -> None:
    """Let glibc keep the memory that tensors on the CPU leave.

    By default it returns what is large to the kernel, which clears every page of it again at the next step: thousands
    of page faults, and up to a tenth of a small model's step (docs/performance.md).
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for option in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
            libc.mallopt(option, MOST)
