"""State: what one piece keeps between decoding steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor

ROOM = 32  # tokens that what is kept has room for at least


class State(dict[str, Tensor]):
    """Tensors by name. What a piece appends to stands in a wider tensor with room for more tokens, and other rows are
    written to a second one, so that no step asks for memory.
    """

    def __init__(self, *kept: Mapping[str, Tensor]):
        super().__init__(*kept)
        self._wide: dict[str, tuple[Tensor, Tensor]] = {}  # what is kept, and the tensor whose first tokens it is
        self._spare: dict[str, Tensor] = {}

    def append(self, name: str, new: Float[Tensor, "b t *d"]) -> Float[Tensor, "b s *d"]:
        """All tokens of a name, with new ones behind those that were kept."""
        old = self.get(name)
        if old is None or torch.is_grad_enabled():  # what is written over has no gradient
            self[name] = new if old is None else torch.cat([old, new], 1)
            return self[name]
        kept, length = old.shape[1], old.shape[1] + new.shape[1]
        known, wide = self._wide.get(name, (None, old))
        if known is not old or wide.shape[1] < length:
            wide = old.new_empty(len(old), length + max(ROOM, kept // 4), *old.shape[2:])
            wide[:, :kept] = old
        wide[:, kept:length] = new
        return self._keep(name, wide, length)

    def select(self, rows: Tensor) -> None:
        """Keep these rows, in this order."""
        for name, tensor in self.items():
            known, wide = self._wide.get(name, (None, tensor))
            if known is not tensor:
                self[name] = tensor.index_select(0, rows)
                continue
            other = self._spare.pop(name, wide[:0])
            if other.shape[:2] != (len(rows), wide.shape[1]):
                other = wide.new_empty(len(rows), *wide.shape[1:])
            torch.index_select(tensor, 0, rows, out=other[:, : tensor.shape[1]])
            self._spare[name] = wide
            self._keep(name, other, tensor.shape[1])

    def copy(self) -> State:
        """The same, going on by itself: neither writes to what both have."""
        self._wide.clear()
        self._spare.clear()
        return State(self)

    def _keep(self, name: str, wide: Tensor, length: int) -> Tensor:
        self[name] = wide[:, :length]
        self._wide[name] = self[name], wide
        return self[name]
