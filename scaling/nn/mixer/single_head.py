"""Attention of recurrent decoders: one head, whose values are the encoder's vectors themselves."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.role import declare
from scaling.shape import Shape


class _SingleHead(nn.Module, Mixer):
    """c_t = Σ_s softmax_s(e_ts) m_s over the source tokens that may be seen."""

    slot, reads_memory = "cross", True

    def read(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        """c of every token."""
        scores, added = self.scores(x, self._keys(context)), context.memory_mask.added(x.dtype)
        weights = (scores if added is None else scores + added[:, 0]).softmax(-1)
        if context.weights is not None:
            context.weights(weights[:, None])
        return weights @ context.memory

    def _keys(self, context: Context) -> Float[Tensor, "b s w"]:
        """What is compared of the memory; while decoding it is made once."""
        state = context.memory_state(self)
        if state is None:
            return self.keys(context.memory)
        if not state:
            state["key"] = self.keys(context.memory)
        return state["key"]

    @abstractmethod
    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        """What of the memory is the same for every query."""

    @abstractmethod
    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        """e of every query and key."""


class AdditiveAttention(_SingleHead):
    """c_t W_O + b, e_ts = vᵀ tanh(x_t W + m_s U + a). (Bahdanau et al. 2014, section 3.1 and appendix A.1.2)

    x_t is the decoder's state at its token, where the paper's is the state before it, so that attention is no part of
    the recurrence and all tokens are read at once.
    """

    def __init__(self, shape: Shape):
        super().__init__()
        self.query = declare(nn.Linear(shape.width, shape.width), weight="query")
        self.key = nn.Linear(shape.width, shape.width, bias=False)
        self.score = nn.Linear(shape.width, 1, bias=False)
        self.out = declare(nn.Linear(shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(self.read(x, context))

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        return self.key(memory)

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return self.score((self.query(x)[:, :, None] + keys[:, None]).tanh())[..., 0]


class MultiplicativeAttention(_SingleHead):
    """tanh([c_t, x_t] W_C + b), e_ts = x_t W m_sᵀ. (Luong et al. 2015, formulas 5 and 8)

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
        self.joins = output == "joined"
        self.query = (
            declare(nn.Linear(shape.width, shape.width, bias=False), weight="query") if score != "dot" else None
        )
        self.out = declare(nn.Linear((2 if self.joins else 1) * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        c = self.read(x, context)
        return self.out(torch.cat([c, x], -1)).tanh() if self.joins else self.out(c)

    def keys(self, memory: Float[Tensor, "b s w"]) -> Float[Tensor, "b s w"]:
        return memory

    def scores(self, x: Float[Tensor, "b t w"], keys: Float[Tensor, "b s w"]) -> Float[Tensor, "b t s"]:
        return (x if self.query is None else self.query(x)) @ keys.transpose(1, 2)
