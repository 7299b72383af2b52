"""Each compiled kernel against torch's operations in float64: values, gradients, ends of rows, what is no number."""

from __future__ import annotations

import math
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
    gated,
    layer_norm,
    rms_norm,
    rotated,
    softmax,
)

pytestmark = pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")

TYPES = [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)]
WIDTHS = [7, 16, 33, 130]  # less than the lanes, whole lanes, and what is left of a row

PHI = {"gelu": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


def draw(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2
    return made.to(dtype).requires_grad_()


def compare(ours: Callable, plain: Callable, inputs: list[Tensor], tolerance: float) -> None:
    """Values and gradients of both, the plain one's in float64, under an upstream that weighs all numbers apart.

    It is positive: sums of both signs over the rows, a bias's gradient, would cancel and keep float32's rounding alone.
    """
    exact = [x.detach().double().requires_grad_() for x in inputs]
    made, truth = ours(*inputs), plain(*exact)
    upstream = torch.linspace(0.1, 1, made.numel(), dtype=torch.float64).view_as(made).to(made.dtype)
    found = [made, *torch.autograd.grad(made, inputs, upstream)]
    expected = [truth, *torch.autograd.grad(truth, exact, upstream.double())]
    for one, other in zip(found, expected, strict=True):
        assert one.dtype is inputs[0].dtype
        scale = max(1.0, other.abs().max().item())
        torch.testing.assert_close(one.double(), other, atol=tolerance * scale, rtol=tolerance)


@pytest.mark.parametrize("phi", PHI)
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("size", [*WIDTHS, 20_000])
def test_activations(phi, dtype, tolerance, size):
    compare(lambda x: activate(phi, x), PHI[phi], [draw(size, dtype=dtype)], tolerance)
    inputs = [draw(size, dtype=dtype), draw(size, dtype=dtype, seed=1)]
    compare(lambda gate, x: gated(phi, gate, x), lambda gate, x: PHI[phi](gate) * x, inputs, tolerance)


@pytest.mark.parametrize("phi", PHI)
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


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_layer_norm(gain, bias, dtype, tolerance, width):
    inputs = [draw(5, 40, width, dtype=dtype), *(draw(width, dtype=dtype, seed=1 + i) for i in range(gain + bias))]

    def split(rest: tuple[Tensor, ...]) -> tuple[Tensor | None, Tensor | None]:
        return rest[0] if gain else None, rest[-1] if bias else None

    def ours(x: Tensor, *rest: Tensor) -> Tensor:
        return layer_norm(x, *split(rest), 1e-5)

    def plain(x: Tensor, *rest: Tensor) -> Tensor:
        return F.layer_norm(x, (width,), *split(rest), 1e-5)

    compare(ours, plain, inputs, tolerance * (30 if width == 1 else 1))  # one number's is 0/0 but for ε: 316 roundings


@pytest.mark.parametrize("gain", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("width", WIDTHS)
def test_rms_norm(gain, dtype, tolerance, width):
    inputs = [draw(5, 40, width, dtype=dtype), *([draw(width, dtype=dtype, seed=1)] if gain else [])]
    compare(
        lambda x, g=None: rms_norm(x, g, 1e-6), lambda x, g=None: F.rms_norm(x, (width,), g, 1e-6), inputs, tolerance
    )


def test_zeros_stay_zero():
    x = torch.zeros(2, 12, requires_grad=True)
    y = rms_norm(x, torch.ones(12), 1e-6)
    y.sum().backward()
    assert (y == 0).all()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("added", [None, (1, 1), (3, 1), (1, 2), (3, 2), (3, 1, 1)])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 7), (16, 16), (33, 64), (3, 130)])
