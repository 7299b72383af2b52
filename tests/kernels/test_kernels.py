"""Every compiled kernel with every kind of input: layouts, sizes, empty dimensions, NaN, infinite and huge numbers;
and what the kernels promise beyond their formulas.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.base.batch import IGNORE
from scaling.kernels.compiled import absent, serves
from scaling.kernels.operations import (
    Activated,
    Depthwise,
    Gated,
    Norm,
    Rotated,
    Softmax,
    attention,
    cross_entropy,
)

pytestmark = pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")

BOTH = (torch.float32, torch.bfloat16)
activate, gated, norm, rotated = Activated.apply, Gated.apply, Norm.apply, Rotated.apply
depthwise, softmax = Depthwise.apply, Softmax.apply


@dataclass(frozen=True)
class Kernel:
    """A kernel, the same by torch's operations, and the dimensions of its inputs, of which the first `learn`."""

    ours: Callable[..., Tensor]
    plain: Callable[..., Tensor]
    inputs: tuple[str, ...]
    learning: int
    types: tuple[torch.dtype, ...] = BOTH

    @property
    def dimensions(self) -> str:
        return "".join(sorted(set("".join(self.inputs))))


def _in_place(logits: Tensor, added: Tensor | None, heads: int, causal: bool) -> Tensor:
    """Autograd refuses to change a leaf in place, which one with gaps is not."""
    return softmax(logits * 1 if logits.is_contiguous() else logits, added, heads, 0.3, causal)


def _softmax(logits: Tensor, added: Tensor) -> Tensor:
    return (logits.unflatten(0, added.shape[:2]) * 0.3 + added).softmax(-1).flatten(0, 1)


def _later(logits: Tensor) -> Tensor:
    return torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)


def _attention(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None) -> Tensor:
    if k.shape[2]:
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = torch.einsum("bthd,bshd->bhts", q * 0.3, k)
    logits = logits.masked_fill(_later(logits), -math.inf) if added is None else logits + added
    return torch.einsum("bhts,bshe->bthe", logits.softmax(-1), v)


def _biased(q: Tensor, k: Tensor, v: Tensor, added: Tensor) -> Tensor:
    return attention(q, k, v, added, scale=0.3, causal=False)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    half = cosine.shape[-1]
    one, other, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    c, s = cosine[:, :, None], sine[:, :, None]
    return torch.cat([one * c - other * s, other * c + one * s, rest], -1)


def _depthwise(x: Tensor, taps: Tensor, seen: Tensor | None) -> Tensor:
    k = taps.shape[-2]
    weights = taps if seen is None else taps * seen[..., None]
    near = [x[:, j : x.shape[1] - k + 1 + j] * weights[..., j, :] for j in range(k)]
    return torch.stack(near).sum(0)


def _targets(logits: Tensor) -> Tensor:
    targets = torch.arange(2 * len(logits)) * 2 % max(1, logits.shape[1])
    targets[2::6] = IGNORE
    if not logits.shape[1]:
        targets[:] = IGNORE
    return targets[::2]


def _losses(logits: Tensor, smoothing: float) -> Tensor:
    """Losses and gradients side by side."""
    losses, gradient = torch.empty(len(logits)), torch.empty(logits.shape, dtype=logits.dtype)
    cross_entropy(logits, _targets(logits), losses, gradient, smoothing)
    return torch.cat([losses[:, None].to(logits.dtype), gradient], 1)


def _plain_losses(logits: Tensor, smoothing: float) -> Tensor:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, _targets(logits), reduction="none", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return torch.cat([losses[:, None].detach(), gradient], 1)


