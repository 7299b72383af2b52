"""Counts: parameters and operations of every row of a table, without training or allocating it.

Operations of a token, the longest chain of products, and how far back a layer reaches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle
from math import ceil, prod
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import flop_registry

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError, refuse
from scaling.config.document import Config
from scaling.config.shape import Shape
from scaling.data.plan import BatchSize
from scaling.data.source import Rows, Vocabulary
from scaling.model.cost import cost, windows
from scaling.model.family import Decoder, Family
from scaling.model.flops import Watch
from scaling.model.parameters import parameters
from scaling.model.tuned import blank_model
from scaling.tables.table import Row, Table
from scaling.training.experiment import sized
from scaling.training.parametrization import Standard, initialise

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution, aten._convolution, aten.cudnn_convolution)
LOOK_UP = aten.embedding
# What a backward pass calls the products; the fused attention is two, one behind the other.
PRODUCTS = {"Mm": 1, "Addmm": 1, "Bmm": 1, "Baddbmm": 1, "ScaledDotProductFlashAttentionForCpu": 2}

Counts = dict[str, Any]


def counts(table: Table, words: Sequence[str] = ()) -> list[Counts]:
    """Every row of the table at the size that `words` set, as its document has it (docs/json.md), with its parameters
    `by_slot`.

    `ops` by the paper's definition and `flops_forward` as they run are of one training batch, forward; `measured` has
    the measures that the table names.
    """
    return [_counted(table, row, table.load(row.name, words)) for row in table.rows]


def _counted(table: Table, row: Row, config: Config) -> Counts:
    measured: dict[str, float] = {}
    try:
        config = sized(config)
        model, _ = blank_model(config)
        mesh, flops = operations(config, model)
        if {"sequential", "path"} & set(table.measures):
            measured |= dependence(config)
        if "training" in table.measures:
            measured["training"] = _training_flops(config, model.family)
    except ScalingError as error:
        raise ScalingError(f"row {row.name!r}: {error}", code=error.code) from None
    by_slot: Counter[str] = Counter()
    for spec, parameter in parameters(model):
        by_slot[spec.slot] += parameter.numel()
    return {
        "row": row.name,
        "heading": row.heading,
        "parameters": by_slot.total(),
        "ops": mesh,
        "flops_forward": flops,
        "published": dict(row.published),
        **({"measured": {name: measured[name] for name in table.measures}} if measured else {}),
        "by_slot": by_slot,
    }


def _training_flops(config: Config, family: str) -> int:
    """The FLOPs of `trainer.max_steps` updates, forward and backward: those of a window's tokens times a batch's."""
    steps, size, of_window = config["trainer.max_steps"], BatchSize.of(config["train.batch"]), cost(config)
    refuse(steps is None, "training FLOPs need it", "set it in the table", key="trainer.max_steps")
    sides = 2 if family == "encoder_decoder" else 1
    tokens = size.before(steps) * of_window.tokens if size.tokens is None else steps * sides * size.tokens
    return round(of_window.flops_train_per_token * tokens)


def operations(config: Config, model: Family) -> tuple[int, int]:
    """A forward pass of `model`, made for this count on the meta device, over one global batch: multiply-accumulates
    by the paper's definition, and the FLOPs that run, two for each multiply-accumulate.
    """
    counter = _Counter()
    for module in model.modules():
        if hasattr(module, "mesh_operations"):
            module.register_forward_pre_hook(counter.enter)
            module.register_forward_hook(counter.leave)
    with torch.no_grad(), torch.device("meta"), counter:
        model.losses(_global_batch(config, model))
    return counter.mesh, counter.flops


def _global_batch(config: Config, model: Family) -> Batch:
    """One batch of the shapes that the objective makes, without memory; of a task, whole windows."""
    ids = config["size.vocabulary"]
    objective = config.build("objective", Vocabulary(ids, {}, ids), config["size.length"], model.family)
    size = BatchSize.of(config["train.batch"])
    # Where a batch has as many tokens, the rows are full ones.
    count = size.size(0) if size.tokens is None else max(1, size.tokens // objective.reads)
    if objective.takes == "examples":
        return windows(model, count)
    tokens = np.zeros((1 + objective.others, objective.reads), np.int64)
    is_pair = objective.takes != "windows"
    is_masked = config["train.documents"] == "mask" and not objective.others  # the halves of a pair see each other
    rows = Rows(
        tokens,
        documents=1 + tokens if is_pair or is_masked else None,
        source=tokens if is_pair else None,
        source_documents=1 + tokens if is_pair else None,
    )
    row = objective(rows, np.zeros(1, np.uint64))
    return row.map(lambda tensor: torch.empty(count, *tensor.shape[1:], dtype=tensor.dtype, device="meta"))


class _Counter(Watch):
    """Counts what runs under it. A piece may have a count for the paper, which replaces that of what runs inside it."""

    operations = frozenset([*flop_registry, LOOK_UP])

    def __init__(self) -> None:
        super().__init__()
        self.mesh = self.flops = 0
        self.entered: list[int] = []  # the count at the beginning of each piece that is running

    def record(self, operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        if operation == LOOK_UP:
            self.mesh += args[0].numel() * args[1].numel()
            return
        flops = flop_registry[operation](*args, **kwargs, out_val=output)
        self.flops += flops
        self.mesh += 0 if operation in CONVOLUTIONS else flops // 2

    def enter(self, *_: object) -> None:
        self.entered.append(self.mesh)

    def leave(self, module: Any, inputs: tuple[Tensor, ...], _: object) -> None:
        """Count `module.mesh_operations` of its input's vectors."""
        self.mesh = self.entered.pop() + round(module.mesh_operations(prod(inputs[0].shape[:-1])))


