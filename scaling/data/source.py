"""Source: what `batch(step)` draws from, whatever the corpus behind it; one object per split."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.config.document import Config

SPLITS = ("train", "validation")
Takes = Literal["windows", "pairs", "examples"]


@dataclass(frozen=True)
class Rows:
    """Windows as they lie in a source: `n` rows of `t` tokens, or `n` pairs of `t` target and `s` source tokens.

    The two sides of a pair each end in `eos` and are filled up with `pad`, where their documents are 0.
    """

    tokens: np.ndarray  # [n t], any integer type that holds the vocabulary
    documents: np.ndarray | None = None  # [n t], numbered from 1 within a row; 0 is padding
    truth: np.ndarray | None = None  # [n t] float32, the law's own loss of each token given those before it, in nats
    source: np.ndarray | None = None  # [n s], the source side of pairs
    source_documents: np.ndarray | None = None  # [n s]
    task: Any = None  # of labelled examples: the `Goal` of all, and of each row the `Encoded` example …
    items: Sequence[Any] = ()
    examples: np.ndarray | None = None  # [n] … its number …
    starts: np.ndarray | None = None  # [n] … and where in its second text the row begins
    width: int | None = None  # of the batch that is made of them
    tree: np.ndarray | None = None  # [n t 3], as `Batch.tree`
    domains: np.ndarray | None = None  # [n], the number of each row's domain, of a mixture

    def __len__(self) -> int:
        return len(self.tokens)


def documents_of(tokens: np.ndarray, eos: int | None) -> np.ndarray:
    """[n t] each token's document, numbered from 1 within its row: one more behind every `eos`."""
    numbers = np.ones(tokens.shape, np.int32)
    if eos is not None:
        numbers[:, 1:] = tokens[:, :-1] == eos
        np.cumsum(numbers, axis=1, out=numbers)
    return numbers


class Source:
    """A grid of disjoint windows over one split of a corpus, the pairs of a parallel corpus, or examples of a task."""

    gives: Takes = "windows"
    fingerprint: str  # names the data: equal fingerprints give equal rows
    vocabulary: int  # token ids are below this
    specials: Mapping[str, int]  # ids that are not text: bos, eos, pad, unk, mask, cls, sep, sentinel_0 … as they exist
    tokens: int | None = None  # of both sides of pairs; None where the source is endless
    bytes_per_token: float | None = None  # of text, on average; None where there is no text
    entropy: float | None = None  # nats per token that no model can go below, where the law of the source is known
    lengths: np.ndarray | None = None  # [pairs 2] tokens of source and target, `eos` counted; None: no pairs
    domains: tuple[str, ...] = ()  # the names of what a mixture is of, …
    sources: tuple[Source, ...] = ()  # … each as a source, …
    fractions: tuple[float, ...] = ()  # … and the fraction of the tokens that it has
    codec: Any = None  # the `Codec` of its tokens; None where they are not text
    folder: Path | None = None  # of its prepared files
    stream: Any  # the `Stream` of its tokens, of which `read` makes windows from the token `start` on …
    start: int = 0
    dtype: Any  # … in this type

    @property
    def words(self) -> np.ndarray | None:
        """[vocabulary] bool, whether a token begins a word; None where none does. The codec may have other ids too."""
        if self.codec is None:
            return None
        words = self.codec.words[: self.vocabulary]
        return np.pad(words, (0, self.vocabulary - len(words)), constant_values=True)

    def windows(self, length: int) -> int | None:
        """The number of disjoint windows of `length` tokens, or of pairs; None where the source is endless."""
        return None if self.tokens is None else self.tokens // length

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        """The windows numbered `rows`, in that order; their documents numbered where asked. Pairs always are."""
        tokens = np.empty((len(rows), length), self.dtype)
        self.stream.fill(tokens, self.start + np.asarray(rows, np.int64) * length)
        return Rows(tokens, documents_of(tokens, self.specials.get("eos")) if documents else None)

    def counts(self) -> dict[str, Any]:
        """Further counts of prepared text, by name."""
        return {}

    def verify(self) -> None:
        """Hash every file again, also unchanged ones."""

    def decode(self, tokens: np.ndarray) -> str:
        """One row as text a person can read: symbols as their numbers, specials by their names."""
        if self.codec is not None:
            return self.codec.decode(tokens)
        names = {number: f"<{name}>" for name, number in self.specials.items()}
        return "".join(f"{names.get(token, token)} " for token in tokens.tolist())


@contextmanager
def under_data(prefix: str = "data") -> Iterator[None]:
    """Mistakes with their whole key, which some have already; what is wrong in a file is reported with the file."""
    try:
        yield
    except ScalingError as error:
        is_whole = error.file is not None if error.key is None else error.key.startswith("data")
        raise (error if is_whole else error.under(prefix)) from error


@dataclass(frozen=True)
class Vocabulary:
    """The number of ids that a model must know, and those that are not text: of the source, and of the objective."""

    size: int
    specials: Mapping[str, int]
    stored: int  # ids below this are the source's own
    words: np.ndarray | None = field(default=None, compare=False)  # [stored], whether a token begins a word

    @classmethod
    def of(cls, source: Source) -> Vocabulary:
        return cls(source.vocabulary, dict(source.specials), source.vocabulary, source.words)

    def extended(self, names: Iterable[str]) -> Vocabulary:
        """With an id for every name that has none yet, after those in use: stored tokens keep their meaning."""
        added = {name: self.size + number for number, name in enumerate(n for n in names if n not in self.specials)}
        return replace(self, size=self.size + len(added), specials={**self.specials, **added})

    def rounded(self, multiple: int) -> Vocabulary:
        """Filled up to a multiple (of 128, say) with ids that never occur, which the count of parameters includes."""
        return replace(self, size=-(-self.size // multiple) * multiple)

    def __getitem__(self, name: str) -> int:
        return self.specials[name]

    @cached_property
    def is_text(self) -> np.ndarray:
        """[size] bool: ids of text, which alone are masked and drawn at random."""
        text = np.arange(self.size) < self.stored
        text[list(self.specials.values())] = False
        return text

    @cached_property
    def text(self) -> np.ndarray:
        """The ids of text."""
        return np.flatnonzero(self.is_text)


def objective_of(config: Config, train: Source) -> Any:
    """The objective of a config, over the vocabulary of its training data."""
    return config.build("objective", Vocabulary.of(train), config["size.length"], schema.family(config["model"]))
