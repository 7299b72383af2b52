"""Context: what a piece may know beside its input. Where tokens stand, who sees whom, what the encoder said, what is
cached.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from scaling.nn.places import Places
from scaling.nn.pooling import Pooling


@runtime_checkable
class Pattern(Protocol):
    """Which keys a query may see: a predicate [b, t, s] over places, or None for all. `ahead`: some come after it.

    `band` is how many places before a query and after it are the furthest that it sees, where there are such bounds.
    """

    ahead: bool

    @property
    def band(self) -> tuple[int, int] | None: ...

    def __call__(self, q: Places, k: Places) -> Tensor | None: ...


@dataclass(frozen=True)
class Mask:
    """Who sees whom: `allowed` [b or 1, t, s], or None where everyone sees everyone.

    `triangular` says that `allowed` is exactly the lower triangle of a square, which fused kernels build by themselves.
    `pattern` is what it was rendered from, for pieces that read a band of it only (a convolution's window); the square
    is made when somebody reads it.
    """

    whole: Tensor | Callable[[], Tensor | None] | None = None
    triangular: bool = False
    pattern: Pattern | None = None

    @cached_property
    def allowed(self) -> Tensor | None:
        return self.whole() if callable(self.whole) else self.whole

    def added(self, dtype: torch.dtype) -> Tensor | None:
        """0 where allowed and the type's lowest number elsewhere, to be added to logits: [b or 1, 1, t, s].

        Not −∞: a query that sees nothing (padding) then gets a harmless average instead of NaN.
        """
        if self.allowed is None:
            return None
        zero = torch.zeros((), dtype=dtype, device=self.allowed.device)
        return torch.where(self.allowed, zero, torch.finfo(dtype).min)[:, None]


@dataclass
class Cache:
    """What each piece keeps between decoding steps, by execution (a shared block runs many times) and branch."""

    places: Places | None = None
    states: dict[Hashable, dict[str, Tensor]] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return 0 if self.places is None else self.places.positions.shape[1]

    def state(self, key: Hashable) -> dict[str, Tensor]:
        return self.states.setdefault(key, {})

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order: how beam search follows its beams."""
        self.places = None if self.places is None else self.places.select(rows)
        for state in self.states.values():
            for name, tensor in state.items():
                state[name] = tensor.index_select(0, rows)


@dataclass
class Context:
    """One forward pass of one stack. The stack sets `position` and `execution` before each block."""

    places: Places
    keys: Places
    mask: Mask
    position: Any
    memories: Sequence[Tensor] = ()  # [b s w], what cross-attention reads: one, or one for each execution
    memory_mask: Mask = field(default_factory=Mask)
    cache: Cache | None = None
    execution: int = 0
    auxiliary: dict[str, Tensor] = field(default_factory=dict)
    render: Callable[[Places, Places], Mask] | None = None  # the stack's pattern, for a stack that moves its tokens
    pooling: Pooling | None = None  # the funnel's last, or the one that the next mixer is to do
    layers: list[Tensor] | None = None  # the stream before each block and the stack's output, where someone reads them
    _kept: dict[Hashable, Any] = field(default_factory=dict)

    @property
    def memory(self) -> Tensor:
        """What cross-attention reads at this execution."""
        return self.memories[self.execution if len(self.memories) > 1 else 0]

    def stand(self, places: Places, keys: Places, pooling: Pooling | None = None) -> None:
        """Let queries stand at other places from now on, and keys at theirs."""
        assert self.render is not None
        self.places, self.keys, self.mask = places, keys, self.render(places, keys)
        self.pooling = pooling
        self._kept.clear()

    @property
    def narrows(self) -> bool:
        """Whether the next mixer is to pool its queries, as a funnel's stage begins."""
        pooling = self.pooling
        return pooling is not None and self.places is pooling.among and self.keys is pooling.before

    @property
    def standing(self) -> Places:
        """Where the stream stands that a block is given: where the queries do, unless they are to be pooled."""
        return self.keys if self.narrows else self.places

    def queries(self, x: Tensor) -> Tensor:
        """x where the queries stand."""
        return self.pooling(x) if self.pooling is not None and self.narrows else x

    def mixed(self) -> None:
        """The queries were pooled, and what follows in the block stands where they stand."""
        if self.pooling is not None and self.narrows:
            self.stand(self.pooling.after, self.pooling.after, self.pooling)

    def beside(self, x: Tensor, y: Tensor) -> Tensor:
        """x where y stands, to be added to it: pooled, if the piece that made y of x was the one to pool."""
        return x if self.pooling is None or x.shape[1] == y.shape[1] else self.pooling(x)

    def keep(self, x: Tensor) -> None:
        """Show what stands between two blocks to those who read every layer."""
        if self.layers is not None:
            self.layers.append(x)

    def at_memory(self) -> Context:
        """The same pass as cross-attention sees it: the keys are the memory's, and positions say nothing."""
        return self.once("at_memory", lambda: replace(self, mask=self.memory_mask, position=_NOWHERE))

    def once(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What `make` returns, made once in this pass: a bias or a mask that every layer adds alike."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def state(self, piece: nn.Module) -> dict[str, Tensor] | None:
        """What `piece` kept from earlier decoding steps at this execution, or None where nothing is cached."""
        return None if self.cache is None else self.cache.state((self.execution, id(piece)))

    def add_loss(self, name: str, loss: Tensor) -> None:
        """An auxiliary loss of a piece (load balance, halting): summed by name and returned with the output."""
        self.auxiliary[name] = self.auxiliary[name] + loss if name in self.auxiliary else loss


class _Nowhere:
    """The position of cross-attention: nothing to add."""

    adds_score = reads_content = mixes_values = False


_NOWHERE = _Nowhere()
