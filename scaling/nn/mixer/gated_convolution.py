from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from scaling.nn.context import Context
from scaling.nn.contract import Mixer
from scaling.nn.role import declare
from scaling.nn.window import unfold
from scaling.schema import SmallInt
from scaling.shape import Shape


class GatedConvolution(nn.Module, Mixer):
    """y_t = (Σ_j x_{t+j} W_j + b) ⊙ σ(Σ_j x_{t+j} V_j + c) over a window of `kernel` tokens. (Dauphin et al. 2016;
    Gehring et al. 2017, section 3.2)

    The window is centred where the pattern looks ahead, and ends at its token where it does not.
    """

    def __init__(self, shape: Shape, *, kernel: SmallInt = 3):
        super().__init__()
        self.kernel = kernel
        self.out = declare(nn.Linear(kernel * shape.width, shape.width), weight="output")
        self.gate = nn.Linear(kernel * shape.width, shape.width)

    def forward(self, x: Float[Tensor, "b t w"], context: Context) -> Float[Tensor, "b t w"]:
        near = unfold(x, self.kernel, context, self)
        return self.out(near) * self.gate(near).sigmoid()
