"""Every compiled kernel with every kind of input, and what the kernels promise beyond their formulas."""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.base.batch import IGNORE
from scaling.kernels import operations
from scaling.kernels.compiled import absent
from scaling.kernels.operations import activated, attention, convolved, cross_entropy, gated, layer_norm, rms_norm

pytestmark = pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")


class Kernel(NamedTuple):
    """The dimensions of an operation's inputs, of which the first `learning` learn; the operation; and what replaces it
    where our kernel does not compute it, unless it chooses that itself.
    """

    inputs: str
    learning: int
    ours: Callable[..., Tensor]
    instead: Callable[..., Tensor] | None = None

    def plain(self, *inputs: Tensor) -> Tensor:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operations, "serves", lambda *_: False)
            return (self.instead or self.ours)(*inputs)


def _hidden(logits: Tensor) -> Tensor:
    return logits.masked_fill(torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1), -math.inf)


def _softmax(logits: Tensor, added: Tensor | None = None) -> Tensor:
    """Autograd refuses to change a leaf in place, which one with gaps is not."""
    heads = 1 if added is None else added.shape[1]
    return operations.Softmax.apply(logits * 1 if logits.is_contiguous() else logits, added, heads, 0.3, added is None)


def _torch_softmax(logits: Tensor, added: Tensor | None = None) -> Tensor:
    if added is None:
        return _hidden(logits * 0.3).softmax(-1)
    return (logits.unflatten(0, added.shape[:2]) * 0.3 + added).softmax(-1).flatten(0, 1)


def _attend(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = None) -> Tensor:
    return attention(q, k, v, added, scale=0.3, causal=added is None)


def _attended(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = None) -> Tensor:
    if k.shape[2]:
        k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = torch.einsum("bthd,bshd->bhts", q * 0.3, k)
    weights = (_hidden(logits) if added is None else logits + added).softmax(-1)
    return torch.einsum("bhts,bshe->bthe", weights, v)


def _targets(logits: Tensor) -> Tensor:
    targets = torch.arange(2 * len(logits)) * 2 % max(1, logits.shape[1])
    targets[2::6] = IGNORE
    return targets[::2] if logits.shape[1] else torch.full_like(targets[::2], IGNORE)


def _losses(logits: Tensor, smoothing: float = 0.0) -> Tensor:
    """Losses and gradients side by side."""
    losses, gradient = torch.empty(len(logits)), torch.empty(logits.shape, dtype=logits.dtype)
    cross_entropy(logits, _targets(logits), losses, gradient, smoothing)
    return torch.cat([losses[:, None].to(logits.dtype), gradient], 1)


def _torch_losses(logits: Tensor, smoothing: float = 0.0) -> Tensor:
    logits = logits.detach().requires_grad_()
    losses = F.cross_entropy(logits, _targets(logits), reduction="none", label_smoothing=smoothing)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    return torch.cat([losses[:, None].detach(), gradient], 1)


def _rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    return operations.rotated(cosine, sine, x)[0]


SMOOTHED = (partial(_losses, smoothing=0.1), partial(_torch_losses, smoothing=0.1))
KERNELS = {
    "GeLU": Kernel("bw", 1, partial(activated, "gelu")),
    "SiLU": Kernel("bw", 1, partial(activated, "silu")),
    "GeLU's gate": Kernel("bw bw", 2, partial(gated, "gelu")),
    "SiLU's gate": Kernel("bw bw", 2, partial(gated, "silu")),
    "LayerNorm": Kernel("btw w w", 3, partial(layer_norm, eps=1e-5)),
    "LayerNorm without a gain": Kernel("btw w", 2, lambda x, bias: layer_norm(x, None, bias, 1e-5)),
    "RMSNorm": Kernel("btw w", 2, partial(rms_norm, eps=1e-6)),
    "RMSNorm alone": Kernel("btw", 1, partial(rms_norm, gain=None, eps=1e-6)),
    "softmax": Kernel("nts bhts", 1, _softmax, _torch_softmax),
    "causal softmax": Kernel("nss", 1, _softmax, _torch_softmax),
    "attention": Kernel("bthd bsgd bsge bhts", 4, _attend, _attended),
    "attention with a shared bias": Kernel("bthd bsgd bsge 1hts", 4, _attend, _attended),
    "attention with one bias for all heads": Kernel("bthd bsgd bsge b1ts", 4, _attend, _attended),
    "causal attention": Kernel("bshd bsgd bsge", 3, _attend, _attended),
    "cross-entropy": Kernel("nv", 0, _losses, _torch_losses),
    "smoothed cross-entropy": Kernel("nv", 0, *SMOOTHED),
    "rotary": Kernel("bthd btc btc", 1, _rotated),
    "rotary with shared angles": Kernel("bthd 1tc 1tc", 1, _rotated),
    "depthwise": Kernel("bmw kw btk", 2, convolved),
    "depthwise that sees all": Kernel("bmw kw", 2, partial(convolved, seen=None)),
    "depthwise with own taps": Kernel("bmw btkw 1tk", 2, convolved),
}

