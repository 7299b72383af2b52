"""Places: what each parameter of a model is for, read off its name and its owner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from scaling.model.family import Family
from scaling.model.tower import Tower

HEADS = ("head", "sentence", "boundary")
Role = Literal["embedding", "position", "hidden", "output", "vector"]


@dataclass(frozen=True)
class Place:
    """A parameter's name, shape and role, with the width, the layers and the head width of its tower.

    Roles: `embedding` and `position` are tables that are read by row, `output` the matrix onto the vocabulary or the
    classes, `hidden` every other matrix, `vector` a gain or a bias.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    width: int
    layers: int
    head_width: int

    @property
    def fan_in(self) -> int:
        """The width that a row of the matrix reads; a table's row is read as it is."""
        return self.shape[-1] if self.role in ("hidden", "output") else 1

    @property
    def fan_out(self) -> int:
        return self.shape[0]

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
        if parts[1] == "embedding":
            return "norm" if "norm" in parts else "embedding"
        if "positions" in parts:
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
    found = []
    for name, parameter in model.named_parameters():
        shape = towers.get(name.split(".")[0], last).shape
        role = _role(name, owners[name], parameter)
        place = Place(name, tuple(parameter.shape), role, shape.width, shape.layers, shape.head_width)
        found.append((place, parameter))
    return found


def _role(name: str, owner: nn.Module, parameter: nn.Parameter) -> Role:
    parts = name.split(".")
    in_head = parts[0] in HEADS
    if parameter.ndim < 2:
        return "vector"
    if in_head and (not isinstance(owner, nn.Linear) or parts[-2] == "out"):
        return "output"
    if isinstance(owner, nn.Linear):
        return "hidden"
    return "embedding" if "embedding" in parts else "position" if "positions" in parts else "hidden"
