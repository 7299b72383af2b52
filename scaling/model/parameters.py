"""The parameters of a model: the role that each declares, and the slot that it is counted under."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from torch import Tensor, nn

from scaling.model.contract import CONSTANT, Residual, Role, role
from scaling.model.family import Family, Tower

# A piece and all within it are counted under its slot. Within these, pieces are counted under slots of their own.
OPEN = ("embedding", "stack")
ADDED = "tuning"  # counted under its own slot wherever it is
COUNTED_UNDER = {
    "block": "stack",
    "residual": "stack",
    "halting": "stack",
    "memory": "cross",
    "sentence": "head",
    "language": "head",
    "boundary": "head",
}


@dataclass(frozen=True)
class ParameterSpec:
    """A parameter's name, shape, role (`scaling.model.contract.role`) and slot, with the width, the layers and the
    head width of its tower. `start` is what its residual asks its start to be multiplied by (Fixup). What is `finite`
    sums as many inputs at every width: it has the role `input`, or its module names it so.
    """

    name: str
    shape: tuple[int, ...]
    role: Role
    slot: str
    width: int
    layers: int
    head_width: int
    start: float = 1.0
    finite: bool = False

    @property
    def looks_up(self) -> bool:
        """Whether it is a table that is read by row."""
        return self.role == "table" and self.slot != "head"

    @property
    def predicts(self) -> bool:
        """Whether it is the matrix onto the vocabulary or the classes."""
        return self.role in ("table", "output") and self.slot == "head"

    @property
    def is_inner_matrix(self) -> bool:
        """Whether it is a matrix that neither looks up nor predicts."""
        return self.role not in CONSTANT and not self.looks_up and not self.predicts

    @property
    def fan_in(self) -> int:
        """The width that a row of the matrix reads; a table's row is read as it is."""
        return 1 if self.looks_up or self.role in CONSTANT else self.shape[-1]

    @property
    def fan_out(self) -> int:
        return self.shape[-2]


class Parameter(NamedTuple):
    """A parameter, or a tensor in its place (its float32 master), with what the model declares of it."""

    spec: ParameterSpec
    tensor: Tensor


class Part(NamedTuple):
    """A module of a model, the slot that it is counted under, and whether that slot begins with it."""

    name: str
    module: nn.Module
    slot: str
    begins: bool


def parts(model: nn.Module) -> Iterator[Part]:
    """Every module once, from the outermost; what belongs to no piece is counted under the head, whose loss it is."""
    return _parts("", model, "head", True, set())


def _parts(name: str, module: nn.Module, slot: str, is_open: bool, seen: set[nn.Module]) -> Iterator[Part]:
    if module in seen:
        return
    seen.add(module)
    own = getattr(module, "slot", None)
    own = own if is_open or own == ADDED else None
    if own is not None:
        slot = COUNTED_UNDER.get(own, own)
        is_open = slot in OPEN
    yield Part(name, module, slot, begins=own is not None)
    for last, child in module.named_children():
        yield from _parts(f"{name}.{last}" if name else last, child, slot, is_open, seen)


def parameters(model: Family) -> list[Parameter]:
    """Every parameter with its specification, once: a tied table is specified where it is first read."""
    towers = model.towers
    last = list(towers.values())[-1]
    starts = dict(_starts(towers.values()))
    head_start = min((piece.head_start for piece in last.modules() if isinstance(piece, Residual)), default=1.0)
    specified: dict[nn.Parameter, Parameter] = {}
    for prefix, module, slot, _ in parts(model):
        shape = towers.get(prefix.split(".")[0], last).shape
        sizes = shape.width, shape.layers, shape.head_width
        for name, parameter in module.named_parameters(recurse=False):
            own, start = role(module, name), starts.get(parameter, 1.0)
            finite = own == "input" or name in getattr(module, "finite", ())
            spec = ParameterSpec(f"{prefix}.{name}", tuple(parameter.shape), own, slot, *sizes, start, finite)
            spec = replace(spec, start=head_start) if spec.predicts else spec
            specified.setdefault(parameter, Parameter(spec, parameter))
    return list(specified.values())


def _starts(towers: Iterable[Tower]) -> Iterator[tuple[nn.Parameter, float]]:
    """The parameters for which their residuals ask for another start, and its factor."""
    asking: list[Residual] = []
    branches = 0.0
    for tower in towers:
        of_blocks = [
            [piece for piece in block.modules() if isinstance(piece, Residual) and piece.rescales]
            for block in tower.stack.blocks
        ]
        names = list(chain(*of_blocks))
        branches += len(names) * tower.stack.executions / max(1, sum(map(bool, of_blocks)))
        asking += names
    for residual in asking:
        yield from residual.starts(round(branches))
