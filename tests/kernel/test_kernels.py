"""What the compiled kernels promise beyond their formulas, which test_inputs.py compares at every size."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.batch import IGNORE
from scaling.kernel.compiled import absent, serves
from scaling.kernel.functions import (
    activate,
    attention,
    cross_entropy,
    depthwise,
    layer_norm,
    rms_norm,
    rotated,
    softmax,
)

pytestmark = pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")


def draw(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    return made.to(dtype).requires_grad_()


@pytest.mark.parametrize("phi", ["gelu", "silu"])
def test_far_from_zero_an_activation_is_zero_or_x(phi):
    x = torch.tensor([-1e15, -1e4, -100.0, 0.0, 100.0, 1e4, 1e15], requires_grad=True)
    y = activate(phi, x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([0.0, 0, 0, 0, 100, 1e4, 1e15]), atol=1e-30, rtol=1e-6)
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0, 0, 0.5, 1, 1, 1]), atol=1e-6, rtol=1e-6)


def test_the_logistic_is_right_to_the_last_places():
    x = torch.linspace(-80, 80, 100_001)
    error = (activate("silu", x).double() - F.silu(x.double())) / F.silu(x.double())
    assert error[x != 0].abs().max() < 4e-7


# What may be left out, and what is shared by rows or heads.
PARTIAL: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[tuple[int, ...], ...]]] = {
    "layer norm": (
        lambda x: layer_norm(x, None, None, 1e-5),
        lambda x: F.layer_norm(x, x.shape[-1:], None, None, 1e-5),
        ((5, 33),),
    ),
    "layer norm without a gain": (
        lambda x, b: layer_norm(x, None, b, 1e-5),
        lambda x, b: F.layer_norm(x, x.shape[-1:], None, b, 1e-5),
        ((5, 33), (33,)),
    ),
    "layer norm without a bias": (
        lambda x, g: layer_norm(x, g, None, 1e-5),
        lambda x, g: F.layer_norm(x, x.shape[-1:], g, None, 1e-5),
        ((5, 33), (33,)),
    ),
    "rms norm": (lambda x: rms_norm(x, None, 1e-6), lambda x: F.rms_norm(x, x.shape[-1:], None, 1e-6), ((5, 33),)),
    "softmax": (
        lambda x: softmax(x * 1, None, heads=2, scale=0.3, causal=False),
        lambda x: (x * 0.3).softmax(-1),
        ((6, 5, 7),),
    ),
    "softmax under a mask for all": (
        lambda x: softmax(x * 1, MASK.to(x.dtype), heads=2, scale=0.3, causal=False),
        lambda x: (x * 0.3 + MASK[0].to(x.dtype)).softmax(-1),
        ((6, 5, 7),),
    ),
    "attention": (
        lambda q, k, v: attention(q, k, v, None, scale=0.3, causal=False),
        lambda q, k, v: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=0.3
        ).transpose(1, 2),
        ((2, 37, 2, 24), (2, 130, 2, 24), (2, 130, 2, 17)),
    ),
    "depthwise": (
        lambda x, taps: depthwise(x, taps, None),
        lambda x, taps: (x.unfold(1, 3, 1).transpose(-1, -2) * taps).sum(-2),
        ((3, 7, 16), (3, 16)),
    ),
}
MASK = torch.zeros(1, 1, 1, 7).index_fill(-1, torch.tensor([6]), torch.finfo(torch.float32).min)


@pytest.mark.parametrize("name", PARTIAL)
def test_what_is_left_out_is_as_in_the_formula(name):
    ours, plain, shapes = PARTIAL[name]
    inputs = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    found, truth = ours(*inputs), plain(*exact)
    upstream = torch.linspace(0.1, 1, found.numel()).view_as(found)
    pairs = zip(torch.autograd.grad(found, inputs, upstream), torch.autograd.grad(truth, exact, upstream.double()))
    for one, other in ((found, truth), *pairs):
        torch.testing.assert_close(one.double(), other, atol=1e-5 * max(1.0, other.abs().max().item()), rtol=1e-5)


def test_zeros_stay_zero():
    x = torch.zeros(2, 12, requires_grad=True)
    y = rms_norm(x, torch.ones(12), 1e-6)
    y.sum().backward()
    assert (y == 0).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


def test_a_later_key_changes_nothing_before_it():
    q, k, v = (draw(2, 70, 2, 8, seed=seed).detach() for seed in range(3))
    before = attention(q, k, v, None, scale=0.3, causal=True)
    k[:, -1], v[:, -1] = 50.0, -50.0
    assert torch.equal(attention(q, k, v, None, scale=0.3, causal=True)[:, :-1], before[:, :-1])
    weights = softmax(draw(4, 33, 33).detach(), None, heads=2, scale=0.5, causal=True)
    assert (weights.masked_select(torch.ones(33, 33, dtype=torch.bool).triu(1)) == 0).all()


def test_a_query_that_may_see_nothing_has_an_average():
    q, k, v = inputs = [draw(1, 6, 1, 4, seed=seed) for seed in range(3)]
    mixed = attention(q, k, v, torch.full((1, 1, 6, 6), torch.finfo(torch.float32).min), scale=1.0, causal=False)
    torch.testing.assert_close(mixed, inputs[2].mean(1, keepdim=True).expand_as(mixed))
    assert all(x.isfinite().all() for x in torch.autograd.grad(mixed.sum(), inputs))


def test_a_target_beyond_the_classes_is_seen_and_the_loss_needs_no_gradient():
    losses, again = torch.empty(4), torch.empty(4)
    logits, targets = torch.zeros(4, 5), torch.tensor([4, 5, -1, IGNORE])
    cross_entropy(logits, targets, losses, None, 0.0)
    cross_entropy(logits, targets, again, torch.empty_like(logits), 0.0)
    assert losses.isfinite().tolist() == [True, False, False, True]
    assert losses[3] == 0
    assert torch.equal(losses.nan_to_num(), again.nan_to_num())


def test_what_is_turned_lies_heads_first():
    assert rotated(draw(3, 5, 2, 8), torch.ones(1, 5, 4), torch.zeros(1, 5, 4)).transpose(1, 2).is_contiguous()


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _normed(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    norm = layer_norm(activate("gelu", x), gain, bias, 1e-5)
    return softmax(norm.unflatten(0, (5, 60)) * 1, None, heads=1, scale=1.0, causal=False)


def _attended(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = None) -> Tensor:
    return attention(q, k, v, added, scale=0.3, causal=False)


HEADS = ((6, 60, 4, 8), (6, 60, 2, 8), (6, 60, 2, 8))
PARALLEL = [
    (_normed, ((300, 48), (48,), (48,))),
    (lambda x, taps: depthwise(x, taps, None), ((6, 404, 48), (5, 48))),
    (lambda x, taps: depthwise(x, taps, None), ((6, 404, 48), (6, 400, 5, 48))),
    *((_attended, (*HEADS, *added)) for added in ((), ((1, 4, 60, 60),), ((6, 1, 60, 60),), ((1, 1, 60, 60),))),
]


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(("function", "shapes"), PARALLEL)
def test_the_number_of_threads_changes_no_bit(function, shapes):
    inputs, made = [draw(*shape, seed=seed) for seed, shape in enumerate(shapes)], []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found = function(*inputs)
        made.append([found, *torch.autograd.grad(found, inputs, found.detach() * 3)])
    for other in made[1:]:
        assert all(torch.equal(one, two) for one, two in zip(made[0], other, strict=True))


def test_whom_they_serve(monkeypatch: pytest.MonkeyPatch):
    x = torch.zeros(3)
    assert serves(x, None, torch.nn.Parameter(x), x.clone())
    assert not serves(x.double())
    assert not serves(x, x.bfloat16())
    assert not serves(x.to("meta"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not serves(x)