KERNELS = {
    "GeLU": Kernel(lambda x: activate("gelu", x), lambda x: F.gelu(x, approximate="tanh"), ("bw",), 1),
    "SiLU": Kernel(lambda x: activate("silu", x), F.silu, ("bw",), 1),
    "GeLU's gate": Kernel(
        lambda gate, x: gated("gelu", gate, x), lambda gate, x: F.gelu(gate, approximate="tanh") * x, ("bw", "bw"), 2
    ),
    "SiLU's gate": Kernel(lambda gate, x: gated("silu", gate, x), lambda gate, x: F.silu(gate) * x, ("bw", "bw"), 2),
    "LayerNorm": Kernel(
        lambda x, gain, bias: norm("layer_norm", x, gain, bias, 1e-5),
        lambda x, gain, bias: F.layer_norm(x, x.shape[-1:], gain, bias, 1e-5),
        ("btw", "w", "w"),
        3,
    ),
    "RMSNorm": Kernel(
        lambda x, gain: norm("rms_norm", x, gain, None, 1e-6),
        lambda x, gain: F.rms_norm(x, x.shape[-1:], gain, 1e-6),
        ("btw", "w"),
        2,
    ),
    "LayerNorm without a gain": Kernel(
        lambda x, bias: norm("layer_norm", x, None, bias, 1e-5),
        lambda x, bias: F.layer_norm(x, x.shape[-1:], None, bias, 1e-5),
        ("btw", "w"),
        2,
    ),
    "RMSNorm alone": Kernel(
        lambda x: norm("rms_norm", x, None, None, 1e-6), lambda x: F.rms_norm(x, x.shape[-1:], None, 1e-6), ("btw",), 1
    ),
    "softmax": Kernel(lambda x, added: _in_place(x, added, added.shape[1], False), _softmax, ("nts", "bhts"), 1),
    "causal softmax": Kernel(
        lambda x: _in_place(x, None, 1, True),
        lambda x: (x * 0.3).masked_fill(_later(x), -math.inf).softmax(-1),
        ("nss",),
        1,
    ),
    **{
        name: Kernel(_biased, _attention, ("bthd", "bsgd", "bsge", added), 4, (torch.float32,))
        for name, added in (
            ("attention", "bhts"),
            ("attention with a shared bias", "1hts"),
            ("attention with one bias for all heads", "b1ts"),
        )
    },
    "causal attention": Kernel(
        lambda q, k, v: attention(q, k, v, None, scale=0.3, causal=True),
        lambda q, k, v: _attention(q, k, v, None),
        ("bshd", "bsgd", "bsge"),
        3,
        (torch.float32,),
    ),
    "cross-entropy": Kernel(lambda x: _losses(x, 0.0), lambda x: _plain_losses(x, 0.0), ("nv",), 0),
    "smoothed cross-entropy": Kernel(lambda x: _losses(x, 0.1), lambda x: _plain_losses(x, 0.1), ("nv",), 0),
    "rotary": Kernel(rotated, _rotated, ("bthd", "btc", "btc"), 1),
    "rotary with shared angles": Kernel(rotated, _rotated, ("bthd", "1tc", "1tc"), 1),
    "depthwise": Kernel(depthwise, _depthwise, ("bmw", "kw", "btk"), 2),
    "depthwise that sees all": Kernel(
        lambda x, taps: depthwise(x, taps, None), lambda x, taps: _depthwise(x, taps, None), ("bmw", "kw"), 2
    ),
    "depthwise with own taps": Kernel(depthwise, _depthwise, ("bmw", "btkw", "1tk"), 2),
}

# Rows that end within the lanes of every processor, and beyond them.
SMALL = {"b": 3, "t": 5, "w": 7, "s": 6, "h": 4, "g": 2, "d": 6, "e": 5, "c": 2, "v": 9, "k": 3}
LARGE = {"b": 2, "t": 37, "w": 67, "s": 70, "h": 2, "g": 1, "d": 24, "e": 17, "c": 12, "v": 83, "k": 5}


def sizes_of(sizes: dict[str, int]) -> dict[str, int]:
    """With those that follow from others: rows of heads, tokens with the neighbours that stand around them."""
    return {"1": 1, **sizes, "n": sizes["b"] * sizes["h"], "m": sizes["t"] + sizes["k"] - 1}


