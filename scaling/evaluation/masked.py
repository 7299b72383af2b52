"""What an encoder finds likely: the pseudo-likelihood of a text, and what may stand behind a mask."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.data.codec import Codec
from scaling.evaluation.generate import aligned
from scaling.evaluation.likelihood import TOKENS, batches, check_head, nats_of
from scaling.model.family import Family, vectors

Masking = Literal["token", "word"]
MASK = "[MASK]"


@dataclass(frozen=True)
class MaskedScorer:
    """−Σ_t ln p(x_t | x without x_t): each token masked in turn. (Salazar et al. 2020)

    Under `word` the tokens of the same word that follow are masked with it, so that no token is guessed from the rest
    of its word (Kauf & Ivanova 2023, PLL-word-l2r). `words` states of each token whether it begins a word. Of a text
    that is longer than the window, a token sees the window around it.
    """

    model: Family
    ids: Mapping[str, int]
    length: int
    masking: Masking = "token"
    words: np.ndarray | None = None
    tokens: int = TOKENS

    def __post_init__(self) -> None:
        check_head(self.model)
        if "mask" not in self.ids:
            raise ScalingError("the run has no mask token", key="RUN", fix="take an encoder that was trained on masks")

    def nats(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """The negative pseudo-log-likelihood of each text."""
        rows = [(number, *row) for number, text in enumerate(texts) for row in self._rows(np.asarray(text, np.int64))]
        totals = np.zeros(len(texts))
        for group in batches({index: len(row) for index, (_, row, _, _) in enumerate(rows)}, self.tokens):
            owners, lines, places, tokens = zip(*(rows[index] for index in group), strict=True)
            hidden = self._hidden(lines)[range(len(group)), places]
            np.add.at(totals, list(owners), nats_of(self.model.head, hidden, torch.tensor(tokens).to(hidden.device)))
        return totals.tolist()

    def _rows(self, text: np.ndarray) -> Iterator[tuple[np.ndarray, int, int]]:
        """For each token of a text a framed window with its masks, the place in it, and the token."""
        space = self.length - len(self.framed(np.empty(0, np.int64)))
        begins = np.ones(len(text), bool) if self.masking == "token" or self.words is None else self.words[text]
        word = np.cumsum(begins)
        for at in range(len(text)):
            first = max(0, min(at - space // 2, len(text) - space))
            window = text[first : first + space].copy()
            own = word[first : first + space]
            window[(np.arange(len(window)) >= at - first) & (own == word[at])] = self.ids["mask"]
            yield self.framed(window), at - first + ("cls" in self.ids), int(text[at])

    def framed(self, text: Sequence[int] | np.ndarray) -> np.ndarray:
        """[CLS] text [SEP], as far as the run knows them."""
        before, after = ([self.ids[name]] if name in self.ids else [] for name in ("cls", "sep"))
        return np.concatenate([before, text, after]).astype(np.int64)

    @torch.inference_mode()
    def _hidden(self, rows: Sequence[np.ndarray]) -> Tensor:
        tokens, documents = aligned(rows, self.ids.get("pad", 0), left=False)
        batch = Batch(tokens, tokens, documents=documents).to(next(self.model.parameters()).device)
        return vectors(self.model.head, self.model(batch), batch)

    def _at_masks(self, text: Sequence[int], key: str) -> Tensor:
        """[masks w]: the hidden vectors at the masks of a text."""
        row = self.framed(text)
        if len(row) > self.length:
            what = f"{len(row):,} tokens are more than the window of {self.length:,}"
            raise ScalingError(what, key=key, fix="shorten the text")
        return self._hidden([row])[0, torch.from_numpy(row == self.ids["mask"])]

    @torch.inference_mode()
    def gap(self, before: Sequence[int], tokens: Sequence[int], after: Sequence[int]) -> np.ndarray:
        """−ln p of each of some tokens that are all masked, between others."""
        hidden = self._at_masks([*before, *[self.ids["mask"]] * len(tokens), *after], "text")
        return nats_of(self.model.head, hidden, torch.tensor(list(tokens)).to(hidden.device))

    @torch.inference_mode()
    def chances(self, text: Sequence[int]) -> np.ndarray:
        """[masks v]: how likely each token is behind each mask of a text."""
        return self.model.head(self._at_masks(text, "prompt")[None])[0].double().softmax(-1).cpu().numpy()


def masked(codec: Codec, ids: Mapping[str, int], text: str) -> list[int]:
    """The tokens of a text in which [MASK] is the token of that name, or else one sentinel after another."""
    gaps = itertools.repeat(ids["mask"]) if "mask" in ids else _sentinels(ids)
    parts = text.split(MASK) if "mask" in ids or "sentinel_0" in ids else [text]
    # The space before a word is a part of its token.
    pieces = codec.encode([part.removesuffix(" ") for part in parts[:-1]] + parts[-1:])
    return [token for piece, gap in zip(pieces[:-1], gaps) for token in (*piece, gap)] + list(pieces[-1])


def _sentinels(ids: Mapping[str, int]) -> Iterator[int]:
    for number in itertools.count():
        if f"sentinel_{number}" not in ids:
            what = f"the run has {number} sentinels, and the text has more gaps"
            raise ScalingError(what, key="text", fix=f"write fewer {MASK}")
        yield ids[f"sentinel_{number}"]


def filled(scorer: MaskedScorer, codec: Codec, text: str, best: int) -> list[list[tuple[str, int, float]]]:
    """The likeliest tokens at each [MASK] of a text, the best first: how each is spelled, its id, its probability."""
    if MASK not in text:
        raise ScalingError("it has no mask", key="prompt", value=text, fix=f"write {MASK} where a token is asked for")
    if best < 1:
        raise ScalingError("expected a positive number", key="best", value=best)
    chances = scorer.chances(masked(codec, scorer.ids, text))[:, : codec.size]
    chances[:, [token for token in (*codec.specials.values(), *scorer.ids.values()) if token < codec.size]] = 0
    order = np.argsort(-chances, axis=1, kind="stable")[:, :best]
    return [
        [(codec.decode([token]), token, float(row[token])) for token in tokens]
        for row, tokens in zip(chances, order.tolist(), strict=True)
    ]
