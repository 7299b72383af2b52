from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.nn.contract import Mixer, Stack, Tuning
from scaling.nn.role import declare
from scaling.nn.tuning.added import Added, refuse_tuned, stream_width
from scaling.schema import PositiveInt


class Prompt(Tuning):
    """[P, X]: `length` learned vectors before each text in the stream that enters the first tower. (Lester et al. 2021,
    section 2)

    They are at the positions −length … −1, so that the text keeps its own and a table of positions is not used up,
    and begin every document of a packed row. Heads do not see their hidden vectors; the decoder of an encoder-decoder
    does.
    """

    def __init__(self, *, length: PositiveInt = 16):
        self.length = length

    def apply(self, model: nn.Module) -> None:
        refuse_tuned(model)
        towers: list[Any] = [module for module in model.modules() if hasattr(module, "prompt")]
        if not towers:
            raise ScalingError("the model has no tower to put a prompt into", key="kind", value="Prompt")
        tower = towers[0]
        for module in tower.modules():
            if isinstance(module, Stack) and module.looks_ahead:
                _refuse(type(module).__name__, "pools tokens with their neighbours")
            if isinstance(module, Mixer) and module.reach is not None:
                _refuse(type(module).__name__, "has no position before the text's first")
        tower.prompt = _Vectors(next(tower.parameters()), self.length, stream_width(tower), shown=len(towers) > 1)

    def trains(self, name: str) -> bool:
        return "prompt" in name.split(".")


class _Vectors(Added):
    """The vectors of virtual tokens."""

    def __init__(self, like: Tensor, length: int, width: int, *, shown: bool):
        super().__init__()
        self.length, self.shown = length, shown  # shown: its hidden vectors are for a decoder to read
        self.vectors = nn.Parameter(torch.empty(length, width, device=like.device, dtype=like.dtype))
        declare(self, vectors="table")
        nn.init.normal_(self.vectors, std=0.02)

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b n w"]:
        """Those of each row of x."""
        vectors = self.own("vectors").to(x.dtype)
        return vectors if vectors.ndim == 3 else vectors.expand(len(x), -1, -1)


def _refuse(kind: str, why: str) -> None:
    raise ScalingError(f"{kind} {why}", key="kind", value="Prompt", fix="take LoRA or Adapters")
