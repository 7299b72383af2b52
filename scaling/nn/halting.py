"""Halting: when a position of a recurrent stack has thought enough.

Called after each step with the state before it, the state it made and what came so far, it returns the state that goes
on and what came until now; `answer`, at the end, is the stack's answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.contract import Halting
from scaling.schema import NonNegativeFloat, OpenFraction


@dataclass(frozen=True)
class _Pondered:
    """What each position has come to until some step."""

    mean: Float[Tensor, "b t w"]  # Σ p_n h_n
    spent: Float[Tensor, "b t"]  # Σ p_n
    running: Bool[Tensor, "b t"]
    cost: Float[Tensor, "b t"]  # N + R


class ACT(nn.Module, Halting):
    """Σ_n p_n h_n: p_n = σ(h_n·w + b) until they would sum to 1 − `rest` at step N, where p_N = R = 1 − Σ_{n<N} p_n.
    (Graves 2016, formulas 5 to 13)

    From step N on a position's state is copied (Dehghani et al. 2018, section 2.2). The last step halts all. The loss
    `ponder` is `cost` times the mean of N + R over a row's tokens that are not padding, averaged over rows: the same
    however a batch is split.
    """

    def __init__(self, width: int, *, rest: OpenFraction = 0.01, cost: NonNegativeFloat = 0.01):
        super().__init__()
        self.rest, self.cost = rest, cost
        self.halt = nn.Linear(width, 1)

    def forward(
        self, old: Float[Tensor, "b t w"], new: Float[Tensor, "b t w"], pondered: _Pondered | None, *, last: bool
    ) -> tuple[Float[Tensor, "b t w"], _Pondered]:
        # In float32 at least: many small weights are added up and compared with a bound near 1.
        share = self.halt(new)[..., 0].to(torch.promote_types(new.dtype, torch.float32)).sigmoid()
        if pondered is None:
            zero = torch.zeros_like(share)
            pondered = _Pondered(torch.zeros_like(new), zero, torch.ones_like(share, dtype=torch.bool), zero)
        running, spent = pondered.running, pondered.spent
        stops = running if last else running & (spent + share >= 1 - self.rest)
        remainder = 1 - spent
        weight = torch.where(stops, remainder, share).where(running, 0.0)
        return torch.where(running[..., None], new, old), _Pondered(
            pondered.mean + weight[..., None].to(new.dtype) * new,
            spent + weight,
            running & ~stops,
            pondered.cost + running + remainder.where(stops, 0.0),
        )

    def answer(self, pondered: _Pondered, context: Context) -> Float[Tensor, "b t w"]:
        """The weighted mean of all states; the pondering's cost is added to the losses."""
        documents = context.places.documents
        real = torch.ones_like(pondered.running) if documents is None else documents > 0
        mean = pondered.cost.where(real, 0.0).sum(1) / real.sum(1).clamp(min=1)
        context.add_loss("ponder", self.cost * mean.mean())
        return pondered.mean
