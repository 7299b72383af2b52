"""The operations between a model's matrix products: by a kernel of ours where it takes the tensors, else by torch.

Each function chooses between the two; both compute its formula, to rounding. The class before it is the kernel with its
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from scaling.kernels.compiled import call, fitting, library, serves

Gradients = tuple[Tensor | None, ...]


def dense(*tensors: Tensor | None) -> list[Any]:
    """The tensors with their numbers one after another."""
    return [None if x is None else x.contiguous() for x in tensors]


def in_rows(*tensors: Tensor | None) -> list[Any]:
    """The tensors with the numbers of their last dimension one after another."""
    return [x if x is None or x.stride(-1) == 1 else x.contiguous() for x in tensors]


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """x ⊙ m / (1 − p), m a mask that is 0 with probability p. (Srivastava et al. 2014)"""
    return F.dropout(x, rate) if training and rate > 0 else x


def at_least_float32(x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """x with the digits that sums of many numbers need."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


PHI: dict[str, Callable[[Tensor], Tensor]] = {"gelu": partial(F.gelu, approximate="tanh"), "silu": F.silu}


class Activated(torch.autograd.Function):
    """φ(x). Keeps the slope, made while φ is at hand, in place of x: backward is one multiplication."""

    @staticmethod
    def forward(ctx: Any, phi: str, x: Tensor) -> Tensor:
        x = x.contiguous()
        y, slope = torch.empty_like(x), torch.empty_like(x) if ctx.needs_input_grad[1] else None
        ctx.save_for_backward(slope)
        call(phi, x, y, slope, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        return None, upstream * ctx.saved_tensors[0]


def activated(phi: Literal["gelu", "silu"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """φ(x): 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), or x σ(x)."""
    return Activated.apply(phi, x) if serves(x) else PHI[phi](x)


class Gated(torch.autograd.Function):
    """φ(gate) ⊙ x. Makes φ again in backward: to keep it would take more time than to make it."""

    @staticmethod
    def forward(ctx: Any, phi: str, gate: Tensor, x: Tensor) -> Tensor:
        gate, x = dense(gate, x)
        ctx.phi = phi
        ctx.save_for_backward(gate, x)
        y = torch.empty_like(x)
        call(f"{phi}_gated", gate, x, y, x.numel())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        gate, x = ctx.saved_tensors
        at_gate, at_x = torch.empty_like(gate), torch.empty_like(x)
        call(f"{ctx.phi}_gated_backward", upstream.contiguous(), gate, x, at_gate, at_x, x.numel())
        return None, at_gate, at_x


def gated(phi: Literal["gelu", "silu"], gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """φ(gate) ⊙ x."""
    if serves(gate, x):
        return Gated.apply(phi, *torch.broadcast_tensors(gate, x))
    return activated(phi, gate) * x


class Norm(torch.autograd.Function):
    """Where the sums of a row overflow torch's own operation takes over: what is NaN then depends on its order."""

    @staticmethod
    def forward(ctx: Any, name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
        x, gain, bias = dense(x, gain, bias)
        rows, width = x.shape[:-1].numel(), x.shape[-1]
        fitting("a norm's gain", gain, (width,))
        fitting("a norm's bias", bias, (width,))
        y, (mean, inverse) = torch.empty_like(x), x.new_empty(2, rows, dtype=torch.float32)
        ctx.overflows = call(name, x, gain, bias, y, mean, inverse, rows, width, eps)
        ctx.name, ctx.eps = name, eps
        ctx.save_for_backward(x, gain, bias, mean, inverse)
        return _plain_norm(name, x, gain, bias, eps) if ctx.overflows else y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        *inputs, mean, inverse = ctx.saved_tensors
        below = [None if tensor is None else torch.empty_like(tensor) for tensor in inputs]
        given = (*inputs[:2], mean, inverse, *below, len(inverse), upstream.shape[-1])
        if ctx.overflows or call(f"{ctx.name}_backward", upstream.contiguous(), *given):
            leaves: list[Any] = [None if x is None else x.detach().requires_grad_() for x in inputs]
            with torch.enable_grad():
                y = _plain_norm(ctx.name, leaves[0], leaves[1], leaves[2], ctx.eps)
            made = iter(torch.autograd.grad(y, [leaf for leaf in leaves if leaf is not None], upstream))
            below = [None if leaf is None else next(made) for leaf in leaves]
        return None, *below, None


def _plain_norm(name: str, x: Tensor, gain: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    if name == "rms_norm":
        return F.rms_norm(x, x.shape[-1:], gain, eps)
    return F.layer_norm(x, x.shape[-1:], gain, bias, eps)


def layer_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, bias: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    """g ⊙ (x − mean x) / √(var x + ε) + b."""
    return (Norm.apply if serves(x, gain, bias) else _plain_norm)("layer_norm", x, gain, bias, eps)


def rms_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    """g ⊙ x / √(mean x² + ε)."""
    return (Norm.apply if serves(x, gain) else _plain_norm)("rms_norm", x, gain, None, eps)


class Rotated(torch.autograd.Function):
    """(x_i c_i − x_{i+half} s_i, x_{i+half} c_i + x_i s_i), and what is beyond 2 half as it was. The product of each
    head's rows comes next and needs heads first; the gradient goes back as tokens lie.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        b, t, h, d = x.shape
        cosine, sine = dense(cosine, sine)
        rows, _, half = shape = cosine.shape
        fitting("cosines", cosine, (1 if rows == 1 else b, t, min(half, d // 2)))
        fitting("sines", sine, shape)
        ctx.save_for_backward(cosine, sine)
        return _rotate(x, x.new_empty(b, h, t, d).transpose(1, 2), cosine, sine, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        cosine, sine = ctx.saved_tensors
        return _rotate(upstream, upstream.new_empty(upstream.shape), cosine, sine, -1.0), None, None


def _rotate(x: Tensor, y: Tensor, cosine: Tensor, sine: Tensor, way: float) -> Tensor:
    (x,), (rows, t, half) = in_rows(x), cosine.shape
    strides = (*x.stride()[:3], *y.stride()[:3])
    call("rotate", x, y, cosine, sine, *x.shape, half, *strides, 0 if rows == 1 else t * half, way)
    return y


def rotated(
    cos: Float[Tensor, "#b t half"], sin: Float[Tensor, "#b t half"], *vectors: Float[Tensor, "b t _ d"]
) -> list[Tensor]:
    """Each pair (x_i, x_{i+half}) of vectors turned by its token's angle; what is beyond 2 half stays as it is. The
    first of them have the most heads.
    """
    if serves(*vectors):
        cos, sin = cos.float(), sin.float()
        return [Rotated.apply(x, cos, sin) for x in vectors]
    # Written out for all heads where all rows are at the same positions: products then run along tokens.
    heads, dtype, turning = vectors[0].shape[2] if len(cos) == 1 else 1, vectors[0].dtype, 2 * cos.shape[-1]
    cos, sin = cos[:, :, None].to(dtype), sin[:, :, None].to(dtype)
    cos, sin = (torch.cat(pair, -1).repeat(1, 1, heads, 1) for pair in ([cos, cos], [-sin, sin]))

    def turn(x: Tensor) -> Tensor:
        return x * cos[:, :, : x.shape[2]] + x.roll(turning // 2, -1) * sin[:, :, : x.shape[2]]

    if turning == vectors[0].shape[-1]:
        return [turn(x) for x in vectors]
    return [torch.cat([turn(x[..., :turning]), x[..., turning:]], -1) for x in vectors]


class Depthwise(torch.autograd.Function):
    """y_t = Σ_j taps_j ⊙ x_{t+j}, of the neighbours that are seen; s is t and the k − 1 tokens around."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, taps: Tensor, seen: Tensor | None) -> Tensor:
        x, taps, seen = dense(x, taps, seen)
        (b, s, w), k = x.shape, taps.shape[-2]
        t = s - k + 1
        fitting("every tap", taps, (k, w) if taps.ndim == 2 else (b, t, k, w))
        one = seen is None or len(seen) == 1
        fitting("who is seen", seen, (1 if one else b, t, k))
        batch, token = (0, 0) if taps.ndim == 2 else (t * k * w, k * w)
        ctx.shape = (b, t, k, w, batch, token, 0 if one else t * k)
        ctx.save_for_backward(x, taps, seen)
        y = x.new_empty(b, t, w)
        call("depthwise", x, taps, seen, y, ctx.shape)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        x, taps, seen = ctx.saved_tensors
        dx, dtaps = torch.empty_like(x), torch.empty_like(taps)
        call("depthwise_backward", upstream.contiguous(), x, taps, seen, dx, dtaps, ctx.shape)
        return dx, dtaps, None


def convolved(
    near: Float[Tensor, "b s w"], taps: Float[Tensor, "*bt k w"], seen: Float[Tensor, "#b t k"] | None
) -> Float[Tensor, "b t w"]:
    """y_t = Σ_j taps_j ⊙ x_{t+j} over the neighbours that are seen; s is t and the k − 1 tokens around them."""
    if serves(near, taps, seen):
        return Depthwise.apply(near, taps, seen)
    length = near.shape[1] - taps.shape[-2] + 1
    y = near.new_zeros(near.shape[0], length, near.shape[2])
    for j, weight in enumerate(taps.unbind(-2)):
        y = torch.addcmul(y, near[:, j : j + length], weight if seen is None else weight * seen[..., j, None])
    return y


def cross_entropy(
    logits: Float[Tensor, "n v"],
    targets: Int[Tensor, " n"],
    losses: Float[Tensor, " n"],
    gradient: Float[Tensor, "n v"] | None,
    smoothing: float,
) -> None:
    """Write −log softmax(logits)[target] of each row, and ∂loss/∂logits where it is asked for.

    Our kernel writes zeros where a row is ignored. The loss of a target beyond the classes is not a number.
    """
    if serves(logits):
        (logits, targets), (rows, classes) = dense(logits, targets), logits.shape
        fitting("a row's target", targets, (rows,))
        fitting("a row's loss", losses, (rows,))
        fitting("the gradient", gradient, (rows, classes))
        if not losses.is_contiguous() or not (gradient is None or gradient.is_contiguous()):
            raise ValueError("losses and gradients are written one after another")
        call("cross_entropy", logits, targets, losses, gradient, rows, classes, smoothing)
        return
    logits, target = logits.to(losses.dtype), targets[:, None].clamp(min=0)
    chances = logits.softmax(-1)
    # log Σ eᶻ = max z − log max softmax(z): both maxima are one class, whose chance is at least 1/v.
    loss = logits.amax(-1) - chances.amax(-1).log() - logits.gather(-1, target)[:, 0] * (1 - smoothing)
    if smoothing:
        loss -= logits.mean(-1) * smoothing
    losses.copy_(loss)
    if gradient is not None:
        chances.scatter_add_(-1, target, chances.new_full((), smoothing - 1).expand(target.shape))
        gradient.copy_(chances - smoothing / logits.shape[-1] if smoothing else chances)


class Softmax(torch.autograd.Function):
    """softmax(scale logits + added) of logits [b·h t s], in their own memory if they have no gaps; `added` learns not.

    Where it is `causal` t is s and each query sees the keys up to its own, which is half the work. The logits may not
    be a view: autograd copies the gradient of one that was changed in place three times.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, added: Tensor | None, heads: int, scale: float, causal: bool) -> Tensor:
        n, queries, keys = logits.shape
        if causal:
            fitting("a causal row of queries and keys", logits, (n, keys, keys))
        (weights,), strides = dense(logits), (0, 0, 0)
        if added is not None and logits.numel():
            (bias,) = in_rows(added.expand(n // heads, heads, queries, keys))
            added, strides = bias, bias.stride()[:3]
        call("softmax", weights, added, n * queries, heads, queries, keys, *strides, scale, causal)
        if weights is logits:
            ctx.mark_dirty(logits)
        ctx.scale, ctx.causal = scale, causal
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        (chances,) = ctx.saved_tensors
        below, (n, queries, keys) = torch.empty_like(chances), chances.shape
        sizes = (n * queries, queries, keys)
        call("softmax_backward", upstream.contiguous(), chances, below, *sizes, ctx.scale, ctx.causal)
        return below, None, None, None, None


def attention_weights(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s h d"],
    bias: Callable[[], Tensor | None],
    *,
    causal: bool,
    scale: float,
) -> Float[Tensor, "bh t s"]:
    """softmax(s q kᵀ + bias), head by head; `bias` is asked for unless the kernel can do without: it is `causal`."""
    (b, t, h, _), s = q.shape, k.shape[1]
    ours = _unwatched(q, k)
    added = None if ours and causal else bias()
    q, k = (x.transpose(1, 2).reshape(b * h, -1, x.shape[-1]) for x in (q, k))
    if ours and (added is None or not added.requires_grad):
        return Softmax.apply(torch.bmm(q, k.mT), added, h, scale, causal)
    if added is not None and added.shape[:2] == (1, 1):  # one mask for all: the product adds it on its way
        return torch.baddbmm(added[0], q, k.mT, alpha=scale).softmax(-1)
    logits = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
    if added is not None:  # not in place: the gradient of a view changed in place is copied three times
        logits = (logits.view(b, h, t, s) + added).flatten(0, 1)
    return logits.softmax(-1)


class Attention(torch.autograd.Function):
    """Keeps of each row its largest logit and one over its sum, from which backward makes the weights again."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, scale: float, causal: bool) -> Tensor:
        q, k, v, added = in_rows(q, k, v, added)
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
        call("attention", *arguments, ctx.sizes, ctx.strides, scale, causal)
        ctx.save_for_backward(*arguments)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> Gradients:
        q, k, v, added, *_ = saved = ctx.saved_tensors
        (upstream,) = in_rows(upstream)
        dq, dk, dv = (x.new_empty(x.shape) for x in (q, k, v))
        dadded = added.new_zeros(added.shape) if ctx.needs_input_grad[3] else None
        strides = (*ctx.strides, *upstream.stride()[:3], *_strides(dadded))
        gradients = (dq, dk, dv, dadded)
        call("attention_backward", upstream, *saved, *gradients, ctx.sizes, strides, ctx.scale, ctx.causal)
        return *gradients, None, None


def _strides(added: Tensor | None) -> tuple[int, ...]:
    """Strides by batch, query and head; 0 where one serves all."""
    if added is None:
        return 0, 0, 0
    batch, head, query = (0 if size == 1 else stride for size, stride in zip(added.shape[:3], added.stride()[:3]))
    return batch, query, head


def attention(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s g d"],
    v: Float[Tensor, "b s g e"],
    added: Float[Tensor, "#b #h #t #s"] | None,
    *,
    scale: float,
    causal: bool = False,
) -> Float[Tensor, "b t h e"]:
    """softmax(s q kᵀ + added) v by our kernel, where `attention_takes` these. Heads fewer than queries' are shared by
    groups, and `added` may learn. Where it is `causal` t is s and each query sees the keys up to its own.
    """
    added = None if added is None else added.expand(-1, -1, q.shape[1], k.shape[1])
    return Attention.apply(q, k, v, added, scale, causal)


def attention_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether our kernel of attention takes these, float32 alone, and is worth it."""
    return q.dtype is torch.float32 and _unwatched(q, k, v) and attention_pays()


@cache
def attention_pays() -> bool:
    """Whether it is faster on this processor than torch's operations."""
    return bool(library().attention_pays())  # type: ignore[union-attr]


def _unwatched(q: Tensor, *others: Tensor) -> bool:
    """Whether kernels take these, nothing casts them to another type, and nothing, a counter of FLOPs for instance,
    watches torch.
    """
    if not serves(q, *others) or is_in_torch_dispatch_mode():
        return False
    return not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") is q.dtype