def draw(kernel: Kernel, dtype: torch.dtype, sizes: dict[str, int]) -> list[Tensor]:
    sizes, generator = sizes_of(sizes), torch.Generator().manual_seed(0)
    inputs = [torch.randn([sizes[d] for d in shape], generator=generator).to(dtype) for shape in kernel.inputs]
    # Angles are float32 whatever turns by them.
    return [inputs[0], *(x.float() for x in inputs[1:])] if kernel.ours is rotated else inputs


def results(function: Callable[..., Tensor], inputs: list[Tensor], learning: int, upstream: Callable) -> list[Tensor]:
    """What it computes and the gradients of what learns; each leaf lies in memory as it was given."""
    leaves = [x.detach().requires_grad_(i < learning) for i, x in enumerate(inputs)]
    y = function(*leaves)
    return [y, *(torch.autograd.grad(y, leaves[:learning], upstream(y)) if learning else ())]


def weights(y: Tensor) -> Tensor:
    """An upstream gradient that weighs all numbers apart."""
    return torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)


def strided(x: Tensor) -> Tensor:
    return torch.stack([x, x + 1], -1).flatten(-2)[..., ::2]


def transposed(x: Tensor) -> Tensor:
    return x.transpose(0, -1).contiguous().transpose(0, -1)


def cut(x: Tensor) -> Tensor:
    return F.pad(x, (1, 2) * x.ndim, value=7.0)[tuple(slice(1, 1 + size) for size in x.shape)]


def expanded(dimension: int) -> Callable[[Tensor], Tensor]:
    return lambda x: x.narrow(dimension, 0, 1).expand(x.shape)


def layouts(x: Tensor) -> Iterator[tuple[str, Tensor]]:
    for lay in (strided, transposed, cut):
        yield lay.__name__, lay(x)
    for dimension in range(x.ndim):
        yield f"expanded over {dimension}", expanded(dimension)(x)
    yield "one for all", x.flatten()[:1].view([1] * x.ndim).expand(x.shape)


TYPED = [(name, dtype) for name, kernel in KERNELS.items() for dtype in kernel.types]
EACH = pytest.mark.parametrize(("name", "dtype"), TYPED, ids=str)


@EACH
def test_an_input_of_any_layout_is_read_as_its_numbers_stand(name, dtype):
    kernel = KERNELS[name]
    inputs = draw(kernel, dtype, LARGE)
    for i, own in enumerate(inputs):
        for layout, x in layouts(own):
            given, dense = ([*inputs[:i], y, *inputs[i + 1 :]] for y in (x, x.contiguous()))
            pair = [results(kernel.ours, y, kernel.learning, weights) for y in (given, dense)]
            assert all(torch.equal(one, other) for one, other in zip(*pair, strict=True)), f"input {i}, {layout}"
    if not kernel.learning:
        return
    for layout, lay in layouts(weights(kernel.ours(*inputs))):
        pair = [results(kernel.ours, inputs, kernel.learning, lambda y, up=up: up) for up in (lay, lay.contiguous())]
        assert all(torch.equal(one, other) for one, other in zip(*pair, strict=True)), f"what comes down, {layout}"


@EACH
def test_every_size_is_computed_to_its_end(name, dtype):
    kernel, generator = KERNELS[name], random.Random(0)
    tolerance = 1e-4 if dtype is torch.float32 else 5e-2
    for _ in range(12):
        sizes = {dimension: generator.randint(1, 35) for dimension in SMALL} | {"b": generator.randint(1, 3)}
        sizes["h"], sizes["c"] = sizes["g"] * generator.randint(1, 3), min(sizes["c"], sizes["d"] // 2)
        inputs = draw(kernel, dtype, sizes)
        ours = results(kernel.ours, inputs, kernel.learning, weights)
        plain = results(kernel.plain, [x.double() for x in inputs], kernel.learning, weights)
        for one, other in zip(ours, plain, strict=True):
            scale = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one.double(), other, atol=tolerance * scale, rtol=tolerance)


