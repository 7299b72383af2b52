"""Channel mixers, which each position goes through by itself, and their activations φ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.base.numbers import BelowOne, Factor, NonNegativeFloat, PositiveFloat, Range, SmallInt
from scaling.config.schema import Recipe
from scaling.config.shape import Shape
from scaling.kernels import operations
from scaling.kernels.operations import at_least_float32, drop
from scaling.model.context import Context, tokens_at
from scaling.model.contract import Activation, Channel, declare


class _Pointwise(nn.Module, Activation):
    """φ(x), a function of torch."""

    phi: Callable[[Tensor], Tensor]

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return self.phi(x)


class ReLU(_Pointwise):
    """φ(x) = max(0, x). (Nair & Hinton 2010; Vaswani et al. 2017)"""

    phi = staticmethod(torch.relu)


class GeLU(nn.Module, Activation):
    """φ(x) = x Φ(x), Φ the normal distribution function. (Hendrycks & Gimpel 2016)

    `tanh` is the paper's approximation 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))), which GPT-2 and T5 v1.1 use.
    """

    def __init__(self, *, approximate: Literal["none", "tanh"] = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return operations.activated("gelu", x) if self.approximate == "tanh" else F.gelu(x)

    def times(self, gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """φ(gate) ⊙ x."""
        return operations.gated("gelu", gate, x) if self.approximate == "tanh" else F.gelu(gate) * x


class Swish(nn.Module, Activation):
    """φ(x) = x σ(βx), with β = 1 also called SiLU. (Ramachandran et al. 2017; Elfwing et al. 2017)"""

    def __init__(self, *, beta: float = 1.0):
        super().__init__()
        self.beta = beta

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return operations.activated("silu", x) if self.beta == 1 else x * torch.sigmoid(self.beta * x)

    def times(self, gate: Float[Tensor, "*s"], x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        """φ(gate) ⊙ x."""
        return operations.gated("silu", gate, x) if self.beta == 1 else self(gate) * x


class ELU(nn.Module, Activation):
    """φ(x) = x for x > 0, α (eˣ − 1) below. (Clevert et al. 2015)"""

    def __init__(self, *, alpha: float = 1.0):
        super().__init__()
        self.alpha = alpha

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return F.elu(x, self.alpha)


class SeLU(_Pointwise):
    """φ(x) = λ ELU(x; α), with λ and α such that unit variance is a fixed point. (Klambauer et al. 2017)"""

    phi = staticmethod(F.selu)


class Sigmoid(_Pointwise):
    """φ(x) = 1 / (1 + e⁻ˣ); with a gate this is GLU. (Dauphin et al. 2016)"""

    phi = staticmethod(torch.sigmoid)


class Softplus(_Pointwise):
    """φ(x) = ln(1 + eˣ). (Dugas et al. 2001)"""

    phi = staticmethod(F.softplus)


class Tanh(_Pointwise):
    """φ(x) = tanh x: BERT's pooler. (Devlin et al. 2018)"""

    phi = staticmethod(torch.tanh)


class Linear(nn.Identity, Activation):
    """φ(x) = x; with a gate this is LiGLU, the bilinear layer. (Shazeer 2020)"""


class SquaredReLU(nn.Module, Activation):
    """φ(x) = max(0, x)². (So et al. 2021, Primer)"""

    def forward(self, x: Float[Tensor, "*s"]) -> Float[Tensor, "*s"]:
        return torch.relu(x).square()


class _FeedForward(nn.Module, Channel):
    """`maps` onto the hidden width, and one back."""

    maps = ("hidden",)
    gate: nn.Linear
    hidden: nn.Linear

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        bias: bool = True,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        hidden = shape.hidden_times(hidden_times)
        self.activation, self.dropout = activation(), dropout
        for name in self.maps:
            setattr(self, name, nn.Linear(shape.width, hidden, bias))
        self.out = declare(nn.Linear(hidden, shape.width, bias), weight="output")


class Dense(_FeedForward):
    """FFN(x) = φ(x W₁ + b₁) W₂ + b₂. (Vaswani et al. 2017, formula 2)

    `hidden_times` multiplies the shape's hidden width. `dropout` acts on φ.
    """

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(drop(self.activation(self.hidden(x)), self.dropout, self.training))


