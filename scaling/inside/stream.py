"""The stream of a tower: what its first block is given, and what each block returns."""

from __future__ import annotations

from torch import Tensor

from scaling.batch import Batch
from scaling.inside.maps import TowerName, towers
from scaling.model.family import Family
from scaling.model.watch import INPUT
from scaling.nn.contract import Block, conforms


def stream(model: Family, batch: Batch, tower: TowerName | None = None) -> list[Tensor]:
    """[b t w] before the first block and after each, in the order in which they run; of the tower that is named, else
    of the one that the head reads.
    """
    every = dict(towers(model))
    tower = tower or list(every)[-1]
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    inside = every[tower].stack
    names = [f"{tower}.stack.{name}" for name, module in inside.named_modules() if conforms(module, Block)]  # type: ignore[attr-defined]
    with model.watch(change=dict.fromkeys([f"{tower}.stack{INPUT}", *names], keep)):
        model(batch)
    return kept
