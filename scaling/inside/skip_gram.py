"""Skip-gram with negative sampling: vectors of the tokens of a prepared corpus. (Mikolov et al. 2013)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from scaling.data.codec import Codec
from scaling.errors import ScalingError

_TOKENS = 1 << 16  # that pairs are drawn from at once


@dataclass(frozen=True, kw_only=True)
class SkipGram:
    """max Σ ln σ(u_c · v_w) + Σ_k ln σ(−u_n · v_w) over a token w, a token c at most `window` places from it, and k
    `negatives` n drawn by frequency^¾. A token of frequency f is left out with the chance 1 − √(sample / f).
    """

    width: int = 64
    window: int = 5
    negatives: int = 5
    sample: float = 1e-3
    batch: int = 256
    lr: float = 0.03
    seed: int = 0

    def __post_init__(self) -> None:
        for key in ("width", "window", "negatives", "batch"):
            if getattr(self, key) < 1:
                raise ScalingError("expected a positive number", key=f"--{key}", value=getattr(self, key))

    def fit(self, source: Any, tokens: int) -> np.ndarray:
        """[vocabulary width] the vectors v after `tokens` tokens of the source, over and over where it has fewer."""
        counts = np.zeros(source.vocabulary)
        for _, document in source.documents():
            counts += np.bincount(document, minlength=source.vocabulary)
        frequency = counts / counts.sum()
        kept = np.minimum(1, np.sqrt(self.sample / np.maximum(frequency, 1e-12)))
        noise = torch.from_numpy(frequency**0.75)
        generator = torch.Generator().manual_seed(self.seed)
        start = (torch.rand(source.vocabulary, self.width, generator=generator) - 0.5) / self.width
        words = torch.nn.Embedding.from_pretrained(start, freeze=False, sparse=True)
        contexts = torch.nn.Embedding.from_pretrained(torch.zeros_like(start), freeze=False, sparse=True)
        optimizer = torch.optim.SparseAdam([words.weight, contexts.weight], lr=self.lr)
        for word, context in self._batches(source, tokens, kept):
            drawn = torch.multinomial(noise, len(word) * self.negatives, replacement=True, generator=generator)
            v = words(word)
            near = (v * contexts(context)).sum(-1)
            far = torch.einsum("bw,bkw->bk", v, contexts(drawn.view(len(word), -1)))
            loss = -F.logsigmoid(near).mean() - F.logsigmoid(-far).sum(-1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return words.weight.detach().numpy()

    def _batches(self, source: Any, tokens: int, kept: np.ndarray) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        random = np.random.default_rng(self.seed)
        rest = np.empty((0, 2), np.int64)
        for text in _texts(source, tokens):
            pairs = np.concatenate([rest, self._pairs(text[random.random(len(text)) < kept[text]], random)])
            pairs = random.permutation(pairs)
            count = len(pairs) // self.batch * self.batch
            for start in range(0, count, self.batch):
                word, context = torch.from_numpy(pairs[start : start + self.batch]).T
                yield word, context
            rest = pairs[count:]

    def _pairs(self, text: np.ndarray, random: np.random.Generator) -> np.ndarray:
        """[n 2] each token with those around it, at a distance that is drawn up to the window's."""
        reach = random.integers(1, self.window + 1, len(text))
        parts = []
        for distance in range(1, self.window + 1):
            near = np.stack([text[distance:], text[:-distance]], 1)
            parts += [near[reach[distance:] >= distance], near[reach[:-distance] >= distance][:, ::-1]]
        return np.concatenate(parts) if parts else np.empty((0, 2), np.int64)


def _texts(source: Any, tokens: int) -> Iterator[np.ndarray]:
    """The documents one after another, many tokens at once; pairs across two documents are few."""
    seen, group, held = 0, [], 0
    while seen < tokens:
        for _, document in source.documents():
            group.append(np.asarray(document, np.int64))
            held += len(document)
            seen += len(document)
            if held >= _TOKENS or seen >= tokens:
                yield np.concatenate(group)
                group, held = [], 0
            if seen >= tokens:
                return
        if seen == 0:
            raise ScalingError("there is no text to learn from", key="data")


def named(vectors: np.ndarray, codec: Codec) -> dict[str, np.ndarray]:
    """The vectors by word, of the tokens that begin one; of two that are spelled alike, the one with a space."""
    by_word: dict[str, np.ndarray] = {}
    for token, word in enumerate(codec.spellings(len(vectors))):
        spaced = codec.decode([token]).startswith(" ")
        if word and not any(letter.isspace() for letter in word) and (word not in by_word or spaced):
            by_word[word] = vectors[token]
    return by_word
