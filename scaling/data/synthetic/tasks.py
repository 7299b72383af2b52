"""Tasks that are drawn, whose best score is known: on languages, on symbols of the text itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

from scaling.base.errors import refuse
from scaling.base.numbers import Range, Seed
from scaling.data import hashing
from scaling.data.synthetic.language import Synthetic, fingerprint
from scaling.data.task.answers import KINDS, Goal
from scaling.data.task.example import Example, Split, characters
from scaling.data.task.source import Examples
from scaling.metrics.classes import Accuracy, TagAccuracy
from scaling.metrics.metric import Metric
from scaling.metrics.text import ExactMatch

SPECIALS = ("bos", "eos", "pad")
MOST = 1 << 25  # tokens in a split: each is drawn before training
Count = Annotated[int, Range(least=1, most=10**6)]


class Drawn(NamedTuple):
    """Texts end to end, where each ends, and their labels: one for each text, or one for each token."""

    tokens: np.ndarray
    ends: np.ndarray  # [n + 1]
    labels: np.ndarray


@dataclass(frozen=True, kw_only=True)
class SyntheticTask(ABC):
    """A task of `examples` training texts, and `held_out` of each other split. Who knows the rule has the score `best`
    on the validation texts. A task defines `generate`, its `labels`, and `vocabulary`, the different tokens without
    specials.
    """

    examples: Count = 4096
    held_out: Count = 1024
    seed: Seed = 3401

    version: ClassVar[int] = 1
    answer: ClassVar[str] = "class"
    metric: ClassVar[Metric] = Accuracy()

    vocabulary: ClassVar[Any]
    labels: ClassVar[Any]
    best: ClassVar[Any] = 1.0

    @property
    def goal(self) -> Goal:
        return KINDS[self.answer](self.labels, self.metric)

    def counts(self, folder: Path) -> dict[str, int]:
        return {"train": self.examples, "validation": self.held_out, "test": self.held_out}

    @abstractmethod
    def generate(self, split: str) -> Drawn: ...

    def spell(self, tokens: np.ndarray) -> list[str]:
        """Each token as a person reads it."""
        return [str(token) for token in tokens.tolist()]

    def example(self, tokens: np.ndarray, label: Any) -> Example:
        """As a metric and a person read it."""
        words = self.spell(tokens)
        if self.goal.is_of_words:
            return Example(texts=tuple(words), answer=[self.labels[int(tag)] for tag in label])
        return Example(texts=(" ".join(words),), answer=int(label))

    def drawn(self, split: str) -> Sequence[Example]:
        tokens, ends, labels = generated(self, split)
        each = np.split(labels, ends[1:-1]) if self.goal.is_of_words else labels
        return list(map(self.example, np.split(tokens, ends[1:-1]), each))

    def arrays(self, drawn: Drawn) -> dict[str, np.ndarray]:
        """A split as `Split` holds it."""
        tokens, ends, labels = drawn
        places = np.arange(len(tokens)) - np.repeat(ends[:-1], np.diff(ends))
        of_tags = {"labels_ends": ends, "pieces": np.stack([places, places], 1), "pieces_ends": ends}
        return {
            "parts": np.arange(len(ends)),
            "tokens": tokens,
            "tokens_ends": ends,
            "labels": labels,
            "written": tokens,  # a prompt, and no target
            "written_ends": np.repeat(ends, 2)[1:],
            **(of_tags if self.goal.is_of_words else {}),
        }

    def open(self, split: str, folder: Path) -> Examples:
        return Examples(
            self.goal,
            split,
            Split(self.arrays(generated(self, split))),
            fingerprint(self, "every split"),
            self.vocabulary + len(SPECIALS),
            {name: self.vocabulary + number for number, name in enumerate(SPECIALS)},
            partial(self.drawn, split),
        )


@lru_cache(maxsize=16)
def generated(task: SyntheticTask, split: str) -> Drawn:
    return task.generate(split)


@dataclass(frozen=True, kw_only=True)
class _OfLength(SyntheticTask):
    """Texts of `length` tokens among `symbols`."""

    length: Annotated[int, Range(least=2, most=1 << 20)] = 64
    symbols: Annotated[int, Range(least=2, most=8192)] = 16

    def __post_init__(self) -> None:
        tokens = max(self.examples, self.held_out) * self.length
        what, fix = f"{tokens:,} tokens in a split are more than {MOST:,}", "take fewer examples, or shorter ones"
        refuse(tokens > MOST, what, fix, key="length", value=self.length)

    @property
    def vocabulary(self) -> int:
        return self.symbols

    def generate(self, split: str) -> Drawn:
        count = self.examples if split == "train" else self.held_out
        symbols, labels = self.draw(hashing.keys(self.seed, f"{type(self).__name__} {split}", np.arange(count)))
        return Drawn(symbols.ravel(), np.arange(count + 1) * self.length, labels.ravel())

    @abstractmethod
    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """[n length] symbols, and their labels."""


@dataclass(frozen=True, kw_only=True)
class _OfLanguages(_OfLength):
    """Texts of two languages of `symbols` symbols; a language depends on the `order` symbols before."""

    length: Annotated[int, Range(least=2, most=1 << 16)] = 16
    order: Annotated[int, Range(least=1, most=25)] = 1
    exponent: Annotated[float, Range(least=0, most=64)] = 1.6

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.languages  # its own keys are checked too

    @property
    def languages(self) -> tuple[Synthetic, Synthetic]:
        """Two of one entropy, whose successors differ."""
        keys: dict[str, Any] = {"symbols": self.symbols, "order": self.order, "exponent": self.exponent}
        return Synthetic(**keys, seed=self.seed), Synthetic(**keys, seed=self.seed + 1)

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        """[n labels], the chance of each label given a text: what no model can know better. Here the text decides."""
        return np.ones((len(symbols), 1))

    @cached_property
    def best(self) -> float:
        """The expected score of Bayes' rule on the validation texts: the mean chance of the likeliest label."""
        symbols = generated(self, "validation").tokens.reshape(-1, self.length)
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
        law = self.languages[language]
        return np.argsort(law.successors().astype(np.int64), axis=1)[law.contexts(symbols)[:, :-1], symbols]

    def log_chances(self, symbols: np.ndarray) -> np.ndarray:
        """[2 n length], ln of the chance of each symbol in each language, after those before it."""
        law = -self.languages[0].ranks.losses.astype(np.float64)
        return np.stack([law[self.ranks(symbols, language)] for language in (0, 1)])


