"""What a probe predicts: texts with a class at some of their tokens, from a task of tags, from the ranks of a synthetic
language, or from the syntax trees of Python.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scaling.data.codec import Codec
from scaling.data.python_tree import statements
from scaling.data.store import root
from scaling.data.synthetic.language import Language, Synthetic
from scaling.data.task.source import Examples
from scaling.errors import ScalingError
from scaling.inside.look import framed
from scaling.schema import build
from scaling.training.finetune import Pretrained, corpus, unfinetuned

RANKS, SUCCESSOR, TREE = "ranks", "successor", "python_tree"
"""What a run's own data can be probed for: the rank of each symbol of a synthetic language and the likeliest symbol
after it; the depth in Python's syntax tree.
"""
TAGS = 4  # ranks 0, 1, 2 and all further ones
DEEPEST = 8  # depths from 1; the last covers all further ones


@dataclass(frozen=True)
class Labelled:
    """A text as the model reads it; at each of `places` a class and the type (a word, a symbol) of what is there."""

    tokens: Sequence[int]
    places: np.ndarray
    labels: np.ndarray
    types: Sequence[Hashable]


@dataclass(frozen=True)
class Reading:
    """How a run reads a text: its family, its special tokens, and its window."""

    family: str
    ids: Mapping[str, int]
    length: int

    @property
    def reads_back(self) -> bool:
        """Whether a token sees nothing after it, so that a word is known at its last token."""
        return self.family == "decoder"

    def labelled(
        self, tokens: Sequence[int], places: np.ndarray, labels: np.ndarray, types: Sequence[Hashable]
    ) -> Labelled:
        """What of a text fits into the window; places are counted from its own first token, −1 of what has none."""
        before, after = self._frame
        most = self.length - before - after
        kept = np.flatnonzero((places >= 0) & (places < min(len(tokens), most)))
        line = framed(self.family, self.ids, {"text": tokens[:most], "target": []})
        tower = "decoder" if self.family == "decoder" else "encoder"
        return Labelled(line[tower], places[kept] + before, labels[kept], [types[number] for number in kept.tolist()])

    @property
    def _frame(self) -> tuple[int, int]:
        """How many tokens come before and behind a text."""
        if self.family == "decoder":
            return int("start" in self.ids or "bos" in self.ids), 0
        if self.family == "encoder":
            return int("cls" in self.ids), int("sep" in self.ids)
        return 0, int("eos" in self.ids)


def of_task(source: Examples, reading: Reading) -> Iterator[Labelled]:
    """The words of a task of tags, each at its last token where the model reads back, else at its first."""
    for number, example in enumerate(source.examples):
        if example.answer is None:
            continue
        item = source.items[number]
        assert item.pieces is not None
        places = item.pieces[:, 1 if reading.reads_back else 0]
        labels = np.asarray(item.label, np.int64)
        yield reading.labelled(item.parts[0].tolist(), np.asarray(places, np.int64), labels, example.texts)


def of_ranks(law: Synthetic, split: str, reading: Reading) -> Iterator[Labelled]:
    """The rank of each symbol after those before it, up to `TAGS` − 1: the state that the symbols are made of."""
    for symbols, ranks in _drawn(law, split, reading):
        yield _of_symbols(law, reading, symbols, np.minimum(ranks, TAGS - 1))


def of_successors(law: Synthetic, split: str, reading: Reading) -> Iterator[Labelled]:
    """The symbol of rank 0 after each symbol and those before it: what has to be known to predict the next."""
    likeliest = law.successors()[:, 0]
    for symbols, _ in _drawn(law, split, reading):
        before = np.concatenate([np.zeros(law.order - 1, np.int64), symbols])
        context = sum(before[law.order - 1 - lag :][: len(symbols)] * law.symbols**lag for lag in range(law.order))
        yield _of_symbols(law, reading, symbols, likeliest[context])


def _drawn(law: Synthetic, split: str, reading: Reading) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The symbols and ranks of one window after another."""
    source = Language(law, split)
    for row in itertools.count():
        symbols, ranks = source.drawn(np.array([row]), reading.length)
        yield symbols[0].astype(np.int64), ranks[0]


def _of_symbols(law: Synthetic, reading: Reading, symbols: np.ndarray, labels: np.ndarray) -> Labelled:
    # A decoder's text begins behind bos, its start; the windows of others have it as their first token.
    first = [] if reading.family == "decoder" else [law.symbols]
    places = np.arange(len(symbols)) + len(first)
    return reading.labelled([*first, *symbols.tolist()], places, labels.astype(np.int64), symbols.tolist())


def of_python(documents: Iterable[tuple[int, Any]], codec: Codec, reading: Reading) -> Iterator[Labelled]:
    """The depth of each word of a top-level statement in Python's own syntax tree, from 1 up to `DEEPEST`."""
    ends = set(codec.specials.values())
    for _, tokens in documents:
        text = codec.decode([token for token in tokens if int(token) not in ends])
        for statement in statements(text):
            encoding = codec.tokenizer.encode(statement.text, add_special_tokens=False)
            starts, stops = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
            if reading.reads_back:  # the token with the word's last character
                places = np.searchsorted(stops, [word.stop for word in statement.words], side="left")
            else:
                places = np.searchsorted(starts, [word.start for word in statement.words], side="right") - 1
            depths = np.minimum([word.depth for word in statement.words], DEEPEST).astype(np.int64)
            words = [statement.text[word.start : word.stop] for word in statement.words]
            yield reading.labelled(encoding.ids, places, depths - 1, words)


def texts_of(
    source: Pretrained, task: str, words: Sequence[str], runs: str | Path
) -> tuple[Sequence[str], Callable[[str, Reading], Iterator[Labelled]]]:
    """The classes of a task and the texts of a split of it: of a task of tags, or of what a run's own data can be
    probed for.
    """
    folder = root(runs)
    if words and task in (RANKS, SUCCESSOR, TREE):
        raise ScalingError("it does not apply to what is known of the run's own data", key=words[0], fix="leave it out")
    if task in (RANKS, SUCCESSOR):
        if source.data.get("kind") != "Synthetic":
            fix = "take a run that was trained on data=synthetic"
            raise ScalingError("only a synthetic language has ranks", key="TASK", value=task, fix=fix)
        law, of = build("data", source.data), of_ranks if task == RANKS else of_successors
        return [*map(str, range(TAGS if task == RANKS else law.symbols))], partial(of, law)
    if task == TREE:
        if (source.data.get("corpus") or {}).get("kind") != "Python" or source.tokenizer is None:
            fix = "take a run that was trained on data=python"
            raise ScalingError("the run was not trained on Python", key="TASK", value=task, fix=fix)
        data, codec = build("data", corpus(source, None, runs=runs)), Codec.load(source.tokenizer)
        depths = [str(depth) for depth in range(1, DEEPEST + 1)]
        return depths, lambda split, reading: of_python(data.open(split, folder).documents(), codec, reading)
    data = build("data", unfinetuned(source, task, words, runs=runs))
    if data.answer != "tags":
        what, fix = f"the answers are {data.answer}, and a probe predicts tags", "take a task of tags, as conll2003"
        raise ScalingError(what, key="TASK", value=task, fix=fix)
    return data.goal.labels, lambda split, reading: of_task(data.open(split, folder), reading)


def some(texts: Iterable[Labelled], limit: int) -> list[Labelled]:
    """The first texts, until `limit` classes are reached."""
    kept, count = [], 0
    for text in texts:
        if not len(text.labels):
            continue
        kept.append(text)
        count += len(text.labels)
        if count >= limit:
            break
    return kept
