"""Places: what each parameter of a model is for, read off its name and its owner."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from scaling.model.family import Family
from scaling.model.tower import Tower

HEADS = ("head", "sentence", "boundary")
Role = Literal["embedding", "position", "hidden", "output", "vector"]


@dataclass(frozen=True)
class Place:
    """A parameter's name, shape and role, with the width, the layers and the head width of its tower.

    Roles: `embedding` and `position` are tables that are read by row, `output` the matrix onto the vocabulary or the
    classes, `hidden` every other matrix, `vector` a gain or a bias. `start` is what its residual asks its start to be
    multiplied by (Fixup).
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    width: int
    layers: int
    head_width: int
    start: float = 1.0

    @property
    def fan_in(self) -> int:
        """The width that a row of the matrix reads; a table's row is read as it is."""
        return self.shape[-1] if self.role in ("hidden", "output") else 1

    @property
    def fan_out(self) -> int:
        return self.shape[-2]

    @property
    def leaves(self) -> bool:
        """Whether it writes into the residual stream: every piece calls its last projection `out`."""
        return self.name.endswith(".out.weight")

    @property
    def slot(self) -> str:
        """Where its parameters are counted: embedding, position, mixer, cross, channel, norm or head."""
        parts = self.name.split(".")
        if parts[0] in HEADS:
            return "head"
        if parts[0] == "memory":
            return "cross"
        if parts[1] == "embedding":
            return "norm" if "norm" in parts else "embedding"
        if "positions" in parts or "coordinates" in parts:
            return "position"
        if "branches" in parts and "piece" in parts:
            return parts[parts.index("branches") + 1].split("_")[0]
        return "norm" if "norm" in parts or "outer" in parts else "stack"


def places(model: Family) -> list[tuple[Place, nn.Parameter]]:
    """Every parameter with its place, once: a tied table stands where it is first read."""
    owners = {
        f"{name}.{own}": module
        for name, module in model.named_modules()
        for own, _ in module.named_parameters(recurse=False)
    }
    towers = {name: child for name, child in model.named_children() if isinstance(child, Tower)}
    last = list(towers.values())[-1]
    starts = {id(parameter): factor for parameter, factor in _starts(towers.values())}
    head_start = min(getattr(module, "head_start", 1.0) for module in last.modules())
    found = []
    for name, parameter in model.named_parameters():
        shape = towers.get(name.split(".")[0], last).shape
        role = _role(name, owners[name], parameter)
        start = head_start if role == "output" else starts.get(id(parameter), 1.0)
        place = Place(name, tuple(parameter.shape), role, shape.width, shape.layers, shape.head_width, start)
        found.append((place, parameter))
    return found


def _starts(towers: Iterable[Tower]) -> Iterator[tuple[nn.Parameter, float]]:
    """The parameters for which their residuals ask for another start, and its factor."""
    asking: list[Any] = []
    branches = 0.0
    for tower in towers:
        own = {name: module for name, module in tower.named_modules() if hasattr(module, "starts")}
        blocks = len({name.partition(".branches.")[0] for name in own})
        branches += len(own) * tower.stack.executions / max(1, blocks)
        asking += own.values()
    for residual in asking:
        for name, factor in residual.starts(round(branches)).items():
            yield residual.piece.get_parameter(name), factor


def _role(name: str, owner: nn.Module, parameter: nn.Parameter) -> Role:
    parts = name.split(".")
    in_head = parts[0] in HEADS
    if parameter.ndim < 2:
        return "vector"
    if in_head and (not isinstance(owner, nn.Linear) or parts[-2] == "out"):
        return "output"
    if isinstance(owner, nn.Linear):
        return "hidden"
    place = "positions" in parts or "coordinates" in parts
    return "embedding" if "embedding" in parts else "position" if place else "hidden"
