"""Routing: which expert works on which position, and who finds a seat there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Seats:
    """The seats of each row of a batch: `position` is the token on each (t: none), `seat` where each choice sits
    (the number of seats: nowhere).
    """

    position: Tensor  # [b, e c]
    seat: Tensor  # [b, t k]


def seats(chosen: Tensor, experts: int, capacity: int) -> Seats:
    """Give each choice the next free seat of its expert, position after position, until `capacity` are taken.

    `chosen` [b, t, k] names an expert, or `experts` for none. A choice is turned away by earlier positions of its own
    row only, so that a position never depends on later ones, nor a row on the rest of the batch.
    """
    rows, length, each = chosen.shape
    order = chosen.flatten(1).argsort(dim=-1, stable=True)
    expert = chosen.flatten(1).gather(1, order)
    place = torch.arange(length * each, device=chosen.device).expand(rows, -1)
    rank = place - torch.searchsorted(expert, expert)  # how many came to this expert before
    nowhere = experts * capacity
    seat = torch.where((rank < capacity) & (expert < experts), expert * capacity + rank, nowhere)
    position = chosen.new_full((rows, nowhere + 1), length).scatter(1, seat, order // each)
    return Seats(position[:, :nowhere], torch.empty_like(seat).scatter(1, order, seat))


def imbalance(chances: Tensor, first: Tensor, real: Tensor) -> Tensor:
    """e Σ_i f_i P_i of each row, averaged over rows: f_i the fraction of positions whose first choice is expert i, P_i
    its mean chance. It is 1 where both are even. (Fedus et al. 2021, formula 4)

    By rows, because a mean over rows is the same however a batch is split.
    """
    experts = chances.shape[-1]
    weight = (real / real.sum(1, keepdim=True).clamp(min=1)).to(chances.dtype)  # [b, t]
    share = chances.new_zeros(len(chances), experts).scatter_add(1, first, weight)
    return experts * (share * (weight[..., None] * chances).sum(1)).sum(-1).mean()
