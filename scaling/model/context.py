"""Context: what a piece may read besides its input. Where tokens are, who sees whom, what the encoder made, what is
cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError


@dataclass(frozen=True)
class Layout:
    """The positions of the keys that a query may see, so that attention reads these and not the square.

    They are the places from `back` before it to `ahead` after it, every `step`-th of them. With `block` the bounds are
    counted from the ends of the query's block of so many places. The `first` tokens of a document are seen by all that
    may look there, and see all that they may. `drawn` maps numbers of blocks [c] to the blocks that each sees besides
    [c r], −1 for none.
    """

    back: int
    ahead: int
    step: int = 1
    block: int | None = None
    first: int = 0
    drawn: Callable[[Tensor], Tensor] | None = None


ROOM = 32  # tokens that what is kept has room for at least


class State(dict[str, Tensor]):
    """Tensors by name. What a piece appends to stands at the beginning of a wider tensor with room for more tokens."""

    def __init__(self, *kept: Mapping[str, Tensor]):
        super().__init__(*kept)
        self._wide: dict[str, Tensor] = {}

    def append(self, name: str, new: Float[Tensor, "b t *d"]) -> Float[Tensor, "b s *d"]:
        """All tokens of a name, with new ones behind those that were kept."""
        old = self.get(name)
        if old is None or torch.is_grad_enabled():  # what is written over has no gradient
            self[name] = new if old is None else torch.cat([old, new], 1)
            return self[name]
        used, length, wide = old.shape[1], old.shape[1] + new.shape[1], self._room(name)
        if wide.shape[1] < length:
            wide = old.new_empty(len(old), length + max(ROOM, used // 4), *old.shape[2:])
            wide[:, :used] = old
        wide[:, used:length] = new
        self[name], self._wide[name] = wide[:, :length], wide
        return self[name]

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        for name, tensor in self.items():
            self._wide[name] = self._room(name).index_select(0, rows)
            self[name] = self._wide[name][:, : tensor.shape[1]]

    def _room(self, name: str) -> Tensor:
        """The tensor of which that of a name is the beginning."""
        wide = self._wide.get(name, self[name])
        return wide if wide.data_ptr() == self[name].data_ptr() else self[name]


@dataclass(frozen=True, eq=False)
class Places:
    """Where tokens are: position within the document, which document (0 is padding), and the length of a prefix.

    `plain` states that positions are 0, 1, 2, … and each row is one document, so that kernels may use what they know of
    that.
    """

    positions: Tensor  # [b or 1, t]
    documents: Tensor | None = None  # [b, t]
    prefix: Tensor | None = None  # [b]
    plain: bool = False
    tree: Tensor | None = None  # [b, t, 3], as `Batch.tree`

    @staticmethod
    def of(batch: Batch, start: int = 0, tree: Tensor | None = None) -> Places:
        """The places of a batch's tokens; positions not given count from `start`, or from each document's first."""
        tokens, documents, positions = batch.tokens, batch.documents, batch.positions
        plain = positions is None and documents is None
        if positions is None:
            counted = torch.arange(start, start + tokens.shape[1], device=tokens.device)[None]
            positions = counted if documents is None else within(documents)
        return Places(positions, documents, batch.prefix, plain, tree)

    def map(
        self, function: Callable[[Tensor], Tensor], of_rows: Callable[[Tensor], Tensor] = lambda rows: rows
    ) -> Places:
        """The places that a function makes of all that a token has, and another of what a row has."""
        documents, tree = (None if part is None else function(part) for part in (self.documents, self.tree))
        prefix = None if self.prefix is None else of_rows(self.prefix)
        return Places(function(self.positions), documents, prefix, tree=tree)

    def part(self, start: int, stop: int) -> Places:
        """The places of the tokens `start` to `stop`."""
        return self.map(lambda tensor: tensor[:, start:stop])

    def seen_by(self, position: Position) -> Tensor:
        """The argument of the hooks of a position: the positions [b t], or [b t 4] with the tree behind them."""
        return _in_tree(self.positions, self.tree) if position.reads_tree else self.positions


def _in_tree(positions: Tensor, tree: Tensor | None) -> Tensor:
    if tree is None:  # each token depends on the one before it
        ends = torch.full_like(positions, torch.iinfo(positions.dtype).max)
        return torch.stack([positions, positions, positions, ends], -1)
    return torch.cat([positions.expand(len(tree), -1)[..., None], tree.to(positions.dtype)], -1)


@runtime_checkable
class Pattern(Protocol):
    """The keys that a query may see: a predicate [b, t, s] over places, or None for all."""

    ahead: bool  # some of them come after it
    layout: Any = None  # a `Layout`, where these keys lie; None: anywhere

    def __call__(self, q: Places, k: Places) -> Tensor | None: ...


@runtime_checkable
class Position(Protocol):
    """Made by `Kind(shape, pattern)`: four hooks, each an identity by default, each given positions, so that packing,
    padding and caches are exact.
    """

    slot = "position"
    per: Literal["stack", "layer"] = "stack"  # whether a stack's layers share one, or each has its own
    reads_content: bool = False  # the score depends on q and k: the mixer scales it with q·k, and it is made each time
    reads_tree: bool = False  # hooks are given [b t 4], the position and its place in a tree (`Batch.tree`)
    reach: Any = None  # how many positions there are, where they are counted

    @property
    def adds_score(self) -> bool:
        """Whether `score` is overridden, so that kernels cannot go without it; `mixes_values`: whether `value` is."""
        return getattr(self.score, "__func__", None) is not Position.score

    @property
    def mixes_values(self) -> bool:
        return getattr(self.value, "__func__", None) is not Position.value

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Transform the stack's input [b t w]."""
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Transform queries [b t h d] and keys [b s g d] before their product."""
        return q, k

    def score(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """A term that is added to the scaled logits [b h t s]; where it reads content, to q·k before scaling."""
        return q.new_zeros(())

    def value(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        """A term that is added to each head's output [b h t d], by the weights [b h t s]."""
        return weights.new_zeros(())


