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

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.evaluation.generate import framing
from scaling.evaluation.likelihood import MaskedScorer, Request, Scorer
from scaling.metrics.metric import Metric, ratio

Pair = tuple[Sequence[int] | None, Sequence[int]]
"""The tokens of the source, where documents are pairs, and of the text."""

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
    """The split of a corpus as the tokenizer in `file` wrote it: by the data line, or the line with that one."""
    first, is_text = None, "tokenizer" in data
    for line in (data, {**data, "tokenizer": {"kind": "File", "path": str(file)}}) if is_text else ():
        try:
            source = build("data", line).open(split, folder)
        except ScalingError as error:
            first = first or error
            continue
        is_text = hasattr(source, "documents")
        if is_text and source.codec.is_same(codec):
            return source
    if first is not None and first.key != "data":
        raise first
    what = "it has not been prepared with the run's tokenizer"
    fix = f"run `scaling data prepare {name or ''} data.tokenizer='{{kind: File, path: {file}}}'` with the same runs="
    if not is_text:
        what, fix = "it is not a corpus of texts", "name data whose documents are tokenized, as `python`"
    raise ScalingError(what, key="CORPUS", value=name or "its own", fix=fix)


def costs(scorer: Scorer | MaskedScorer, group: Sequence[Pair], stride: int) -> list[float]:
    """The nats of each document; an encoder reads the window around each token, and has no stride."""
    if isinstance(scorer, MaskedScorer):
        return scorer.nats([text for _, text in group])
    family, ids, length = scorer.model.family, scorer.ids, scorer.length
    each = [list(windows(family, ids, text, source, length, stride)) for source, text in group]
    nats = iter(scorer.nats([request for windows_of_document in each for request in windows_of_document]))
    return [sum(float(next(nats).sum()) for _ in windows_of_document) for windows_of_document in each]


def documents(pairs: Iterable[Pair], codec: Codec, scorer: Scorer | MaskedScorer, stride: int) -> Iterator[Document]:
    """Each document with what it costs, many scored at once."""
    specials, pairs, index = set(codec.specials.values()), iter(pairs), itertools.count()

    def some() -> Iterator[Pair]:
        held = 0
        while held < AT_ONCE and (pair := next(pairs, None)) is not None:
            held += len(pair[1])
            yield pair

    while group := list(some()):
        for (_, text), cost in zip(group, costs(scorer, group, stride), strict=True):
            spelled = codec.decode([token for token in text if token not in specials])
            yield Document(next(index), len(text), len(spelled.encode()), cost)
