from __future__ import annotations

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from scaling.nn.role import declare

Time = Literal["sinusoidal", "learned"]
Place = Literal["sinusoidal", "none"]


class Coordinates(nn.Module):
    """x_i + P_i + P_t at step t: P[2j] = sin(· / 10000^(2j/w)), P[2j+1] = cos(· / 10000^(2j/w)). (Dehghani et al. 2018,
    section 2.1)

    Steps count from 1. `time: learned` takes P_t from a table, `place: none` leaves P_i to the stack's position.
    """

    slot = "position"

    def __init__(self, width: int, steps: int, *, time: Time, place: Place):
        super().__init__()
        self.width, self.place = width, place
        self.table = nn.Parameter(torch.empty(steps, width)) if time == "learned" else None
        declare(self, table="table")
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.table is not None:
            nn.init.normal_(self.table, std=0.02)

    def forward(self, x: Float[Tensor, "b t w"], positions: Int[Tensor, "#b t"], step: int) -> Float[Tensor, "b t w"]:
        """x with its coordinates at `step`, counted from 0."""
        if self.place == "sinusoidal":
            x = x + self._waves(positions).to(x.dtype)
        if self.table is not None:
            return x + self.table[step].to(x.dtype)
        return x + self._waves(torch.tensor(step + 1, device=x.device)).to(x.dtype)

    def _waves(self, at: Tensor) -> Tensor:
        # In float64: at position 10⁵ a float32 angle is off by 10⁻².
        power = torch.arange(0, self.width, 2, device=at.device, dtype=torch.float64) / self.width
        angle = at[..., None].double() * 10000.0**-power
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)