def dependence(config: Config) -> dict[str, int]:
    """Both measures of the mixers of a decoder's blocks, at the config's length; `sequential` is the first block's."""
    last = config["size.length"] - 1
    measured = _measured(config, 1)
    if measured[0][1] < last:  # one layer does not reach all
        measured = _measured(config, config["size.layers"])
    is_apart = not any(reach for _, reach in measured)
    config.refuse(is_apart, "model.block.mixer", "no token depends on another", "take a mixer that mixes them")
    path = reached = 0
    for steps, reach in cycle(measured):  # deeper models go on with their first block
        path, reached = path + steps, reached + reach
        if reached >= last:
            break
    return {"sequential": measured[0][0], "path": path}


def _measured(config: Config, layers: int) -> list[tuple[int, int]]:
    """Of each mixer of a model of so many layers: its sequential steps, and how far back its last output reaches."""
    size: Mapping[str, Any] = config["size"]
    shape = Shape.of(size)
    width = 8 * shape.heads * ceil(8 / shape.heads)
    if width < shape.width:  # as narrow as no token is lost by chance: neither measure depends on widths
        size = {key: getattr(shape, key) for key in ("heads", "key_heads", "vocabulary", "length")} | {"width": width}
    model = config.build("model", {**size, "layers": layers})
    what = "steps and paths are measured on decoders only"
    config.refuse(model.family != "decoder", "model.kind", what, "take Decoder")
    model = cast(Decoder, initialise(model, Standard(), seed=0)).double().eval()
    inputs: list[Tensor] = []
    outputs: list[Tensor] = []

    def enter(_: nn.Module, given: tuple[Any, ...]) -> tuple[Any, ...]:
        inputs.append(given[0].detach().requires_grad_())
        return (inputs[-1], *given[1:])

    for name, piece in model.named_modules():
        if name.endswith("branches.mixer.piece"):
            piece.register_forward_pre_hook(enter)
            piece.register_forward_hook(lambda *given: outputs.append(given[-1][:, -1]))
    tokens = torch.zeros(1, config["size.length"], dtype=torch.long)
    model(Batch(tokens, tokens))
    config.refuse(not outputs, "model.block", "it has no mixer to measure", "take a block with a mixer")
    return [(longest(left), _reach(entered, left)) for entered, left in zip(inputs, outputs, strict=True)]


def _reach(entered: Tensor, output: Tensor) -> int:
    """The distance, in tokens, from the last position to the first that its output depends on."""
    (gradient,) = torch.autograd.grad(output.sum(), entered)
    (tokens,) = gradient[0].abs().sum(-1).nonzero(as_tuple=True)
    return entered.shape[1] - 1 - int(tokens[0]) if len(tokens) else 0  # a branch may begin at zero


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
