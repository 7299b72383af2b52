"""Dependence: how many products of a layer wait for one another, and how many lie between two tokens. (Vaswani et al.
2017, section 4)

`sequential` is the longest chain of matrix products, each of which needs the one before, from a mixer's input to its
output at the last token. `path` is the sum of these over the layers that must follow one another before what the last
token says depends on the first. Both are read off gradients: the chain off the graph that a backward pass would
follow, the reach of a layer off the tokens whose gradient is not zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import cycle
from math import ceil
from typing import Any, cast

import torch
from torch import Tensor, nn

from scaling.batch import Batch
from scaling.config import Config
from scaling.model.decoder import Decoder
from scaling.shape import Shape
from scaling.training.parametrization import Standard, initialise

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
    """Of each mixer of a model of so many layers: its sequential steps, and how far back it reaches."""
    model = config.build("model", {**_narrow(config["size"]), "layers": layers})
    if not isinstance(model, Decoder):
        raise config.error("model.kind", "steps and paths are measured of a decoder's layers", "take Decoder")
    model = cast(Decoder, initialise(model, Standard(), seed=0)).double().eval()
    measured = [(longest(output), _reach(entered, output)) for entered, output in _run(model, config["size.length"])]
    if not measured:
        raise config.error("model.block", "it has no mixer to measure", "take a block with a mixer")
    return measured


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


def _run(model: Decoder, length: int) -> list[tuple[Tensor, Tensor]]:
    """Of each mixer in its order, its input as a leaf of its own, and its output at the last token."""
    entered: list[Tensor] = []
    left: list[Tensor] = []

    def enter(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        entered.append(inputs[0].detach().requires_grad_())
        return (entered[-1], *inputs[1:])

    def leave(_: nn.Module, __: Any, output: Tensor) -> None:
        left.append(output[:, -1])

    with ExitStack() as hooks:
        for name, piece in model.named_modules():
            if name.endswith("branches.mixer.piece"):
                hooks.enter_context(piece.register_forward_pre_hook(enter))
                hooks.enter_context(piece.register_forward_hook(leave))
        tokens = torch.zeros(1, length, dtype=torch.long)
        model(Batch(tokens, tokens))
    return list(zip(entered, left, strict=True))


def longest(output: Tensor) -> int:
    """The most products on a way through the graph behind a tensor."""
    order: list[Any] = []
    behind: dict[Any, int] = {}
    stack, met = [(output.grad_fn, False)], set()
    while stack:  # no recursion: a recurrence is thousands of nodes deep
        node, done = stack.pop()
        if done:
            order.append(node)
        elif node is not None and node not in met:
            met.add(node)
            stack += [(node, True), *((behind_it, False) for behind_it, _ in node.next_functions)]
    for node in order:
        own = PRODUCTS.get(node.name().rstrip("0123456789").removesuffix("Backward"), 0)
        behind[node] = own + max(
            (behind[behind_it] for behind_it, _ in node.next_functions if behind_it is not None), default=0
        )
    return behind[output.grad_fn]
