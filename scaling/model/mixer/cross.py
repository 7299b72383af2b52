"""Cross-attention: tokens of a decoder read its encoder's output, by several heads, by one, or by place alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.base.numbers import Factor
from scaling.config.shape import Shape
from scaling.model.context import Context, Position, tokens_at
from scaling.model.contract import Mixer, declare
from scaling.model.mixer.attention import Attention


class _Nowhere(Position):
    """The position of cross-attention: nothing to add."""


_NOWHERE = _Nowhere()


def _once(context: Context, piece: nn.Module, make: Callable[[Tensor], tuple[Tensor, ...]]) -> list[Tensor]:
    """The value of `make` for the memory; while decoding it is computed once."""
    state = context.state(piece)
    if context.cache is None or state is None:
        return list(make(context.memory))
    context.cache.of_memory.add((context.execution, piece))
    if not state:
        state.update({str(number): part for number, part in enumerate(make(context.memory))})
    return list(state.values())


class CrossAttention(Attention):
    """Attention whose keys and values come from the encoder's output. (Vaswani et al. 2017, section 3.2.3)

    It knows no positions but those that the encoder wrote into its output. `heads_times` and `head_width_times`
    multiply the shape's heads and their width, where those of self-attention are not this one's.
    """

    slot, reads_memory, takes_queries = "cross", True, False

    def __init__(self, shape: Shape, *, heads_times: Factor = 1.0, head_width_times: Factor = 1.0, **common: Any):
        times = dict.fromkeys(("heads", "key_heads"), heads_times)
        times |= dict.fromkeys(("head_width", "value_width"), head_width_times)
        scaled = {name: max(1, round(getattr(shape, name) * factor)) for name, factor in times.items()}
        super().__init__(replace(shape, **scaled), **common)

    def _mixed(self, x: Tensor, context: Context, queries: Tensor | None) -> Float[Tensor, "b t h e"]:
        inside = replace(context, mask=context.memory_mask, position=_NOWHERE)
        k, v = _once(context, self, self._of_memory)
        q, k = self._placed(self.query(x).unflatten(-1, (self.heads, -1)), k, inside, inside.keys)
        return self._attend(q, k, v, inside)

    def _of_memory(self, memory: Float[Tensor, "b s w"]) -> tuple[Tensor, ...]:
        return tuple(part(memory).unflatten(-1, (self.key_heads, -1)) for part in (self.key, self.value))


class _SingleHead(nn.Module, Mixer):
    """c_t = Σ_s softmax_s(e_ts) m_s over the source tokens that may be seen."""

    slot, reads_memory = "cross", True

    def read(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        """c of every token."""
        (keys,) = _once(context, self, lambda memory: (self.keys(memory),))
        scores, added = self.scores(x, keys), context.memory_mask.added(x.dtype)
        weights = (scores if added is None else scores + added[:, 0]).softmax(-1)
        if context.weights is not None:
            context.weights(weights[:, None])
        return weights @ context.memory

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        """The part of the memory that is the same for every query."""
        return memory

    @abstractmethod
    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        """e of every query and key."""


class AdditiveAttention(_SingleHead):
    """c_t W_O + b, e_ts = vᵀ tanh(x_t W + m_s U + a). (Bahdanau et al. 2014, section 3.1 and appendix A.1.2)

    x_t is the decoder's state at its token, where the paper's is the state before it, so that attention is not part of
    the recurrence and all tokens are read at once.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.query = declare(nn.Linear(shape.width, shape.width), weight="query")
        self.key = declare(nn.Linear(shape.width, shape.width, bias=False), weight="key")
        self.score = nn.Linear(shape.width, 1, bias=False)
        self.out = declare(nn.Linear(shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(self.read(x, context))

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        return self.key(memory)

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return self.score((self.query(x)[:, :, None] + keys[:, None]).tanh())[..., 0]


class MultiplicativeAttention(_SingleHead):
    """tanh([c_t, x_t] W_C + b), e_ts = x_t W m_sᵀ. (Luong et al. 2015, formula 5 and section 3.1)

    `score: dot` leaves W out: e_ts = x_t m_sᵀ. `output: context` is c_t W_O + b, as of the convolutional decoder of
    Gehring et al. (2017), whose values add the source's embedding to m_s.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        score: Literal["general", "dot"] = "general",
        output: Literal["joined", "context"] = "joined",
    ):
        super().__init__()
        self.joins, width = output == "joined", shape.width
        self.query = None if score == "dot" else declare(nn.Linear(width, width, bias=False), weight="query")
        self.out = declare(nn.Linear((2 if self.joins else 1) * width, width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        c = self.read(x, context)
        return self.out(torch.cat([c, x], -1)).tanh() if self.joins else self.out(c)

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return (x if self.query is None else self.query(x)) @ keys.transpose(1, 2)


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
        memory = context.memory
        places, there = context.once(("aligned", memory.shape[1]), lambda: _places(context))
        return self.out(torch.cat([tokens_at(memory, places) * there[..., None], x], -1))


def _places(context: Context) -> tuple[Int[Tensor, "#b t"], Float[Tensor, "#b t"]]:
    """The place in the memory of each token's source token, and whether there is one: the p-th that token p may
    read.
    """
    memory, positions, allowed = context.memory, context.places.positions, context.memory_mask.allowed()
    if allowed is None:
        return positions.clamp(max=memory.shape[1] - 1), (positions < memory.shape[1]).to(memory.dtype)
    same = allowed & (allowed.cumsum(-1) == positions[..., None] + 1)
    return same.int().argmax(-1), same.any(-1).to(memory.dtype)
