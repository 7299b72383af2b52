"""Task: labelled examples from files or a published set, as any family can be trained on them."""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from scaling import atomic
from scaling.data.codec import Codec
from scaling.data.corpus.document import Corpus
from scaling.data.shards import TOKENIZER, check_files, digest
from scaling.data.source import Source
from scaling.data.task import source as rows
from scaling.data.task.encoded import Split, encoded
from scaling.data.task.example import Answer, Columns, Example
from scaling.data.task.layout import Layout, table
from scaling.data.task.source import Examples, Goal, dumped, fingerprint
from scaling.errors import ScalingError, nearest, plural, under
from scaling.schema import BelowOne, PositiveInt, Recipe, check

FORMAT = 1
META = "task.json"
SPLITS = rows.SPLITS
UNLABELLED = "unlabelled"
_NAMED: tuple[Answer, ...] = ("class", "classes", "tags")  # answers that are names


class Task:
    """Labelled examples: `text`, `second`, `options` and `label` are templates over a row's fields, such as
    `{premise}`.

    Splits are in `files` of a `layout`, by default tables (JSON lines, CSV, TSV, Parquet), or else in a set of the
    `hub`, or in a `corpus` of pairs, whose rows have `source` and `text`.
    `labels` are the names of classes in order, or a mapping from what files write to names. `prompt` is the source of a
    model that writes its answer; `heads` are the words that those of a text depend on, which the position Syntax reads.
    Without a validation split, a fraction `validation` of the training examples is held out. Examples of one `group`
    are on one side; so are those with the same context, where the answer is a span or the layout is squad, and the
    replies of one dialogue. `limit` keeps that many training examples, chosen by the hash of their text: the same ones
    in every run. `decode` is the strategy by which a model writes its answer, greedily unless it is set. `unlabelled`
    are files of further training examples without labels, from which a student of `Distil` learns.
    """

    def __init__(
        self,
        *,
        answer: Answer,
        text: str,
        metric: Recipe,
        tokenizer: Recipe,
        second: str | None = None,
        options: list[str] | None = None,
        label: str = "{label}",
        labels: list[str] | Mapping[str, str] | None = None,
        group: str | None = None,
        heads: str | None = None,
        prompt: str | None = None,
        target: str | None = None,
        missing: Literal["refused", "dropped"] = "refused",
        none: Literal["refused", "allowed"] = "refused",
        order: Literal["fixed", "either"] = "fixed",
        files: Mapping[str, Any] | None = None,
        layout: Recipe | None = None,
        columns: list[str] | None = None,
        rename: Mapping[str, str] | None = None,
        quotes: Literal["csv", "none"] = "csv",
        hub: Mapping[str, Any] | None = None,
        corpus: Recipe | None = None,
        validation: BelowOne = 0.1,
        limit: PositiveInt | None = None,
        decode: Recipe | None = None,
        unlabelled: str | list[str] | None = None,
    ):
        names = list(labels.values()) if isinstance(labels, Mapping) else list(labels or ())
        if answer in _NAMED and len(dict.fromkeys(names)) < 2:
            raise ScalingError("it takes the names of two labels or more", key="labels", value=labels)
        self.columns = Columns(
            answer=answer,
            text=text,
            second=second,
            options=tuple(options or ()),
            label=label,
            labels=tuple(dict.fromkeys(str(name) for name in names)),
            values={str(key): str(name) for key, name in labels.items()} if isinstance(labels, Mapping) else {},
            group=group,
            heads=heads,
            prompt=prompt,
            target=target,
            missing=missing,
            unanswerable=none == "allowed",
        )
        _check_keys(answer, second, options)
        if heads is not None and answer != "tags":
            raise ScalingError("only words that are tagged have heads", key="heads", value=heads, fix="set answer=tags")
        with under("metric"):
            built = metric()
        with under("decode"):
            strategy = None if decode is None else decode()
        self.goal = Goal(answer, self.columns.labels, built, order, none == "allowed", strategy)
        with under("tokenizer"):
            self.tokenizer = tokenizer()
        self.files = {split: names for split, names in (files or {}).items() if names is not None}
        self.hub = dict(hub or {})
        with under("corpus"):
            self.corpus: Corpus | None = None if corpus is None else corpus()
        with under("layout"):
            self.layout: Layout = table() if layout is None else layout()
        self.named, self.quotes = columns, quotes
        self.rename, self.validation, self.unlabelled = dict(rename or {}), validation, unlabelled
        self.limit = limit
        rows.check_splits(self.files, "files")
        for split, names in self.files.items():
            check(f"files.{split}", names, str | list[str])
        self.layout.check(columns)
        if self.corpus is not None and not self.files:
            return
        if not self.files:
            self._check_hub()
        if "train" not in (self.files or self.hub):
            raise ScalingError("there is no training split", key="files.train", fix="name its file")

    def _check_hub(self) -> None:
        if not self.hub:
            raise ScalingError("it names neither files nor a set", key="files", fix="set data.files={train: FILE, …}")
        keys = ("path", "revision", "config", *SPLITS)
        for key in self.hub:
            if key not in keys:
                raise ScalingError("a set has no such key", key=f"hub.{key}", fix=nearest(str(key), keys))
        for key in ("path", "revision"):
            if not isinstance(self.hub.get(key), str):
                raise ScalingError("expected text", key=f"hub.{key}", value=self.hub.get(key))

    @property
    def answer(self) -> Answer:
        return self.goal.answer

    @property
    def unit(self) -> str | None:
        """What the examples have in common that are held out together; None where each is held out alone."""
        if self.columns.group is not None:
            return "group"
        if self.files and self.layout.unit is not None:
            return self.layout.unit
        return "context" if self.answer == "span" else None

    @property
    def splits(self) -> list[str]:
        """The splits that are named."""
        named = self.files or self.hub
        return [split for split in SPLITS if named.get(split) is not None]

    def open(self, split: str, folder: Path) -> Examples:
        """A split: read, checked and tokenized where that was not done before. A set that is on the hub is not fetched
        here: `prepare` does that.
        """
        if split not in SPLITS:
            raise ScalingError(f"there is no split {split!r}", fix=nearest(split, SPLITS))
        with _placed():
            return self._opened(split, folder, network=False)

    def prepare(self, folder: Path) -> Path:
        """The folder that holds the task as tokens."""
        with _placed():
            home = self._opened("train", folder, network=True).home
        assert home is not None
        return home

    def counts(self, folder: Path) -> dict[str, int] | None:
        """How many examples each split has; None where the task is not prepared."""
        try:
            if self._reads_corpus and not self._pointer(folder).exists():
                return None  # a corpus is not read to be listed
            return dict(atomic.read_json(self._home(folder, network=False) / META)["splits"])
        except ScalingError:
            return None

    def unanswered(self, names: str) -> list[Example]:
        """The examples of files whose rows need no labels."""
        place = rows.of_files(names, "FILE", self.layout, self.named, self.quotes, answered=False)
        examples = list(self._examples(place, "input", self.columns.unanswered))
        if not examples:
            raise ScalingError("there is no example in it", key="FILE", value=names)
        return examples

    def source_of(self, examples: list[Example], folder: Path) -> Examples:
        """A source of these examples, encoded as those of the task are."""
        train = self.open("train", folder)
        assert train.home is not None
        items = encoded(examples, self.answer, self.columns.labels, Codec.load(train.home / TOKENIZER))
        source = replace(train, split="input", items=items)
        vars(source)["examples"] = examples
        return source

    def _opened(self, split: str, folder: Path, network: bool) -> Examples:
        home = self._home(folder, network)
        meta = atomic.read_json(home / META)
        if split not in meta["splits"]:
            raise ScalingError(f"the task has no {split} split", key=f"files.{split}", fix="name its file")
        for leak in meta["leaks"]:
            _warn(leak)
        items = _split(home, split, self.answer)
        return Examples(
            self.goal, split, items, meta["fingerprint"], meta["vocabulary"], meta["specials"], _words(home), home
        )

    def _home(self, folder: Path, network: bool) -> Path:
        # What the hub has is known by name until it is prepared; a local file by what it holds, each time.
        pointer = self._pointer(folder)
        places = self._places(folder, network)
        if places is None:
            if pointer.exists() and _is_whole(home := folder / "tasks" / pointer.read_text().strip()):
                return home
            fix = "run `scaling data prepare` with the same data= (or --model CONFIG) and runs= first"
            fix += ", or set data.files.train=FILE"
            raise ScalingError("the task has not been prepared", fix=fix)
        key = digest(self._request({split: place.stamp for split, place in places.items()}))[:16]
        home = folder / "tasks" / key
        if not _is_whole(home):
            if self._reads_corpus and self.corpus is not None:
                places = {**places, **rows.of_corpus(self.corpus, folder)}
            self._make(home, places)
        if not self.files:
            atomic.write(pointer, key)
        return home

    @property
    def _reads_corpus(self) -> bool:
        return self.corpus is not None and not self.files

    def _pointer(self, folder: Path) -> Path:
        return folder / "tasks" / "requests" / digest(self._request(None))[:16]

    def _request(self, stamps: Any) -> dict[str, Any]:
        """All that decides what is made; `stamps` are of the content; None: the names represent it."""
        columns = {**vars(self.columns), "values": dict(self.columns.values), "metric": self.goal.scores_texts}
        tokenizer = {"kind": type(self.tokenizer).__name__, **vars(self.tokenizer)}
        if not self.tokenizer.learns:
            tokenizer = {"sha256": Codec(self.tokenizer.fit(iter(()))).sha256}
        return {
            "format": FORMAT,
            "columns": columns,
            "order": self.goal.order,
            "tokenizer": tokenizer,
            "read": [_line(self.layout), self.named, self.rename, self.quotes, self.validation, self.limit],
            "content": {"files": self.files, "hub": self.hub} if stamps is None else stamps,
            "corpus": None if self.corpus is None else {"kind": type(self.corpus).__name__, **vars(self.corpus)},
        }

    def _places(self, folder: Path, network: bool) -> dict[str, rows.Place] | None:
        """Where each split is; None where the hub would have to be asked."""
        places: dict[str, rows.Place] = {}
        read = (self.layout, self.named, self.quotes)
        if self.unlabelled is not None:
            places[UNLABELLED] = rows.of_files(self.unlabelled, UNLABELLED, *read)
        if self.files:
            files = {split: rows.of_files(self.files[split], f"files.{split}", *read) for split in self.splits}
            return {**files, **places}
        if self.corpus is not None:
            try:
                return {"train": rows.unread(self.corpus, folder), **places}
            except ScalingError as error:
                raise (error if error.file is not None else error.under("corpus")) from None
        path, revision, config = (self.hub.get(key) for key in ("path", "revision", "config"))
        for split in self.splits:
            with under("hub"):
                place = rows.of_hub(str(path), str(revision), config, self.hub[split], network)
            if place is None:
                return None
            places[split] = place
        return places

    def _make(self, home: Path, places: Mapping[str, rows.Place]) -> None:
        """Read, check, split and tokenize, and put the folder in place by one rename."""
        examples = {split: list(self._read(split, place)) for split, place in places.items() if split in SPLITS}
        for split, own in examples.items():
            if not own:
                raise ScalingError(
                    f"the {split} split is empty", key=f"files.{split}" if self.files else f"hub.{split}"
                )
        if "validation" not in examples:
            examples = {**_held_out(examples["train"], self.validation), **examples}
            examples["train"] = [example for example in examples["train"] if not _is_held_out(example, self.validation)]
        if self.limit is not None:
            examples["train"] = _chosen(examples["train"], self.limit)
        if UNLABELLED in places:
            examples["train"] += self._examples(places[UNLABELLED], UNLABELLED, self.columns.unanswered)
        codec = Codec(self.tokenizer.fit(_texts(examples["train"], getattr(self.tokenizer, "sample", 0))))
        splits = {split: encoded(own, self.answer, self.columns.labels, codec) for split, own in examples.items()}
        home.parent.mkdir(parents=True, exist_ok=True)
        work = atomic.temporary(home)
        work.mkdir()
        try:
            for split, own in examples.items():
                np.savez(work / f"{split}.npz", **splits[split].arrays)  # type: ignore[arg-type]
                (work / f"{split}.jsonl").write_text(
                    "".join(f"{dumped(example)}\n" for example in own), encoding="utf-8"
                )
            codec.save(work / TOKENIZER)
            np.save(work / "words.npy", codec.words)
            meta = {
                "fingerprint": fingerprint(splits, self.goal, codec.sha256),
                "vocabulary": codec.size,
                "specials": dict(codec.specials),
                "splits": {split: len(own) for split, own in examples.items()},
                "leaks": [*_leaks(examples, self.unit), *_contradictions(examples, self.answer)],
                "files": {file.name: _flushed(file) for file in sorted(work.iterdir())},
            }
            atomic.write_json(work / META, {**meta, "sha256": digest(meta)})
            if home.exists() and not _is_whole(home):
                damaged = atomic.temporary(home)
                os.rename(home, damaged)
                shutil.rmtree(damaged, ignore_errors=True)
            try:
                os.rename(work, home)
            except OSError:  # another process was first
                if not _is_whole(home):
                    raise
            atomic.flush_folder(home.parent)
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _read(self, split: str, place: rows.Place) -> Iterator[Example]:
        return self._examples(place, f"{split} split", partial(self.columns, secret=split == "test"))

    def _examples(self, place: rows.Place, where: str, make: Callable[[rows.Row], Example | None]) -> Iterator[Example]:
        for name, row in place.rows():
            try:
                example = make(rows.renamed(row, self.rename))
            except ScalingError as error:
                value = f" {error.value!r}" if error.has_value else ""
                what = f"{where}, {name}: {error.what}{value}"
                raise ScalingError(what, key=error.key, fix=error.fix) from None
            if example is not None:
                yield example if self.unit is None else replace(example, unit=self._unit_of(example, row))

    def _unit_of(self, example: Example, row: rows.Row) -> str | None:
        if self.columns.group is not None:
            return example.group
        if not self.files or self.layout.unit is None:
            return example.texts[1]
        value = row.get(self.layout.unit)
        return None if value is None else str(value)


