"""Tasks that are drawn and whose answer follows from the text: who knows the rule is always right."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from scaling.data import hashing
from scaling.data.synthetic.language import fingerprint
from scaling.data.synthetic.tasks import MOST_SYMBOLS, SPECIALS, SPLITS, SyntheticExamples
from scaling.data.task.encoded import Split
from scaling.data.task.example import Answer, Example
from scaling.data.task.source import Goal
from scaling.errors import ScalingError
from scaling.metric import Accuracy, TagAccuracy
from scaling.metric.metric import Metric
from scaling.schema import Range, Seed, check_fields

Count = Annotated[int, Range(least=1, most=10**6)]


class Drawn(NamedTuple):
    """Texts end to end, where each ends, and their labels: one for each text, or one for each token."""

    tokens: np.ndarray
    ends: np.ndarray  # [n + 1]
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class Exact(ABC):
    """A task of `examples` training texts, and `held_out` of each other split."""

    examples: Count = 4096
    held_out: Count = 1024
    seed: Seed = 3401

    version: ClassVar[int] = 1
    answer: ClassVar[Answer] = "class"
    metric: ClassVar[Metric] = Accuracy()
    best: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_fields(self)
        self.check()

    @abstractmethod
    def check(self) -> None:
        """Refuse values that do not fit each other."""

    @property
    @abstractmethod
    def vocabulary(self) -> int:
        """Different tokens, specials aside."""

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]: ...

    @abstractmethod
    def generate(self, split: str) -> Drawn: ...

    def spell(self, tokens: np.ndarray) -> list[str]:
        """Each token as a person reads it."""
        return [str(token) for token in tokens.tolist()]

    def example(self, tokens: np.ndarray, label: Any) -> Example:
        words = self.spell(tokens)
        if self.answer == "tags":
            return Example(texts=tuple(words), answer=[self.labels[int(tag)] for tag in label])
        return Example(texts=(" ".join(words),), answer=int(label))

    def drawn(self, split: str) -> Sequence[Example]:
        """The examples as a metric and a person read them."""
        tokens, ends, labels = _generated(self, split)
        texts = np.split(tokens, ends[1:-1])
        each = np.split(labels, ends[1:-1]) if self.answer == "tags" else labels
        return [self.example(*pair) for pair in zip(texts, each, strict=True)]

    def open(self, split: str, folder: Path) -> SyntheticExamples:
        if split not in SPLITS:
            raise ScalingError(f"there is no split {split!r}", fix=f"take {', '.join(SPLITS)}")
        tokens, ends, labels = _generated(self, split)
        arrays = {
            "parts": np.arange(len(ends)),
            "tokens": tokens,
            "tokens_ends": ends,
            "labels": labels,
            "written": tokens,  # a prompt, and no target
            "written_ends": np.sort(np.concatenate([ends, ends[1:]])),
        }
        if self.answer == "tags":
            places = np.arange(len(tokens)) - np.repeat(ends[:-1], np.diff(ends))
            arrays |= {"labels_ends": ends, "pieces": np.stack([places, places], 1), "pieces_ends": ends}
        return SyntheticExamples(
            Goal(self.answer, self.labels, self.metric),
            split,
            Split(arrays, self.answer),
            fingerprint(self, "every split"),
            self.vocabulary + len(SPECIALS),
            {name: self.vocabulary + number for number, name in enumerate(SPECIALS)},
            law=self,
        )


@lru_cache(maxsize=8)
def _generated(task: Exact, split: str) -> Drawn:
    return task.generate(split)


@dataclass(frozen=True, kw_only=True)
class _OfLength(Exact):
    """Texts of `length` tokens drawn among `symbols`."""

    length: Annotated[int, Range(least=2, most=1 << 20)] = 64
    symbols: Annotated[int, Range(least=2, most=8192)] = 16

    def check(self) -> None:
        if (tokens := max(self.examples, self.held_out) * self.length) > MOST_SYMBOLS:
            what = f"{tokens:,} tokens in a split are more than {MOST_SYMBOLS:,}"
            raise ScalingError(what, key="length", value=self.length, fix="take fewer examples, or shorter ones")

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.symbols)))

    def _keys(self, split: str) -> np.ndarray:
        count = self.examples if split == "train" else self.held_out
        return hashing.keys(self.seed, f"{type(self).__name__} {split}", np.arange(count))

    def _symbols(self, keys: np.ndarray) -> np.ndarray:
        """[n length], each as likely."""
        return hashing.below(hashing.bits(keys, self.length), self.symbols).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Copy(_OfLength):
    """The symbol `distance` tokens back, as a tag for each token; the first tokens' is the first symbol. (As the
    copying problem of Hochreiter and Schmidhuber 1997, at every place)
    """

    distance: Annotated[int, Range(least=1, most=1 << 20)] = 32

    answer = "tags"
    metric = TagAccuracy()

    def check(self) -> None:
        super().check()
        if self.distance >= self.length:
            raise ScalingError(
                f"texts of {self.length} tokens have none {self.distance} back",
                key="distance",
                value=self.distance,
                fix=f"take at most {self.length - 1}, or a larger length",
            )

    @property
    def vocabulary(self) -> int:
        return self.symbols

    def generate(self, split: str) -> Drawn:
        symbols = self._symbols(self._keys(split))
        places = np.maximum(np.arange(self.length) - self.distance, 0)
        ends = np.arange(len(symbols) + 1) * self.length
        return Drawn(symbols.ravel(), ends, symbols[:, places].ravel())


@dataclass(frozen=True, kw_only=True)
class Recall(_OfLength):
    """The symbol behind a key: `pairs` of a key and a symbol are at random places of a text of other symbols, and its
    last token is one of the keys. (Associative recall; Graves et al. 2014, section 4.3)
    """

    pairs: Annotated[int, Range(least=1, most=4096)] = 4

    def check(self) -> None:
        super().check()
        if 2 * self.pairs + 1 > self.length:
            raise ScalingError(
                f"{self.pairs} pairs and a question take {2 * self.pairs + 1} tokens, and texts have {self.length}",
                key="pairs",
                value=self.pairs,
                fix=f"take at most {(self.length - 1) // 2}, or a larger length",
            )

    @property
    def vocabulary(self) -> int:
        return self.symbols + self.pairs  # the keys are the last ones

    def generate(self, split: str) -> Drawn:
        keys = self._keys(split)
        text = self._symbols(keys)
        slots = (self.length - 1) // 2
        rows = np.arange(len(text))[:, None]
        chosen = np.argsort(hashing.bits(hashing.branch(keys, "places"), slots), axis=1, kind="stable")[:, : self.pairs]
        text[rows, 2 * chosen] = self.symbols + np.arange(self.pairs)
        asked = hashing.below(hashing.bits(hashing.branch(keys, "question"), 1)[:, 0], self.pairs).astype(np.int64)
        text[:, -1] = self.symbols + asked
        labels = text[rows[:, 0], 2 * chosen[rows[:, 0], asked] + 1]
        return Drawn(text.ravel(), np.arange(len(text) + 1) * self.length, labels)
