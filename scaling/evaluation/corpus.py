"""The loss of whole documents: the nats of each, every token scored once.

A document that is longer than the window is read in windows. The first scores all of its tokens, each further one
`stride` tokens behind as many of those before as still fit. No token sees another document.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scaling.base.errors import ScalingError, refuse
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.evaluation.generate import framing
from scaling.evaluation.likelihood import MaskedScorer, Request, Scorer
from scaling.metrics.metric import Metric, ratio

# The tokens of the source, where documents are pairs, and of the text.
Pair = tuple[Sequence[int] | None, Sequence[int]]

AT_ONCE = 1 << 18  # tokens whose documents are sorted by length together


@dataclass(frozen=True)
class Document:
    """A document's number in its split, its tokens with `eos`, the bytes of its text, and −ln p of all of it."""

    index: int
    tokens: int
    bytes: int
    nats: float

    @property
    def bits_per_byte(self) -> float | None:
        """None where there is no text."""
        return self.nats / math.log(2) / self.bytes if self.bytes else None

    @property
    def perplexity(self) -> float:
        """exp of the mean nats of a token."""
        return math.exp(min(700.0, self.nats / self.tokens))


@dataclass(frozen=True, kw_only=True)
class CodeLength(Metric):
    """Bits per byte, nats per token and its exponential, of all documents together."""

    main = "bits_per_byte"

    def row(self, prediction: Document, reference: Document) -> Sequence[float]:
        return prediction.nats, prediction.tokens, prediction.bytes

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        nats, tokens, size = sums.T
        per_token = ratio(nats, tokens, np.nan)
        return {
            "bits_per_byte": ratio(nats / math.log(2), size, np.nan),
            "nats_per_token": per_token,
            "perplexity": np.exp(np.minimum(700, per_token)),
        }


def windows(
    family: str, ids: Mapping[str, int], text: Sequence[int], source: Sequence[int] | None, length: int, stride: int
) -> Iterator[Request]:
    """The requests that score each token of a document once; `source` is the other side of a pair.

    A decoder reads its start token before the first window. An encoder-decoder reads the tokens before a window as its
    source, ended by `eos`, and writes the window.
    """
    start, end = framing(family, ids)
    if source is not None:
        joined = [*source, ids["bos"]] if family == "decoder" and "bos" in ids else source
        yield Request(tuple(joined), tuple(text))
        return
    cuts = [0, *range(length if family == "decoder" else stride, len(text), stride), len(text)] if text else []
    for place, stop in itertools.pairwise(cuts):
        if family == "decoder":
            context = text[max(0, stop - length - 1) : place] if place else start
        else:
            context = [*text[max(0, place - length + len(end)) : place], *end]
        yield Request(tuple(context), tuple(text[place:stop]))


def prepared(
    data: Mapping[str, Any], split: str, folder: Path, file: Path | None, codec: Codec, name: str | None
) -> Any:
    """The split of a corpus as the tokenizer in `file` wrote it: by the data line, or the line with that tokenizer."""
    own, value = {"kind": "File", "path": str(file)}, name or "its own"
    what, fix = "it is not a corpus of texts", "name data whose documents are tokenized, as `python`"
    refuse("tokenizer" not in data, what, fix, key="CORPUS", value=value)
    for line in (data, {**data, "tokenizer": own}):
        try:
            source = build("data", line).open(split, folder)
        except ScalingError as error:
            if error.key != "data":
                raise
            continue  # it has not been prepared so
        refuse(not hasattr(source, "documents"), what, fix, key="CORPUS", value=value)
        if source.codec.is_same(codec):
            return source
    fix = f"run `scaling data prepare {name or ''} data.tokenizer='{{kind: File, path: {file}}}'` with the same runs="
    what = "it has not been prepared with the run's tokenizer"
    raise ScalingError(what, key="CORPUS", value=value, fix=fix)


def documents(
    pairs: Iterable[tuple[np.ndarray | None, np.ndarray]],
    codec: Codec,
    scorer: Scorer | MaskedScorer,
    stride: int = 0,
) -> Iterator[Document]:
    """Each document with its nats, many scored at once. An encoder does not read its `eos`, and has no stride: it reads
    the window around each token.
    """
    specials, index = set(codec.specials.values()), itertools.count()
    lists = ((None if source is None else source.tolist(), text.tolist()) for source, text in pairs)
    if isinstance(scorer, MaskedScorer):
        lists = ((None, text[:-1] if text and text[-1] in specials else text) for _, text in lists)

    def some() -> Iterator[Pair]:
        held = 0
        while held < AT_ONCE and (pair := next(lists, None)) is not None:
            held += len(pair[1])
            yield pair

    while group := list(some()):
        if isinstance(scorer, MaskedScorer):
            costs = scorer.nats([text for _, text in group])
        else:
            read = scorer.model.family, scorer.ids
            costs = scorer.totals([list(windows(*read, text, source, scorer.length, stride)) for source, text in group])
        for (_, text), cost in zip(group, costs, strict=True):
            spelled = codec.decode([token for token in text if token not in specials])
            yield Document(next(index), len(text), len(spelled.encode()), cost)