def _is_whole(home: Path) -> bool:
    """Whether a task is prepared, and every file as it was written; one that a disk has damaged is made again."""
    try:
        meta = atomic.read_json(home / META)
        if meta.pop("sha256") != digest(meta):
            return False
        check_files(home, meta["files"])
    except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, AttributeError, TypeError, ScalingError):
        return False
    return True


def _flushed(file: Path) -> str:
    """The SHA-256 of a file that is on the disk now."""
    with file.open("rb+") as content:
        os.fsync(content.fileno())
        return hashlib.file_digest(content, "sha256").hexdigest()


def _line(layout: Layout) -> str | dict[str, Any]:
    """The line of a config that makes the layout."""
    name = type(layout).__name__
    return {"kind": name, **vars(layout)} if vars(layout) else name


@contextmanager
def _placed() -> Iterator[None]:
    """Mistakes with their whole key; what is wrong in a file is reported with the file."""
    try:
        yield
    except ScalingError as error:
        raise (error if error.file is not None else error.under("data")) from None


def _check_keys(answer: Answer, second: str | None, options: list[str] | None) -> None:
    if answer == "options" and not options:
        raise ScalingError(
            "options are needed", key="options", fix="set options, such as options=[{choice1}, {choice2}]"
        )
    if answer != "options" and options:
        raise ScalingError(f"an answer that is {answer} has no options", key="options", fix="set answer=options")
    if answer == "span" and second is None:
        raise ScalingError("a span is in a second text", key="second", fix="set second, such as second={context}")
    if answer in ("tags", "options") and second is not None:
        raise ScalingError(f"an answer that is {answer} has one text", key="second", fix="leave it out")