@dataclass(frozen=True, eq=False)
class Mask:
    """Who sees whom: a query sees the keys of its own document that the pattern lets it see, and no padding."""

    pattern: Pattern
    queries: Places
    keys: Places
    virtual: int = 0  # keys before all others, which every query sees
    square: bool = False  # every pair is compared, wherever the pattern's keys lie (`Layout`)

    def allowed(self, start: int = 0, stop: int | None = None) -> Tensor | None:
        """Whether each of the queries `start` to `stop` sees each key, [b or 1, t or 1, s]; None: all see all."""
        queries, documents = self.queries if stop is None else self.queries.part(start, stop), self.keys.documents
        allowed = self.pattern(queries, self.keys)
        if documents is not None:
            same = documents[:, None] > 0
            if queries.documents is not None:
                same = same & (queries.documents[:, :, None] == documents[:, None])
            allowed = same if allowed is None else allowed & same
        if allowed is None or not self.virtual:
            return allowed
        return pad(allowed[..., self.virtual :], (self.virtual, 0), value=True)

    def added(self, dtype: torch.dtype) -> Tensor | None:
        """0 where allowed and the type's lowest number elsewhere, to be added to logits: [b or 1, 1, t or 1, s].

        Not −∞: a query that sees nothing (padding) then gets a harmless average instead of NaN.
        """
        allowed = self.allowed()
        if allowed is None:
            return None
        zero = torch.zeros((), dtype=dtype, device=allowed.device)
        return torch.where(allowed, zero, torch.finfo(dtype).min)[:, None]

    def behind(self, count: int) -> Mask:
        """The mask with so many keys before all others, which every query sees."""
        keys = self.keys.map(lambda part: torch.cat([part.new_zeros(len(part), count, *part.shape[2:]), part], 1))
        return replace(self, keys=keys, virtual=self.virtual + count, square=True)


@dataclass
class Cache:
    """The state of each piece between decoding steps, by execution (a shared block runs many times) and branch."""

    places: Places | None = None
    virtual: int = 0  # how many of them are a prompt's
    states: dict[Hashable, State] = field(default_factory=dict)
    of_memory: set[Hashable] = field(default_factory=set)  # the states that hold nothing but what the memory gives

    @property
    def length(self) -> int:
        """Tokens of the text that are cached, padding among them."""
        return 0 if self.places is None else self.places.positions.shape[1] - self.virtual

    def then(self, places: Places) -> Places:
        """The places of the cached tokens and of further ones, in order."""
        if self.places is None:
            return places
        past, rows = self.places, max(len(places.positions), len(self.places.positions))

        def join(one: Tensor | None, other: Tensor | None) -> Any:
            if one is None or other is None:
                return None
            return torch.cat([one.expand(rows, -1), other.expand(rows, -1)], 1)

        documents = join(past.documents, places.documents)
        # What reads a tree reads it whole, and caches nothing.
        return Places(join(past.positions, places.positions), documents, places.prefix)

    def copy(self) -> Cache:
        """Another cache of the same tokens, which goes on by itself."""
        return replace(
            self, states={key: State(state) for key, state in self.states.items()}, of_memory={*self.of_memory}
        )

    def select(self, rows: Tensor, within: bool = False) -> None:
        """Keep these rows, in this order: how beam search follows its beams. `within` states that each takes the place
        of a row with the same prompt, so that places and what the memory gives stay as they are.
        """
        if self.places is not None and not within:
            places = self.places.map(
                lambda part: part if len(part) == 1 else part.index_select(0, rows),
                lambda prefix: prefix.index_select(0, rows),
            )
            self.places = replace(places, plain=self.places.plain)
        for key, state in self.states.items():
            if not (within and key in self.of_memory):
                state.select(rows)


class Notes:
    """The record that pieces write in a pass: added losses, and values made once. It is not a dataclass, because FSDP
    gives a block copies of dataclasses, and what is written into a copy is lost.
    """

    def __init__(self, losses: Mapping[str, Tensor] = {}, made: Mapping[Hashable, Any] = {}):
        self.losses, self.made = dict(losses), dict(made)