# Rows that end within the lanes of every processor, and beyond them.
SMALL = {"b": 3, "t": 5, "w": 7, "s": 6, "h": 4, "g": 2, "d": 6, "e": 5, "c": 2, "v": 9, "k": 3}
LARGE = {"b": 2, "t": 19, "w": 35, "s": 37, "h": 2, "g": 1, "d": 20, "e": 17, "c": 9, "v": 41, "k": 5}
THREADED = {"b": 6, "t": 60, "w": 48, "s": 60, "h": 4, "g": 2, "d": 8, "e": 8, "c": 4, "v": 83, "k": 5}
HUGE = 3e38  # in a gradient the order of two products decides whether it overflows
TYPES = (torch.float32, torch.bfloat16)
TYPED = [(name, dtype) for name in KERNELS for dtype in TYPES[: 1 if "attention" in name else 2]]
EACH = pytest.mark.parametrize(("name", "dtype"), TYPED, ids=str)


def draw(kernel: Kernel, dtype: torch.dtype, sizes: dict[str, int]) -> list[Tensor]:
    # With those that follow from others: rows of heads, tokens with the neighbours that stand around them.
    sizes = {"1": 1, **sizes, "n": sizes["b"] * sizes["h"], "m": sizes["t"] + sizes["k"] - 1}
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn([sizes[d] for d in dims], generator=generator).to(dtype) for dims in kernel.inputs.split()]
    # Angles are float32 whatever turns by them.
    return [inputs[0], *(x.float() for x in inputs[1:])] if kernel.ours is _rotated else inputs


def results(function: Callable[..., Tensor], inputs: list[Tensor], learning: int, upstream: Callable) -> list[Tensor]:
    """What it computes and the gradients of what learns; each leaf lies in memory as it was given."""
    leaves = [x.detach().requires_grad_(i < learning) for i, x in enumerate(inputs)]
    y = function(*leaves)
    return [y, *(torch.autograd.grad(y, leaves[:learning], upstream(y)) if learning else ())]


def weights(y: Tensor) -> Tensor:
    """An upstream gradient that weighs all numbers apart."""
    return torch.linspace(-1, 1, y.numel()).view(y.shape).to(y.dtype)


def layouts(x: Tensor) -> Iterator[Tensor]:
    """Strided, transposed, cut out of a larger one, and expanded over each dimension and all."""
    yield torch.stack([x, x + 1], -1).flatten(-2)[..., ::2]
    yield x.transpose(0, -1).contiguous().transpose(0, -1)
    yield F.pad(x, (1, 2) * x.ndim, value=7.0)[tuple(slice(1, 1 + size) for size in x.shape)]
    for dimension in range(x.ndim):
        yield x.narrow(dimension, 0, 1).expand(x.shape)
    yield x.flatten()[:1].view([1] * x.ndim).expand(x.shape)


@EACH
def test_an_input_of_any_layout_is_read_as_its_numbers_stand(name, dtype):
    kernel = KERNELS[name]
    inputs = draw(kernel, dtype, LARGE)
    for i, own in enumerate(inputs):
        for number, x in enumerate(layouts(own)):
            given, dense = ([*inputs[:i], y, *inputs[i + 1 :]] for y in (x, x.contiguous()))
            pair = [results(kernel.ours, y, kernel.learning, weights) for y in (given, dense)]
            assert all(map(torch.equal, *pair)), f"input {i}, layout {number}"
    for lay in layouts(weights(kernel.ours(*inputs))) if kernel.learning else ():
        pair = [results(kernel.ours, inputs, kernel.learning, lambda y, up=up: up) for up in (lay, lay.contiguous())]
        assert all(map(torch.equal, *pair)), "what comes down"


@EACH
def test_every_size_is_computed_to_its_end(name, dtype):
    kernel, generator = KERNELS[name], random.Random(0)
    tolerance = 1e-4 if dtype is torch.float32 else 5e-2
    for _ in range(8):
        sizes = {dimension: generator.randint(1, 35) for dimension in SMALL} | {"b": generator.randint(1, 3)}
        sizes["h"], sizes["c"] = sizes["g"] * generator.randint(1, 3), min(sizes["c"], sizes["d"] // 2)
        inputs = draw(kernel, dtype, sizes)
        ours = results(kernel.ours, inputs, kernel.learning, weights)
        plain = results(kernel.plain, [x.double() for x in inputs], kernel.learning, weights)
        assert operations.serves(inputs[0])
        for one, other in zip(ours, plain, strict=True):
            scale = max(1.0, other.abs().max().item())
            torch.testing.assert_close(one.double(), other, atol=tolerance * scale, rtol=tolerance)


# No mean over no classes; a convolution without taps.
UNDEFINED = {("smoothed cross-entropy", "v"), *((name, "k") for name in KERNELS if "depthwise" in name)}
FOLLOWING = {"h": "g", "g": "h", "d": "c"}  # no heads of queries without those of keys, no angles without a width


@pytest.mark.parametrize("name", KERNELS)
def test_an_empty_dimension_gives_what_torch_gives(name):
    """Among them a rank's batch without rows, before a bias that all rows share."""
    kernel = KERNELS[name]
    for d in sorted({*kernel.inputs} & SMALL.keys() - {d for of, d in UNDEFINED if of == name}):
        inputs = draw(kernel, torch.float32, {**SMALL, d: 0, FOLLOWING.get(d, d): 0})
        ours = results(kernel.ours, inputs, kernel.learning, weights)
        plain = results(kernel.plain, [x.double() for x in inputs], kernel.learning, weights)
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one.double(), other, atol=2e-2, rtol=2e-2, equal_nan=True)


