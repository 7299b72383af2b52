"""Recurrent mixers: a state carried forwards, or one each way, reset where a document begins."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.config.shape import Shape
from scaling.model.context import Context
from scaling.model.contract import Mixer, declare
from scaling.model.window import visible


class _Recurrent(nn.Module, Mixer):
    """h_t W_O + b, or [h_t, h'_t] W_O + b where a second recurrence reads backwards. `recurrence(width)` makes the
    module that computes h of every token.
    """

    recurrence: ClassVar[Any]
    ways = 1

    def __init__(self, shape: Shape):
        super().__init__()
        self.forwards = self.recurrence(shape.width)
        self.backwards = self.recurrence(shape.width) if self.ways == 2 else None
        self.out = declare(nn.Linear(self.ways * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        seen = visible(context, 1, 0)
        ahead = self.forwards(x, None if seen is None else seen[..., 0], context.state(self))
        if self.backwards is None:
            return self.out(ahead)
        if not context.mask.pattern.ahead:
            what, name = "a causal stack cannot be read backwards", type(self).__name__
            fix = f"take {name.removeprefix('Bidirectional')}"
            raise ScalingError(what, key="model.block.mixer.kind", value=name, fix=fix)
        seen = visible(context, 0, 1)
        behind = self.backwards(x.flip(1), None if seen is None else seen[..., 1].flip(1), None)
        return self.out(torch.cat([ahead, behind.flip(1)], -1))


class _Recurrence(nn.Module):
    """h of every token, of what is read of it and of the state before it."""

    names: tuple[str, ...] = ("hidden",)  # of the tensors of a state; h is the first

    @abstractmethod
    def read(self, x: Tensor) -> Tensor:
        """The input of every step from its token."""

    @abstractmethod
    def step(self, read: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """The next state."""

    def forward(
        self, x: Float[Tensor, "b t w"], carried: Bool[Tensor, "#b t"] | None, state: dict[str, Tensor] | None
    ) -> Float[Tensor, "b t w"]:
        """h of every token; `carried` marks those before which the state is kept, not set to zero."""
        earlier = {} if state is None else state
        now = tuple(earlier.get(name, torch.zeros_like(x[:, 0])) for name in self.names)
        hidden = []
        for t, read in enumerate(self.read(x).unbind(1)):
            if carried is not None:
                now = tuple(part * carried[:, t, None] for part in now)
            now = self.step(read, *now)
            hidden.append(now[0])
        earlier.update(zip(self.names, now, strict=True))
        return torch.stack(hidden, 1)


class _LSTM(_Recurrence):
    names = ("hidden", "cell")

    def __init__(self, width: int):
        super().__init__()
        self.input = nn.Linear(width, 4 * width, bias=False)
        self.recurrent = nn.Linear(width, 4 * width, bias=False)
        self.shift = nn.Parameter(torch.empty(4 * width))
        declare(self, shift="bias").reset_parameters()

    def reset_parameters(self) -> None:
        with torch.no_grad():
            self.shift.zero_().chunk(4)[1].fill_(1)

    def read(self, x: Tensor) -> Tensor:
        return self.input(x) + self.shift

    def step(self, read: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        h, c = state
        i, f, o, g = (read + self.recurrent(h)).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


class LSTM(_Recurrent):
    """h_t W_O + b, h_t = o ⊙ tanh c_t, c_t = f ⊙ c_{t−1} + i ⊙ tanh g. (Hochreiter & Schmidhuber 1997; Gers et al.
    2000)

    i, f and o are sigmoids, and all four gates affine in x_t and h_{t−1}; f's bias starts at 1 (Jozefowicz et al.
    2015). It reads forwards whatever the pattern, from zeros where a token may not see the one before it, as at the
    beginning of a document.
    """

    recurrence = _LSTM


class BidirectionalLSTM(_Recurrent):
    """[h_t, h'_t] W_O + b: one LSTM reads forwards, another backwards, as far as the pattern looks ahead. (Schuster &
    Paliwal 1997; Graves & Schmidhuber 2005)
    """

    recurrence, ways = _LSTM, 2


class _GRU(_Recurrence):
    def __init__(self, width: int):
        super().__init__()
        self.input, self.recurrent = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)

    def read(self, x: Tensor) -> Tensor:
        return self.input(x)

    def step(self, read: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        (h,) = state
        (r, z, n), (r_h, z_h, n_h) = read.chunk(3, -1), self.recurrent(h).chunk(3, -1)
        n = (n + (r + r_h).sigmoid() * n_h).tanh()
        return (n + (z + z_h).sigmoid() * (h - n),)


class GRU(_Recurrent):
    """h_t W_O + b, h_t = (1 − z) ⊙ n + z ⊙ h_{t−1}, n = tanh(x_t W + r ⊙ (h_{t−1} U)). (Cho et al. 2014, formulas 5 to
    8)

    z and r are sigmoids, affine in x_t and h_{t−1}. r acts on the product, where the paper's acts on h_{t−1}, so that a
    step has one matrix product (as cuDNN's and torch's). It reads forwards and starts from zeros as the LSTM.
    """

    recurrence = _GRU


class BidirectionalGRU(_Recurrent):
    """[h_t, h'_t] W_O + b: one GRU reads forwards, another backwards, as far as the pattern looks ahead. (Bahdanau et
    al. 2014, section 3.2)
    """

    recurrence, ways = _GRU, 2
