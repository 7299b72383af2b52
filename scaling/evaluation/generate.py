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
from torch.nn.utils.rnn import pad_sequence

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import ScalingError, refuse
from scaling.model.context import Cache, Places
from scaling.model.contract import Mixer, Position
from scaling.model.family import Family


@dataclass(frozen=True)
class Written:
    """One continuation: its tokens without the one that stopped it, whether one did, and its score in nats."""

    tokens: list[int]
    score: float
    stopped: bool


def aligned(
    rows: Sequence[Sequence[int] | np.ndarray], pad: int = 0, *, left: bool = True
) -> tuple[Tensor, Tensor | None]:
    """Padded texts, on the left or the right: tokens [b t] and documents [b t], None where nothing is padded."""
    tensors = [torch.as_tensor(row, dtype=torch.int64) for row in rows]
    each = ((tensors, pad), ([torch.ones_like(row) for row in tensors], 0))
    tokens, inside = (pad_sequence(one, True, fill, "left" if left else "right") for one, fill in each)
    return tokens, None if inside.all() else inside


def prompt(tokens: Tensor, documents: Tensor | None = None, **rest: Tensor | None) -> Batch:
    """A batch that is to be continued: it has no targets."""
    return Batch(tokens, torch.full_like(tokens, IGNORE), documents=documents, **rest)


_FRAMES = {"encoder": (("cls",), ("sep",)), "decoder": (("start", "bos"), ()), "encoder_decoder": ((), ("eos",))}


def framing(family: str, ids: Mapping[str, int]) -> tuple[list[int], list[int]]:
    """The special tokens that training puts before and behind a text, the source of an encoder-decoder, as far as a run
    has them.
    """
    before, after = ([ids[name] for name in names if name in ids][:1] for names in _FRAMES[family])
    return before, after


def start(ids: Mapping[str, int]) -> int:
    """The token that what an encoder-decoder writes begins behind."""
    return ids.get("start", ids.get("bos", 0))


def prompts(rows: Sequence[Sequence[int]], family: str, ids: Mapping[str, int]) -> Batch:
    """Texts of unequal length that a model of the family continues, or answers where it is an encoder-decoder."""
    tokens, documents = aligned(rows, ids.get("pad", 0))
    if family == "encoder_decoder":
        return prompt(torch.full((len(rows), 1), start(ids)), source=tokens, source_documents=documents)
    # A prefix LM sees its prompt whole; other decoders do not look.
    return prompt(tokens, documents, prefix=torch.tensor([len(row) for row in rows]))


class Reader:
    """`next` is what may come, [b v] logits, after the prompt and every token read since.

    A prompt that is padded on the left, or that packs documents, is continued behind each row's last token. A drawn
    text ends where `ended` holds of what is written.
    """

    def __init__(self, model: Family, prompt: Batch, ended: Callable[[Sequence[int]], bool] = lambda _: False):
        self.model, self.cache, self.ended = model, Cache(), ended
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
    model: Family,
    prompt: Batch,
    strategy: Any,
    *,
    steps: int,
    stop: Collection[int] = (),
    ended: Callable[[Sequence[int]], bool] = lambda _: False,
) -> list[list[Written]]:
    """For each row of the prompt, up to `steps` tokens that follow it, best first; a token of `stop` ends one, and of
    greedy and drawn ones a text for which `ended` holds, which keeps its last token.
    """
    refuse(steps < 1, "expected a positive number", key="steps", value=steps)
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            reader = Reader(model, prompt, ended)
            _check_room(model, int(reader.position.max()) + 1, steps)
            return strategy.write(reader, steps, frozenset(stop))
    finally:
        model.train(training)


def _check_room(model: torch.nn.Module, read: int, steps: int) -> None:
    """The last token written is never read, so one more fits than there are positions."""
    counting = [piece.reach for piece in model.modules() if isinstance(piece, Mixer | Position)]
    reach = min((reach for reach in counting if reach is not None), default=None)
    if reach is not None and read + steps - 1 > reach:
        what = f"{read} tokens and {steps} more go beyond the {reach} learned positions"
        fix = f"write at most {reach - read + 1}" if reach >= read else "shorten the prompt"
        raise ScalingError(what, key="steps", value=steps, fix=fix)
