"""The head of a span's boundary."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.batch import IGNORE
from scaling.nn.contract import declare
from scaling.nn.heads import Linear
from scaling.nn.losses import cross_entropy_over
from scaling.schema import Recipe, SmallInt
from scaling.shape import Shape


class Boundary(Linear):
    """logits = g([h_left; h_right; p_i]) Wᵀ, g two layers φ under norms. (Joshi et al. 2019, SpanBERT, section 3.2)

    A run of targets is a span, as the objective `Spans` makes them; p_i is the place i in it, of at most `longest`.
    """

    def __init__(self, shape: Shape, *, activation: Recipe, norm: Recipe, longest: SmallInt = 10):
        super().__init__(shape)
        self.places = nn.Parameter(torch.empty(longest, shape.width))
        declare(self, places="table")
        self.first, self.second = nn.Linear(3 * shape.width, shape.width), nn.Linear(shape.width, shape.width)
        self.activation, self.norms = activation(), nn.ModuleList([norm(shape.width), norm(shape.width)])
        nn.init.normal_(self.places, std=0.02)

    def loss(
        self, hidden: Float[Tensor, "b t w"], targets: Int[Tensor, "b t"], smoothing: float = 0.0
    ) -> Float[Tensor, "b t"]:
        # Every position is computed and most are ignored: shapes that do not depend on data run anywhere.
        left, right = edges(targets != IGNORE)
        place = torch.arange(targets.shape[1], device=targets.device) - left - 1
        beside = [hidden.gather(1, edge[..., None].expand_as(hidden)) for edge in (left, right)]
        x = torch.cat([*beside, self.places[place.clamp(0, len(self.places) - 1)].to(hidden.dtype)], -1)
        for layer, norm in zip((self.first, self.second), self.norms, strict=True):
            x = norm(self.activation(layer(x)))
        return cross_entropy_over(self.parts(x.flatten(0, 1)), None, targets.flatten(), smoothing).view_as(targets)


def edges(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest position at or before each, and at or after each, that is not chosen; the row's end where none is."""
    index = torch.arange(chosen.shape[1], device=chosen.device).expand(chosen.shape)
    left = torch.where(chosen, 0, index).cummax(1).values
    right = torch.where(chosen, chosen.shape[1] - 1, index).flip(1).cummin(1).values.flip(1)
    return left, right
