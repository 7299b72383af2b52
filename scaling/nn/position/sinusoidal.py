from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.errors import ScalingError
from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.schema import PositiveFloat
from scaling.shape import Shape


class Sinusoidal(Hooks):
    """x_t + P_t, P_t[2i] = sin(t / base^(2i/w)), P_t[2i+1] = cos(t / base^(2i/w)). (Vaswani et al. 2017, section 3.5)

    `layout: halves` puts all sines before all cosines, as Tensor2Tensor and Marian do; the two differ by a permutation.
    """

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        base: PositiveFloat = 10000.0,
        layout: Literal["interleaved", "halves"] = "interleaved",
    ):
        super().__init__()
        if shape.width % 2:
            raise ScalingError(
                f"sines and cosines need an even width, not {shape.width}", key="kind", value="Sinusoidal"
            )
        self.width, self.base, self.layout = shape.width, base, layout

    def embed(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"]) -> Float[Tensor, "b t w"]:
        # In float64: at position 10⁵ a float32 angle is off by 10⁻².
        power = torch.arange(0, self.width, 2, device=x.device, dtype=torch.float64) / self.width
        angle = positions[..., None].double() * self.base**-power
        join = torch.stack if self.layout == "interleaved" else torch.cat
        return x + join([angle.sin(), angle.cos()], -1).flatten(2).to(x.dtype)
