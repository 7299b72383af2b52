"""The likelihood of continuations: −ln p of each token of a text, given the text before it; of encoders the
pseudo-likelihood of a text, and what may stand behind a mask.

Requests are sorted by length, so that few tokens of a batch are padding. Where several continuations have one context,
a decoder reads the context once and every continuation from a copy of its cache; an encoder-decoder encodes each
source once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.data.codec import Codec
from scaling.evaluation.generate import aligned, framing, prompt, start
from scaling.model.context import Cache
from scaling.model.family import Family, vectors
from scaling.model.heads import log_softmax


class Request(NamedTuple):
    """Token ids: a decoder reads the context before the continuation, an encoder-decoder as its source."""

    context: tuple[int, ...]
    continuation: tuple[int, ...]


def requests(codec: Codec, special: Sequence[int], joins: bool, pairs: Sequence[tuple[str, str]]) -> list[Request]:
    """A context and a continuation each, `special` tokens before the context.

    Where both are read as one text (`joins`), they are tokenized as one, and the continuation has the tokens behind
    those that the context has by itself. Otherwise each is tokenized by itself, and `special` ends the context.
    """

    def encoded(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
        once = list(dict.fromkeys(texts))
        return {text: tuple(ids) for text, ids in zip(once, codec.encode(once))}

    contexts = encoded(context for context, _ in pairs)
    if not joins:
        seconds = encoded(continuation for _, continuation in pairs)
        return [Request((*contexts[context], *special), seconds[continuation]) for context, continuation in pairs]
    # The end of each context that is tokenized together with its continuations: its last line, where that has the same
    # tokens by itself, or else all of it. So long contexts are tokenized once.
    tails = {text: text[max(0, text.rfind("\n")) :] for text in contexts}
    alone = encoded(tails.values())
    for text, ids in contexts.items():
        tail = alone[tails[text]]
        if not tail or ids[-len(tail) :] != tail:
            tails[text], alone[text] = text, ids
    joined = encoded(tails[context] + continuation for context, continuation in pairs)
    listed = []
    for context, continuation in pairs:
        ids, count = joined[tails[context] + continuation], len(alone[tails[context]])
        before = contexts[context][: len(contexts[context]) - count]
        cut = max(0, min(count, len(ids) - 1))
        listed.append(Request((*special, *before, *ids[:cut]), ids[cut:]))
    return listed


TOKENS = 1 << 14  # of one forward pass
ROWS = 1 << 10  # targets whose chances of all tokens are held at once
NOTHING = "there is no token to score", "give each continuation some text"  # an error and its fix
Item = TypeVar("Item")
# One forward pass: the hidden vectors [b t w] that predict targets, the targets [b t], IGNORE where there is none, and
# the number of the request of each row.
Pass = tuple[Tensor, Tensor, Sequence[int]]


@dataclass(frozen=True)
class Scorer:
    """A decoder or an encoder-decoder that scores continuations within its window of `length` tokens.

    A context that is too long loses its first tokens; the end of a source stays.
    """

    model: Family
    ids: Mapping[str, int]
    length: int
    tokens: int = TOKENS

    def __post_init__(self) -> None:
        check_head(self.model)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def nats(self, requests: Sequence[Request]) -> list[np.ndarray]:
        """−ln p of each token of each continuation, in float64."""
        return self._each(requests, partial(nats_of, self.model.head))

    def totals(self, texts: Sequence[Sequence[Request]]) -> list[float]:
        """−ln p of each text that is scored by several requests."""
        nats = iter(self.nats([request for of_text in texts for request in of_text]))
        return [sum(float(next(nats).sum()) for _ in of_text) for of_text in texts]

    def nats_and_greedy(self, requests: Sequence[Request]) -> list[tuple[np.ndarray, bool]]:
        """−ln p of each token of each continuation, and whether each is the likeliest token of all."""

        def measured(hidden: Tensor, targets: Tensor) -> np.ndarray:
            parts = []
            for some, labels in zip(hidden.split(ROWS), targets.split(ROWS), strict=True):
                chances = log_softmax(self.model.head(some[None])[0])
                losses = -chances.gather(-1, labels[:, None])[:, 0]
                parts.append(torch.stack([losses.double(), (chances.argmax(-1) == labels).double()], 1).cpu())
            return torch.cat(parts).numpy()

        return [(rows[:, 0], bool(rows[:, 1].all())) for rows in self._each(requests, measured)]

    @torch.inference_mode()
    def _each(self, requests: Sequence[Request], measure: Callable[[Tensor, Tensor], np.ndarray]) -> list[np.ndarray]:
        """What is measured of each target [n] and the hidden vector [n w] that predicts it, by request."""
        by_request: list[np.ndarray] = [np.empty(0)] * len(requests)
        for hidden, targets, numbers in self.passes([self.fitted(request) for request in requests]):
            bears = targets != IGNORE
            ends = np.cumsum([len(requests[number].continuation) for number in numbers])
            parts = np.split(measure(hidden[bears], targets[bears]), ends[:-1])
            for number, part in zip(numbers, parts, strict=True):
                by_request[number] = part
        return by_request

    def fitted(self, request: Request) -> Request:
        """The request within the window: without the first tokens of a context that is too long."""
        context, continuation = request
        refuse(not continuation, *NOTHING)
        what = f"a continuation of {len(continuation):,} tokens is longer than the window of {self.length:,}"
        fix = "take shorter texts, or a run with longer windows"
        refuse(len(continuation) > self.length, what, fix, key="size.length")
        refuse(not context, "a continuation needs a token before it", "take a model whose start token is known")
        space = self.length if self.model.family == "encoder_decoder" else self.length - len(continuation) + 1
        return Request(context[-space:], continuation)

    def truncates(self, request: Request) -> bool:
        """Whether the context loses tokens."""
        return len(self.fitted(request).context) < len(request.context)

    def passes(self, requests: Sequence[Request]) -> Iterator[Pass]:
        """The forward passes over requests that fit the window."""
        members: dict[tuple[int, ...], list[int]] = {}
        for index, request in enumerate(requests):
            members.setdefault(request.context, []).append(index)
        if self.model.family == "encoder_decoder":
            yield from self._shared(requests, members, self._encoded)
            return
        several = {context: each for context, each in members.items() if len(each) > 1 and len(context) > 1}
        yield from self._whole(requests, [i for context in set(members) - set(several) for i in members[context]])
        yield from self._shared(requests, several, self._cached)

    def _whole(self, requests: Sequence[Request], indices: Sequence[int]) -> Iterator[Pass]:
        """Context and continuation in one row."""
        widths = {index: len(requests[index].context) + len(requests[index].continuation) - 1 for index in indices}
        for part in batches(widths, self.tokens):
            pairs = [requests[index] for index in part]
            tokens, documents = self._filled([(*context, *text[:-1]) for context, text in pairs])
            targets, _ = self._filled([(*[IGNORE] * (len(context) - 1), *text) for context, text in pairs], IGNORE)
            lengths = torch.tensor([len(context) for context, _ in pairs], device=self.device)
            batch = Batch(tokens, targets, documents=documents, prefix=lengths)
            yield vectors(self.model.head, self.model(batch), batch), targets, part

    def _shared(
        self,
        requests: Sequence[Request],
        members: Mapping[tuple[int, ...], Sequence[int]],
        read: Callable[[Sequence[tuple[int, ...]]], Shared],
    ) -> Iterator[Pass]:
        """Each context once, then its continuations, short ones with short ones."""
        for group in batches({context: len(context) for context in members}, self.tokens):
            shared = read(group)
            owners = {index: place for place, context in enumerate(group) for index in members[context]}
            widths = {index: len(group[-1]) + len(requests[index].continuation) for index in owners}
            for part in batches(widths, self.tokens):
                rows = [requests[index].continuation for index in part]
                targets, _ = self._filled(rows, IGNORE)
                owner = torch.tensor([owners[index] for index in part], device=self.device)
                yield shared(owner, rows), targets, part

    def _cached(self, contexts: Sequence[tuple[int, ...]]) -> Shared:
        tokens, documents = aligned(contexts, self.ids.get("pad", 0))
        # Also of rows without padding, because the continuations may have some.
        documents = torch.ones_like(tokens) if documents is None else documents
        lengths = torch.tensor([len(context) for context in contexts], device=self.device)
        batch, cache = prompt(tokens, documents, prefix=lengths).to(self.device), Cache()
        last = vectors(self.model.head, self.model(batch, cache), batch)[:, -1:]

        def continued(owner: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
            first = last[owner]
            if max(map(len, rows)) == 1:
                return first  # the context predicts the only token
            copy = cache.copy()
            copy.select(owner)
            tokens, documents = self._filled([row[:-1] for row in rows])
            documents = torch.ones_like(tokens) if documents is None else documents
            places = torch.arange(tokens.shape[1], device=self.device)
            real = documents.sum(1, keepdim=True).clamp(min=1)
            positions = lengths[owner][:, None] + torch.minimum(places, real - 1)  # padding needs a position too
            batch = Batch(tokens, tokens, documents=documents, positions=positions, prefix=lengths[owner])
            return torch.cat([first, vectors(self.model.head, self.model(batch, copy), batch)], 1)

        return continued

    def _encoded(self, contexts: Sequence[tuple[int, ...]]) -> Shared:
        source, documents = aligned(contexts, self.ids.get("pad", 0))
        first = start(self.ids)
        written = torch.full((len(contexts), 1), first)
        memory = self.model.encode(prompt(written, source=source, source_documents=documents).to(self.device))
        assert memory is not None

        def continued(owner: Tensor, rows: Sequence[Sequence[int]]) -> Tensor:
            tokens, documents = self._filled([(first, *row[:-1]) for row in rows])
            batch = Batch(tokens, tokens, documents=documents)
            return vectors(self.model.head, self.model.decode(batch, memory.select(owner)), batch)

        return continued

    def _filled(self, rows: Sequence[Sequence[int]], fill: int | None = None) -> tuple[Tensor, Tensor | None]:
        """Rows padded on the right [b t], and their documents [b t], None where nothing is padded."""
        tokens, documents = aligned(rows, self.ids.get("pad", 0) if fill is None else fill, left=False)
        return tokens.to(self.device), None if documents is None else documents.to(self.device)


# The hidden vectors that predict continuations, given the context that each belongs to.
Shared = Callable[[Tensor, Sequence[Sequence[int]]], Tensor]


def check_head(model: Family) -> None:
    """Refuse a model whose head predicts no tokens."""
    what = f"its head {type(model.head).__name__} predicts no tokens"
    refuse(model.head.target != "targets", what, "take the run that it was finetuned from", key="RUN")


@torch.inference_mode()
def nats_of(head: Any, hidden: Tensor, targets: Tensor) -> np.ndarray:
    """−ln p [n] of targets [n] that hidden vectors [n w] predict."""
    return head.loss(hidden[None], targets[None])[0].double().cpu().numpy()


def batches(widths: Mapping[Item, int], tokens: int) -> Iterator[list[Item]]:
    """The keys in order of their widths, in batches of about that many tokens, padding counted."""
    batch: list[Item] = []
    for item in sorted(widths, key=lambda item: widths[item]):
        if batch and (len(batch) + 1) * widths[item] > tokens:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


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
    words: Any = None
    tokens: int = TOKENS

    def __post_init__(self) -> None:
        check_head(self.model)
        fix = "take an encoder that was trained on masks"
        refuse("mask" not in self.ids, "the run has no mask token", fix, key="RUN")

    def nats(self, texts: Sequence[Sequence[int]]) -> list[float]:
        """The negative pseudo-log-likelihood of each text."""
        arrays = [np.asarray(text, np.int64) for text in texts]
        words = [np.arange(len(text)) if self.masking == "token" else np.cumsum(self.words[text]) for text in arrays]
        sizes = [min(self.length, len(self.framed(text))) for text in arrays]
        places = {(number, at): size for number, size in enumerate(sizes) for at in range(len(arrays[number]))}
        totals = np.zeros(len(texts))
        for group in batches(places, self.tokens):  # a batch makes its own windows: those of all tokens are large
            rows = (self._row(arrays[number], words[number], at) for number, at in group)
            windows, masks, tokens = zip(*rows, strict=True)
            hidden = self._hidden(windows)[range(len(group)), masks]
            nats = nats_of(self.model.head, hidden, torch.tensor(tokens).to(hidden.device))
            np.add.at(totals, [number for number, _ in group], nats)
        return totals.tolist()

    def _row(self, text: np.ndarray, word: np.ndarray, at: int) -> tuple[np.ndarray, int, int]:
        """The framed window around a token with its masks, the place in it, and the token."""
        space = self.length - len(self.framed([]))
        first = max(0, min(at - space // 2, len(text) - space))
        window = text[first : first + space].copy()
        part = word[first : first + space]
        window[(np.arange(len(window)) >= at - first) & (part == word[at])] = self.ids["mask"]
        return self.framed(window), at - first + ("cls" in self.ids), int(text[at])

    def framed(self, text: Sequence[int] | np.ndarray) -> np.ndarray:
        """[CLS] text [SEP], as far as the run knows them."""
        before, after = framing("encoder", self.ids)
        return np.concatenate([before, text, after]).astype(np.int64)

    @torch.inference_mode()
    def _hidden(self, rows: Sequence[np.ndarray]) -> Tensor:
        tokens, documents = aligned(rows, self.ids.get("pad", 0), left=False)
        batch = Batch(tokens, tokens, documents=documents).to(next(self.model.parameters()).device)
        return vectors(self.model.head, self.model(batch), batch)

    @torch.inference_mode()
    def at_masks(self, text: Sequence[int], key: str) -> Tensor:
        """[masks w]: the hidden vectors at the masks of a text."""
        row = self.framed(text)
        what = f"{len(row):,} tokens are more than the window of {self.length:,}"
        refuse(len(row) > self.length, what, "shorten the text", key=key)
        return self._hidden([row])[0, torch.from_numpy(row == self.ids["mask"])]

    def gap(self, before: Sequence[int], tokens: Sequence[int], after: Sequence[int]) -> np.ndarray:
        """−ln p of each of some tokens that are all masked, between others."""
        refuse(not tokens, *NOTHING)
        hidden = self.at_masks([*before, *[self.ids["mask"]] * len(tokens), *after], "text")
        return nats_of(self.model.head, hidden, torch.tensor(list(tokens)).to(hidden.device))


def masked(codec: Codec, ids: Mapping[str, int], text: str) -> list[int]:
    """The tokens of a text in which [MASK] is the token of that name, or else one sentinel after another."""
    parts = text.split(MASK) if "mask" in ids or "sentinel_0" in ids else [text]
    gaps = ["mask" if "mask" in ids else f"sentinel_{number}" for number in range(len(parts) - 1)]
    known = sum(name in ids for name in gaps)
    what = f"the run has {known} sentinels, and the text has more gaps"
    refuse(known < len(gaps), what, f"write fewer {MASK}", key="text")
    # The space before a word is a part of its token.
    *pieces, last = codec.encode([part.removesuffix(" ") for part in parts[:-1]] + parts[-1:])
    return [token for piece, name in zip(pieces, gaps) for token in (*piece, ids[name])] + list(last)


class Filling(NamedTuple):
    """A token that may stand at a mask, and its probability."""

    text: str
    token: int
    probability: float


@torch.inference_mode()
def filled(scorer: MaskedScorer, codec: Codec, text: Sequence[int], best: int) -> list[list[Filling]]:
    """The likeliest tokens at each mask of a text, the best first."""
    refuse(best < 1, "expected a positive number", key="best", value=best)
    hidden = scorer.at_masks(text, "prompt")
    chances = scorer.model.head(hidden[None])[0].double().softmax(-1).cpu().numpy()[:, : codec.size]
    chances[:, [token for token in (*codec.specials.values(), *scorer.ids.values()) if token < codec.size]] = 0
    order = np.argsort(-chances, axis=1, kind="stable")[:, :best]
    return [
        [Filling(codec.decode([token]), token, float(row[token])) for token in tokens]
        for row, tokens in zip(chances, order.tolist(), strict=True)
    ]
