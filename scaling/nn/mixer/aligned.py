from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.role import declare
from scaling.shape import Shape


class Aligned(nn.Module, Mixer):
    """[m_t, x_t] W_O + b: token t of the target reads token t of the encoder's output, 0 beyond its end: the decoder
    is laid on the encoder, without attention. (Kalchbrenner et al. 2016, section 3.1, ByteNet)

    The paper stretches the source by 1.2 and adds a constant, so that most targets end before it does; here a target
    longer than its source goes on by what the decoder remembers.
    """

    slot, reads_memory = "cross", True

    def __init__(self, shape: Shape):
        super().__init__()
        self.out = declare(nn.Linear(2 * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        places, there = context.once(("aligned", context.memory.shape[1]), lambda: _places(context))
        memory = context.memory
        index = places[..., None].expand(memory.shape[0], -1, memory.shape[-1])
        return self.out(torch.cat([memory.gather(1, index) * there[..., None], x], -1))


def _places(context: Context) -> tuple[Int[Tensor, "#b t"], Float[Tensor, "#b t"]]:
    """Where in the memory each token's source token is, and whether there is one: the p-th that token p may read."""
    memory, positions, allowed = context.memory, context.places.positions, context.memory_mask.allowed
    if allowed is None:
        return positions.clamp(max=memory.shape[1] - 1), (positions < memory.shape[1]).to(memory.dtype)
    same = allowed & (allowed.cumsum(-1) == positions[..., None] + 1)
    return same.int().argmax(-1), same.any(-1).to(memory.dtype)
