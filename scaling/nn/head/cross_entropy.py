"""−log softmax(h Wᵀ + b)[target], the loss of a linear head over a vocabulary.

The logits of a batch are the largest tensor of a small model, and the plain formula walks over them some ten times, in
float32. Here rows are taken in chunks that stay in cache, and ∂loss/∂logits = softmax − target is formed while a chunk
is there. What is kept is that one matrix, in the type of the model; backward is two matrix products.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.batch import IGNORE

CPU_CHUNK = 2**19  # logits at a time: two megabytes of float32, about what the cores keep near (docs/performance.md)
CHUNK = 2**26  # elsewhere a launch costs more than a pass over memory


def cross_entropy(
    hidden: Float[Tensor, "n w"],
    weight: Float[Tensor, "v w"],
    bias: Float[Tensor, " v"] | None,
    targets: Int[Tensor, " n"],
    smoothing: float = 0.0,
) -> Float[Tensor, " n"]:
    """The loss of each row in nats, 0 where the target is IGNORE, in float32 or better.

    With smoothing ε the target is 1 − ε on one class and ε/v on all. (Szegedy et al. 2015, section 7)
    """
    device = hidden.device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        hidden, weight, bias = hidden.to(dtype), weight.to(dtype), None if bias is None else bias.to(dtype)
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (hidden, weight, bias))
    if learns:
        return _CrossEntropy.apply(hidden, weight, bias, targets, smoothing)
    return _losses(hidden, weight, bias, targets, smoothing, None)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        gradient = hidden.new_empty(len(hidden), len(weight))
        losses = _losses(hidden, weight, bias, targets, smoothing, gradient)
        ctx.save_for_backward(hidden, weight, targets, gradient)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Each row's gradient times what came from above, which is multiplied to the side that is w wide, not v."""
        hidden, weight, targets, gradient = ctx.saved_tensors
        upstream = torch.where(targets == IGNORE, 0, upstream).to(hidden.dtype)[:, None]
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        return (
            (gradient @ weight).mul_(upstream) if needs_hidden else None,
            gradient.T @ (hidden * upstream) if needs_weight else None,
            gradient.T @ upstream[:, 0] if needs_bias else None,
            None,
            None,
        )


def _losses(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, gradient: Tensor | None
) -> Tensor:
    """The losses, chunk by chunk; ∂loss/∂logits is written into `gradient` where that is asked for."""
    exact = torch.promote_types(hidden.dtype, torch.float32)
    losses = hidden.new_empty(len(hidden), dtype=exact)
    step = max(1, (CPU_CHUNK if hidden.device.type == "cpu" else CHUNK) // len(weight))
    for start in range(0, len(hidden), step):
        rows = slice(start, start + step)
        target = targets[rows, None].clamp(min=0)  # an ignored row takes class 0, and its loss is dropped below
        logits = F.linear(hidden[rows], weight, bias).to(exact)
        chances = logits.softmax(-1)
        # log Σ eᶻ = max z − log max softmax(z): both maxima are one class, whose chance is at least 1/v.
        normaliser = logits.amax(-1) - chances.amax(-1).log()
        losses[rows] = normaliser - logits.gather(-1, target)[:, 0] * (1 - smoothing)
        if smoothing:
            losses[rows] -= logits.mean(-1) * smoothing
        if gradient is not None:
            chances.scatter_add_(-1, target, chances.new_full((), smoothing - 1).expand(target.shape))
            gradient[rows] = chances - smoothing / len(weight) if smoothing else chances
    return losses.masked_fill_(targets == IGNORE, 0)
