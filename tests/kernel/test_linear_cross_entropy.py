"""The chunked cross-entropy against torch's own, in every number type, and its gradients against float64."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scaling.batch import IGNORE
from scaling.nn import heads as module
from scaling.nn.heads import cross_entropy

ROWS, WIDTH, CLASSES = 37, 8, 11


def _plain(parts: Any, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    ((hidden, weight),) = parts
    logits = F.linear(hidden, weight, bias)
    return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)


def _case(dtype: torch.dtype, bias: bool = True) -> tuple[list[Tensor], Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(ROWS, WIDTH), (CLASSES, WIDTH), *([(CLASSES,)] if bias else [])]
    inputs = [torch.randn(shape, generator=draw, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]
    targets = torch.randint(CLASSES, (ROWS,), generator=draw)
    targets[::5] = IGNORE
    return inputs, targets


def _run(function, inputs: list[Tensor], targets: Tensor, smoothing: float, upstream: Tensor) -> list[Tensor]:
    """The losses, then the gradient of each input."""
    hidden, weight, bias = [*inputs, None][:3]
    losses = function([(hidden, weight)], bias, targets, smoothing)
    return [losses.detach(), *torch.autograd.grad(losses, inputs, upstream.to(losses.dtype))]


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of ten rows, so that the last one is short."""
    monkeypatch.setattr(module, "CPU_CHUNK", 10 * CLASSES)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]
)
def test_equals_the_plain_formula_in_float64(dtype, tolerance, bias, smoothing):
    inputs, targets = _case(dtype, bias)
    upstream = torch.linspace(-1, 1, ROWS, dtype=torch.float64)  # every row weighs something else
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    expected = _run(_plain, exact, targets, smoothing, upstream)
    for ours, truth in zip(_run(cross_entropy, inputs, targets, smoothing, upstream), expected):
        torch.testing.assert_close(ours.double(), truth, atol=tolerance, rtol=tolerance)


def test_gradient_by_differences():
    inputs, targets = _case(torch.float64)
    assert torch.autograd.gradcheck(
        lambda hidden, weight, bias: cross_entropy([(hidden, weight)], bias, targets, 0.1), inputs
    )


def test_loss_is_float32_and_exact_where_the_target_is_hopeless():
    hidden = torch.tensor([[1.0, 0.0]])
    weight = torch.tensor([[200.0, 0.0], [0.0, 0.0], [-100.0, 0.0]])  # its chance, e⁻³⁰⁰, is 0 in float32
    assert cross_entropy([(hidden, weight)], None, torch.tensor([2])).item() == 300
    assert cross_entropy([(hidden.bfloat16(), weight.bfloat16())], None, torch.tensor([2])).dtype == torch.float32


def test_ignored_rows_bear_no_loss_and_no_gradient():
    inputs, targets = _case(torch.float32)
    losses, hidden, *_ = _run(cross_entropy, inputs, targets, 0.1, torch.ones(ROWS))
    assert (losses[targets == IGNORE] == 0).all()
    assert (hidden[targets == IGNORE] == 0).all()
    assert (losses[targets != IGNORE] > 0).all()


def test_autocast_multiplies_in_bfloat16_and_returns_float32_gradients():
    (hidden, weight, bias), targets = _case(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses = cross_entropy([(hidden, weight)], bias, targets)
    losses.sum().backward()
    assert losses.dtype == hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(losses, _plain([(hidden, weight)], bias, targets, 0.0), atol=5e-2, rtol=5e-2)


def test_its_products_are_counted():
    (hidden, weight, _), targets = _case(torch.float32)
    with FlopCounterMode(display=False) as forward:
        losses = cross_entropy([(hidden, weight)], None, targets)
    with FlopCounterMode(display=False) as backward:
        losses.sum().backward()
    product = 2 * ROWS * WIDTH * CLASSES
    assert (forward.get_total_flops(), backward.get_total_flops()) == (product, 2 * product)


@pytest.mark.slow
def test_compiles():
    """In a process of its own: the compiler cannot read through the shape checks that the tests put on every piece."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ours, plain = json.loads(done.stdout)
    assert ours == pytest.approx(plain, abs=1e-5)


COMPILED = """
import json, torch
from scaling.nn.heads import cross_entropy

hidden, weight, bias = (torch.randn(*shape, requires_grad=True) for shape in ((37, 8), (11, 8), (11,)))
targets = torch.arange(37) % 11

def told(function):
    losses = function([(hidden, weight)], bias, targets, 0.1)
    gradients = torch.autograd.grad(losses.sum(), (hidden, weight, bias))
    return torch.cat([tensor.detach().flatten() for tensor in (losses, *gradients)]).tolist()

compiled = torch.compile(cross_entropy, backend="aot_eager", fullgraph=True)
plain = lambda parts, b, t, smoothing: torch.nn.functional.cross_entropy(
    torch.nn.functional.linear(*parts[0], b), t, reduction="none", label_smoothing=smoothing
)
print(json.dumps([told(compiled), told(plain)]))
"""
