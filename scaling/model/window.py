"""Windows: a token and its neighbours, as convolutions read them. A window never crosses a document, and never reaches
where the pattern forbids.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scaling.kernels.operations import convolved
from scaling.model.context import Context, Mask


def depthwise(
    x: Float[Tensor, "b t w"], kernel: Float[Tensor, "*bt k w"], context: Context, owner: nn.Module
) -> Float[Tensor, "b t w"]:
    """y_t = Σ_j K_j ⊙ x_{t+j}: a number a channel and neighbour, the same at all places or (dynamic) one's own."""
    near, seen = _neighbourhood(x, kernel.shape[-2], context, owner)
    return convolved(near, kernel, seen)


def unfold(
    x: Float[Tensor, "b t w"], kernel: int, context: Context, owner: nn.Module, dilation: int = 1
) -> Float[Tensor, "b t kw"]:
    """The window of each token as one vector, zero where it may not look: a matrix onto it is a convolution. Its taps
    are `dilation` places apart.
    """
    near, seen = _neighbourhood(x, dilation * (kernel - 1) + 1, context, owner)
    taps = [near[:, j : j + x.shape[1]] for j in range(0, dilation * kernel, dilation)]
    if seen is not None:
        taps = [tap * seen[..., j * dilation, None] for j, tap in enumerate(taps)]
    return torch.cat(taps, -1)


def visible(context: Context, back: int, ahead: int) -> Bool[Tensor, "#b t k"] | None:
    """Whether each token sees the one j places on, j = −back … ahead; None where it sees all of them.

    The pattern is asked for each token's band alone. What lies beyond the ends of a row may come out either way: there
    is nothing to see.
    """
    return context.once(("visible", back, ahead), lambda: _visible(context, back, ahead))


def _neighbourhood(
    x: Tensor, kernel: int, context: Context, owner: nn.Module
) -> tuple[Float[Tensor, "b s w"], Float[Tensor, "#b t k"] | None]:
    """x between what precedes it (zeros, or the inputs kept from earlier steps) and zeros, and who is visible.

    A window is centred where the pattern looks ahead, and ends at its token where it does not.
    """
    ahead = kernel // 2 if context.mask.pattern.ahead else 0
    back = kernel - 1 - ahead
    before, after = (x.new_zeros(x.shape[0], n, x.shape[2]) for n in (back, ahead))
    state = context.state(owner)
    if state is not None:
        before = state.get("inputs", before)
        state["inputs"] = torch.cat([before, x], 1)[:, x.shape[1] :]
    seen = visible(context, back, ahead)
    return torch.cat([before, x, after], 1), None if seen is None else seen.to(x.dtype)


def _visible(context: Context, back: int, ahead: int) -> Tensor | None:
    q, k = context.places, context.keys
    length, key_count, device = q.positions.shape[1], k.positions.shape[1], q.positions.device
    offsets = torch.arange(-back, ahead + 1, device=device)
    band = (torch.arange(key_count - length, key_count, device=device)[:, None] + offsets).clamp(0, key_count - 1)
    rows = max(len(part) for part in (q.positions, q.documents, q.prefix) if part is not None)

    def of_rows(prefix: Tensor) -> Tensor:
        return prefix.repeat_interleave(length)

    tokens = q.map(lambda part: part.expand(rows, *part.shape[1:]).flatten(0, 1)[:, None], of_rows)
    near = k.map(lambda part: part[:, band].expand(rows, *band.shape, *part.shape[2:]).flatten(0, 1), of_rows)
    allowed = Mask(context.mask.pattern, tokens, near).allowed()
    return None if allowed is None else allowed.view(rows, length, -1)
