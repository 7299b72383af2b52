"""Routed: a layer of experts of which each position asks a few, at the cost of those few."""

from __future__ import annotations

from abc import abstractmethod

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.kernel.operations import drop
from scaling.nn.channel.routing import imbalance, seats
from scaling.nn.context import Context
from scaling.nn.contract import Channel
from scaling.nn.role import declare
from scaling.schema import Recipe
from scaling.shape import Shape

GROUP = 1024  # positions that share a capacity in Mesh TensorFlow


class Routed(nn.Module, Channel):
    """y = Σ_{i ∈ top-k} g_i E_i(x), with E_i(x) = φ(x W_i) V_i and the chances p = softmax(x W) behind the weights g.

    In training each expert seats `capacity` · t / e positions of a row of t; choices beyond are dropped, and a position
    without any seat passes by the residual alone. `balance` times the imbalance of the first choices joins the loss.
    Padding takes no seat and is not counted in the balance, but t is the row's whole length, so that a row with padding
    has more seats. Evaluation and decoding drop nothing, so that neither padding nor a cache changes anything there.

    The groups that share a capacity are rows, and seats are given position after position. So a row depends on no other
    row, and a position on none after it; but it does depend on those before, of another document packed into the row
    too, wherever something is dropped. A batch fixes its own outcome: no choice is random.
    """

    def __init__(
        self,
        shape: Shape,
        activation: Recipe,
        *,
        experts: int,
        choices: int,
        capacity: float,
        balance: float,
        hidden_times: float,
        dropout: float,
    ):
        super().__init__()
        self.choices, self.capacity, self.balance = choices, capacity, balance
        self.gate = nn.Linear(shape.width, experts, bias=False)
        self.experts = Experts(experts, shape.width, shape.hidden_times(hidden_times), activation, dropout)

    @abstractmethod
    def weigh(self, chances: Float[Tensor, "b t k"]) -> Float[Tensor, "b t k"]:
        """The weights g of the chosen experts, from their chances."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        documents = context.places.documents
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if documents is None else documents > 0
        chances = self.gate(x).to(torch.promote_types(x.dtype, torch.float32)).softmax(-1)
        best, chosen = chances.topk(self.choices)
        context.add_loss("balance", self.balance * imbalance(chances, chosen[..., 0], real))
        chosen = torch.where(real[..., None], chosen, len(self.experts))
        outputs = self._seated(x, chosen) if self.training else self._all(x, chosen)
        return (outputs * self.weigh(best)[..., None].to(outputs.dtype)).sum(-2)

    def _seated(self, x: Float[Tensor, "b t w"], chosen: Int[Tensor, "b t k"]) -> Float[Tensor, "b t k w"]:
        """The output of each choice's expert, 0 where it had no seat; every expert computes all its seats."""
        (rows, length, _), experts = x.shape, len(self.experts)
        capacity = min(length, max(1, int(self.capacity * length / experts)))
        taken = seats(chosen, experts, capacity)
        seated = _rows(x, taken.position).unflatten(1, (experts, capacity)).transpose(0, 1)  # [e b c w]
        outputs = self.experts(seated.flatten(1, 2)).unflatten(1, (rows, capacity)).transpose(0, 1)
        return _rows(outputs.flatten(1, 2), taken.seat).unflatten(1, chosen.shape[1:])

    def _all(self, x: Float[Tensor, "b t w"], chosen: Int[Tensor, "b t k"]) -> Float[Tensor, "b t k w"]:
        """The output of each choice's expert, 0 for padding; every expert computes what was chosen."""
        order = chosen.flatten().argsort(stable=True)
        counts = chosen.flatten().bincount(minlength=len(self.experts) + 1).tolist()
        flat = x.flatten(0, 1)
        outputs = x.new_zeros(len(order), x.shape[-1])
        for index, which in enumerate(order.split(counts)[:-1]):
            if len(which):
                outputs[which] = self.experts.expert(index, flat[which // self.choices]).to(x.dtype)
        return outputs.unflatten(0, chosen.shape)

    def mesh_operations(self, tokens: int) -> int:
        """Multiply-accumulates of a forward pass over `tokens` positions in Mesh TensorFlow, which published figures
        count: it moves positions to seats and back, and counts who came first, by products with one-hot tensors.

        A group is the largest equal part of the tokens that is no larger than 1024.
        """
        experts, hidden, width = self.experts.hidden.weight.shape
        groups = max(1, tokens // GROUP)
        while tokens % groups:
            groups += 1
        group = tokens // groups
        seats_each = experts * min(group, int(group * self.capacity / experts))
        gate, moves = tokens * width * experts, 2 * tokens * seats_each * width
        ranks = self.choices * tokens * group * experts
        return gate + moves + ranks + groups * seats_each * 2 * width * hidden


class Experts(nn.Module):
    """E_i(x) = φ(x W_i) V_i, i = 1 … e: feed-forward layers side by side, without biases."""

    def __init__(self, experts: int, width: int, hidden: int, activation: Recipe, dropout: float):
        super().__init__()
        self.activation, self.dropout = activation(), dropout
        self.hidden = _Bank(experts, width, hidden)
        self.out = declare(_Bank(experts, hidden, width), weight="output")

    def __len__(self) -> int:
        return len(self.hidden.weight)

    def forward(self, x: Float[Tensor, "e s w"]) -> Float[Tensor, "e s w"]:
        return self.out(drop(self.activation(self.hidden(x)), self.dropout, self.training))

    def expert(self, index: int, x: Float[Tensor, "s w"]) -> Float[Tensor, "s w"]:
        """The output of expert `index` alone."""
        return F.linear(self.activation(F.linear(x, self.hidden.weight[index])), self.out.weight[index])


class _Bank(nn.Module):
    """x_i W_i^T, i = 1 … e."""

    def __init__(self, banks: int, wide: int, out: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(banks, out, wide))

    def forward(self, x: Float[Tensor, "e s i"]) -> Float[Tensor, "e s o"]:
        return torch.bmm(x, self.weight.mT)


def _rows(x: Float[Tensor, "b s w"], index: Int[Tensor, "b n"]) -> Float[Tensor, "b n w"]:
    """Row `index` of each x; one past the last is zero."""
    return F.pad(x, (0, 0, 0, 1)).gather(1, index[..., None].expand(-1, -1, x.shape[-1]))
