"""Reader: a model that reads a prompt at once and then one token at a time, keeping what it has read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.model.family import Family
from scaling.nn.context import Cache, Places


def aligned(rows: Sequence[Sequence[int]], pad: int = 0) -> tuple[Tensor, Tensor | None]:
    """Texts of unequal length, padded on the left: tokens [b t] and documents [b t], None where nothing is padded."""
    longest = max(map(len, rows))
    tokens = torch.tensor([[pad] * (longest - len(row)) + list(row) for row in rows], dtype=torch.long)
    if all(len(row) == longest for row in rows):
        return tokens, None
    return tokens, torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows])


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
        places = Places.of(prompt.tokens, prompt.positions, prompt.documents)
        self.position = places.positions[:, -1:].expand(prompt.rows, 1)
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


class Together:
    """Several models that read the same tokens: `next` is log of the mean of their probabilities. (Sutskever et al.
    2014, section 3.6)
    """

    def __init__(self, models: Sequence[Family], prompt: Batch):
        self.readers = [Reader(model, prompt) for model in models]

    @property
    def position(self) -> Tensor:
        return self.readers[0].position

    @property
    def next(self) -> Float[Tensor, "b v"]:
        each = torch.stack([reader.next.float().log_softmax(-1) for reader in self.readers])
        return each.logsumexp(0) - math.log(len(self.readers))

    def read(self, tokens: Int[Tensor, " b"]) -> None:
        for reader in self.readers:
            reader.read(tokens)

    def select(self, rows: Int[Tensor, " n"], *, within: bool = False) -> None:
        for reader in self.readers:
            reader.select(rows, within=within)
