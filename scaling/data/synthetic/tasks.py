"""Tasks on synthetic languages whose best score is known: which language wrote a text, where it changes, which rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from scaling.data import hashing
from scaling.data.synthetic.language import Synthetic, fingerprint, spelled
from scaling.data.task.encoded import Split
from scaling.data.task.example import Answer, Example
from scaling.data.task.source import Examples, Goal
from scaling.errors import ScalingError
from scaling.metric import Accuracy, ExactMatch, TagAccuracy
from scaling.metric.metric import Metric
from scaling.schema import Range, Seed, SmallInt, check_fields

SPLITS = ("train", "validation", "test")
SPECIALS = ("bos", "eos", "pad")
MOST_SYMBOLS = 1 << 25  # in a split: each is drawn before training


@dataclass(frozen=True, kw_only=True)
class _SyntheticTask(ABC):
    """Texts of two languages of `symbols` symbols; a language depends on the `order` symbols before."""

    examples: Annotated[int, Range(least=1, most=10**6)] = 4096  # of the training split
    held_out: Annotated[int, Range(least=1, most=10**6)] = 1024  # of each other split
    length: SmallInt = 16
    symbols: Annotated[int, Range(least=2, most=8192)] = 16
    order: Annotated[int, Range(least=1, most=25)] = 1
    exponent: Annotated[float, Range(least=0, most=64)] = 1.6
    seed: Seed = 3401

    version: ClassVar[int] = 1
    answer: ClassVar[Answer]
    metric: ClassVar[Metric]

    def __post_init__(self) -> None:
        check_fields(self)
        if (symbols := max(self.examples, self.held_out) * self.length) > MOST_SYMBOLS:
            what = f"{symbols:,} symbols in a split are more than {MOST_SYMBOLS:,}"
            raise ScalingError(what, key="length", value=self.length, fix="take fewer examples, or shorter ones")
        _ = self.languages

    @property
    def languages(self) -> tuple[Synthetic, Synthetic]:
        """Two of one entropy, whose successors differ."""
        keys: dict[str, Any] = {"symbols": self.symbols, "order": self.order, "exponent": self.exponent}
        return Synthetic(**keys, seed=self.seed), Synthetic(**keys, seed=self.seed + 1)

    @property
    def labels(self) -> tuple[str, ...]:
        return ()

    @abstractmethod
    def generate(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n length] symbols, and their labels."""

    @abstractmethod
    def chances(self, symbols: np.ndarray) -> np.ndarray:
        """[n labels], the chance of each label given a text: what no model can know better."""

    @cached_property
    def best(self) -> float:
        """The score that is expected of who knows both languages, on the validation texts: the mean chance of the
        likeliest label.
        """
        symbols, _ = _generated(self, "validation")
        return float(self.chances(symbols).max(1).mean())

    def _drawn(self, keys: np.ndarray, second: np.ndarray) -> np.ndarray:
        """[n length] symbols, in the second language where `second` is true, as if preceded by symbols 0."""
        ranks = self.languages[0].ranks.drawn(hashing.bits(keys, self.length))
        tables = np.stack([language.successors() for language in self.languages]).astype(np.int64)
        context, symbols = np.zeros(len(keys), np.int64), np.empty((len(keys), self.length), np.int64)
        for place in range(self.length):
            symbols[:, place] = tables[second[:, place].astype(np.int64), context, ranks[:, place]]
            context = (context * self.symbols + symbols[:, place]) % self.symbols**self.order
        return symbols

    def ranks(self, symbols: np.ndarray, language: int) -> np.ndarray:
        """[n length], the rank of each symbol in a language, after those before it."""
        successors = self.languages[language].successors().astype(np.int64)
        rank = np.argsort(successors, axis=1)
        context, of_symbols = np.zeros(len(symbols), np.int64), np.empty_like(symbols)
        for place in range(symbols.shape[1]):
            of_symbols[:, place] = rank[context, symbols[:, place]]
            context = (context * self.symbols + symbols[:, place]) % self.symbols**self.order
        return of_symbols

    def log_chances(self, symbols: np.ndarray) -> np.ndarray:
        """[2 n length], ln of the chance of each symbol in each language, after those before it."""
        law = -self.languages[0].ranks.losses.astype(np.float64)
        return np.stack([law[self.ranks(symbols, language)] for language in (0, 1)])

    def open(self, split: str, folder: Path) -> SyntheticExamples:
        if split not in SPLITS:
            raise ScalingError(f"there is no split {split!r}", fix=f"take {', '.join(SPLITS)}")
        symbols, labels = _generated(self, split)
        return SyntheticExamples(
            Goal(self.answer, self.labels, self.metric),
            split,
            self._split(symbols, labels),
            fingerprint(self, "every split"),
            self.symbols + len(SPECIALS),
            {name: self.symbols + number for number, name in enumerate(SPECIALS)},
            law=self,
        )

    def _split(self, symbols: np.ndarray, labels: np.ndarray) -> Split:
        count, length = symbols.shape
        ends, places = np.arange(count + 1) * length, np.arange(length)
        arrays = {
            "parts": np.arange(count + 1),
            "tokens": symbols.ravel(),
            "tokens_ends": ends,
            "labels": labels,
            "written": symbols.ravel(),  # a prompt, and no target
            "written_ends": np.sort(np.concatenate([ends, ends[1:]])),
        }
        if self.answer == "tags":
            pieces = np.tile(np.stack([places, places], 1), (count, 1))
            arrays |= {"labels": labels.ravel(), "labels_ends": ends, "pieces": pieces, "pieces_ends": ends}
        if self.answer == "span":
            # A question without a token before each text; a token's characters are those of its place (`Numbered`).
            stops = np.cumsum([len(str(place)) + 1 for place in places]) - 1
            starts = stops - [len(str(place)) for place in places]
            arrays |= {"parts": 2 * np.arange(count + 1), "tokens_ends": np.sort(np.concatenate([ends, ends[:-1]]))}
            arrays |= {"labels": np.stack([labels, labels], 1)}
            arrays |= {"pieces": np.tile(np.stack([starts, stops], 1), (count, 1)), "pieces_ends": ends}
        return Split(arrays, self.answer)

    def drawn(self, split: str) -> Sequence[Example]:
        """The examples as a metric and a person read them."""
        return [self.example(*pair) for pair in zip(*_generated(self, split))]

    def example(self, symbols: np.ndarray, label: Any) -> Example:
        """As a metric takes it."""
        return Example(texts=(" ".join(map(str, symbols.tolist())),), answer=int(label))


