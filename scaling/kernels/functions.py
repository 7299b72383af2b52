"""The compiled operations with their gradients: each computes what torch's operations do, to rounding."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.kernels.compiled import call, dense, fitting, in_rows, library


class _Activation(torch.autograd.Function):
    """φ(x). Keeps the slope, made while φ is at hand, in place of x: backward is one multiplication."""

    @staticmethod
    def forward(ctx: Any, phi: str, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x) if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(slope)
        call(phi, x.dtype, x, y, slope, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        return None, upstream * ctx.saved_tensors[0]


activate: Any = _Activation.apply


class _Gated(torch.autograd.Function):
    """φ(gate) ⊙ x. Makes φ again in backward: to keep it would take more time than to make it."""

    @staticmethod
    def forward(ctx: Any, phi: str, gate: Tensor, x: Tensor) -> Tensor:
        gate, x = dense(x.dtype, gate, x)
        ctx.phi = phi
        ctx.save_for_backward(gate, x)
        y = torch.empty_like(x)
        call(f"{phi}_gated", x.dtype, gate, x, y, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        gate, x = ctx.saved_tensors
        at_gate, at_x = torch.empty_like(gate), torch.empty_like(x)
        call(f"{ctx.phi}_gated_backward", x.dtype, upstream.contiguous(), gate, x, at_gate, at_x, x.numel())
        return None, at_gate, at_x


def gated(phi: str, gate: Tensor, x: Tensor) -> Tensor:
    return _Gated.apply(phi, *torch.broadcast_tensors(gate, x))


def plain_norm(name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    if name == "rms_norm":
        return F.rms_norm(x, x.shape[-1:], gain, eps)
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


class _Norm(torch.autograd.Function):
    """Where the sums of a row overflow torch's own operation takes over: what is NaN then depends on its order."""

    @staticmethod
    def forward(ctx: Any, name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        x, gain, bias = dense(x.dtype, x, gain, bias)
        rows, width = x.shape[:-1].numel(), x.shape[-1]
        for learned in (gain, bias):
            if learned is not None:
                fitting("a norm's gain or bias", learned, (width,))
        y, (mean, inverse) = torch.empty_like(x), x.new_empty(2, rows, dtype=torch.float32)
        ctx.overflows = call(name, x.dtype, x, gain, bias, y, mean, inverse, rows, width, eps)
        ctx.name, ctx.eps = name, eps
        ctx.save_for_backward(x, gain, bias, mean, inverse)
        return plain_norm(name, x, gain, bias, eps) if ctx.overflows else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, mean, inverse = ctx.saved_tensors
        below = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs]
        given = (upstream.contiguous(), *inputs[:2], mean, inverse, *below, len(inverse), upstream.shape[-1])
        if ctx.overflows or call(f"{ctx.name}_backward", upstream.dtype, *given):
            leaves: list[Any] = [None if x is None else x.detach().requires_grad_() for x in inputs]
            with torch.enable_grad():
                y = plain_norm(ctx.name, leaves[0], leaves[1], leaves[2], ctx.eps)
            made = iter(torch.autograd.grad(y, [leaf for leaf in leaves if leaf is not None], upstream))
            below = [None if leaf is None else next(made) for leaf in leaves]
        return None, *below, None


norm: Any = _Norm.apply


class _Rotated(torch.autograd.Function):
    """(x_i c_i − x_{i+half} s_i, x_{i+half} c_i + x_i s_i), and what is beyond 2 half as it was. The product of each
    head's rows comes next and needs heads first; the gradient goes back as tokens lie.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        b, t, h, d = x.shape
        cosine, sine = dense(torch.float32, cosine, sine)
        rows, _, half = shape = cosine.shape
        fitting("cosines", cosine, (1 if rows == 1 else b, t, min(half, d // 2)))
        fitting("sines", sine, shape)
        ctx.save_for_backward(cosine, sine)
        return _turn(x, x.new_empty(b, h, t, d).transpose(1, 2), cosine, sine, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        cosine, sine = ctx.saved_tensors
        return _turn(upstream, upstream.new_empty(upstream.shape), cosine, sine, -1.0), None, None


rotated: Any = _Rotated.apply


def _turn(x: Tensor, y: Tensor, cosine: Tensor, sine: Tensor, way: float) -> Tensor:
    (x,), (rows, t, half) = in_rows(x.dtype, x), cosine.shape
    strides = (*x.stride()[:3], *y.stride()[:3])
    call("rotate", x.dtype, x, y, cosine, sine, *x.shape, half, *strides, 0 if rows == 1 else t * half, way)
    return y


class _Depthwise(torch.autograd.Function):
    """y_t = Σ_j taps_j ⊙ x_{t+j}, of the neighbours that are seen; s is t and the k − 1 tokens around."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, seen: Tensor | None) -> Tensor:
        x, taps, seen = dense(x.dtype, x, taps, seen)
        (b, s, w), k = x.shape, taps.shape[-2]
        t = s - k + 1
        fitting("every tap", taps, (k, w) if taps.ndim == 2 else (b, t, k, w))
        if seen is not None:
            fitting("who is seen", seen, (1 if len(seen) == 1 else b, t, k))
        batch, token = (0, 0) if taps.ndim == 2 else (t * k * w, k * w)
        ctx.shape = (b, t, k, w, batch, token, 0 if seen is None or len(seen) == 1 else t * k)
        ctx.save_for_backward(x, taps, seen)
        y = x.new_empty(b, t, w)
        call("depthwise", x.dtype, x, taps, seen, y, ctx.shape)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        x, taps, seen = ctx.saved_tensors
        dx, dtaps = torch.empty_like(x), torch.empty_like(taps)
        call("depthwise_backward", x.dtype, upstream.contiguous(), x, taps, seen, dx, dtaps, ctx.shape)
        return dx, dtaps, None


