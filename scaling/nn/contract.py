"""Contracts: what the pieces of each slot are given, what they return, which abilities they may declare, and what their
parameters are for.

A piece is a torch module that inherits from the contract of its slot too; what it does not set keeps the contract's
value. docs/pieces.md explains each. `Position` and `Pattern` are in context.py, which carries them to the pieces.
Initialisation, learning rates, Fixup and the costs read the roles of parameters, never names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol, TypeGuard, TypeVar, runtime_checkable

from torch import Tensor, nn

from scaling.nn.context import Context, Pattern, Position

__all__ = [
    "Activation",
    "Additive",
    "Answer",
    "Block",
    "Channel",
    "Embedding",
    "Gate",
    "Halting",
    "Head",
    "Memory",
    "MeshCounted",
    "Mixer",
    "Norm",
    "Pattern",
    "Piece",
    "Position",
    "Redrawn",
    "Residual",
    "Role",
    "Shared",
    "Stack",
    "TiedHead",
    "Tuning",
    "conforms",
    "declare",
    "output_map",
    "role",
]

Answer = Literal["class", "classes", "number", "options", "tags", "span"]


Contract = TypeVar("Contract")
_conforming: dict[tuple[type, type], bool] = {}


def conforms(module: object, contract: type[Contract]) -> TypeGuard[Contract]:
    """Whether a module has the members of a contract. It is asked once of each class, because `isinstance` compares
    every member each time, which takes seconds over a deep model.
    """
    key = type(module), contract
    if key not in _conforming:
        _conforming[key] = isinstance(module, contract)
    return _conforming[key]


@runtime_checkable
class Piece(Protocol):
    """Any piece of a slot."""

    slot: str  # the slot that its parameters and operations are counted under


class Activation(Protocol):
    """Made by `Kind()`: φ, number by number."""

    slot = "activation"

    def __call__(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class Gate(Protocol):
    """An activation that computes φ(gate) ⊙ x at once."""

    def times(self, gate: Tensor, x: Tensor) -> Tensor: ...


class Norm(Protocol):
    """Made by `Kind(width)`: [… w] to [… w]."""

    slot = "norm"

    def __call__(self, x: Tensor) -> Tensor: ...


@runtime_checkable
class Mixer(Protocol):
    """Made by `Kind(shape)`: the stream [b t w] to what is added to it [b t w], over the tokens that may be seen."""

    slot = "mixer"
    reads_memory: bool = False  # it reads `context.memory`: a cross-attention
    takes_queries: bool = False  # `forward(x, context, queries)` lets other tokens [b q w] ask: it returns [b q w]
    heads: int | None = None  # their outputs are concatenated before the one matrix whose role is output
    reach: int | None = None  # how many positions it has, where they are counted

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...


class Channel(Protocol):
    """Made by `Kind(shape)`: the stream [b t w] to what is added to it [b t w], each token by itself."""

    slot = "channel"
    has_hidden: bool = True  # it has a layer of the shape's hidden width

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...


@runtime_checkable
class Residual(Protocol):
    """Made by `Kind(shape, norm, piece)`: a branch, from the stream to the stream."""

    slot = "residual"
    piece: nn.Module
    rescales: bool = False  # `starts` changes how its piece's matrices start
    head_start: float = 1.0  # the factor on the start of a head that is not tied

    def __call__(self, x: Tensor, context: Context, asking: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """The stream after the branch; `asking` makes of a stream the tokens that ask, where not all of them do."""
        ...

    def starts(self, branches: int) -> Iterator[tuple[nn.Parameter, float]]:
        """Each matrix that starts otherwise than drawn, and the factor, in a model of that many branches."""
        return iter(())


@runtime_checkable
class Additive(Protocol):
    """A residual that only adds to the stream, so that branches may run side by side."""

    def update(self, x: Tensor, context: Context) -> Tensor:
        """What it adds."""
        ...


@runtime_checkable
class Block(Protocol):
    """Made by `Kind(shape)`: the stream [b t w] to the stream [b t w]."""

    slot = "block"
    in_turn: bool = False  # it runs its `branches` one after another and does nothing else
    branches: nn.ModuleDict  # its residuals by name

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...


@runtime_checkable
class Stack(Protocol):
    """Made by `Kind(shape, block, position)`, the last two functions: the embedded tokens to the last hidden vectors.

    It sets `context.execution` and `context.position` before each block, and `context.places` where tokens moved.
    """

    slot = "stack"
    looks_ahead: bool = False  # tokens see what comes after them, whatever the pattern
    shortens: bool = False  # it returns fewer vectors than tokens
    blocks: nn.ModuleList

    @property
    def executions(self) -> int:
        """How often a block runs in a pass."""
        ...

    def position(self, execution: int) -> Position:
        """The position that an execution uses."""
        ...

    def __call__(self, x: Tensor, context: Context) -> Tensor: ...


class Embedding(Protocol):
    """Made by `Kind(shape)`: token ids [b t] to the stream [b t w]."""

    slot = "embedding"
    width: int  # of the vectors that positions are added to

    @property
    def form(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of what ties share."""
        ...

    def tie(self, other: Any) -> None:
        """Read the vectors of another embedding."""
        ...

    def __call__(self, tokens: Tensor, context: Context, segments: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class Head(Protocol):
    """Made by `Kind(shape)`: hidden vectors to predictions. It owns its loss, in nats, 0 where a target is ignored."""

    slot = "head"
    target: Literal["targets", "labels"]  # what of a batch it learns from
    reads: Literal["tokens", "text"] = "tokens"  # a vector for every token, or those of the whole text [b k w]
    omits_padding: bool = False  # vectors of padding reach it as 0, and it gives them no chance
    answer: Answer | None = None  # the kind of a task's answers that it predicts; None: tokens of a text

    def __call__(self, hidden: Tensor) -> Tensor: ...

    def loss(self, hidden: Tensor, targets: Tensor, smoothing: float = 0.0) -> Tensor: ...

    def labels_like(self, tokens: Tensor) -> Tensor:
        """Labels of the shape that it learns from, all 0, for rows of such tokens."""
        return tokens.new_zeros(len(tokens))


@runtime_checkable
class TiedHead(Protocol):
    """A head that can predict by an embedding's vectors."""

    def tie(self, embedding: Any) -> None: ...


class Halting(Protocol):
    """Made by `Kind(width)`: when a position of a recurrent stack halts.

    Called after each step with the state before it, the state that it made, and what it returned after the last step.
    """

    slot = "halting"

    def __call__(self, old: Tensor, new: Tensor, pondered: Any, *, last: bool) -> tuple[Tensor, Any]: ...

    def answer(self, pondered: Any, context: Context) -> Tensor:
        """What the stack returns at the end."""
        ...


class Memory(Protocol):
    """Made by `Kind(layers, readers)`: what the decoder reads, one tensor [b s w] or one for each execution.

    It is given the encoder's output or, where it `reads` every layer, the stream before each block and the output.
    """

    slot = "memory"
    reads: Literal["the last layer", "every layer"]

    def __call__(self, layers: Sequence[Tensor]) -> tuple[Tensor, ...]: ...


class Tuning(Protocol):
    """Made by `Kind()`: puts what it adds into a built model, whose parameters keep their names."""

    slot = "tuning"

    def apply(self, model: nn.Module) -> None:
        """Put what it adds into the model, on the device that the model is on."""
        ...

    def trains(self, name: str) -> bool:
        """Whether it trains the parameter of that full name."""
        ...


@runtime_checkable
class Redrawn(Protocol):
    """A piece that draws numbers which are no parameters, and draws them again in training."""

    def at_step(self, step: int) -> None:
        """Take what belongs to the step that begins: a function of its number, so that a resumed run takes the same."""
        ...


@runtime_checkable
class Shared(Protocol):
    """A piece that may have parameters in common with the others of its kind in a stack."""

    def share_parameters(self, first: Any) -> None:
        """Take what is shared from the first of its kind, which may be itself."""
        ...


@runtime_checkable
class MeshCounted(Protocol):
    """A piece that Mesh TensorFlow, by which published figures are counted, computes another way than we do."""

    def mesh_operations(self, tokens: int) -> int:
        """Multiply-accumulates of a forward pass over that many tokens there."""
        ...


# input: a matrix from vectors of a width of their own into the stream (an embedding's projection)
# query: the matrix that makes queries, into which T5's initialiser puts the scale of attention
# output: the last matrix of a piece: into the stream, or a head's onto its classes
# hidden: every other matrix, and all else that is drawn
# table: rows that are looked up by token, position or distance, and those that a head predicts by
# gain: what starts at a constant that its piece sets: gains, biases, shifts
Role = Literal["input", "query", "output", "hidden", "table", "gain"]

M = TypeVar("M", bound=nn.Module)


def declare(module: M, **roles: Role) -> M:
    """`module`, whose own parameters of these names have these roles."""
    absent = sorted(name for name in roles if not hasattr(module, name))
    if absent:
        raise ValueError(f"{type(module).__name__} has no parameter {', '.join(absent)}")
    vars(module)["roles"] = {**vars(module).get("roles", {}), **roles}
    return module


def role(module: nn.Module, name: str) -> Role:
    """The role of a module's own parameter. One that declares none is hidden, or a gain if it is a vector."""
    declared: Role | None = vars(module).get("roles", {}).get(name)
    return declared or ("gain" if module.get_parameter(name).ndim < 2 else "hidden")


def output_map(piece: nn.Module) -> tuple[str, nn.Linear | None]:
    """The one linear map by which a piece ends, whose role is output, and its name; None where there is not one."""
    last = [
        (name, child)
        for name, child in piece.named_children()
        if isinstance(child, nn.Linear) and role(child, "weight") == "output"
    ]
    return last[0] if len(last) == 1 else ("", None)