@lru_cache(maxsize=16)
def _generated(task: _SyntheticTask, split: str) -> tuple[np.ndarray, np.ndarray]:
    count = task.examples if split == "train" else task.held_out
    return task.generate(hashing.keys(task.seed, f"{type(task).__name__} {split}", np.arange(count)))


@dataclass(frozen=True, kw_only=True)
class WhichLanguage(_SyntheticTask):
    """Which of two languages wrote a text, each as often: a class. `best` is the accuracy of Bayes' rule."""

    answer = "class"
    metric = Accuracy()

    @property
    def labels(self) -> tuple[str, ...]:
        return ("first", "second")

    def generate(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = (hashing.bits(hashing.branch(keys, "language"), 1)[:, 0] >> np.uint64(63)).astype(np.int64)
        return self._drawn(keys, np.repeat(labels[:, None] == 1, self.length, 1)), labels

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        return _normalised(self.log_chances(symbols).sum(2).T)


@dataclass(frozen=True, kw_only=True)
class LanguageSwitch(_SyntheticTask):
    """Where a text changes from the first language to the second, at any of its symbols but the first: a span of one
    token. `best` is how often Bayes' rule finds it.
    """

    answer = "span"
    metric = ExactMatch(normalisation="none")

    def generate(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.length < 2:
            raise ScalingError("a text of one symbol does not change", key="length", value=self.length, fix="take 2")
        drawn = hashing.bits(hashing.branch(keys, "switch"), 1)[:, 0]
        labels = 1 + hashing.below(drawn, self.length - 1).astype(np.int64)
        return self._drawn(keys, np.arange(self.length) >= labels[:, None]), labels

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        first, second = np.cumsum(self.log_chances(symbols), axis=2)
        return _normalised(first[:, :-1] + second[:, -1:] - second[:, :-1])

    def example(self, symbols: np.ndarray, label: Any) -> Example:
        text = " ".join(map(str, symbols.tolist()))
        return Example(texts=("", " ".join(map(str, range(self.length)))), answer=[str(int(label))], prompt=text)


@dataclass(frozen=True, kw_only=True)
class RankTags(_SyntheticTask):
    """The rank of each symbol after those before it, up to `tags` − 1: a tag for each token. Whoever knows the
    language is always right.
    """

    tags: Annotated[int, Range(least=2, most=8192)] = 4  # the last covers all further ranks

    answer = "tags"
    metric = TagAccuracy()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(rank) for rank in range(self.tags))

    def generate(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        symbols = self._drawn(keys, np.zeros((len(keys), self.length), bool))
        return symbols, np.minimum(self.ranks(symbols, 0), self.tags - 1)

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        return np.ones((len(symbols), 1))

    def example(self, symbols: np.ndarray, label: Any) -> Example:
        return Example(texts=tuple(map(str, symbols.tolist())), answer=[self.labels[int(tag)] for tag in label])


def _normalised(log_chances: np.ndarray) -> np.ndarray:
    weights = np.exp(log_chances - log_chances.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


@dataclass(frozen=True)
class SyntheticExamples(Examples):
    """One split of a synthetic task; `best` is the score that no model is expected to exceed."""

    law: Any = None

    @property
    def best(self) -> float:
        return self.law.best

    @cached_property
    def examples(self) -> Sequence[Example]:
        return self.law.drawn(self.split)

    def decode(self, tokens: np.ndarray) -> str:
        return spelled(tokens, self.specials)
