"""The chunked RMSNorm against torch's, and its gradients against differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from scaling.nn import rms as module
from scaling.nn.norm import RMSNorm
from scaling.nn.rms import rms_norm

WIDTH = 12


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four rows at a time, so that the last chunk is short."""
    monkeypatch.setattr(module, "CHUNK", 4 * WIDTH)


def _inputs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(3, 5, WIDTH, generator=draw, dtype=torch.float64) * 3
    gain = torch.rand(WIDTH, generator=draw, dtype=torch.float64) + 0.5
    return x.to(dtype).requires_grad_(), gain.to(dtype).requires_grad_()


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_equals_torch_in_float64(dtype, tolerance, transposed):
    x, gain = _inputs(dtype)
    truth, true_gain = x.detach().double().requires_grad_(), gain.detach().double().requires_grad_()
    turn = (lambda y: y.transpose(0, 1)) if transposed else (lambda y: y)
    ours = rms_norm(turn(x), gain, 1e-6)
    plain = F.rms_norm(turn(truth), (WIDTH,), true_gain, 1e-6)
    upstream = turn(torch.linspace(-1, 1, x.numel(), dtype=torch.float64).view_as(x)).to(dtype)
    found = [ours, *torch.autograd.grad(ours, (x, gain), upstream)]
    expected = [plain, *torch.autograd.grad(plain, (truth, true_gain), upstream.double())]
    for one, other in zip(found, expected):
        assert one.dtype == dtype
        torch.testing.assert_close(one.double(), other, atol=tolerance, rtol=tolerance)


def test_gradient_by_differences():
    assert torch.autograd.gradcheck(lambda x, gain: rms_norm(x, gain, 1e-6), _inputs(torch.float64))


def test_zeros_stay_zero():
    x = torch.zeros(2, WIDTH, requires_grad=True)
    y = rms_norm(x, torch.ones(WIDTH), 1e-6)
    y.sum().backward()
    assert (y == 0).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_meta_compiled_and_without_gain_take_torch_s_own(monkeypatch: pytest.MonkeyPatch):
    piece, bare, x = RMSNorm(WIDTH), RMSNorm(WIDTH, gain=False), _inputs(torch.float32)[0].detach()
    chunked = piece(x)
    torch.testing.assert_close(bare(x), chunked, atol=1e-6, rtol=1e-6)
    assert RMSNorm(WIDTH).to("meta")(x.to("meta")).shape == x.shape
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(piece(x), F.rms_norm(x, (WIDTH,), piece.gain, piece.eps))