def test_softmax(added, dtype, tolerance, queries, keys):
    mask = None if added is None else draw(*(*added, queries)[:3], keys, dtype=dtype, seed=1).detach()
    if mask is not None:
        mask[..., -1] = torch.finfo(dtype).min

    def ours(x):
        return softmax(x * 1, mask, heads=2, scale=0.3, causal=False)

    def plain(x):
        logits = x.view(3, 2, queries, keys) * 0.3
        return (logits if mask is None else logits + mask.double()).softmax(-1).flatten(0, 1)

    compare(ours, plain, [draw(6, queries, keys, dtype=dtype)], tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("length", WIDTHS)
def test_causal_softmax(dtype, tolerance, length):
    later = torch.ones(length, length, dtype=torch.bool).triu(1)

    def ours(x):
        return softmax(x * 1, None, heads=2, scale=0.5, causal=True)

    def plain(x):
        return (x * 0.5).masked_fill(later, -math.inf).softmax(-1)

    x = draw(4, length, length, dtype=dtype)
    compare(ours, plain, [x], tolerance)
    weights = ours(x.detach())
    assert (weights.masked_select(later) == 0).all()


SIZES = {  # queries, keys, heads, their groups, width, value width
    "one": (1, 1, 1, 1, 1, 1),
    "less than the lanes": (5, 7, 4, 2, 8, 6),
    "one query": (1, 40, 2, 1, 16, 16),
    "whole lanes": (32, 64, 2, 2, 32, 64),
    "what is left of blocks and lanes": (37, 130, 2, 2, 24, 17),
    "many keys": (70, 300, 3, 1, 64, 80),
}


@pytest.mark.parametrize("added", [None, (1, 1, 1), (3, 1, 1), (1, "h", "t"), (3, 1, "t"), (1, 1, "t"), (3, "h", "t")])
@pytest.mark.parametrize("size", SIZES)
def test_attention(size, added):
    t, s, h, g, d, e = SIZES[size]
    inputs = [draw(3, t, h, d, dtype=torch.float32)]
    inputs += [draw(3, s, g, width, dtype=torch.float32, seed=seed) for seed, width in ((1, d), (2, e))]
    if added is not None:
        named = {"h": h, "t": t}
        sizes = [named[one] if isinstance(one, str) else one for one in added]
        inputs.append(draw(*sizes, s, dtype=torch.float32, seed=3))

    def plain(q, k, v, added=None):
        k, v = (x.repeat_interleave(h // g, 2) for x in (k, v))
        logits = torch.einsum("bthd,bshd->bhts", q, k) * 0.3
        weights = (logits if added is None else logits + added).softmax(-1)
        return torch.einsum("bhts,bshe->bthe", weights, v)

    def ours(q, k, v, added=None):
        return attention(q, k, v, added, scale=0.3, causal=False)

    compare(ours, plain, inputs, 2e-5)
    apart = [torch.cat([x, x], 1).transpose(1, 2).contiguous().transpose(1, 2)[:, : x.shape[1]] for x in inputs[:3]]
    assert torch.equal(ours(*apart, *inputs[3:]), ours(*inputs))  # views with gaps


@pytest.mark.parametrize("length", [*WIDTHS, 70])
def test_causal_attention(length):
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    inputs = [draw(2, length, 2, 8, dtype=torch.float32, seed=seed) for seed in range(3)]

    def plain(q, k, v):
        logits = torch.einsum("bthd,bshd->bhts", q, k) * 0.3
        return torch.einsum("bhts,bshe->bthe", logits.masked_fill(later, -math.inf).softmax(-1), v)

    def ours(q, k, v):
        return attention(q, k, v, None, scale=0.3, causal=True)

    compare(ours, plain, inputs, 2e-5)
    q, k, v = (x.detach().clone() for x in inputs)
    before = ours(q, k, v)
    k[:, -1], v[:, -1] = 50.0, -50.0
    assert torch.equal(ours(q, k, v)[:, :-1], before[:, :-1])


def test_a_query_that_may_see_nothing_has_an_average():
    q, k, v = inputs = [draw(1, 6, 1, 4, dtype=torch.float32, seed=seed) for seed in range(3)]
    mixed = attention(q, k, v, torch.full((1, 1, 6, 6), torch.finfo(torch.float32).min), scale=1.0, causal=False)
    torch.testing.assert_close(mixed, inputs[2].mean(1, keepdim=True).expand_as(mixed))
    assert all(x.isfinite().all() for x in torch.autograd.grad(mixed.sum(), inputs))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize("classes", WIDTHS)
def test_cross_entropy(smoothing, dtype, tolerance, classes):
    logits, targets = draw(50, classes, dtype=dtype), torch.arange(50) % classes
    targets[::7] = IGNORE
    losses, gradient = torch.empty(50), torch.empty_like(logits)
    cross_entropy(logits.detach(), targets, losses, gradient, smoothing)
    exact = logits.detach().double().requires_grad_()
    truth = F.cross_entropy(exact, targets, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)
    truth.sum().backward()
    torch.testing.assert_close(losses.double(), truth.detach(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(gradient.double(), exact.grad, atol=tolerance, rtol=tolerance)
    again = torch.empty(50)
    cross_entropy(logits.detach(), targets, again, None, smoothing)
    assert torch.equal(losses, again)


def test_a_target_beyond_the_classes_is_seen():
    losses = torch.empty(4)
    cross_entropy(torch.zeros(4, 5), torch.tensor([4, 5, -1, IGNORE]), losses, None, 0.0)
    assert losses.isfinite().tolist() == [True, False, False, True]
    assert losses[3] == 0


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("width", "half"), [(2, 1), (16, 8), (12, 3), (64, 32), (80, 16)])
def test_rotated(shared, dtype, tolerance, width, half):
    angles = draw(1 if shared else 3, 5, half).detach().float()

    def plain(x):
        cos, sin = (table[:, :, None].double() for table in (angles.cos(), angles.sin()))
        one, other, rest = x.split([half, half, width - 2 * half], -1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin, rest], -1)

    compare(lambda x: rotated(x, angles.cos(), angles.sin()), plain, [draw(3, 5, 2, width, dtype=dtype)], tolerance)
    x = draw(3, 5, 2, width, dtype=dtype).detach()
    assert rotated(x, angles.cos(), angles.sin()).transpose(1, 2).is_contiguous()
    apart = torch.cat([x, x], -1)[..., :width]  # a view with gaps
    assert torch.equal(rotated(apart, angles.cos(), angles.sin()), rotated(x, angles.cos(), angles.sin()))


@pytest.mark.parametrize("own", [False, True], ids=["shared taps", "own taps"])
@pytest.mark.parametrize("rows", [None, 1, 3], ids=["all seen", "one mask", "a mask each"])
@pytest.mark.parametrize(("dtype", "tolerance"), TYPES)
@pytest.mark.parametrize(("length", "taps", "width"), [(1, 1, 7), (5, 3, 16), (9, 7, 33), (2, 9, 48)])
def test_depthwise(own, rows, dtype, tolerance, length, taps, width):
    seen = None if rows is None else (draw(rows, length, taps, seed=3) > 0).detach().to(dtype)
    shape = (3, length, taps, width) if own else (taps, width)
    inputs = [draw(3, length + taps - 1, width, dtype=dtype), draw(*shape, dtype=dtype, seed=1)]

    def plain(x, weights):
        near = x.unfold(1, taps, 1).transpose(-1, -2)
        return (near * weights * (1 if seen is None else seen.double()[..., None])).sum(-2)

    compare(lambda x, weights: depthwise(x, weights, seen), plain, inputs, tolerance)


def attend_alone(x: Tensor) -> Tensor:
    return attention(x, x, x, None, scale=1.0, causal=False)


CASES = {
    "gelu": lambda x: activate("gelu", x),
    "silu": lambda x: gated("silu", x, torch.ones_like(x)),
    "layer norm": lambda x: layer_norm(x, None, None, 1e-5),
    "rms norm": lambda x: rms_norm(x, None, 1e-6),
    "softmax": lambda x: softmax(x[None] * 1, None, heads=1, scale=1.0, causal=False)[0],
    "attention": lambda x: attend_alone(x[:, None, None].float())[:, 0, 0],
}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*CASES, "cross-entropy"])
def test_what_is_no_number_is_not_hidden(name, dtype, wrong):
    """A run that diverges must be seen to."""
    x = draw(4, 24, dtype=dtype).detach()
    x[1, 5] = wrong
    if name == "cross-entropy":
        losses = torch.empty(4)
        cross_entropy(x, torch.zeros(4, dtype=torch.long), losses, None, 0.0)
        finite = losses.isfinite()
    else:
        finite = CASES[name](x).isfinite().all(-1)
    assert finite.tolist() == [True, False, True, True]


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype):
    x, gain, bias = draw(300, 48, dtype=dtype), draw(48, dtype=dtype, seed=1), draw(48, dtype=dtype, seed=2)
    made = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        norm = layer_norm(activate("gelu", x), gain, bias, 1e-5)
        weights = softmax(norm.unflatten(0, (5, 60)) * 1, None, heads=1, scale=1.0, causal=False)
        made.append([weights, *torch.autograd.grad(weights, (x, gain, bias), weights.detach() * 3)])
    for other in made[1:]:
        assert all(torch.equal(one, two) for one, two in zip(made[0], other, strict=True))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("shape", [(5, 48), (6, 400, 5, 48)])
def test_the_number_of_threads_changes_no_bit_of_a_convolution(shape):
    x, taps = inputs = [draw(6, 404, 48, dtype=torch.float32), draw(*shape, dtype=torch.float32, seed=1)]
    made = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        mixed = depthwise(x, taps, None)
        made.append([mixed, *torch.autograd.grad(mixed, inputs, mixed.detach())])
    for other in made[1:]:
        assert all(torch.equal(one, two) for one, two in zip(made[0], other, strict=True))


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("added", [None, (1, 4, 60, 60), (6, 1, 60, 60), (1, 1, 60, 60), (6, 4, 60, 60)])
def test_the_number_of_threads_changes_no_bit_of_attention(added):
    q, k, v = inputs = [draw(6, 60, heads, 8, dtype=torch.float32, seed=heads) for heads in (4, 2, 2)]
    inputs += [] if added is None else [draw(*added, dtype=torch.float32)]
    made = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        mixed = attention(q, k, v, None if added is None else inputs[3], scale=0.3, causal=False)
        made.append([mixed, *torch.autograd.grad(mixed, inputs, mixed.detach())])
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