# No mean over no classes; a convolution without taps is below.
UNDEFINED = {("smoothed cross-entropy", "v"), *((name, "k") for name in KERNELS if "depthwise" in name)}
EMPTY = [(name, d) for name, kernel in KERNELS.items() for d in kernel.dimensions if d in SMALL]
FOLLOWING = {"h": "g", "g": "h", "d": "c"}  # no heads of queries without those of keys, no angles without a width


@pytest.mark.parametrize(("name", "dimension"), [case for case in EMPTY if case not in UNDEFINED])
def test_an_empty_dimension_gives_what_torch_gives(name: str, dimension: str):
    """Among them a rank's batch without rows, before a bias that all rows share."""
    kernel, dtype = KERNELS[name], torch.float32
    inputs = draw(kernel, dtype, {**SMALL, dimension: 0, FOLLOWING.get(dimension, dimension): 0})
    ours = results(kernel.ours, inputs, kernel.learning, weights)
    plain = results(kernel.plain, [x.double() for x in inputs], kernel.learning, weights)
    for one, other in zip(ours, plain, strict=True):
        torch.testing.assert_close(one.double(), other, atol=2e-2, rtol=2e-2, equal_nan=True)


HUGE = 3e38  # in a gradient the order of two products decides whether it overflows


def specials(dtype: torch.dtype) -> dict[str, Tensor]:
    """Every NaN has its bits: the quiet ones and the signalling, with payloads low and high, of both signs."""
    patterns = [0x7F800001, 0x7FC001FF, 0xFF800001, 0xFFFFFFFF]
    if dtype is torch.bfloat16:
        patterns = [0x7F81, 0x7FC1, 0xFFFF]
    words, width = (torch.int32, 32) if dtype is torch.float32 else (torch.int16, 16)
    signed = [pattern - (pattern >> (width - 1) << width) for pattern in patterns]
    made = {f"NaN {bits:x}": torch.tensor(x, dtype=words).view(dtype) for bits, x in zip(patterns, signed, strict=True)}
    values = (math.inf, -math.inf, -1e-45, -1e15, 1e20, HUGE, -HUGE)
    return {**made, **{str(value): torch.tensor(value).to(dtype) for value in values}}


def kinds(x: Tensor) -> Tensor:
    """0 for a finite number, 1 for NaN, 2 and −2 for the infinities."""
    return x.isnan() * 1 + x.isposinf() * 2 - x.isneginf() * 2


@EACH
def test_nan_and_infinity_stand_where_torch_has_them(name, dtype):
    """A run that diverges must look so."""
    kernel = KERNELS[name]
    inputs = draw(kernel, dtype, LARGE)
    for i, own in enumerate(inputs):
        for x, what in each(own):
            agree(kernel, [*inputs[:i], x, *inputs[i + 1 :]], weights, f"{what} of input {i}", str(HUGE) in what)
    for up, what in each(weights(kernel.ours(*inputs))) if kernel.learning else ():
        agree(kernel, inputs, lambda y, up=up: up.to(y.dtype), f"{what} of what comes down", str(HUGE) in what)


def each(own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """A tensor with every special number at its beginning, its middle and its end."""
    for value, number in specials(own.dtype).items():
        for place in (0, own.numel() // 2, own.numel() - 1):
            x = own.clone()
            x.view(-1)[place] = number
            yield x, f"{value} at {place}"


def agree(kernel: Kernel, given: list[Tensor], upstream: Callable, what: str, forward_alone: bool) -> None:
    ours = results(kernel.ours, given, kernel.learning, upstream)
    plain = results(kernel.plain, [x.float() for x in given], kernel.learning, upstream)
    for j, (one, other) in list(enumerate(zip(ours, plain, strict=True)))[: 1 if forward_alone else None]:
        assert torch.equal(kinds(one), kinds(other.to(one.dtype))), f"{what}: result {j}"


def test_no_taps_make_nothing():
    x, taps = torch.randn(2, 4, 7), torch.randn(0, 7)
    assert torch.equal(depthwise(x, taps, None), torch.zeros(2, 5, 7))


@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if len(kernel.inputs) > 1])
def test_tensors_of_two_types_are_refused_not_misread(name):
    kernel = KERNELS[name]
    inputs = draw(kernel, torch.float32, SMALL)
    for i, x in enumerate(inputs):
        with pytest.raises(TypeError, match="float64"):
            kernel.ours(*inputs[:i], x.double(), *inputs[i + 1 :])


