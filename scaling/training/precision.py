"""Precisions: what the forward pass computes in, and what the optimizer holds."""

from __future__ import annotations

from collections.abc import Callable, Collection
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor

from scaling.model.family import Family
from scaling.model.parameters import parameters
from scaling.training.sharding import own

Precision = Literal["32-true", "bf16-mixed", "bf16-true"]


class Weights:
    """A float32 model and, where it is trained or evaluated in bfloat16, a copy rounded to that; the optimizer sees the
    float32 parameters that are trained: those that take a gradient.

    bfloat16 has 8 bits: an update of one part in 300 would vanish, so it is summed in float32 and then rounded.
    `sharded` distributes a model's parameters over the ranks, where a strategy does. What is neither trained nor in
    `saved`, the names of what checkpoints hold, has no float32 copy where nothing is computed in float32.
    """

    def __init__(
        self,
        model: Family,
        training: Precision,
        evaluation: Precision = "32-true",
        sharded: Callable[[Family], None] | None = None,
        saved: Collection[str] | None = None,
    ):
        rounded = deepcopy(model).to(torch.bfloat16) if "bf16-true" in (training, evaluation) else model
        for copy in {id(copy): copy for copy in (model, rounded)}.values():
            if sharded is not None:
                sharded(copy)
        self.trained: Family = rounded if training == "bf16-true" else model
        self.evaluated: Family = rounded if evaluation == "bf16-true" else model
        self.every = parameters(model)
        self.parameters = [parameter for parameter in self.every if parameter.tensor.requires_grad]
        self.masters: list[Tensor] = [parameter.tensor for parameter in self.parameters]
        self.own: list[Tensor] = [tensor for _, tensor in parameters(rounded) if tensor.requires_grad]
        self.full, self.evaluation = model, evaluation
        self._rounded = rounded
        if saved is not None and sharded is None and training == evaluation == "bf16-true":
            for parameter, (_, frozen) in zip(self.every, parameters(rounded), strict=True):
                if not frozen.requires_grad and parameter.spec.name not in saved:
                    parameter.tensor.data = frozen.data

    @property
    def separate(self) -> bool:
        """Whether the trained weights are rounded ones."""
        return self.trained is not self.full

    @torch.no_grad()
    def gather(self) -> None:
        """Hand the gradients of the rounded weights to the masters."""
        if self.separate:
            for master, parameter in zip(self.masters, self.own, strict=True):
                master.grad = None if parameter.grad is None else parameter.grad.float()
                parameter.grad = None

    def spread(self) -> None:
        """Round the masters into the trained weights."""
        if self.separate:
            self._round()

    @torch.no_grad()
    def restored(self) -> None:
        """Take up what has been read into the float32 parameters, of those that are not trained as well."""
        if self._rounded is not self.full:
            for parameter, (_, rounded) in zip(self.every, parameters(self._rounded), strict=True):
                own(rounded).copy_(own(parameter.tensor))

    def round_evaluated(self) -> None:
        """Round the weights that are evaluated, where those that are trained are not rounded anyway."""
        if self.evaluated is not self.full and not self.separate:
            self._round()

    def apart(self) -> list[Family]:
        """The models that are not the trained one."""
        return [model for model in (self.full, self.evaluated) if model is not self.trained]

    @torch.no_grad()
    def _round(self) -> None:
        torch._foreach_copy_([own(parameter) for parameter in self.own], [own(parameter) for parameter in self.masters])
