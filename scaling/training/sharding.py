"""Sharding: weights, gradients and optimizer states shared out over the ranks (FSDP2), and gathered to be saved.

(Rajbhandari et al. 2019, ZeRO stage 3; Zhao et al. 2023, PyTorch FSDP)
"""

from __future__ import annotations

import warnings
from collections import Counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scaling.model.family import Family, Output, Tower

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


def shard(model: Family, mesh: DeviceMesh) -> None:
    """Distribute a model's parameters over the ranks of `mesh`: one unit per block, and one of all the rest.

    The last holds the tables, so that one that is read at both ends is gathered once and stays until the loss is known,
    and the blocks of stacks that share their parameters.
    """
    from torch.distributed.fsdp import fully_shard

    # It warns of operations in place on what a block returns; the stream is never changed in place.
    warnings.filterwarnings("ignore", "FSDP2-wrapped module", UserWarning)
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


def gathered_again(model: Family) -> None:
    """Let the next forward pass gather the shards as they will be then: without a backward pass they stay gathered."""
    for module in model.modules():
        reshard = getattr(module, "reshard", None)
        if reshard is not None:
            reshard()


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