def specials(own: Tensor) -> Iterator[tuple[Tensor, str]]:
    """A tensor with every special number at its beginning, its middle and its end. Every NaN has its bits: a signalling
    one and a quiet one, with payloads low and high, of both signs.
    """
    patterns = [0x7F800001, 0xFFFFFFFF] if own.dtype is torch.float32 else [0x7F81, 0xFFFF]
    words, width = (torch.int32, 32) if own.dtype is torch.float32 else (torch.int16, 16)
    signed = [pattern - (pattern >> (width - 1) << width) for pattern in patterns]
    numbers = {f"NaN {bits}": torch.tensor(bits, dtype=words).view(own.dtype) for bits in signed}
    numbers |= {str(value): torch.tensor(value) for value in (math.inf, -math.inf, -1e-45, 1e20, -HUGE)}
    for value, number in numbers.items():
        for place in (0, own.numel() // 2, own.numel() - 1):
            x = own.clone()
            x.view(-1)[place] = number
            yield x, f"{value} at {place}"


@EACH
def test_nan_and_infinity_stand_where_torch_has_them(name, dtype):
    """A run that diverges must look so."""
    kernel = KERNELS[name]
    inputs = draw(kernel, dtype, LARGE)
    for i, own in enumerate(inputs):
        for x, what in specials(own):
            agree(kernel, [*inputs[:i], x, *inputs[i + 1 :]], weights, f"{what} of input {i}")
    for up, what in specials(weights(kernel.ours(*inputs))) if kernel.learning else ():
        agree(kernel, inputs, lambda y, up=up: up.to(y.dtype), f"{what} of what comes down")


def agree(kernel: Kernel, given: list[Tensor], upstream: Callable, what: str) -> None:
    ours = results(kernel.ours, given, kernel.learning, upstream)
    plain = results(kernel.plain, [x.float() for x in given], kernel.learning, upstream)
    pairs = list(zip(ours, plain, strict=True))
    for one, other in pairs[: 1 if str(HUGE) in what else None]:
        for is_so in (torch.isnan, torch.isposinf, torch.isneginf):
            assert torch.equal(is_so(one), is_so(other.to(one.dtype))), what


def test_a_target_beyond_the_classes_is_seen_and_outputs_with_gaps_are_refused_not_written_over():
    losses, again = torch.empty(4), torch.empty(4)
    logits, targets = torch.zeros(4, 5), torch.tensor([4, 5, -1, IGNORE])
    cross_entropy(logits, targets, losses, None, 0.0)
    cross_entropy(logits, targets, again, torch.empty_like(logits), 0.0)
    assert losses.isfinite().tolist() == [True, False, False, True]
    assert losses[3] == 0
    assert torch.equal(losses.nan_to_num(), again.nan_to_num())
    with pytest.raises(ValueError, match="one after another"):
        cross_entropy(logits, targets, torch.empty(4, 2)[:, 0], None, 0.0)


@pytest.mark.parametrize("phi", ["gelu", "silu"])
def test_an_activation_is_right_to_the_last_places_and_far_from_zero_is_zero_or_x(phi):
    x = torch.tensor([-1e15, -1e4, -100.0, 0.0, 100.0, 1e4, 1e15], requires_grad=True)
    y = activated(phi, x)
    y.sum().backward()
    torch.testing.assert_close(y.detach(), torch.tensor([0.0, 0, 0, 0, 100, 1e4, 1e15]), atol=1e-30, rtol=1e-6)
    torch.testing.assert_close(x.grad, torch.tensor([0.0, 0, 0, 0.5, 1, 1, 1]), atol=1e-6, rtol=1e-6)
    x = torch.linspace(-80, 80, 100_001)
    error = (activated("silu", x).double() - F.silu(x.double())) / F.silu(x.double())
    assert error[x != 0].abs().max() < 4e-7


def test_a_query_that_may_see_nothing_has_an_average():
    q, k, v = inputs = [torch.randn(1, 6, 1, 4, requires_grad=True) for _ in range(3)]
    mixed = _attend(q, k, v, torch.full((1, 1, 6, 6), torch.finfo(torch.float32).min))
    torch.testing.assert_close(mixed, v.mean(1, keepdim=True).expand_as(mixed))
    assert all(x.isfinite().all() for x in torch.autograd.grad(mixed.sum(), inputs))


def test_the_number_of_threads_changes_no_bit():
    before = torch.get_num_threads()
    for name, kernel in KERNELS.items():
        inputs, found = draw(kernel, torch.float32, THREADED), []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(results(kernel.ours, inputs, kernel.learning, weights))
        torch.set_num_threads(before)
        assert all(map(torch.equal, *found)), name
