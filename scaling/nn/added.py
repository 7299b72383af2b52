"""What a tuning adds to a model: modules of the slot `tuning`. Their parameters are of one tuned state, or of several
of which each row of a batch uses one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from copy import deepcopy
from typing import NamedTuple, TypeVar

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
            fix="put them into one model by scaling.nn.added.together",
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


def per_row(rows: Tensor, x: Tensor) -> Tensor:
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
    name: str, module: nn.Module, piece: nn.Module | None, slot: str, seen: set[nn.Module]
) -> Iterator[tuple[str, nn.Module, nn.Module | None, str]]:
    if module in seen or isinstance(module, Added):
        return
    seen.add(module)
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


M = TypeVar("M", bound=nn.Module)


@torch.no_grad()
def together(models: Sequence[M]) -> M:
    """One model of several that share a base and were tuned in one way; `Batch.adapters` is the state of each row.

    model = together([first, second])
    model.logits(replace(batch, adapters=torch.tensor([1, 0, 1])))
    """
    if not models:
        raise ScalingError("expected tuned models", key="models", value=[])
    first, *others = models
    whole = deepcopy(first)
    own = {name: part for name, part in whole.named_modules() if isinstance(part, Added)}
    if not own:
        raise ScalingError("the model is not tuned by something that was added to it", key="models")
    for number, other in enumerate(others, 2):
        _check(first, other, number)
    for name, part in own.items():
        if part.states or getattr(part, "merged", False):
            raise ScalingError(f"{name} is merged, or holds several states already", key="models")
        for last in [last for last, _ in part.named_parameters(recurse=False)]:
            states = [model.get_submodule(name).get_parameter(last).detach() for model in models]
            setattr(part, last, nn.Parameter(torch.stack(states)))
        part.states = len(models)
    return whole


def _check(first: nn.Module, other: nn.Module, number: int) -> None:
    """Refuse a model that was tuned otherwise or whose base is another."""
    parameters = dict(other.named_parameters())
    within = {name for name, part in first.named_modules() if isinstance(part, Added)}
    for name, parameter in first.named_parameters():
        theirs = parameters.pop(name, None)
        is_added = name.rpartition(".")[0] in within
        if theirs is None or theirs.shape != parameter.shape:
            raise ScalingError(f"model {number} is tuned in another way: {name} differs", key="models")
        if not is_added and not torch.equal(parameter, theirs):
            raise ScalingError(f"model {number} has another base: {name} differs", key="models")
    if parameters:
        raise ScalingError(f"model {number} is tuned in another way: it has {min(parameters)}", key="models")
    for name in within:
        mine, theirs = (vars(model.get_submodule(name)) for model in (first, other))
        for key in ("scale", "dropout"):
            if mine.get(key) != theirs.get(key):
                raise ScalingError(f"model {number} is tuned in another way: the {key} of {name} differs", key="models")
