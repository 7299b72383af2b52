"""Dependence: how many products of a layer wait for one another, and how many lie between two tokens. (Vaswani et al.
2017, section 4)

`sequential` is the longest chain of matrix products, each of which needs the one before, from a mixer's input to its
output at the last token. `path` is that number times the layers that must follow one another before what the last token
says depends on the first. Both are read off gradients: the chain off the graph that a backward pass would follow, the
reach of a layer off the tokens whose gradient is not zero.
"""

from __future__ import annotations

from math import ceil
from typing import Any, cast

import torch
from torch import Tensor, nn

from scaling.batch import Batch
from scaling.config import Config
from scaling.model.decoder import Decoder
from scaling.training.parametrization import Standard, initialise

# What a backward pass calls the products; the fused attention is two, one behind the other.
PRODUCTS = {"Mm": 1, "Addmm": 1, "Bmm": 1, "Baddbmm": 1, "ScaledDotProductFlashAttentionForCpu": 2}


def dependence(config: Config) -> dict[str, int]:
    """Both measures of the mixer of a decoder's block, at the config's length."""
    model = config.build("model", {**config["size"], "layers": 1})
    if not isinstance(model, Decoder):
        raise config.error("model.kind", "steps and paths are measured of a decoder's layers", "take Decoder")
    model = cast(Decoder, initialise(model, Standard(), seed=0)).double().eval()
    mixers = [piece for name, piece in model.named_modules() if name.endswith("branches.mixer.piece")]
    if not mixers:
        raise config.error("model.block", "it has no mixer to measure", "take a block with a mixer")
    inputs, output = _run(model, mixers[0], config["size.length"])
    steps = longest(output)
    (gradient,) = torch.autograd.grad(output.sum(), inputs)
    (reached,) = gradient[0].abs().sum(-1).nonzero(as_tuple=True)
    last = inputs.shape[1] - 1
    reach = last - int(reached[0])
    if not reach:
        raise config.error("model.block.mixer", "no token depends on another", "take a mixer that mixes them")
    return {"sequential": steps, "path": steps * ceil(last / reach)}


def _run(model: Decoder, mixer: nn.Module, length: int) -> tuple[Tensor, Tensor]:
    """The mixer's input as a leaf of its own, and its output at the last token."""
    ends: list[Tensor] = []

    def enter(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        ends.append(inputs[0].detach().requires_grad_())
        return (ends[0], *inputs[1:])

    def leave(_: nn.Module, __: Any, output: Tensor) -> None:
        ends.append(output[:, -1])

    with mixer.register_forward_pre_hook(enter), mixer.register_forward_hook(leave):
        tokens = torch.zeros(1, length, dtype=torch.long)
        model(Batch(tokens, tokens))
    return ends[0], ends[1]


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
