from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.errors import ScalingError
from scaling.kernel.operations import rotated
from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.schema import PositiveFloat, PositiveFraction
from scaling.shape import Shape


class Rotary(Hooks):
    """Turns each pair (x_i, x_{i+d/2}) of q and k by the angle t base^(−2i/d), so that q·k knows only t_q − t_k. (Su
    et al. 2021)

    `part` is the fraction of a head's width that turns (Pythia: 0.25). Pairs are halves apart, as GPT-NeoX and Llama
    store them.
    """

    def __init__(
        self,
        shape: Shape,
        pattern: Pattern,
        *,
        base: PositiveFloat = 10000.0,
        part: PositiveFraction = 1.0,
    ):
        super().__init__()
        self.base, self.turning = base, round(shape.head_width * part)
        if self.turning % 2:
            raise ScalingError(
                f"rotary positions turn pairs, and {self.turning} of the head width {shape.head_width} would turn",
                key="kind",
                value="Rotary",
                fix="make size.head_width even",
            )

    def rotate(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> tuple[Tensor, Tensor]:
        q_angle = self._angle(q_pos)
        return rotated(q, k, q_angle, q_angle if k_pos is q_pos else self._angle(k_pos))

    def _angle(self, positions: Tensor) -> Tensor:
        """Every angle, [#b t turning/2], in float64."""
        power = torch.arange(0, self.turning, 2, device=positions.device, dtype=torch.float64) / self.turning
        return positions[..., None].double() * self.base**-power