class Gated(_FeedForward):
    """FFN(x) = (φ(x W + b) ⊙ (x V + c)) W₂ + b₂. (Shazeer 2020)

    φ is Sigmoid for GLU, GeLU for GeGLU, ReLU for ReGLU, Swish for SwiGLU, Linear for LiGLU. `hidden_times:
    0.6666667` keeps the parameters of the ungated layer.
    """

    maps = ("gate", "hidden")

    def __init__(self, shape: Shape, *, bias: bool = False, **common: Any):
        super().__init__(shape, bias=bias, **common)
        self.is_gate = hasattr(self.activation, "times")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        gate, hidden = self.gate(x), self.hidden(x)
        gated = self.activation.times(gate, hidden) if self.is_gate else self.activation(gate) * hidden
        return self.out(drop(gated, self.dropout, self.training))


class ProductKeys(nn.Module, Channel):
    """y = Σ_heads Σ_{i ∈ I} softmax(q(x)·k)_i v_i, I the `nearest` keys k = (c_a, c'_b), pairs of `keys` half keys.
    (Lample et al. 2019, formulas 1 to 6)

    The best pairs are among the pairs of each half's best, so that keys² values cost a search among 2 · keys. `norm`
    acts on each half of the query; the paper's batch norm would let a position see the others, so it is layer norm
    here as in Mesh TensorFlow. Each head has its own keys, and all share the values.
    """

    has_hidden = False

    def __init__(
        self,
        shape: Shape,
        *,
        norm: Recipe,
        heads: SmallInt = 4,
        keys: SmallInt = 512,
        key_width: SmallInt = 128,
        nearest: SmallInt = 32,
    ):
        super().__init__()
        if key_width % 2:
            raise ScalingError("expected two halves", key="key_width", value=key_width, fix="take an even number")
        if nearest > keys:
            raise ScalingError(f"there are {keys} half keys", key="nearest", value=nearest, fix=f"take {keys} or fewer")
        half, self.nearest = key_width // 2, nearest
        self.query = declare(nn.Linear(shape.width, heads * key_width), weight="query")
        self.norm = norm(half)
        self.keys = nn.Parameter(torch.empty(heads, 2, keys, half))
        self.out = declare(_Values(keys, shape.width), weight="output")
        declare(self, keys="input")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        heads, _, keys, half = self.keys.shape
        query = self.norm(self.query(x).unflatten(-1, (heads, 2, half)))
        score, half_key = torch.einsum("bthpd,hpnd->bthpn", query, self.keys).topk(self.nearest)
        score, pair = (score[..., 0, :, None] + score[..., 1, None, :]).flatten(-2).topk(self.nearest)
        value = half_key[..., 0, :].gather(-1, pair // self.nearest) * keys
        value = value + half_key[..., 1, :].gather(-1, pair % self.nearest)
        return self.out(value.flatten(-2), score.softmax(-1).flatten(-2))

    def mesh_operations(self, tokens: int) -> int:
        """Multiply-accumulates of a forward pass over `tokens` positions in Mesh TensorFlow, which published figures
        count: it looks up values, and the places of the best pairs, by products with one-hot tensors.
        """
        (heads, _, keys, half), width, read = self.keys.shape, self.out.weight.shape[-1], len(self.keys) * self.nearest
        query, scores = width * heads * 2 * half, heads * 2 * keys * half
        places, values, total = read * self.nearest**2, read * keys**2 * width, read * width
        return tokens * (query + scores + places + values + total)


class _Values(nn.Module):
    """Σ_i s_i v_i, over a table of keys × keys values that is read by row."""

    def __init__(self, keys: int, width: int):
        super().__init__()
        self.weight, self.finite = nn.Parameter(torch.empty(keys, keys, width)), ("weight",)

    def forward(self, index: Int[Tensor, "b t n"], score: Float[Tensor, "b t n"]) -> Float[Tensor, "b t w"]:
        table = self.weight.flatten(0, 1)
        index, score = index.flatten(0, 1), score.to(table.dtype)
        sums = F.embedding_bag(index, table, mode="sum", per_sample_weights=score.flatten(0, 1))
        return sums.unflatten(0, score.shape[:2])


def seats(chosen: Int[Tensor, "b t k"], experts: int, capacity: int) -> tuple[Int[Tensor, "b ec"], Int[Tensor, "b tk"]]:
    """Give each choice the next free seat of its expert, position after position, until `capacity` are taken.

    `chosen` names an expert, or `experts` for none. Returned are the token on each seat (t: none), and the seat of each
    choice (the number of seats: nowhere). A choice is turned away by earlier positions of its own row only, so that a
    position never depends on later ones, nor a row on the rest of the batch.
    """
    rows, length, each = chosen.shape
    order = chosen.flatten(1).argsort(dim=-1, stable=True)
    expert = chosen.flatten(1).gather(1, order)
    place = torch.arange(length * each, device=chosen.device).expand(rows, -1)
    rank = place - torch.searchsorted(expert, expert)  # how many came to this expert before
    nowhere = experts * capacity
    seat = torch.where((rank < capacity) & (expert < experts), expert * capacity + rank, nowhere)
    position = chosen.new_full((rows, nowhere + 1), length).scatter(1, seat, order // each)
    return position[:, :nowhere], torch.empty_like(seat).scatter(1, order, seat)


def imbalance(chances: Tensor, first: Tensor, real: Tensor) -> Tensor:
    """e Σ_i f_i P_i of each row, averaged over rows: f_i the fraction of positions whose first choice is expert i, P_i
    its mean chance. It is 1 where both are even. (Fedus et al. 2021, formula 4)

    By rows, because a mean over rows is the same however a batch is split.
    """
    experts = chances.shape[-1]
    weight = (real / real.sum(1, keepdim=True).clamp(min=1)).to(chances.dtype)  # [b, t]
    share = chances.new_zeros(len(chances), experts).scatter_add(1, first, weight)
    return experts * (share * (weight[..., None] * chances).sum(1)).sum(-1).mean()


GROUP = 1024  # positions that share a capacity in Mesh TensorFlow


class _Routed(nn.Module, Channel):
    """y = Σ_{i ∈ top-k} g_i E_i(x), with E_i(x) = φ(x W_i) V_i and the chances p = softmax(x W) behind the weights g.

    In training each expert seats `capacity` · t / e positions of a row of t, position after position; choices beyond
    are dropped, and a position without any seat passes by the residual alone. So a row depends on no other row, and a
    position on none after it, but on those before, of another document packed into the row too. `balance` times the
    imbalance of the first choices joins the loss. Padding takes no seat and is not counted in the balance, but t is
    the row's whole length. Evaluation and decoding drop nothing: neither padding nor a cache changes anything there.
    """

    def __init__(
        self,
        shape: Shape,
        choices: int,
        *,
        activation: Recipe,
        experts: Annotated[int, Range(least=2, most=65_536)] = 32,
        capacity: PositiveFloat,
        balance: NonNegativeFloat = 0.01,
        hidden_times: Factor = 1.0,
        dropout: BelowOne = 0.0,
    ):
        super().__init__()
        self.choices, self.capacity, self.balance = choices, capacity, balance
        self.gate = nn.Linear(shape.width, experts, bias=False)
        self.experts = _Experts(experts, shape.width, shape.hidden_times(hidden_times), activation, dropout)

    @abstractmethod
    def weigh(self, chances: Float[Tensor, "b t k"]) -> Float[Tensor, "b t k"]:
        """The weights g of the chosen experts, from their chances."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        documents = context.places.documents
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if documents is None else documents > 0
        chances = at_least_float32(self.gate(x)).softmax(-1)
        best, chosen = chances.topk(self.choices)
        context.add_loss("balance", self.balance * imbalance(chances, chosen[..., 0], real))
        chosen = torch.where(real[..., None], chosen, len(self.experts))
        outputs = self._seated(x, chosen) if self.training else self._all(x, chosen)
        return (outputs * self.weigh(best)[..., None].to(outputs.dtype)).sum(-2)

    def _seated(self, x: Float[Tensor, "b t w"], chosen: Int[Tensor, "b t k"]) -> Float[Tensor, "b t k w"]:
        """The output of each choice's expert, 0 where it had no seat; every expert computes all its seats."""
        (rows, length, _), experts = x.shape, len(self.experts)
        capacity = min(length, max(1, int(self.capacity * length / experts)))
        position, seat = seats(chosen, experts, capacity)
        below = (0, 0, 0, 1)  # zeros, for a seat without a token and a choice without a seat
        seated = tokens_at(F.pad(x, below), position).unflatten(1, (experts, capacity)).transpose(0, 1)  # [e b c w]
        outputs = self.experts(seated.flatten(1, 2)).unflatten(1, (rows, capacity)).transpose(0, 1)
        return tokens_at(F.pad(outputs.flatten(1, 2), below), seat).unflatten(1, chosen.shape[1:])

    def _all(self, x: Float[Tensor, "b t w"], chosen: Int[Tensor, "b t k"]) -> Float[Tensor, "b t k w"]:
        """The output of each choice's expert, 0 for padding; every expert computes what was chosen."""
        flat, choice = x.flatten(0, 1), chosen.flatten()
        counts = choice.bincount(minlength=len(self.experts) + 1).tolist()
        outputs = x.new_zeros(len(choice), x.shape[-1])
        for index, which in enumerate(choice.argsort(stable=True).split(counts)[:-1]):
            if len(which):
                outputs[which] = self.experts.expert(index, flat[which // self.choices]).to(x.dtype)
        return outputs.unflatten(0, chosen.shape)

    def mesh_operations(self, tokens: int) -> int:
        """Multiply-accumulates of a forward pass over `tokens` positions in Mesh TensorFlow, which published figures
        count: it moves positions to seats and back, and counts who came first, by products with one-hot tensors.

        A group is the largest equal part of the tokens that is no larger than 1024.
        """
        experts, hidden, width = self.experts.hidden.weight.shape
        groups = next(count for count in range(max(1, tokens // GROUP), tokens + 1) if tokens % count == 0)
        group = tokens // groups
        seats_each = experts * min(group, int(group * self.capacity / experts))
        gate, moves, ranks = width * experts, 2 * seats_each * width, self.choices * group * experts
        return tokens * (gate + moves + ranks) + groups * seats_each * 2 * width * hidden


class _Experts(nn.Module):
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


class MixtureOfExperts(_Routed):
    """y = Σ_{i ∈ top-k} g_i E_i(x), g = p / Σ_{j ∈ top-k} p_j, p = softmax(x W), E_i(x) = φ(x W_i) V_i. (Shazeer et al.
    2017, formula 1; Lepikhin et al. 2020, GShard, section 2.2)

    In training each expert takes `capacity` · t / e positions of a row of t, first come first served. `balance` weighs
    GShard's loss that evens out first choices, times e² (as Mesh TensorFlow). Departures: the gate has no noise and the
    second expert is always asked (a batch fixes its outcome), and seats go by position, not to first choices first
    (nothing depends on what comes after it).
    """

    def __init__(
        self,
        shape: Shape,
        *,
        experts: Annotated[int, Range(least=2, most=65_536)] = 32,
        choices: Annotated[int, Range(least=2, most=65_536)] = 2,
        capacity: PositiveFloat = 2.0,
        **common: Any,
    ):
        if not 2 <= choices <= experts:
            what = f"expected 2 to {experts} choices"
            raise ScalingError(what, key="choices", value=choices, fix="Switch chooses one expert")
        super().__init__(shape, choices, experts=experts, capacity=capacity, **common)

    def weigh(self, chances: Float[Tensor, "b t k"]) -> Float[Tensor, "b t k"]:
        return chances / chances.sum(-1, keepdim=True)


class Switch(_Routed):
    """y = p_i E_i(x), i = argmax p, p = softmax(x W), E_i(x) = φ(x W_i) V_i. (Fedus et al. 2021, formulas 1 to 6)

    In training each expert takes `capacity` · t / e positions of a row of t, first come first served. `balance` is α,
    the weight of the loss that evens out choices. Departures: a row, not a device's batch, shares a capacity, and x is
    not jittered before the gate (a batch fixes its outcome).
    """

    def __init__(self, shape: Shape, *, capacity: PositiveFloat = 1.25, **common: Any):
        super().__init__(shape, 1, capacity=capacity, **common)

    def weigh(self, chances: Float[Tensor, "b t 1"]) -> Float[Tensor, "b t 1"]:
        return chances
