"""Writing until a text ends, by what it spells and not by a token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from scaling.decode.reader import Reader
from scaling.decode.written import Written


@dataclass(frozen=True)
class Until:
    """A strategy whose texts end behind the first of some `strings`, too; the string is a part of what is written.

    `spelled` gives the text of tokens. A token spells a byte at least, so the last few tokens show whether a string is
    there.
    """

    strategy: Any
    strings: Sequence[str]
    spelled: Callable[[Sequence[int]], str]

    def write(self, reader: Reader, steps: int, stop: frozenset[int]) -> list[list[Written]]:
        watched = _Watched(reader, self, min(stop)) if self.strings and stop else reader
        return self.strategy.write(watched, steps, stop)

    def ends(self, tokens: Sequence[int]) -> bool:
        """Whether one of the strings is among the last tokens."""
        reach = max(len(string.encode()) for string in self.strings)
        text = self.spelled(tokens[-reach - 2 :])
        return any(string in text for string in self.strings)


class _Watched:
    """A reader behind whose text, once that has ended, nothing but the token `stop` may come."""

    def __init__(self, reader: Reader, until: Until, stop: int):
        self._reader, self._until, self._stop = reader, until, stop
        self._texts: list[list[int]] = [[] for _ in range(len(reader.next))]
        self.next = reader.next

    def read(self, tokens: Int[Tensor, " b"]) -> None:
        self._reader.read(tokens)
        for text, token in zip(self._texts, tokens.tolist(), strict=True):
            text.append(token)
        ended = torch.tensor([self._until.ends(text) for text in self._texts], device=tokens.device)
        only = torch.full_like(self._reader.next[:1], -torch.inf)
        only[:, self._stop] = 0
        self.next = torch.where(ended[:, None], only, self._reader.next)

    def select(self, rows: Int[Tensor, " n"], *, within: bool = False) -> None:
        self._reader.select(rows, within=within)
        self._texts = [list(self._texts[row]) for row in rows.tolist()]
        self.next = self.next[rows]
