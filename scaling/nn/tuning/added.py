"""What a tuning adds to a model: modules of the slot `tuning`. Their parameters are of one tuned state, or of several
of which each row of a batch uses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from torch import Tensor, nn

from scaling.errors import ScalingError
from scaling.shape import Shape

_adapters: ContextVar[Tensor | None] = ContextVar("adapters", default=None)


class Added(nn.Module):
    """A module that a tuning put into a model. `states` counts the tuned states that its parameters stack, 0 where they
    are of one.
    """

    slot = "tuning"
    states = 0

    def own(self, name: str) -> Tensor:
        """A parameter: the one there is, or [b …], for each row that of the state which it uses."""
        parameter: Tensor = getattr(self, name)
        if not self.states:
            return parameter
        rows = _adapters.get()
        if rows is None:
            raise ScalingError(
                f"the model holds {self.states} tuned states, and the batch does not state which each row uses",
                key="adapters",
                fix="set Batch.adapters",
            )
        return parameter[rows]

    def reset_parameters(self) -> None:
        """What starts at a constant."""


@contextmanager
def choosing(model: nn.Module, adapters: Tensor | None) -> Iterator[None]:
    """Let each row of a batch use, in what runs within, the tuned state of its number in `adapters` [b]."""
    if adapters is None:
        yield
        return
    states = {part.states for part in added(model)}
    if not any(states):
        raise ScalingError(
            "the batch chooses among tuned states, and the model does not hold several",
            key="adapters",
            fix="put them into one model by scaling.nn.tuning.together",
        )
    if int(adapters.min()) < 0 or int(adapters.max()) >= max(states):
        raise ScalingError(f"there are {max(states)} tuned states", key="adapters", value=adapters.tolist())
    before = _adapters.set(adapters)
    try:
        yield
    finally:
        _adapters.reset(before)


def added(model: nn.Module) -> Iterator[Added]:
    """What tunings have put into a model."""
    return (module for module in model.modules() if isinstance(module, Added))


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """x Aᵀ, for a matrix A [o i], or one for each row of x [b … i]."""
    if matrix.ndim == 2:
        return nn.functional.linear(x, matrix)
    return torch.einsum("b...i,boi->b...o", x, matrix)


def spread(rows: Tensor, x: Tensor) -> Tensor:
    """A vector [i], or one for each row [b i], so that it meets the last dimension of x [b … i]."""
    return rows if rows.ndim == 1 else rows.view(len(rows), *(1,) * (x.ndim - 2), -1)


class Map(NamedTuple):
    """A linear map of a mixer or a channel: its full name, the piece it is in, and that piece's slot."""

    name: str
    module: nn.Linear
    piece: nn.Module
    slot: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


PIECES = ("mixer", "cross", "channel")


def maps(model: nn.Module) -> Iterator[Map]:
    """Every linear map of the mixers and channels, once."""
    return (
        Map(name, module, piece, slot)
        for name, module, piece, slot in _within("", model, None, "", set())
        if isinstance(module, nn.Linear) and piece is not None
    )


def pieces(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Every mixer and channel, those within others too: its full name, itself, its slot."""
    return (
        (name, module, slot) for name, module, piece, slot in _within("", model, None, "", set()) if module is piece
    )


def _within(
    name: str, module: nn.Module, piece: nn.Module | None, slot: str, seen: set[int]
) -> Iterator[tuple[str, nn.Module, nn.Module | None, str]]:
    if id(module) in seen or isinstance(module, Added):
        return
    seen.add(id(module))
    own = getattr(module, "slot", None)
    if own in PIECES:
        piece, slot = module, own
    yield name, module, piece, slot
    for last, child in module.named_children():
        yield from _within(f"{name}.{last}" if name else last, child, piece, slot, seen)


def stream_width(model: nn.Module) -> int:
    """The width of a model's stream, which all its towers share."""
    return next(shape.width for module in model.modules() if isinstance(shape := getattr(module, "shape", None), Shape))


def refuse_tuned(model: nn.Module) -> None:
    """Refuse a model that is tuned already."""
    if next(added(model), None) is not None:
        raise ScalingError("the model is tuned already", key="kind", fix="merge it first, or begin with its base")
