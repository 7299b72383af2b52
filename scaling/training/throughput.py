"""Throughput: the fraction of a device's peak that a run uses (model FLOP utilisation; Chowdhery et al. 2022, appendix
B).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch

from scaling.config import document, shipped


@dataclass(frozen=True)
class Device:
    """What a device can do at most: dense operations per second by precision, and bytes of memory."""

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
    """The most operations per second of one device of this machine; None where that is not known."""
    if precision == "32-true" or not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((device.peak(precision) for part, device in devices().items() if part in name), None)