depthwise: Any = _Depthwise.apply


class _Softmax(torch.autograd.Function):
    """softmax(scale logits + added) of logits [b·h t s], in their own memory if they have no gaps; `added` learns not.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work. The logits may not
    be a view: autograd copies the gradient of one that was changed in place three times.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, added: Tensor | None, heads: int, scale: float, causal: bool) -> Tensor:
        n, queries, keys = logits.shape
        if causal:
            fitting("a causal row of queries and keys", logits, (n, keys, keys))
        (weights,), strides = dense(logits.dtype, logits), (0, 0, 0)
        if added is not None and logits.numel():
            (bias,) = in_rows(logits.dtype, added.expand(n // heads, heads, queries, keys))
            added, strides = bias, bias.stride()[:3]
        sizes = (n * queries, heads, queries, keys)
        call("softmax", logits.dtype, weights, added, *sizes, *strides, scale, causal)
        if weights is logits:
            ctx.mark_dirty(logits)
        ctx.scale, ctx.causal = scale, causal
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        (chances,) = ctx.saved_tensors
        below, (n, queries, keys) = torch.empty_like(chances), chances.shape
        sizes = (n * queries, queries, keys)
        call("softmax_backward", chances.dtype, upstream.contiguous(), chances, below, *sizes, ctx.scale, ctx.causal)
        return below, None, None, None, None


softmax: Any = _Softmax.apply


def cross_entropy(logits: Tensor, targets: Tensor, losses: Tensor, gradient: Tensor | None, smoothing: float) -> None:
    """Write each row's loss, and where it is asked for its gradient; an ignored row's are zeros.

    The loss of a target beyond the classes is no number.
    """
    (logits,), (targets,) = dense(logits.dtype, logits), dense(torch.int64, targets)
    fitting("a row's target", targets, logits.shape[:1])
    fitting("a row's loss", losses, logits.shape[:1])
    fitting("the gradient", logits if gradient is None else gradient, logits.shape)
    if not losses.is_contiguous() or not (gradient is None or gradient.is_contiguous()):
        raise ValueError("losses and gradients are written one after another")
    call("cross_entropy", logits.dtype, logits, targets, losses, gradient, *logits.shape, smoothing)


@cache
def attention_pays() -> bool:
    """Whether attention in float32 is faster on this processor than torch's operations."""
    kernels = library()
    return kernels is not None and bool(kernels.attention_pays())


def attention(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, *, scale: float, causal: bool) -> Tensor:
    """softmax(scale q kᵀ + added) v in float32, of q [b t h d], k [b s g d] and v [b s g e]. Heads fewer than queries'
    are shared by groups, and `added` may learn.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work.
    """
    if added is not None:
        added = added.expand(-1, -1, q.shape[1], k.shape[1])
    return _Attention.apply(q, k, v, added, scale, causal)


class _Attention(torch.autograd.Function):
    """Keeps of each row its largest logit and one over its sum, from which backward makes the weights again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool) -> Tensor:
        q, k, v, added = in_rows(q.dtype, q, k, v, added)
        (b, t, h, d), (s, g), e = q.shape, k.shape[1:3], v.shape[-1]
        fitting("keys of its queries", k, (b, t if causal else s, g, d))
        fitting("values of its keys", v, (b, s, g, e))
        if h % g if g else h:
            raise ValueError(f"{g} heads of keys do not serve {h} of queries")
        if added is not None:
            added.expand(b, h, t, s)  # refuses what does not fit
        out = q.new_empty(b, t, h, e)
        tops, shares = q.new_empty(2, b, h, t)
        ctx.sizes, ctx.scale, ctx.causal = (b, t, s, h, g, d, e), scale, causal
        ctx.strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *_strides(added))
        arguments = (q, k, v, added, out, tops, shares)
        call("attention", q.dtype, *arguments, ctx.sizes, ctx.strides, scale, causal)
        ctx.save_for_backward(*arguments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, added, *_ = saved = ctx.saved_tensors
        (upstream,) = in_rows(q.dtype, upstream)
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        dadded = added.new_zeros(added.shape) if ctx.needs_input_grad[3] else None
        strides = (*ctx.strides, *upstream.stride()[:3], *_strides(dadded))
        gradients = (dq, dk, dv, dadded)
        call("attention_backward", q.dtype, upstream, *saved, *gradients, ctx.sizes, strides, ctx.scale, ctx.causal)
        return *gradients, None, None


def _strides(added: Tensor | None) -> tuple[int, int, int]:
    """Strides by batch, query and head; 0 where one attention_serves all."""
    if added is None:
        return 0, 0, 0
    batch, head, query = (0 if size == 1 else stride for size, stride in zip(added.shape[:3], added.stride()[:3]))
    return batch, query, head