def _hash(texts: Sequence[str]) -> int:
    """64 bits of texts."""
    hashed = hashlib.blake2b(digest_size=8)
    for text in texts:
        hashed.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return int.from_bytes(hashed.digest(), "big")


def _is_held_out(example: Example, share: float) -> bool:
    """By the hash of the unit, and of an example without one by that of its texts."""
    return _hash(example.texts if example.unit is None else (example.unit,)) < share * 2**64


def _held_out(train: list[Example], share: float) -> dict[str, list[Example]]:
    held_out = [example for example in train if _is_held_out(example, share)]
    if not held_out or len(held_out) == len(train):
        what = "no example fell to validation" if not held_out else "every example fell to validation"
        raise ScalingError(what, key="validation", value=share, fix="take another fraction, or name a file")
    return {"validation": held_out}


def _chosen(train: list[Example], limit: int) -> list[Example]:
    """`limit` examples of the lowest hashes, in their order."""
    if limit > len(train):
        what = f"the training split has {plural(len(train), 'example')}"
        raise ScalingError(what, key="limit", value=limit, fix="take fewer, or leave it out")
    chosen = set(sorted(range(len(train)), key=lambda index: _hash(train[index].texts))[:limit])
    return [example for index, example in enumerate(train) if index in chosen]


def _leaks(examples: Mapping[str, list[Example]], unit: str | None) -> list[str]:
    """What of the held-out splits is trained on too: units, texts, and texts in another case or with other spaces."""
    exact, folded = ({_hash(form(one)) for one in examples["train"]} for form in (_texts_of, _folded))
    units = {one.unit for one in examples["train"] if one.unit is not None}
    leaks = []
    for split in ("validation", "test"):
        own = examples.get(split, ())
        shared = len({one.unit for one in own} & units)
        if shared:
            numbers = "; numbers that begin again in each file are no leak" if unit == "group" else ""
            leaks.append(f"{_are(shared, str(unit), split)} in the train split too{numbers}")
        other = [one for one in own if _hash(one.texts) not in exact]
        if len(other) < len(own):
            leaks.append(f"{_are(len(own) - len(other), 'example', split)} in the train split too")
        near = sum(_hash(_folded(one)) in folded for one in other)
        if near:
            leaks.append(f"{_are(near, 'example', split)} in the train split too, but for case or spaces at the ends")
    return leaks


