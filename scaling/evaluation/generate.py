"""Continuing prompts by a strategy: a model reads a prompt at once and then one token at a time, keeping what it
has read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError
from scaling.model.context import Cache, Places
from scaling.model.contract import Mixer, Position
from scaling.model.family import Family


@dataclass(frozen=True)
class Written:
    """One continuation: its tokens without the one that stopped it, whether one did, and its score in nats."""

    tokens: list[int]
    score: float
    stopped: bool


def aligned(rows: Sequence[Sequence[int]], pad: int = 0, *, left: bool = True) -> tuple[Tensor, Tensor | None]:
    """Texts of unequal length, padded on the left or on the right: tokens [b t] and documents [b t], None where nothing
    is padded.
    """
    lengths = np.array([len(row) for row in rows])[:, None]
    places, width = np.arange(lengths.max()), lengths.max()
    inside = places >= width - lengths if left else places < lengths
    tokens = np.full(inside.shape, pad, np.int64)
    tokens[inside] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return torch.from_numpy(tokens), None if inside.all() else torch.from_numpy(inside.astype(np.int64))


def prompt(tokens: Tensor, documents: Tensor | None = None, **rest: Tensor | None) -> Batch:
    """A batch that is to be continued: it has no targets."""
    return Batch(tokens, torch.full_like(tokens, IGNORE), documents=documents, **rest)


def prompts(rows: Sequence[Sequence[int]], family: str, ids: Mapping[str, int]) -> Batch:
    """Texts of unequal length that a model of the family continues, or answers where it is an encoder-decoder."""
    tokens, documents = aligned(rows, ids.get("pad", 0))
    if family == "encoder_decoder":
        start = torch.full((len(rows), 1), ids.get("start", ids.get("bos", 0)))
        return prompt(start, source=tokens, source_documents=documents)
    # A prefix LM sees its prompt whole; other decoders do not look.
    return prompt(tokens, documents, prefix=torch.tensor([len(row) for row in rows]))


class Reader:
    """`next` is what may come, [b v] logits, after the prompt and every token read since.

    A prompt that is padded on the left, or that packs documents, is continued behind each row's last token.
    """

    def __init__(self, model: Family, prompt: Batch):
        self.model, self.cache = model, Cache()
        self.memory = model.encode(prompt)
        self.position = Places.of(prompt).positions[:, -1:].expand(prompt.rows, 1)
        self.next: Float[Tensor, "b v"] = self._logits(prompt)
        document = None if prompt.documents is None else prompt.documents[:, -1:]
        self._batch = replace(prompt, documents=document, segments=None)

    def read(self, tokens: Int[Tensor, " b"]) -> None:
        """Read one more token in each row."""
        self.position = self.position + 1
        self.next = self._logits(replace(self._batch, tokens=tokens[:, None], positions=self.position))

    def select(self, rows: Int[Tensor, " n"], *, within: bool = False) -> None:
        """Go on with these rows, in this order; a row may go on twice. `within` states that each goes on in the place
        of a row of its own prompt, so that what was made of the prompts stays as it is.
        """
        self.cache.select(rows, within)
        self.next = self.next.index_select(0, rows)
        if within:
            return
        self._batch = self._batch.map(lambda tensor: tensor[rows])
        self.position = self.position[rows]
        if self.memory is not None:
            self.memory = self.memory.select(rows)

    def _logits(self, batch: Batch) -> Tensor:
        hidden = self.model.decode(batch, self.memory, self.cache).hidden
        return self.model.head(hidden[:, -1:])[:, 0]


def generate(
    model: Family, prompt: Batch, strategy: Any, *, steps: int, stop: Collection[int] = ()
) -> list[list[Written]]:
    """For each row of the prompt, up to `steps` tokens that follow it, best first; a token of `stop` ends one."""
    if steps < 1:
        raise ScalingError("expected a positive number", key="steps", value=steps)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            reader = Reader(model, prompt)
            _check_room(model, int(reader.position.max()) + 1, steps)
            return strategy.write(reader, steps, frozenset(stop))
    finally:
        model.train(training)


def _check_room(model: torch.nn.Module, read: int, steps: int) -> None:
    """The last token written is never read, so one more fits than there are positions."""
    counting = [piece.reach for piece in model.modules() if isinstance(piece, Mixer | Position)]
    reach = min((reach for reach in counting if reach is not None), default=None)
    if reach is not None and read + steps - 1 > reach:
        raise ScalingError(
            f"{read} tokens and {steps} more go beyond the {reach} learned positions",
            key="steps",
            value=steps,
            fix=f"write at most {reach - read + 1}" if reach >= read else "shorten the prompt",
        )


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
