"""Examples: a split of a task as a source of batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling.data.codec import Codec
from scaling.data.corpus import reading
from scaling.data.corpus.document import Corpus, Document
from scaling.data.corpus.files import Saved
from scaling.data.corpus.hub import OFFLINE, Hub
from scaling.data.source import Rows
from scaling.data.task.encoded import Encoded, Split
from scaling.data.task.example import Answer, Example
from scaling.data.task.layout import Columns, Layout, Row
from scaling.errors import ScalingError, nearest
from scaling.metric.answers import SQuAD
from scaling.metric.metric import Metric

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Place:
    """A split that does not change: what names its content, and its rows, each with its name for errors."""

    stamp: Any
    rows: Callable[[], Iterator[tuple[str, Row]]]


def of_files(
    names: str | Sequence[str], key: str, layout: Layout, columns: Columns, quotes: str, *, answered: bool = True
) -> Place:
    """A split in local files; `key` is that of the config which names them."""
    read = layout.rows if answered else layout.unanswered
    files = reading.find(names, key, (*reading.OF_FOLDERS, ".conll", ".conllu", ".iob", ".bio", ".data", ".mrg"))
    try:
        read(files, columns, quotes)  # what is wrong with the files as a whole
    except ScalingError as error:
        raise ScalingError(error.what, key=key, value=names, fix=error.fix) from None
    return Place([reading.sha256(file) for file in files], lambda: read(files, columns, quotes))


def unread(corpus: Corpus, folder: Path) -> Place:
    """What names the content of a corpus of pairs, none of which is read."""
    if len(corpus.sides) != 2:
        name = type(corpus).__name__
        raise ScalingError("its documents are no pairs", key="kind", value=name, fix="take a corpus with a source")
    return Place(corpus.snapshot(folder).stamp, lambda: iter(()))


def of_corpus(corpus: Corpus, folder: Path) -> dict[str, Place]:
    """The splits of a corpus of pairs: rows of `source` and `text`. A pair without a split is for training."""
    snapshot = corpus.snapshot(folder)
    documents: dict[str, list[Document]] = {}
    for document in snapshot.documents():
        documents.setdefault(document.split or "train", []).append(document)

    def place(split: str) -> Place:
        def rows() -> Iterator[tuple[str, Row]]:
            for number, document in enumerate(documents[split], 1):
                yield f"document {number}", {"source": document.source, "text": document.text}

        return Place([snapshot.stamp, split], rows)

    return {split: place(split) for split in SPLITS if split in documents}


def of_hub(path: str, revision: str, config: str | None, split: str | Mapping[str, str], network: bool) -> Place | None:
    """A split of a set on the hub, or of a folder with a copy of one; None where that takes a network."""
    named = {"config": config, "split": split} if isinstance(split, str) else {"config": config, **split}
    folder = Path(path).expanduser()
    if reading.is_saved(folder):
        saved = Saved(path=path, split=named["split"] or "train")
        stamp, rows = saved.snapshot(folder).stamp, saved.rows
    else:
        own = {"config": named["config"], "split": named["split"] or "train"}
        hub = Hub(path=path, revision=revision, **own)
        if not folder.is_dir() and not network:
            return None
        stamp, rows = _standing(hub, folder), hub.rows
    if "files" in stamp:
        stamp = [digest for _, _, digest in stamp["files"].values()]
    return Place([stamp, named], lambda: ((f"{path}, example {n}", row) for n, row in enumerate(rows(), 1)))


def _standing(hub: Hub, folder: Path) -> Any:
    try:
        return hub.snapshot(folder).stamp
    except ScalingError as error:
        if error.fix != OFFLINE:
            raise
        fix = "set data.files.train=FILE, or data.hub.path to a folder with a copy of the set"
        raise ScalingError(error.what, key="path", value=hub.path, fix=fix) from None


def renamed(row: Row, names: Mapping[str, str]) -> Row:
    """A row whose columns have the names that the task knows; a column that has its name already keeps it."""
    changes = {old: new for old, new in names.items() if old in row and new not in row}
    return {changes.get(column, column): value for column, value in row.items()} if changes else row


def check_splits(splits: Mapping[str, Any], key: str) -> None:
    for split in splits:
        if split not in SPLITS:
            raise ScalingError("there is no such split", key=f"{key}.{split}", fix=nearest(str(split), SPLITS))


@dataclass(frozen=True)
class Goal:
    """What is predicted of each example, and how predictions are scored."""

    answer: Answer
    labels: tuple[str, ...]
    metric: Metric
    order: Literal["fixed", "either"] = "fixed"  # whether a pair means the same in both orders
    unanswerable: bool = False  # whether a span may be absent
    decode: Any = None  # the strategy by which a model writes its answer, as scaling.decode has them; None: greedily

    @property
    def scores_texts(self) -> bool:
        """Whether the metric takes the text of an option and not its number."""
        return self.answer == "options" and isinstance(self.metric, SQuAD)

    def score(self, predictions: Sequence[Any], examples: Sequence[Example]) -> dict[str, float]:
        """The values of the metric by name, its main one first; a prediction of None is an invalid output."""
        groups = [example.group for example in examples]
        answers = [example.answer for example in examples]
        return self.metric.score(predictions, answers, None if None in groups else groups)


@dataclass(frozen=True)
class Examples:
    """One split; `items` are its examples as tokens, `examples` as a metric and a person read them."""

    task: Goal
    split: str
    items: Split
    fingerprint: str
    vocabulary: int
    specials: Mapping[str, int]
    words: np.ndarray | None = None
    home: Path | None = None

    bytes_per_token = None
    entropy = None
    lengths = None

    @property
    def tokens(self) -> int:
        return int(self.items.arrays["tokens_ends"][-1])

    def windows(self, length: int) -> int:
        return len(self.items)

    def read(self, rows: np.ndarray, length: int, *, documents: bool = False) -> Rows:
        items: list[Encoded] = [self.items[int(row)] for row in rows]
        return Rows(np.zeros((len(rows), 0), np.int64), items=items, examples=rows, task=self.task)

    @cached_property
    def examples(self) -> Sequence[Example]:
        assert self.home is not None
        with (self.home / f"{self.split}.jsonl").open(encoding="utf-8") as lines:
            return list(map(_example, lines))

    @cached_property
    def counts(self) -> np.ndarray:
        """[classes], how often each class is the label; of tags, for each word."""
        labels = self.items.arrays["labels"]
        if self.task.answer == "classes":
            return (labels == 1).sum(0)
        return np.bincount(labels[labels >= 0], minlength=len(self.task.labels))

    @cached_property
    def tokenizer(self) -> str | None:
        """SHA-256 of the tokenizer's file; None where the examples are made of token ids."""
        file = None if self.home is None else self.home / "tokenizer.json"
        return hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else None

    @cached_property
    def codec(self) -> Codec | None:
        """None where the examples are made of token ids."""
        file = None if self.home is None else self.home / "tokenizer.json"
        return Codec.load(file) if file is not None and file.is_file() else None

    def decode(self, tokens: np.ndarray) -> str:
        assert self.codec is not None
        return self.codec.decode(tokens[tokens < self.vocabulary])


def dumped(example: Example) -> str:
    kept = {key: value for key, value in vars(example).items() if value is not None and key != "unit"}
    return json.dumps(kept, ensure_ascii=False)


def _example(line: str) -> Example:
    entry = json.loads(line)
    span = entry.pop("span", None)
    heads = tuple(entry.pop("heads")) if "heads" in entry else None
    texts = tuple(entry.pop("texts"))
    return Example(texts=texts, span=None if span is None else (span[0], span[1]), heads=heads, **entry)


def fingerprint(splits: Mapping[str, Split], goal: Goal, tokenizer: str) -> str:
    """Names the examples of a task, the meaning of its labels and the tokenizer, wherever the files are."""
    hashed = hashlib.sha256(json.dumps([goal.answer, goal.labels, goal.order, tokenizer]).encode())
    for name, split in sorted(splits.items()):
        hashed.update(name.encode())
        for key, array in sorted(split.arrays.items()):
            hashed.update(key.encode())
            hashed.update(np.ascontiguousarray(array).tobytes())
    return hashed.hexdigest()[:16]
