from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scaling.errors import ScalingError, nearest
from scaling.nn.contract import Tuning
from scaling.nn.role import declare, role
from scaling.nn.tuning.added import PIECES, Added, Map, maps, pieces, product, refuse_tuned
from scaling.schema import BelowOne, PositiveFloat, PositiveInt


class LoRA(Tuning):
    """y = x W + (α/r) x A B at each targeted map, A from a draw and B from 0. (Hu et al. 2021, formula 3)

    A target is the name of a map (`query`, `key`, `value`, `out`, `hidden`, `gate`), a slot (`mixer`, `cross`,
    `channel`), a role (`query`, `output`), a pattern of full names (`decoder.stack.blocks.1.*`), or `all`; each must
    name one. `alpha` is α, `dropout` acts on x before A. Maps that share a matrix share A and B.
    """

    def __init__(
        self,
        *,
        rank: PositiveInt = 8,
        alpha: PositiveFloat = 16.0,
        targets: list[str] = ["query", "value"],  # noqa: B006 (read only)
        dropout: BelowOne = 0.0,
    ):
        self.rank, self.alpha, self.targets, self.dropout = rank, alpha, targets, dropout

    def apply(self, model: nn.Module) -> None:
        refuse_tuned(model)
        shared: dict[int, _Update] = {}
        for linear in targeted(model, self.targets):
            weight = linear.module.weight
            update = shared.get(id(weight))
            if update is None:
                update = shared[id(weight)] = _Update(weight, self.rank, self.alpha / self.rank, self.dropout)
            linear.module.add_module("lora", update)
            linear.module.register_forward_hook(_updated)

    def trains(self, name: str) -> bool:
        return "lora" in name.split(".")

    @torch.no_grad()
    def merge(self, model: nn.Module) -> None:
        """Add the updates to the matrices: the same outputs at the cost of the base."""
        for linear, update in _updates(model, merged=False):
            linear.weight += update.matrix().to(linear.weight.dtype)
            update.merged = True

    @torch.no_grad()
    def unmerge(self, model: nn.Module) -> None:
        """Take the updates out of the matrices again."""
        for linear, update in _updates(model, merged=True):
            linear.weight -= update.matrix().to(linear.weight.dtype)
            update.merged = False


class _Update(Added):
    """y + s A B x."""

    def __init__(self, weight: Tensor, rank: int, scale: float, dropout: float):
        super().__init__()
        (out, wide), like = weight.shape, {"device": weight.device, "dtype": weight.dtype}
        self.scale, self.dropout, self.merged = scale, dropout, False
        self.down = nn.Parameter(torch.empty(rank, wide, **like))
        self.up = nn.Parameter(torch.empty(out, rank, **like))
        declare(self, up="gain")  # it starts at a constant, 0
        nn.init.normal_(self.down, std=wide**-0.5)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.up)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        if self.merged:
            return y
        x = F.dropout(x, self.dropout, self.training) if self.dropout else x
        return torch.add(y, product(product(x, self.own("down")), self.own("up")), alpha=self.scale)

    def matrix(self) -> Tensor:
        """What it adds to its map's matrix."""
        if self.states:
            raise ScalingError(f"{self.states} tuned states cannot be merged into one matrix", key="tuning.kind")
        return self.scale * (self.up @ self.down)


def _updated(module: Any, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return module.lora(args[0], output)


def _updates(model: nn.Module, merged: bool) -> Iterator[tuple[nn.Linear, _Update]]:
    """Each updated matrix once, of those that are merged or of those that are not."""
    seen: set[int] = set()
    for linear in maps(model):
        update = getattr(linear.module, "lora", None)
        if isinstance(update, _Update) and update.merged is merged and id(update) not in seen:
            seen.add(id(update))
            yield linear.module, update


def targeted(model: nn.Module, targets: list[str], key: str = "targets") -> list[Map]:
    """The maps that some target names; each target must name one."""
    every = list(maps(model))
    if not targets:
        raise ScalingError("expected the names of maps", key=key, value=targets, fix="write [query, value]")
    named: dict[str, list[Map]] = {target: [linear for linear in every if _names(target, linear)] for target in targets}
    for target, its in named.items():
        if not its:
            words = {word for linear in every for word in (linear.last, linear.slot)}
            raise ScalingError(
                "no linear map has such a name", key=key, value=target, fix=nearest(target, sorted(words))
            )
        if target in PIECES:
            _refuse_banks(model, target, key)
    chosen = {linear.name for its in named.values() for linear in its}
    return [linear for linear in every if linear.name in chosen]


def _refuse_banks(model: nn.Module, slot: str, key: str) -> None:
    """Refuse a slot whose pieces keep matrices side by side in one tensor, as experts do: they would be missed."""
    for _, piece, own in pieces(model):
        weights = (getattr(module, "weight", None) for module in piece.modules())
        if own == slot and any(isinstance(weight, Tensor) and weight.ndim > 2 for weight in weights):
            what = f"{type(piece).__name__} has matrices that are no linear maps"
            raise ScalingError(what, key=key, value=slot, fix="name its maps (gate, query), or take Adapters")


def _names(target: str, linear: Map) -> bool:
    # The role `hidden` is that of every map which has no other, so it selects nothing; the map of that name is meant.
    own = role(linear.module, "weight")
    return (
        target in ("all", linear.last, linear.slot) or (target == own != "hidden") or fnmatchcase(linear.name, target)
    )
