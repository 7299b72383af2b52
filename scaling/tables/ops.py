"""Operations of one training batch, forward, as the paper counts them and as they run here. On the meta device.

Narang et al. 2021 give the operations of a forward pass over their global batch as Mesh TensorFlow counts them:
multiply-accumulates of einsums, among which every look-up in a table is the product of a one-hot matrix with it, and
convolutions are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from scaling.batch import Batch
from scaling.config import Config
from scaling.cost.count import windows
from scaling.cost.flops import Watch, flops
from scaling.data.source import Rows, Vocabulary
from scaling.model.family import Family
from scaling.model.tuned import blank, build_model
from scaling.nn.contract import MeshCounted
from scaling.schema import kinds
from scaling.training.values import batch_size

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution, aten._convolution, aten.cudnn_convolution)
LOOK_UP = aten.embedding


@dataclass(frozen=True)
class Ops:
    """`mesh`: multiply-accumulates by the paper's definition. `flops`: two for each multiply-accumulate that runs."""

    mesh: int
    flops: int


def ops(config: Config, model: Family) -> Ops:
    """The operations of a forward pass of `model`, which is on the meta device, over one global batch."""
    counter = _Counter()
    with torch.no_grad(), torch.device("meta"), ExitStack() as replaced, counter:
        for module in model.modules():
            if isinstance(module, MeshCounted):
                replaced.enter_context(_replaced(module, counter))
        model.losses(global_batch(config, model))
    return Ops(counter.mesh, counter.flops)


def mixer_flops(config: Config) -> int:
    """The FLOPs of the mixers in a forward pass over one window."""
    with blank():
        model = build_model(config.tree)
    with torch.no_grad(), torch.device("meta"):
        return flops(model, partial(model.losses, windows(model, 1)))["mixer"]


def global_batch(config: Config, model: Family) -> Batch:
    """One batch of the shapes that the objective makes, without memory; of a task, whole windows."""
    family = kinds("model")[config["model.kind"]].family  # type: ignore[attr-defined]
    ids = config["size.vocabulary"]
    objective = config.build("objective", Vocabulary(ids, {}, ids), config["size.length"], family)
    if objective.takes == "examples":
        return windows(model, _rows_of(config, objective.reads))
    tokens = np.zeros((1 + objective.others, objective.reads), np.int64)
    rows = Rows(tokens, None if objective.others else 1 + tokens)  # the halves of a pair see each other
    if objective.takes != "windows":
        rows = replace(rows, source=tokens, source_documents=1 + tokens)
    row = objective(rows, np.zeros(1, np.uint64))
    batch = _rows_of(config, objective.reads)
    return row.map(lambda tensor: torch.empty(batch, *tensor.shape[1:], dtype=tensor.dtype, device="meta"))


def _rows_of(config: Config, length: int) -> int:
    """Rows of the first batch; where it has as many tokens, those of full rows."""
    size = batch_size(config)
    return size.size(0) if size.tokens is None else max(1, size.tokens // length)


class _Counter(Watch):
    """Counts what runs under it. While a piece has a count for the paper, `muted` keeps ours out of that one."""

    operations = frozenset([*flop_registry, LOOK_UP])

    def __init__(self) -> None:
        super().__init__()
        self.mesh = self.flops = self.muted = 0

    def add(self, operations: float) -> None:
        self.mesh += 0 if self.muted else round(operations)

    def record(self, operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        if operation == LOOK_UP:
            table, indices = args[:2]
            self.add(table.numel() * indices.numel())
            return
        own = flop_registry[operation](*args, **kwargs, out_val=output)
        self.flops += own
        if operation not in CONVOLUTIONS:
            self.add(own // 2)


@contextmanager
def _replaced(module: Any, counter: _Counter) -> Iterator[None]:
    """Count `module.mesh_operations` of its input's vectors in the place of what runs inside it."""

    def enter(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        counter.add(module.mesh_operations(prod(inputs[0].shape[:-1])))
        counter.muted += 1

    def leave(*_: object) -> None:
        counter.muted -= 1

    hooks = module.register_forward_pre_hook(enter), module.register_forward_hook(leave)
    yield
    for hook in hooks:
        hook.remove()
