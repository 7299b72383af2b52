"""The ways to attend against softmax written out in float64: values and gradients, for every mask and position."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scaling.kernel import functions
from scaling.kernel.compiled import absent
from scaling.nn.context import Cache, Context, Places, render
from scaling.nn.embeddings import RelativeBias
from scaling.nn.mixer import attention as softmax
from scaling.nn.patterns import Bidirectional, Causal, Prefix
from scaling.schema import build, kinds
from scaling.shape import Shape

ROWS, LENGTH, HEADS, WIDTH, VALUE = 3, 9, 4, 6, 5
SHAPE = Shape.of(
    {"width": HEADS * WIDTH, "layers": 1, "heads": HEADS, "vocabulary": 8, "length": LENGTH, "value_width": VALUE}
)
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 7])
KERNELS = {name: softmax.WAYS[name] for name in ("explicit", "sdpa")}
WAYS: dict[str, tuple[Callable[..., Tensor], torch.dtype, float]] = {
    name: (kernel, torch.float64, 1e-12) for name, kernel in KERNELS.items()
}
if absent() is None:
    WAYS["kernel"] = (softmax.WAYS["kernel"], torch.float32, 1e-5)
POSITIONS = sorted(kinds("position"))


def _context(pattern=None, position: str = "NoPosition", documents: Tensor | None = None) -> Context:
    pattern = Causal() if pattern is None else pattern
    tokens = torch.zeros(ROWS, LENGTH, dtype=torch.long)
    prefix = torch.tensor([2, 5, 0]) if isinstance(pattern, Prefix) else None
    places = Places.of(tokens, documents=documents, prefix=prefix)
    torch.manual_seed(1)
    hooks = build("position", position, SHAPE, pattern).double()
    return Context(places, places, render(pattern, places, places), hooks)


def _inputs(dtype: torch.dtype, key_heads: int = HEADS) -> tuple[Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    shapes = [(HEADS, WIDTH), (key_heads, WIDTH), (key_heads, VALUE)]
    drawn = [torch.randn(ROWS, LENGTH, *shape, generator=draw, dtype=torch.float64) for shape in shapes]
    q, k, v = (tensor.to(dtype).requires_grad_() for tensor in drawn)
    return q, k, v


def _written_out(q: Tensor, k: Tensor, v: Tensor, context: Context, scale: float) -> Tensor:
    k, v = (x.repeat_interleave(HEADS // x.shape[2], 2) for x in (k, v))
    logits = torch.einsum("bthd,bshd->bhts", q, k) * scale
    position, here = context.position, context.places.seen_by(context.position)
    if position.adds_score:
        score = position.score(q, k, here, here)
        logits = logits + (scale * score if position.reads_content else score)
    if context.mask.allowed is not None:
        logits = logits.masked_fill(~context.mask.allowed[:, None], torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1)
    mixed = torch.einsum("bhts,bshe->bthe", weights, v)
    if position.mixes_values:
        mixed = mixed + position.value(weights, here, here).transpose(1, 2)
    return mixed


def _with_gradients(mixed: Tensor, inputs: Sequence[Tensor], context: Context) -> list[Tensor]:
    """What padding attends to bears no loss, so nothing comes down to it."""
    documents = context.places.documents
    seen = torch.ones(1, dtype=torch.bool) if documents is None else (documents > 0)[:, :, None, None]
    upstream = torch.linspace(-1, 1, mixed.numel(), dtype=torch.float64).view_as(mixed).to(mixed.dtype)
    return [mixed, *torch.autograd.grad(mixed, inputs, upstream * seen)]


def _agree(kernel, context: Context, dtype: torch.dtype, tolerance: float, key_heads: int = HEADS) -> None:
    inputs = _inputs(dtype, key_heads)
    q, k, v = exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    found = _with_gradients(kernel(*inputs, context, 0.3, 0.0), inputs, context)
    expected = _with_gradients(_written_out(q, k, v, context, 0.3), exact, context)
    for ours, truth in zip(found, expected):
        torch.testing.assert_close(ours.double(), truth, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 6e-2)]
)
@pytest.mark.parametrize("key_heads", [HEADS, 2, 1])
def test_number_types_and_shared_keys(kernel, dtype, tolerance, key_heads):
    _agree(kernel, _context(), dtype, tolerance, key_heads)


@pytest.mark.parametrize(("kernel", "dtype", "tolerance"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(
    ("pattern", "documents"), list(itertools.product([Causal(), Bidirectional(), Prefix()], [None, PACKED]))
)
def test_patterns_and_documents(kernel, dtype, tolerance, pattern, documents):
    _agree(kernel, _context(pattern, documents=documents), dtype, tolerance)


@pytest.mark.parametrize(("kernel", "dtype", "tolerance"), WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
def test_positions(kernel, dtype, tolerance, position, documents):
    context = _context(position=position, documents=documents)
    if kernel is softmax.WAYS["explicit"] or not context.position.mixes_values:
        _agree(kernel, context, dtype, tolerance)


@pytest.mark.parametrize(("kernel", "dtype", "tolerance"), WAYS.values(), ids=WAYS)
def test_a_position_s_table_learns_through_every_kernel(kernel, dtype, tolerance):
    context = _context(position="RelativeBias")
    kernel(*_inputs(dtype), context, 0.3, 0.0).square().sum().backward()
    found = cast(RelativeBias, context.position).table.grad
    context = _context(position="RelativeBias")
    _written_out(*_inputs(torch.float64), context, 0.3).square().sum().backward()
    expected = cast(RelativeBias, context.position).table.grad
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize(("kernel", "dtype", "tolerance"), WAYS.values(), ids=WAYS)
def test_one_query_against_a_cache(kernel, dtype, tolerance):
    """The last row of the whole equals a query that comes alone, its keys from before."""
    q, k, v = _inputs(dtype)
    whole = kernel(q, k, v, _context(), 0.3, 0.0)
    past = Places.of(torch.zeros(ROWS, LENGTH - 1))
    now = Places.of(torch.zeros(ROWS, 1), start=LENGTH - 1)
    keys = now.after(past)
    context = Context(now, keys, render(Causal(), now, keys), _context().position, cache=Cache())
    alone = kernel(q[:, -1:], k, v, context, 0.3, 0.0)
    torch.testing.assert_close(alone, whole[:, -1:], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_dropout_drops_weights_and_keeps_their_mean(kernel):
    q, k, _ = _inputs(torch.float32)
    ones = torch.ones(ROWS, LENGTH, HEADS, VALUE)
    torch.manual_seed(0)
    context = _context(Bidirectional())
    draws = torch.stack([kernel(q, k, ones, context, 0.3, 0.5) for _ in range(200)])
    assert draws.std() > 0.1
    torch.testing.assert_close(draws.mean(), torch.tensor(1.0), atol=0.02, rtol=0)


def test_short_windows_on_a_cpu_show_their_products_to_the_counter():
    inputs = _inputs(torch.float32)
    with FlopCounterMode(display=False) as forward:
        mixed = softmax.attend(*inputs, _context(), scale=0.3, dropout=0.0)
    with FlopCounterMode(display=False) as backward:
        mixed.sum().backward()
    products = 2 * ROWS * HEADS * LENGTH * LENGTH * (WIDTH + VALUE)
    assert (forward.get_total_flops(), backward.get_total_flops()) == (products, 2 * products)


@pytest.mark.parametrize(
    ("setting", "line", "way"),
    [
        ({"keys": 1025, "kernel": True}, {}, "kernel"),
        ({"keys": 1025, "kernel": True}, {"dropout": 0.1}, "sdpa"),
        ({"keys": 1025, "kernel": True}, {"position": "Shaw"}, "explicit"),
        ({"keys": 1025, "kernel": True, "queries": 1}, {}, "sdpa"),
        ({"keys": 256}, {}, "explicit"),
        ({"keys": 257}, {}, "sdpa"),
        ({"keys": 257}, {"shown": True}, "explicit"),
        ({"keys": 1024, "dtype": torch.bfloat16}, {}, "explicit"),
        ({"keys": 1025, "dtype": torch.bfloat16}, {}, "sdpa"),
        ({"keys": 256, "device": "meta"}, {}, "sdpa"),
        ({"keys": 4096}, {"position": "ALiBi"}, "parts"),
        ({"keys": 4096, "device": "meta"}, {"position": "ALiBi"}, "counted"),
        ({"keys": 4096, "device": "cuda"}, {"position": "ALiBi"}, "sdpa"),
    ],
)
def test_the_way_follows_the_setting(setting, line, way):
    usual = {"device": "cpu", "dtype": torch.float32, "width": 8, "value_width": 8, "kernel": False}
    setting = {**usual, "queries": setting["keys"], **setting}
    context = _context(position=line.get("position", "NoPosition"))
    context.weights = (lambda weights: None) if line.get("shown") else None
    assert softmax.choose(softmax.Setting(**setting), context, line.get("dropout", 0.0)) == way


@pytest.mark.skipif(absent() is not None, reason=f"no kernels: {absent()}")
def test_kernels_take_no_tensors_that_are_cast_or_watched():
    inputs = _inputs(torch.float32)
    assert softmax.Setting.of(*inputs).kernel is functions.attention_pays()
    with torch.autocast("cpu", torch.bfloat16):
        assert not softmax.Setting.of(*inputs).kernel
    with FlopCounterMode(display=False):
        assert not softmax.Setting.of(*inputs).kernel
