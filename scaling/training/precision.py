"""Precisions and shards: what the forward pass computes in, what the optimizer holds, and which part of it a rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scaling.config.compose import Precision
from scaling.model.family import Family, Output, Tower
from scaling.model.parameters import parameters

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class Weights:
    """A float32 model and, where it is trained or evaluated in bfloat16, a copy rounded to that; the optimizer sees the
    float32 parameters that are trained: those that take a gradient.

    bfloat16 has 8 bits: an update of one part in 600 would vanish, so it is summed in float32 and then rounded.
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
        self.separate = training == "bf16-true"  # whether the trained weights are rounded ones
        self._rounded = rounded
        if saved is not None and sharded is None and training == evaluation == "bf16-true":
            for parameter, (_, frozen) in zip(self.every, parameters(rounded), strict=True):
                if not frozen.requires_grad and parameter.spec.name not in saved:
                    parameter.tensor.data = frozen.data

    @torch.no_grad()
    def gather(self) -> None:
        """Hand the gradients of the rounded weights to the masters."""
        if self.separate:
            for master, parameter in zip(self.masters, self.own, strict=True):
                master.grad = None if parameter.grad is None else parameter.grad.float()
                parameter.grad = None

    @torch.no_grad()
    def round(self, every: bool = False) -> None:
        """Round the masters into the copy in bfloat16, where there is one, or also what is not trained."""
        if self._rounded is not self.full:
            copies, masters = self.own, self.masters
            if every:
                copies, masters = ([tensor for _, tensor in all] for all in (parameters(self._rounded), self.every))
            torch._foreach_copy_([own(copy) for copy in copies], [own(master) for master in masters])


def shard(model: Family, mesh: DeviceMesh) -> None:
    """Distribute a model's parameters over the ranks of `mesh`: one unit per block, and one of all the rest (FSDP2;
    Rajbhandari et al. 2019, ZeRO stage 3; Zhao et al. 2023).

    The last holds the tables, so that one that is read at both ends is gathered once and stays until the loss is known,
    and the blocks of stacks that share their parameters.
    """
    from torch.distributed.fsdp import fully_shard

    towers = [tower for tower in model.children() if isinstance(tower, Tower)]
    blocks = [block for tower in towers for block in getattr(tower.stack, "blocks", ())]
    uses = Counter(id(parameter) for block in blocks for parameter in block.parameters())
    for block in blocks:
        if all(uses[id(parameter)] == 1 for parameter in block.parameters()):
            fully_shard(block, mesh=mesh)
    model.register_forward_hook(_through)  # before FSDP's own, which looks for what takes a gradient
    fully_shard(model, mesh=mesh)


def _through(model: Family, batch: object, output: Output) -> None:
    """Let the gradient come as far as the hidden vectors where only the head is trained: FSDP2 adds up the gradients of
    a forward pass whose output takes one.
    """
    if torch.is_grad_enabled() and not output.hidden.requires_grad:
        output.hidden.requires_grad_()


def whole(tensor: Tensor) -> Tensor:
    """The full tensor, gathered from its shards where it has them: then all ranks must ask."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()


def own(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor, which is all of it where it is not sharded."""
    local = getattr(tensor, "to_local", None)
    return tensor if local is None else local()


def laid_out(value: Tensor, like: Tensor) -> Tensor:
    """A full tensor as `like` is held: on its device, and this rank's shard of it where that is sharded."""
    mesh = getattr(like, "device_mesh", None)
    if mesh is None or value.shape != like.shape:
        return value.to(like.device)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(value.to(like.device), mesh, like.placements, src_data_rank=None)  # type: ignore[attr-defined]
