"""Contracts: what the pieces of each slot are given, what they return, which abilities they may declare, and what their
parameters are for.

A piece is a torch module that inherits from the contract of its slot too; what it does not set keeps the contract's
value (docs/pieces.md). `Position` and `Pattern` are in context.py, which carries them to the pieces. Initialisation,
learning rates, Fixup, tunings and the costs read the roles of parameters, never names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from scaling.model.context import Context, Position


class Activation(Protocol):
    """Made by `Kind()`."""

    slot = "activation"


class Norm(Protocol):
    """Made by `Kind(width)`."""

    slot = "norm"


@runtime_checkable
class Mixer(Protocol):
    """Made by `Kind(shape)`."""

    slot = "mixer"
    reads_memory: bool = False  # it reads `context.memory`: a cross-attention
    takes_queries: bool = False  # `forward(x, context, queries)` lets other tokens [b q w] ask: it returns [b q w]
    takes_prefix: bool = False  # it attends behind what its `prefix` makes of keys and values, where that is not None
    heads: Any = None  # how many, where their outputs are concatenated before the one matrix whose role is output
    reach: Any = None  # how many positions it has, where they are counted


class Channel(Protocol):
    """Made by `Kind(shape)`."""

    slot = "channel"
    has_hidden: bool = True  # it has a layer of the shape's hidden width


@runtime_checkable
class Residual(Protocol):
    """Made by `Kind(shape, norm, piece)`: a branch, from the stream to the stream."""

    slot = "residual"
    piece: nn.Module
    rescales: bool = False  # `starts` changes how its piece's matrices start
    head_start: float = 1.0  # the factor on the start of a head that is not tied

    def starts(self, branches: int) -> Iterator[tuple[nn.Parameter, float]]:
        """Each matrix that starts otherwise than drawn, and the factor, in a model of that many branches."""
        return iter(())


@runtime_checkable
class Block(Protocol):
    """Made by `Kind(shape)`."""

    slot = "block"
    in_turn: bool = False  # it runs its `branches` one after another and does nothing else
    branches: nn.ModuleDict  # its residuals by name


@runtime_checkable
class Stack(Protocol):
    """Made by `Kind(shape, block, position)`, the last two functions.

    It sets `context.execution` and `context.position` before each block, and `context.mask` where tokens moved.
    """

    slot = "stack"
    looks_ahead: bool = False  # tokens see what comes after them, whatever the pattern
    shortens: bool = False  # it returns fewer vectors than tokens
    blocks: nn.ModuleList

    @property
    def executions(self) -> int: ...  # how often a block runs in a pass

    def position(self, execution: int) -> Position: ...  # that an execution uses

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...  # the embedded tokens to the last hidden vectors


class Embedding(Protocol):
    """Made by `Kind(shape)`: token ids [b t] to the stream [b t w]."""

    slot = "embedding"
    width: int  # of the vectors that positions are added to

    @property
    def form(self) -> tuple[tuple[int, ...], ...]: ...  # the shapes of what ties share

    def tie(self, other: Any) -> None: ...  # read the vectors of another embedding

    def __call__(self, tokens: Tensor, context: Context, segments: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class Head(Protocol):
    """Made by `Kind(shape)`. It owns its loss."""

    slot = "head"
    target: Literal["targets", "labels"]  # what of a batch it learns from
    reads: Literal["tokens", "text"] = "tokens"  # a vector for every token, or those of the whole text [b k w]
    takes_absent: bool = False  # it gives no chance where the keyword `absent` [b t or k] of both methods is True
    answer: str | None = None  # the kind of a task's answers that it predicts; None: tokens of a text

    def __call__(self, hidden: Tensor, **absent: Tensor) -> Tensor: ...  # hidden vectors to predictions

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0, **absent: Tensor) -> Tensor:
        """The loss of each target in nats, 0 where it is ignored."""
        ...

    def labels_like(self, tokens: Tensor) -> Tensor:
        """Labels of the shape that it learns from, all 0, for rows of such tokens."""
        return tokens.new_zeros(len(tokens))


class Halting(Protocol):
    """Made by `Kind(width)`: when a position of a recurrent stack halts."""

    slot = "halting"

    def answer(self, pondered: Any, context: Context) -> Tensor: ...  # what the stack returns at the end


class Memory(Protocol):
    """Made by `Kind(layers, readers)`: what the decoder reads, one tensor [b s w] or one for each execution, of the
    encoder's output or, where it `reads` every layer, of the stream before each block and the output.
    """

    slot = "memory"
    reads: Literal["the last layer", "every layer"]

    def __call__(self, layers: Sequence[Tensor]) -> tuple[Tensor, ...]: ...


class Tuning(Protocol):
    """Made by `Kind()`: puts what it adds into a built model, whose parameters keep their names."""

    slot = "tuning"

    def apply(self, model: nn.Module) -> None: ...  # on the device that the model is on

    def trains(self, name: str) -> bool: ...  # whether it trains the parameter of that full name


class Added(nn.Module):
    """A module that a tuning put into a model."""

    slot = "tuning"


# input: what sums as many inputs at every width (an embedding's projection, from vectors of a width of their own)
# query, key, value: the matrices of an attention; T5's initialiser puts the scale into the first
# output: the last matrix of a piece: into the stream, or a head's onto its classes
# hidden: every other matrix, and all else that is drawn
# table: rows that are looked up by token, position or distance, and those that a head predicts by
# bias: what is added and starts at 0
# gain: what multiplies and starts at 1, and all else that starts at a constant: the piece has it in `constants`
Role = Literal["input", "query", "key", "value", "output", "hidden", "table", "bias", "gain"]
CONSTANT = ("bias", "gain")

M = TypeVar("M", bound=nn.Module)


def declare(module: M, **roles: Role) -> M:
    """`module`, whose own parameters of these names have these roles."""
    absent = sorted(name for name in roles if not hasattr(module, name))
    if absent:
        raise ValueError(f"{type(module).__name__} has no parameter {', '.join(absent)}")
    vars(module)["roles"] = {**vars(module).get("roles", {}), **roles}
    return module


def drawn(*shape: int, std: float = 0.02) -> nn.Parameter:
    """A parameter of that shape, normal until the model's parametrization draws it."""
    return nn.Parameter(nn.init.normal_(torch.empty(shape), std=std))


def role(module: nn.Module, name: str) -> Role:
    """The role of a module's own parameter. One that declares none is hidden, or a gain if it is a vector, and a
    linear map's is a bias.
    """
    declared: Role | None = vars(module).get("roles", {}).get(name)
    if declared or module.get_parameter(name).ndim > 1:
        return declared or "hidden"
    return "bias" if isinstance(module, nn.Linear) else "gain"


def start(module: nn.Module, name: str) -> float:
    """The initial value of a module's own bias or gain: 0 or 1, unless `constants` of the module names another
    number.
    """
    return getattr(module, "constants", {}).get(name, 0.0 if role(module, name) == "bias" else 1.0)


def map_of(piece: nn.Module, wanted: Role) -> tuple[str, nn.Linear | None]:
    """The one linear map of a piece itself that has this role, and its name; None where there is not one."""
    linear = [(name, child) for name, child in piece.named_children() if isinstance(child, nn.Linear)]
    matching = [(name, child) for name, child in linear if role(child, "weight") == wanted]
    return matching[0] if len(matching) == 1 else ("", None)
