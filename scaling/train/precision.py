"""Precisions: what the forward pass computes in, and what the optimizer holds."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from scaling.model.family import Family
from scaling.model.places import places
from scaling.train.parameter import Parameter
from scaling.train.sharding import own

Precision = Literal["float32", "bf16_autocast", "bf16"]


class Weights:
    """A model's parameters as the optimizer sees them: themselves, or float32 masters of bfloat16 ones.

    bfloat16 has 8 bits: an update of one part in 300 would vanish, so it is summed in float32 and then rounded.
    """

    def __init__(self, model: Family, precision: Precision):
        found = places(model)
        self.own: list[Tensor] = [parameter for _, parameter in found]
        self.masters: list[Tensor] = self.own
        if precision == "bf16":
            self.masters = [parameter.detach().clone() for parameter in self.own]
            model.to(torch.bfloat16)
        self.parameters = [Parameter(place, master) for (place, _), master in zip(found, self.masters, strict=True)]

    @property
    def separate(self) -> bool:
        return self.masters is not self.own

    @torch.no_grad()
    def gather(self) -> None:
        """Hand the gradients of the rounded weights to the masters."""
        if self.separate:
            for master, parameter in zip(self.masters, self.own, strict=True):
                master.grad = None if parameter.grad is None else parameter.grad.float()
                parameter.grad = None

    @torch.no_grad()
    def spread(self) -> None:
        """Round the masters into the weights."""
        if self.separate:
            torch._foreach_copy_([own(one) for one in self.own], [own(one) for one in self.masters])