@dataclass(frozen=True, kw_only=True)
class WhichLanguage(_OfLanguages):
    """Which of two languages wrote a text, each as often: a class. `best` is the accuracy of Bayes' rule."""

    labels = ("first", "second")

    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        labels = (hashing.bits(hashing.branch(keys, "language"), 1)[:, 0] >> np.uint64(63)).astype(np.int64)
        return self._drawn(keys, np.repeat(labels[:, None] == 1, self.length, 1)), labels

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        return _normalised(self.log_chances(symbols).sum(2).T)


@dataclass(frozen=True, kw_only=True)
class LanguageSwitch(_OfLanguages):
    """Where a text changes from the first language to the second, at any of its symbols but the first: a span of one
    token. `best` is how often Bayes' rule finds it.
    """

    answer = "span"
    metric = ExactMatch(normalisation="none")

    labels = ()

    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        bits = hashing.bits(hashing.branch(keys, "switch"), 1)[:, 0]
        labels = 1 + hashing.below(bits, self.length - 1).astype(np.int64)
        return self._drawn(keys, np.arange(self.length) >= labels[:, None]), labels

    def chances(self, symbols: np.ndarray) -> np.ndarray:
        first, second = np.cumsum(self.log_chances(symbols), axis=2)
        return _normalised(first[:, :-1] + second[:, -1:] - second[:, :-1])

    def arrays(self, drawn: Drawn) -> dict[str, np.ndarray]:
        """A question without a token before each text; a token's characters are those of `example`."""
        return super().arrays(drawn) | {
            "parts": 2 * np.arange(len(drawn.ends)),
            "tokens_ends": np.repeat(drawn.ends, 2)[:-1],
            "labels": np.stack([drawn.labels, drawn.labels], 1),
            "pieces": np.tile(characters([*map(str, range(self.length))]), (len(drawn.labels), 1)),
            "pieces_ends": drawn.ends,
        }

    def example(self, symbols: np.ndarray, label: Any) -> Example:
        text = " ".join(map(str, symbols.tolist()))
        return Example(texts=("", " ".join(map(str, range(self.length)))), answer=[str(int(label))], prompt=text)


