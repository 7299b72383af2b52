"""Throughput: what share of a device's peak a run uses (model FLOP utilisation; Chowdhery et al. 2022, appendix B)."""

from __future__ import annotations

import torch

# Dense bfloat16 operations a second, from the makers' data sheets; a name is found within the device's.
PEAKS = {"H200": 989e12, "H100 PCIe": 756e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12}


def peak(precision: str) -> float | None:
    """Operations a second that one device of this machine could do at most; None where that is not known."""
    if precision == "float32" or not torch.cuda.is_available():
        return None
    name = torch.cuda.get_device_name()
    return next((value for part, value in PEAKS.items() if part in name), None)