def test_outputs_with_gaps_are_refused_not_written_over():
    logits, targets = torch.randn(4, 5), torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match="one after another"):
        cross_entropy(logits, targets, torch.empty(4, 2)[:, 0], None, 0.0)


def test_a_target_beyond_the_classes_is_seen_and_the_loss_needs_no_gradient():
    losses, again = torch.empty(4), torch.empty(4)
    logits, targets = torch.zeros(4, 5), torch.tensor([4, 5, -1, IGNORE])
    cross_entropy(logits, targets, losses, None, 0.0)
    cross_entropy(logits, targets, again, torch.empty_like(logits), 0.0)
    assert losses.isfinite().tolist() == [True, False, False, True]
    assert losses[3] == 0
    assert torch.equal(losses.nan_to_num(), again.nan_to_num())


@pytest.mark.parametrize("phi", ["gelu", "silu"])
def test_an_activation_is_right_to_the_last_places_and_far_from_zero_is_zero_or_x(phi):
    x = torch.tensor([-1e15, -1e4, -100.0, 0.0, 100.0, 1e4, 1e15], requires_grad=True)
    y = activate(phi, x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([0.0, 0, 0, 0, 100, 1e4, 1e15]), atol=1e-30, rtol=1e-6)
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0, 0, 0.5, 1, 1, 1]), atol=1e-6, rtol=1e-6)
    x = torch.linspace(-80, 80, 100_001)
    error = (activate("silu", x).double() - F.silu(x.double())) / F.silu(x.double())
    assert error[x != 0].abs().max() < 4e-7


def test_a_later_key_changes_nothing_before_it():
    q, k, v = (torch.randn(2, 70, 2, 8) for _ in range(3))
    before = attention(q, k, v, None, scale=0.3, causal=True)
    k[:, -1], v[:, -1] = 50.0, -50.0
    assert torch.equal(attention(q, k, v, None, scale=0.3, causal=True)[:, :-1], before[:, :-1])
    assert (softmax(torch.randn(4, 33, 33), None, 2, 0.5, True).triu(1) == 0).all()


def test_a_query_that_may_see_nothing_has_an_average():
    q, k, v = inputs = [torch.randn(1, 6, 1, 4, requires_grad=True) for _ in range(3)]
    mixed = attention(q, k, v, torch.full((1, 1, 6, 6), torch.finfo(torch.float32).min), scale=1.0, causal=False)
    torch.testing.assert_close(mixed, v.mean(1, keepdim=True).expand_as(mixed))
    assert all(x.isfinite().all() for x in torch.autograd.grad(mixed.sum(), inputs))


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


THREADED = {"b": 6, "t": 60, "w": 48, "s": 60, "h": 4, "g": 2, "d": 8, "e": 8, "c": 4, "v": 83, "k": 5}


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", [name for name, kernel in KERNELS.items() if kernel.learning])
def test_the_number_of_threads_changes_no_bit(name):
    kernel, found = KERNELS[name], []
    inputs = draw(kernel, torch.float32, THREADED)
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.append(results(kernel.ours, inputs, kernel.learning, weights))
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def test_whom_they_serve(monkeypatch: pytest.MonkeyPatch):
    x = torch.zeros(3)
    assert serves(x, None, torch.nn.Parameter(x), x.clone())
    assert not serves(x.double())
    assert not serves(x, x.bfloat16())
    assert not serves(x.to("meta"))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not serves(x)
