"""Convolutions over a window of tokens."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.base.numbers import PositiveFloat, PositiveInt, SmallInt
from scaling.config.schema import Recipe
from scaling.config.shape import Shape
from scaling.model.context import Context
from scaling.model.contract import Mixer, declare, drawn
from scaling.model.window import depthwise, unfold


class Convolution(nn.Module, Mixer):
    """y_t = Σ_j x_{t+j} W_j + b over a window of `kernel` tokens. (LeCun et al. 1989; Vaswani et al. 2017, Table 1)

    The window is centred where the pattern looks ahead, and ends at its token where it does not.
    """

    def __init__(self, shape: Shape, *, kernel: SmallInt = 3, bias: bool = True):
        super().__init__()
        self.kernel = kernel
        self.out = declare(nn.Linear(kernel * shape.width, shape.width, bias), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        return self.out(unfold(x, self.kernel, context, self))


class _Separable(nn.Module, Mixer):
    """(c + Σ_j softmax_j(kernel) ⊙ u_{t+j}) W_P W_O, u = (x W_1) ⊙ σ(x W_2), the kernel made of `taps`."""

    def __init__(self, shape: Shape, taps: Any):
        super().__init__()
        width = shape.width
        self.hidden, self.gate, self.taps = nn.Linear(width, width), nn.Linear(width, width), taps
        self.shift = nn.Parameter(torch.zeros(width))
        self.pointwise = nn.Linear(width, width)
        self.out = declare(nn.Linear(width, width), weight="output")
        declare(self, taps="input", shift="bias")

    @abstractmethod
    def kernel(self, u: Float[Tensor, "b t w"]) -> Float[Tensor, "*bt k w"]:
        """A number a channel and neighbour, the same at all places or each token's own."""

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        u = self.hidden(x) * torch.sigmoid(self.gate(x))
        return self.out(self.pointwise(depthwise(u, self.kernel(u), context, self) + self.shift))


class LightweightConvolution(_Separable):
    """(c + Σ_j softmax_j(K) ⊙ u_{t+j}) W_P W_O, u = (x W_1) ⊙ σ(x W_2). (Wu et al. 2019, section 3)

    K is `kernel` numbers a channel, the same at all places. As in Narang et al. (2021) each channel has its own where
    the paper ties groups of them (its heads), W_P and the bias c make the convolution separable, and all maps have
    biases. Beyond the ends of a document are zeros, which softmax counts.
    """

    def __init__(self, shape: Shape, *, kernel: SmallInt = 9):
        super().__init__(shape, drawn(kernel, shape.width, std=kernel**-0.5))

    def kernel(self, u: Float[Tensor, "b t w"]) -> Float[Tensor, "k w"]:
        return self.taps.softmax(0)


class DynamicConvolution(_Separable):
    """(c + Σ_j softmax_j(u_t G_j) ⊙ u_{t+j}) W_P W_O, u = (x W_1) ⊙ σ(x W_2). (Wu et al. 2019, section 4)

    Each token makes its own kernel. As in Narang et al. (2021) the G_j are square, a number a channel, where the
    paper's make one a head; else as the lightweight convolution.
    """

    def __init__(self, shape: Shape, *, kernel: SmallInt = 9):
        super().__init__(shape, nn.Linear(shape.width, kernel * shape.width))

    def kernel(self, u: Float[Tensor, "b t w"]) -> Float[Tensor, "b t k w"]:
        return self.taps(u).unflatten(-1, (-1, u.shape[-1])).softmax(-2)


class GatedConvolution(Convolution):
    """y_t = (Σ_j x_{t+j} W_j + b) ⊙ σ(Σ_j x_{t+j} V_j + c) over a window of `kernel` tokens. (Dauphin et al. 2016;
    Gehring et al. 2017, section 3.2)

    The window is centred where the pattern looks ahead, and ends at its token where it does not.
    """

    def __init__(self, shape: Shape, *, kernel: SmallInt = 3):
        super().__init__(shape, kernel=kernel)
        self.gate = nn.Linear(kernel * shape.width, shape.width)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        near = unfold(x, self.kernel, context, self)
        return self.out(near) * self.gate(near).sigmoid()


class DilatedConvolution(nn.Module, Mixer):
    """φ(norm(Σ_j φ(norm(φ(x) U))_{t+rj} W_j)) V over `kernel` tokens that are r places apart. (Kalchbrenner et al.
    2016, section 3.4 and figure 3, ByteNet)

    r is `dilations[i]` in the i-th layer of the stack, and begins again at their end. U goes to `hidden` of the width,
    a whole number or a fraction, and V back. The window is centred where the pattern looks ahead, and ends at its token
    where it does not. The norm before the first φ is the residual's.
    """

    def __init__(
        self,
        shape: Shape,
        *,
        activation: Recipe,
        norm: Recipe,
        kernel: SmallInt = 3,
        dilations: Sequence[PositiveInt] = (1, 2, 4, 8, 16),
        hidden: PositiveFloat = 0.5,
    ):
        super().__init__()
        if not dilations:
            raise ScalingError("expected the dilation of each layer", key="dilations", value=dilations, fix="write [1]")
        width = shape.fraction("hidden", hidden)
        self.kernel, self.dilations = kernel, tuple(dilations)
        self.activation = activation()
        self.down, self.taps = nn.Linear(shape.width, width), nn.Linear(kernel * width, width)
        self.inner_norm, self.outer_norm = norm(width), norm(width)
        self.out = declare(nn.Linear(width, shape.width), weight="output")

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        dilation = self.dilations[context.execution % len(self.dilations)]
        u = self.activation(self.inner_norm(self.down(self.activation(x))))
        u = self.taps(unfold(u, self.kernel, context, self, dilation))
        return self.out(self.activation(self.outer_norm(u)))
