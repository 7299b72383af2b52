"""Surroundings: what a run's numbers depend on beside its spec."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from typing import Any

import torch


def surroundings() -> dict[str, Any]:
    """Hardware and versions: two runs are comparable to the bit where these agree."""
    return {
        "processor": platform.processor() or platform.machine(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "versions": {name: version(name) for name in ("scaling", "torch", "lightning", "numpy")},
    }
