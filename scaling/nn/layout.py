"""Layout: where the keys of a query lie, as a pattern states it to who computes it in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where the keys lie that a query may see, so that attention reads these and not the square.

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