@dataclass(frozen=True, kw_only=True)
class RankTags(_OfLanguages):
    """The rank of each symbol after those before it, up to `tags` − 1, as a tag: the language determines it."""

    tags: Annotated[int, Range(least=2, most=8192)] = 4  # the last covers all further ranks

    answer = "tags"
    metric = TagAccuracy()

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(str(rank) for rank in range(self.tags))

    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        symbols = self._drawn(keys, np.zeros((len(keys), self.length), bool))
        return symbols, np.minimum(self.ranks(symbols, 0), self.tags - 1)


def _normalised(log_chances: np.ndarray) -> np.ndarray:
    weights = np.exp(log_chances - log_chances.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


@dataclass(frozen=True, kw_only=True)
class _OfSymbols(_OfLength):
    """Texts whose symbols are the labels."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(map(str, range(self.symbols)))

    def _symbols(self, keys: np.ndarray) -> np.ndarray:
        """[n length], each as likely."""
        return hashing.below(hashing.bits(keys, self.length), self.symbols).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class Copy(_OfSymbols):
    """The symbol `distance` tokens back, as a tag for each token; the first tokens' is the first symbol. (As the
    copying problem of Hochreiter and Schmidhuber 1997, at every place)
    """

    distance: Annotated[int, Range(least=1, most=1 << 20)] = 32

    answer = "tags"
    metric = TagAccuracy()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            self.distance >= self.length,
            f"texts of {self.length} tokens have none {self.distance} back",
            f"take at most {self.length - 1}, or a larger length",
            key="distance",
            value=self.distance,
        )

    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        symbols = self._symbols(keys)
        return symbols, symbols[:, np.maximum(np.arange(self.length) - self.distance, 0)]


@dataclass(frozen=True, kw_only=True)
class Recall(_OfSymbols):
    """The symbol behind a key: `pairs` of a key and a symbol are at random places of a text of other symbols, and its
    last token is one of the keys. (Associative recall; Graves et al. 2014, section 4.3)
    """

    pairs: Annotated[int, Range(least=1, most=4096)] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            2 * self.pairs + 1 > self.length,
            f"{self.pairs} pairs and a question take {2 * self.pairs + 1} tokens, and texts have {self.length}",
            f"take at most {(self.length - 1) // 2}, or a larger length",
            key="pairs",
            value=self.pairs,
        )

    @property
    def vocabulary(self) -> int:
        return self.symbols + self.pairs  # the keys are the last ones

    def draw(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        text = self._symbols(keys)
        slots = (self.length - 1) // 2
        rows = np.arange(len(text))[:, None]
        chosen = np.argsort(hashing.bits(hashing.branch(keys, "places"), slots), axis=1, kind="stable")[:, : self.pairs]
        text[rows, 2 * chosen] = self.symbols + np.arange(self.pairs)
        pair = hashing.below(hashing.bits(hashing.branch(keys, "question"), 1)[:, 0], self.pairs).astype(np.int64)
        text[:, -1] = self.symbols + pair
        return text, text[rows[:, 0], 2 * chosen[rows[:, 0], pair] + 1]