@dataclass
class Context:
    """One forward pass of one stack. The stack sets `position` and `execution` before each block."""

    mask: Mask  # who sees whom, and where both are
    position: Position
    notes: Notes
    cache: Cache | None = None
    execution: int = 0
    memories: Sequence[Tensor] = ()  # [b s w], what cross-attention reads: one, or one for each execution
    memory_mask: Any = None  # who sees whom of the memory, a `Mask`
    layers: list[Tensor] | None = None  # the stream before each block and the stack's output, where a memory reads them
    weights: Callable[[Tensor], None] | None = None  # is shown the attention weights [b h t s], where somebody looks
    attends: Callable[[Callable[..., str]], None] | None = None  # gets each attention's `choose`, to ask of others
    checkpointing: bool = False  # blocks keep their input alone for the backward pass (`through`)

    @property
    def places(self) -> Places:
        """The places of the queries; `keys` are those of the keys."""
        return self.mask.queries

    @property
    def keys(self) -> Places:
        return self.mask.keys

    @property
    def seen(self) -> tuple[Tensor, Tensor]:
        """The arguments of the position's hooks, for the queries and for the keys."""
        if self.position.reads_tree and (self.places.tree is None) != (self.keys.tree is None):
            raise outside_tree("a mixer attends to keys that are not tokens")
        return self.places.seen_by(self.position), self.keys.seen_by(self.position)

    @property
    def memory(self) -> Tensor:
        """The memory that cross-attention reads at this execution."""
        return self.memories[self.execution if len(self.memories) > 1 else 0]

    def at(self, queries: Places, keys: Places) -> Context:
        """The same pass for other queries and keys, under the same pattern."""
        return replace(self, mask=Mask(self.mask.pattern, queries, keys))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """The value of `make`, computed once in this pass for this mask: a bias that every layer adds alike."""
        values, key = self.notes.made, (self.mask, key)
        if key not in values:
            values[key] = make()
        return values[key]

    def state(self, piece: nn.Module) -> State | None:
        """The state of `piece` from earlier decoding steps at this execution, or None where nothing is cached."""
        return None if self.cache is None else self.cache.states.setdefault((self.execution, piece), State())

    def extended(self, piece: nn.Module, **new: Tensor) -> Iterable[Tensor]:
        """The tensors of these tokens behind those of earlier tokens, which the piece kept by the same names."""
        state = self.state(piece)
        return new.values() if state is None else [state.append(name, tensor) for name, tensor in new.items()]

    def add_loss(self, name: str, loss: Tensor) -> None:
        """An auxiliary loss of a piece (load balance, halting): summed by name and returned with the output."""
        losses = self.notes.losses
        losses[name] = losses[name] + loss if name in losses else loss


def outside_tree(what: str) -> ScalingError:
    """The refusal of what has no place in a tree, where a position reads one."""
    fix = "take the mixer Attention and another tuning than Prompt, or another position"
    return ScalingError(f"{what}, which have no place in a tree", key="model.position", fix=fix)


def within(documents: Tensor) -> Tensor:
    """Each token's distance from the first token of its document."""
    index = torch.arange(documents.shape[1], device=documents.device).expand_as(documents)
    first = torch.ones_like(documents, dtype=torch.bool)
    first[:, 1:] = documents[:, 1:] != documents[:, :-1]
    return index - torch.where(first, index, 0).cummax(1).values


def tokens_at(x: Tensor, index: Tensor) -> Tensor:
    """The tokens of these indices [b or 1, s], of x [b t] or [b t w]."""
    index = index.expand(len(x), -1)
    return x.gather(1, index if x.ndim == 2 else index[..., None].expand(-1, -1, x.shape[-1]))


def through(block: nn.Module, x: Tensor, context: Context, *more: Any) -> Tensor:
    """A block's output. Where the pass has `checkpointing`, what it was given is kept and nothing of what it made.

    Each of its two passes has the notes of before the block; what the first adds to them is kept.
    """
    if not context.checkpointing or not torch.is_grad_enabled() or context.cache is not None:
        return block(x, context, *more)

    def copied(context: Context, *more: Any) -> list[Any]:
        notes = Notes(context.notes.losses, context.notes.made)
        return [replace(part, notes=notes) if isinstance(part, Context) else part for part in (context, *more)]

    def run(x: Tensor) -> Any:
        own, *_ = parts = copied(*before)
        return block(x, *parts), own.notes.losses, {} if torch.compiler.is_compiling() else own.notes.made

    before, notes = copied(context, *more), context.notes
    x, notes.losses, notes.made = checkpoint(run, x, use_reentrant=False)
    return x


def waves(at: Tensor, width: int, base: float = 10000.0) -> tuple[Float[Tensor, "*s half"], Float[Tensor, "*s half"]]:
    """sin(at / base^(2i/width)) and the cosines, i < width/2, in float64: at 10⁵ a float32 angle is off by 10⁻²."""
    power = torch.arange(0, width, 2, device=at.device, dtype=torch.float64) / width
    angle = at[..., None].double() * base**-power
    return angle.sin(), angle.cos()
