"""Operations of a model's row: what a token costs, the longest chain of products, and how far back a layer reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from math import ceil, prod
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from scaling.batch import Batch
from scaling.config import Config
from scaling.cost.count import windows
from scaling.cost.flops import Watch
from scaling.data.source import Rows, Vocabulary
from scaling.model.family import Decoder, Family
from scaling.schema import kinds
from scaling.shape import Shape
from scaling.training.parametrization import Standard, initialise
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
            if hasattr(module, "mesh_operations"):
                replaced.enter_context(_replaced(module, counter))
        model.losses(global_batch(config, model))
    return Ops(counter.mesh, counter.flops)


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


# What a backward pass calls the products; the fused attention is two, one behind the other.
PRODUCTS = {"Mm": 1, "Addmm": 1, "Bmm": 1, "Baddbmm": 1, "ScaledDotProductFlashAttentionForCpu": 2}


def dependence(config: Config) -> dict[str, int]:
    """Both measures of the mixers of a decoder's blocks, at the config's length; `sequential` is the first block's."""
    last = config["size.length"] - 1
    measured = _measured(config, 1)
    if measured[0][1] < last:  # one layer does not reach all
        measured = _measured(config, config["size.layers"])
    if not any(reach for _, reach in measured):
        raise config.error("model.block.mixer", "no token depends on another", "take a mixer that mixes them")
    path = reached = 0
    for steps, reach in cycle(measured):  # deeper models go on with their first block
        path, reached = path + steps, reached + reach
        if reached >= last:
            break
    return {"sequential": measured[0][0], "path": path}


def _measured(config: Config, layers: int) -> list[tuple[int, int]]:
    """Of each mixer of a model of so many layers: its sequential steps, and how far back its last output reaches."""
    model = config.build("model", {**_narrow(config["size"]), "layers": layers})
    if model.family != "decoder":
        raise config.error("model.kind", "steps and paths are measured of a decoder's layers", "take Decoder")
    model = cast(Decoder, initialise(model, Standard(), seed=0)).double().eval()
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    def enter(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs.append(given[0].detach().requires_grad_())
        return (inputs[-1], *given[1:])

    with ExitStack() as hooks:
        for name, piece in model.named_modules():
            if name.endswith("branches.mixer.piece"):
                hooks.enter_context(piece.register_forward_pre_hook(enter))
                hooks.enter_context(piece.register_forward_hook(lambda *given: outputs.append(given[-1][:, -1])))
        tokens = torch.zeros(1, config["size.length"], dtype=torch.long)
        model(Batch(tokens, tokens))
    if not outputs:
        raise config.error("model.block", "it has no mixer to measure", "take a block with a mixer")
    return [(longest(left), _reach(entered, left)) for entered, left in zip(inputs, outputs, strict=True)]


def _narrow(size: Mapping[str, Any]) -> Mapping[str, Any]:
    """A size as long, and no wider than it takes that no token is lost by chance: neither measure depends on widths."""
    shape = Shape.of(size)
    width = 8 * shape.heads * ceil(8 / shape.heads)
    kept = {key: getattr(shape, key) for key in ("heads", "key_heads", "vocabulary", "length")}
    return {"width": width, **kept} if width < shape.width else size


def _reach(entered: Tensor, output: Tensor) -> int:
    """How many tokens before the last are the first that its output depends on."""
    (gradient,) = torch.autograd.grad(output.sum(), entered)
    (tokens,) = gradient[0].abs().sum(-1).nonzero(as_tuple=True)
    return entered.shape[1] - 1 - int(tokens[0])


def longest(output: Tensor) -> int:
    """The most products on a way through the graph behind a tensor."""
    products: dict[Any, int] = {}
    stack: list[Any] = [output.grad_fn]
    while stack:  # no recursion: a recurrence is thousands of nodes deep
        node = stack[-1]
        behind = [other for other, _ in node.next_functions if other is not None]
        if waiting := [other for other in behind if other not in products]:
            stack += waiting
            continue
        kind = node.name().rstrip("0123456789").removesuffix("Backward")
        products[stack.pop()] = PRODUCTS.get(kind, 0) + max((products[other] for other in behind), default=0)
    return products[output.grad_fn]
