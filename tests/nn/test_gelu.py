"""The chunked tanh GeLU against torch's, and its slope against differences."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from scaling.nn import gelu as module
from scaling.nn.activation import GeLU
from scaling.nn.gelu import gelu_tanh


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 64)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-6), (torch.bfloat16, 2**-8)]
)
@pytest.mark.parametrize("transposed", [False, True])
def test_equals_torch_in_float64(dtype, tolerance, transposed):
    x = torch.linspace(-12, 12, 210).view(10, 21).to(dtype)
    x = (x.T if transposed else x).requires_grad_()
    truth = x.detach().double().requires_grad_()
    ours, plain = gelu_tanh(x), F.gelu(truth, approximate="tanh")
    upstream = torch.linspace(-1, 1, 210).view_as(x)
    torch.testing.assert_close(ours.double(), plain, atol=tolerance, rtol=tolerance)
    (found,) = torch.autograd.grad(ours, x, upstream.to(dtype))
    (expected,) = torch.autograd.grad(plain, truth, upstream.to(dtype).double())
    torch.testing.assert_close(found.double(), expected, atol=2 * tolerance, rtol=2 * tolerance)


def test_slope_by_differences():
    x = torch.linspace(-5, 5, 150, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(gelu_tanh, x)


def test_far_from_zero_it_is_zero_or_x():
    x = torch.tensor([-1e4, -100.0, 100.0, 1e4], requires_grad=True)
    y = gelu_tanh(x)
    y.sum().backward()
    assert y.tolist() == [0, 0, 100, 1e4]
    assert x.grad is not None
    assert x.grad.tolist() == [0, 0, 1, 1]


def test_without_gradients_the_values_are_the_same():
    x = torch.linspace(-3, 3, 200, requires_grad=True)
    with torch.no_grad():
        assert torch.equal(gelu_tanh(x), gelu_tanh(x.clone()).detach())


def test_meta_and_compiled_take_torch_s_own(monkeypatch: pytest.MonkeyPatch):
    piece, x = GeLU(approximate="tanh"), torch.linspace(-3, 3, 70)
    torch.testing.assert_close(piece(x), F.gelu(x, approximate="tanh"), atol=1e-6, rtol=1e-6)
    assert piece(x.to("meta")).shape == x.shape
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert torch.equal(piece(x), F.gelu(x, approximate="tanh"))