def _are(count: int, thing: str, split: str) -> str:
    return f"{plural(count, thing)} of the {split} split {'is' if count == 1 else 'are'}"


def _texts_of(example: Example) -> tuple[str, ...]:
    return example.texts


def _folded(example: Example) -> tuple[str, ...]:
    return tuple(text.strip().casefold() for text in example.texts)


def _contradictions(examples: Mapping[str, list[Example]], answer: Answer) -> list[str]:
    """Equal texts whose labels differ. Of answers that are written several may be right."""
    if answer in ("text", "span"):
        return []
    labels: dict[int, list[str]] = {}
    for one in itertools.chain.from_iterable(examples.values()):
        if one.answer is not None:
            labels.setdefault(_hash(one.texts), []).append(str(one.answer))
    differing = [each for each in labels.values() if len(set(each)) > 1]
    if not differing:
        return []
    what = "1 text has" if len(differing) == 1 else f"{len(differing):,} texts have"
    return [f"{what} labels that contradict one another, in {sum(map(len, differing)):,} examples"]


@cache
def _warn(leak: str) -> None:
    print(f"scaling: warning: {leak}", file=sys.stderr)


def _texts(examples: list[Example], sample: int) -> Iterator[str]:
    """Training text for a tokenizer that learns, up to its `sample` of bytes."""
    left = sample
    for example in examples:
        for text in (" ".join(example.texts), example.target or ""):
            if left <= 0:
                return
            yield text
            left -= len(text.encode())


@cache
def _split(home: Path, split: str, answer: Answer) -> Split:
    with np.load(home / f"{split}.npz") as arrays:
        return Split({name: arrays[name] for name in arrays.files}, answer)


@cache
def _words(home: Path) -> np.ndarray:
    return np.load(home / "words.npy")


def is_task(source: Source) -> bool:
    """Whether a source gives examples and not windows of text."""
    return isinstance(getattr(source, "task", None), Goal)
