"""Losses of heads: −log softmax(h Wᵀ + b)[target] over a vocabulary, and the loss of a class among a few.

The logits of a batch are the largest tensor of a small model, and the plain formula walks over them some ten times, in
float32. Here rows are taken in chunks that stay in cache, and ∂loss/∂logits = softmax − target is formed while a chunk
is there. What is kept is that one matrix, in the type of the model; backward is two matrix products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from scaling.batch import IGNORE
from scaling.errors import ScalingError
from scaling.kernel import operations
from scaling.schema import PositiveFloat

CPU_CHUNK = 2**19  # logits at a time: two megabytes of float32, about what the cores keep near (docs/performance.md)
CHUNK = 2**26  # elsewhere a launch costs more than a pass over memory


Parts = Sequence[tuple[Tensor, Tensor]]  # (h_c [n r_c], E_c [v_c r_c]): logits are the h_c E_cᵀ side by side


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
    return cross_entropy_over([(hidden, weight)], bias, targets, smoothing)


def cross_entropy_over(
    parts: Parts, bias: Float[Tensor, " v"] | None, targets: Int[Tensor, " n"], smoothing: float = 0.0
) -> Float[Tensor, " n"]:
    """The same where each part of the classes has vectors of its own width."""
    tensors = [tensor for part in parts for tensor in part]
    device = tensors[0].device.type
    if torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device):
        dtype = torch.get_autocast_dtype(device)
        tensors, bias = [tensor.to(dtype) for tensor in tensors], None if bias is None else bias.to(dtype)
    learns = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in (*tensors, bias))
    if learns:
        return _CrossEntropy.apply(bias, targets, smoothing, *tensors)
    return _losses(_parts(tensors), bias, targets, smoothing, None)


def scores(parts: Parts, bias: Float[Tensor, " v"] | None) -> Float[Tensor, "*n v"]:
    """The logits themselves."""
    if len(parts) == 1:
        return F.linear(*parts[0], bias)
    logits = torch.cat([F.linear(hidden, weight) for hidden, weight in parts], -1)
    return logits if bias is None else logits + bias


def _parts(tensors: Sequence[Tensor]) -> Parts:
    return list(zip(tensors[::2], tensors[1::2], strict=True))


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, bias: Tensor | None, targets: Tensor, smoothing: float, *tensors: Tensor) -> Tensor:
        parts = _parts(tensors)
        gradient = tensors[0].new_empty(len(targets), sum(len(weight) for _, weight in parts))
        losses = _losses(parts, bias, targets, smoothing, gradient)
        ctx.save_for_backward(targets, gradient, *tensors)
        return losses

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        """Each row's gradient times what came from above, which is multiplied to the side that is w wide, not v."""
        targets, gradient, *tensors = ctx.saved_tensors
        parts = _parts(tensors)
        upstream = torch.where(targets == IGNORE, 0, upstream).to(gradient.dtype)[:, None]
        needs_bias, _, _, *needs = ctx.needs_input_grad
        gradients: list[Tensor | None] = [gradient.T @ upstream[:, 0] if needs_bias else None, None, None]
        own = gradient.split([len(weight) for _, weight in parts], -1)
        for (hidden, weight), part, needs_hidden, needs_weight in zip(parts, own, needs[::2], needs[1::2], strict=True):
            gradients.append((part @ weight).mul_(upstream) if needs_hidden else None)
            gradients.append(part.T @ (hidden * upstream) if needs_weight else None)
        return tuple(gradients)


def _losses(parts: Parts, bias: Tensor | None, targets: Tensor, smoothing: float, gradient: Tensor | None) -> Tensor:
    """The losses, chunk by chunk; ∂loss/∂logits is written into `gradient` where that is asked for."""
    first, classes = parts[0][0], sum(len(weight) for _, weight in parts)
    exact = torch.promote_types(first.dtype, torch.float32)
    losses = first.new_empty(len(targets), dtype=exact)
    step = max(1, (CPU_CHUNK if first.device.type == "cpu" else CHUNK) // classes)
    for start in range(0, len(targets), step):
        rows = slice(start, start + step)
        logits = scores([(hidden[rows], weight) for hidden, weight in parts], bias)
        own_gradient = None if gradient is None else gradient[rows]
        operations.cross_entropy(logits, targets[rows], losses[rows], own_gradient, smoothing)
    return losses.masked_fill_(targets == IGNORE, 0)


def at_least_float32(logits: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def log_softmax(logits: Float[Tensor, "*n v"]) -> Float[Tensor, "*n v"]:
    return at_least_float32(logits).log_softmax(-1)


def smoothed(log_chances: Float[Tensor, "*n v"], targets: Int[Tensor, "*n"], smoothing: float) -> Float[Tensor, "*n"]:
    """−(1 − ε) log p[target] − ε mean log p, 0 where the target is IGNORE. (Szegedy et al. 2015, section 7)"""
    of_target = log_chances.gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    losses = -(1 - smoothing) * of_target - smoothing * log_chances.mean(-1)
    return losses.masked_fill(targets == IGNORE, 0)


Weights = list[PositiveFloat] | Literal["balanced"] | None


def check_weights(weights: Weights, classes: int) -> list[float] | None:
    """The weights that are given; `balanced` are those that a run takes from its training examples."""
    if weights is None or isinstance(weights, str):
        return None
    if len(weights) != classes:
        raise ScalingError(f"{len(weights)} weights of {classes} classes", key="weights", value=weights)
    return weights


def class_loss(logits: Tensor, labels: Tensor, weights: Sequence[float] | None, smoothing: float) -> Tensor:
    """The loss of each label [*n] by its logits [*n c], times the weight of its class."""
    logits = at_least_float32(logits)
    losses = F.cross_entropy(
        logits.flatten(0, -2),
        labels.flatten(),
        weight=None if weights is None else logits.new_tensor(weights),
        ignore_index=IGNORE,
        reduction="none",
        label_smoothing=smoothing,
    )
    return losses.view_as(labels)


def choice_loss(logits: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    """The loss of each label [*n] by its logits [*n k], of which those of no choice are −∞."""
    log_chances = at_least_float32(logits).log_softmax(-1)
    losses = -log_chances.gather(-1, labels.clamp(min=0)[..., None])[..., 0]
    if smoothing:
        chosen = logits != -float("inf")
        mean = log_chances.masked_fill(~chosen, 0).sum(-1) / chosen.sum(-1).clamp(min=1)
        losses = (1 - smoothing) * losses - smoothing * mean
    return losses.masked_fill(labels == IGNORE, 0)
