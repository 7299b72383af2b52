"""What recurrent mixers share: a state carried forwards, or one each way, reset where a document begins."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.role import declare
from scaling.nn.window import visible
from scaling.shape import Shape


class Forwards(nn.Module, Mixer):
    """h_t W_O + b. `recurrence(width)` makes the module that computes h of every token: it is given x, the tokens
    before which the state is kept, and the state of earlier decoding steps.
    """

    recurrence: ClassVar[Any]

    def __init__(self, shape: Shape):
        super().__init__()
        self.forwards = self.recurrence(shape.width)
        self.out = declare(nn.Linear(shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        seen = visible(context, 1, 0)
        return self.out(self.forwards(x, None if seen is None else seen[..., 0], context.state(self)))


class BothWays(nn.Module, Mixer):
    """[h_t, h'_t] W_O + b: one recurrence reads forwards, another backwards, as far as the pattern looks ahead."""

    recurrence: ClassVar[Any]

    def __init__(self, shape: Shape):
        super().__init__()
        self.forwards, self.backwards = self.recurrence(shape.width), self.recurrence(shape.width)
        self.out = declare(nn.Linear(2 * shape.width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        pattern = context.mask.pattern
        if pattern is None or not pattern.ahead:
            name = type(self).__name__
            raise ScalingError(
                "a stack that looks back only is not read backwards",
                key="model.block.mixer.kind",
                value=name,
                fix=f"take {name.removeprefix('Bidirectional')}",
            )
        before, after = visible(context, 1, 0), visible(context, 0, 1)
        forwards = self.forwards(x, None if before is None else before[..., 0], context.state(self))
        backwards = self.backwards(x.flip(1), None if after is None else after[..., 1].flip(1), None)
        return self.out(torch.cat([forwards, backwards.flip(1)], -1))
