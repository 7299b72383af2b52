"""The operations between a model's matrix products: by a kernel of ours where it takes the tensors, else by torch.

The choice is made in this file and nowhere else. Both ways compute a function's formula, to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._python_dispatch import is_in_torch_dispatch_mode

from scaling.kernels import functions
from scaling.kernels.compiled import serves


def drop(x: Tensor, rate: float, training: bool) -> Tensor:
    """x ⊙ m / (1 − p), m a mask that is 0 with probability p. (Srivastava et al. 2014)"""
    return F.dropout(x, rate) if training and rate > 0 else x


PHI: dict[str, Callable[[Tensor], Tensor]] = {"gelu": partial(F.gelu, approximate="tanh"), "silu": F.silu}


def activated(phi: Literal["gelu", "silu"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """φ(x): 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), or x σ(x)."""
    return functions.activate(phi, x) if serves(x) else PHI[phi](x)


def gated(phi: Literal["gelu", "silu"], gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
    """φ(gate) ⊙ x."""
    return functions.gated(phi, gate, x) if serves(gate, x) else activated(phi, gate) * x


def layer_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, bias: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    """g ⊙ (x − mean x) / √(var x + ε) + b."""
    norm = functions.norm if serves(x, gain, bias) else functions.plain_norm
    return norm("layer_norm", x, gain, bias, eps)


def rms_norm(x: Float[Tensor, "*b w"], gain: Tensor | None, eps: float) -> Float[Tensor, "*b w"]:
    """g ⊙ x / √(mean x² + ε)."""
    norm = functions.norm if serves(x, gain) else functions.plain_norm
    return norm("rms_norm", x, gain, None, eps)


def rotated(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s g d"],
    q_turn: tuple[Float[Tensor, "#b t half"], Float[Tensor, "#b t half"]],
    k_turn: tuple[Float[Tensor, "#b s half"], Float[Tensor, "#b s half"]],
) -> tuple[Tensor, Tensor]:
    """Each pair (x_i, x_{i+half}) of q and k turned by its token's angle, of which the cosine and the sine are given;
    what is beyond 2 half stays as it is.
    """
    alike = k_turn is q_turn
    if serves(q, k):
        own = [part.float() for part in q_turn]
        other = own if alike else [part.float() for part in k_turn]
        return functions.rotated(q, *own), functions.rotated(k, *other)
    turn = _turn(*q_turn, q)
    return _turned(q, *turn), _turned(k, *(turn if alike else _turn(*k_turn, k)))


def _turn(cos: Tensor, sin: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every angle, each written twice, the first sine negated: [b t h 2 half].

    They are written out for x's heads where all its rows are at the same positions: products then run along tokens.
    """
    heads = x.shape[2] if len(cos) == 1 else 1
    cos, sin = cos[:, :, None].to(x.dtype), sin[:, :, None].to(x.dtype)
    return torch.cat([cos, cos], -1).repeat(1, 1, heads, 1), torch.cat([-sin, sin], -1).repeat(1, 1, heads, 1)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin, turning = cos[:, :, : x.shape[2]], sin[:, :, : x.shape[2]], cos.shape[-1]
    if turning == x.shape[-1]:
        return x * cos + x.roll(turning // 2, -1) * sin
    turned, still = x[..., :turning], x[..., turning:]
    return torch.cat([turned * cos + turned.roll(turning // 2, -1) * sin, still], -1)


def convolved(
    near: Float[Tensor, "b s w"], taps: Float[Tensor, "*bt k w"], seen: Float[Tensor, "#b t k"] | None
) -> Float[Tensor, "b t w"]:
    """y_t = Σ_j taps_j ⊙ x_{t+j} over the neighbours that are seen; s is t and the k − 1 tokens around them."""
    if serves(near, taps, seen):
        return functions.depthwise(near, taps, seen)
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
    """Write −log softmax(logits)[target] of each row, and ∂loss/∂logits where it is asked for."""
    if serves(logits):
        functions.cross_entropy(logits, targets, losses, gradient, smoothing)
        return
    logits, target = logits.to(losses.dtype), targets[:, None].clamp(min=0)
    chances = logits.softmax(-1)
    # log Σ eᶻ = max z − log max softmax(z): both maxima are one class, whose chance is at least 1/v.
    normaliser = logits.amax(-1) - chances.amax(-1).log()
    loss = normaliser - logits.gather(-1, target)[:, 0] * (1 - smoothing)
    if smoothing:
        loss -= logits.mean(-1) * smoothing
    losses.copy_(loss)
    if gradient is not None:
        chances.scatter_add_(-1, target, chances.new_full((), smoothing - 1).expand(target.shape))
        gradient.copy_(chances - smoothing / logits.shape[-1] if smoothing else chances)


def attention_plus(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b s h d"],
    v: Float[Tensor, "b s h e"],
    added: Float[Tensor, "#b #h #t s"],
    *,
    scale: float,
) -> Float[Tensor, "b t h e"]:
    """softmax(s q kᵀ + added) v, where what is added learns and is larger than a mask or a score of positions."""
    if attention_takes(q, k, v):
        return functions.attention(q, k, v, added, scale=scale, causal=False)
    weights = (scale * torch.einsum("bthd,bshd->bhts", q, k) + added).softmax(-1)
    return torch.einsum("bhts,bshe->bthe", weights, v)


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
        return functions.softmax(torch.bmm(q, k.mT), added, h, scale, causal)
    if added is not None and added.shape[:2] == (1, 1):  # one mask for all: the product adds it on its way
        return torch.baddbmm(added[0], q, k.mT, alpha=scale).softmax(-1)
    logits = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scale)
    if added is not None:  # not in place: the gradient of a view changed in place is copied three times
        logits = (logits.view(b, h, t, s) + added).flatten(0, 1)
    return logits.softmax(-1)


def attention_takes(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Whether our kernel of attention takes these, float32 alone, and is faster here than torch's operations."""
    return q.dtype is torch.float32 and _unwatched(q, k, v) and functions.attention_pays()


def _unwatched(q: Tensor, *others: Tensor) -> bool:
    """Whether kernels take these, nothing casts them to another type, and nothing, a counter of FLOPs for instance,
    watches torch.
    """
    if not serves(q, *others) or is_in_torch_dispatch_mode():
        return False
    return not torch.is_autocast_enabled("cpu") or torch.get_autocast_dtype("cpu") is q.dtype
