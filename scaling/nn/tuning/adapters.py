from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from scaling.errors import ScalingError, nearest
from scaling.nn.contract import Residual, Tuning
from scaling.nn.role import declare
from scaling.nn.tuning.added import PIECES, Added, product, refuse_tuned, spread, stream_width
from scaling.schema import PositiveInt, Recipe, recipe


class Adapters(Tuning):
    """f(x) + φ(f(x) D + d) U + u behind a branch's piece f, within its residual; U and u start at 0. (Houlsby et al.
    2019, section 2.1)

    D is [w, `bottleneck`], φ is GeLU where no `activation` is named. `after` names the slots of the pieces: `mixer`,
    `cross`, `channel`.
    """

    def __init__(
        self,
        *,
        bottleneck: PositiveInt = 64,
        activation: Recipe | None = None,
        after: list[str] = ["mixer", "channel"],  # noqa: B006 (read only)
    ):
        self.bottleneck, self.after = bottleneck, after
        self.activation = recipe("activation", "GeLU") if activation is None else activation

    def apply(self, model: nn.Module) -> None:
        refuse_tuned(model)
        branches = [module.piece for module in model.modules() if isinstance(module, Residual)]
        slots = {getattr(piece, "slot", None) for piece in branches}
        for slot in self.after or [""]:
            if slot not in slots:
                raise ScalingError(
                    "no block has such a branch",
                    key="after",
                    value=slot or self.after,
                    fix=nearest(slot, [module for module in PIECES if module in slots]),
                )
        width = stream_width(model)
        for piece in {id(piece): piece for piece in branches}.values():
            if getattr(piece, "slot", None) in self.after:
                like = next(piece.parameters())
                piece.add_module("adapter", _Adapter(like, width, self.bottleneck, self.activation()))
                piece.register_forward_hook(_adapted)

    def trains(self, name: str) -> bool:
        return "adapter" in name.split(".")


class _Adapter(Added):
    """y + φ(y D + d) U + u."""

    def __init__(self, like: Tensor, width: int, bottleneck: int, activation: Any):
        super().__init__()
        self.activation = activation
        of: Any = {"device": like.device, "dtype": like.dtype}
        self.down = nn.Parameter(torch.empty(bottleneck, width, **of))
        self.down_bias = nn.Parameter(torch.empty(bottleneck, **of))
        self.up = nn.Parameter(torch.empty(width, bottleneck, **of))
        self.up_bias = nn.Parameter(torch.empty(width, **of))
        declare(self, up="gain")  # it starts at a constant, 0
        nn.init.normal_(self.down, std=width**-0.5)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for constant in (self.down_bias, self.up, self.up_bias):
            nn.init.zeros_(constant)

    def forward(self, y: Tensor) -> Tensor:
        inner = product(y, self.own("down")) + spread(self.own("down_bias"), y)
        return y + product(self.activation(inner), self.own("up")) + spread(self.own("up_bias"), y)


def _adapted(module: Any, args: tuple[Any, ...], output: Tensor) -> Tensor:
    return module.adapter(output)
