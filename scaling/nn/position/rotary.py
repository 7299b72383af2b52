from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.errors import ScalingError
from scaling.kernel.call import serves
from scaling.kernel.rotate import rotated
from scaling.nn.context import Pattern
from scaling.nn.position.hooks import Hooks
from scaling.number import PositiveFloat, PositiveFraction
from scaling.shape import Shape


class Rotary(Hooks):
    """Turns each pair (x_i, x_{i+d/2}) of q and k by the angle t base^(−2i/d), so that q·k knows only t_q − t_k. (Su
    et al. 2021)

    `part` is the share of a head's width that turns (Pythia: 0.25). Pairs are halves apart, as GPT-NeoX and Llama
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
                mend="make size.head_width even",
            )

    def rotate(
        self,
        q: Float[Tensor, "b t h d"],
        k: Float[Tensor, "b s g d"],
        q_pos: Int[Tensor, "#b t"],
        k_pos: Int[Tensor, "#b s"],
    ) -> tuple[Tensor, Tensor]:
        if serves(q, k):
            q_angles = self._angles(q_pos)
            return rotated(q, *q_angles), rotated(k, *(q_angles if k_pos is q_pos else self._angles(k_pos)))
        q_turn = self._turn(q_pos, q)
        return self._turned(q, *q_turn), self._turned(k, *(q_turn if k_pos is q_pos else self._turn(k_pos, k)))

    def _angles(self, positions: Tensor, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, [#b t turning/2]."""
        power = torch.arange(0, self.turning, 2, device=positions.device, dtype=torch.float64) / self.turning
        angle = positions[..., None].double() * self.base**-power
        return angle.cos().to(dtype), angle.sin().to(dtype)

    def _turn(self, positions: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of every angle, each written twice, the first sine negated: [b t h turning].

        They are written out for x's heads where all its rows stand alike: products then run along whole tokens.
        """
        cos, sin = (table[:, :, None].to(x.dtype) for table in self._angles(positions, torch.float64))
        heads = x.shape[2] if len(positions) == 1 else 1
        return torch.cat([cos, cos], -1).repeat(1, 1, heads, 1), torch.cat([-sin, sin], -1).repeat(1, 1, heads, 1)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        cos, sin = cos[:, :, : x.shape[2]], sin[:, :, : x.shape[2]]
        if self.turning == x.shape[-1]:
            return x * cos + x.roll(self.turning // 2, -1) * sin
        turned, still = x[..., : self.turning], x[..., self.turning :]
        return torch.cat([turned * cos + turned.roll(self.turning // 2, -1) * sin, still], -1)
