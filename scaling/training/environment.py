"""Environment: what a run's numbers depend on besides its spec."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import version
from typing import Any

import torch

from scaling.kernel.compiled import library
from scaling.version import __version__


def environment() -> dict[str, Any]:
    """Hardware and versions: two runs are comparable to the bit where these agree."""
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
    with suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine()
