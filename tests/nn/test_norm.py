"""Norms against the formulas, and their gain in its three forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scaling.nn.blocks import LayerNorm, RMSNorm


def formula(kind: type, x: np.ndarray, gain: np.ndarray, bias: np.ndarray, eps: float) -> np.ndarray:
    if kind is LayerNorm:
        x = x - x.mean(-1, keepdims=True)
    return gain * x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) + bias


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("gain", [True, False, "zero_centered"])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_a_norm_is_its_formula(kind: type, gain: bool | str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, x = kind(24, eps=1e-3, gain=gain).to(dtype), torch.randn(5, 24, dtype=dtype)
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    whole = np.ones(24) if norm.gain is None else norm.gain.detach().numpy() + (gain == "zero_centered")
    bias = norm.bias.detach().numpy() if kind is LayerNorm else np.zeros(24)
    expected = formula(kind, x.numpy().astype(np.float64), whole, bias, 1e-3)
    np.testing.assert_allclose(norm(x).detach().numpy(), expected, atol=1e-5 if dtype == torch.float32 else 1e-12)
