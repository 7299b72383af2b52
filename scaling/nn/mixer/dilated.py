from __future__ import annotations

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.role import declare
from scaling.nn.window import unfold
from scaling.schema import PositiveFloat, PositiveInt, Recipe, SmallInt
from scaling.shape import Shape


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
