"""Task: labelled examples from files, a published set or a corpus of pairs, as any family can be trained on them.

tasks/KEY/              the examples of each split, as tokens and as text; put in place by one rename
tasks/requests/KEY      which of them a line of a set on the hub, or of a corpus, became
"""

from __future__ import annotations

import operator
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, nearest, plural, refuse, under
from scaling.base.numbers import BelowOne, PositiveInt
from scaling.config.schema import Recipe, check_keys, keys, kinds
from scaling.data import rows, store
from scaling.data.codec import Codec
from scaling.data.documents import Corpus, digest, is_held_out, value_of
from scaling.data.rows import Row
from scaling.data.sets import Published
from scaling.data.source import check_split, under_data
from scaling.data.store import TOKENIZER
from scaling.data.task.example import NAMED, Answer, Columns, Example, listed, spelled
from scaling.data.task.layout import table
from scaling.data.task.source import SPLITS, Examples, Goal, Split, dumped, encoded, fingerprint

FORMAT = 1
UNLABELLED = "unlabelled"
ENDINGS = (*rows.OF_FOLDERS, ".conll", ".conllu", ".iob", ".bio", ".data", ".mrg")
OFFLINE = "set data.files.train=FILE, or data.hub.path to a folder with a copy of the set"
METRICS: dict[str, Any] = {
    "class": "Accuracy",
    "classes": {"kind": "F1", "average": "micro"},
    "number": "Correlation",
    "options": "Accuracy",
    "tags": "TagAccuracy",
    "span": "SQuAD",
    "text": "ExactMatch",
}
"""The metric of each kind of answer in a file that is named as a task, where no word names another."""


class Table(NamedTuple):
    """The rows of a split, each with its name for errors, and a stamp of what they hold."""

    stamp: Any
    rows: Callable[[], Iterable[tuple[str, Row]]]


class Task(Columns):
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
        metric: Recipe,
        tokenizer: Recipe,
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
        **of_columns: Any,
    ):
        super().__init__(**of_columns)
        parts = {"metric": metric, "decode": decode, "tokenizer": tokenizer, "corpus": corpus, "layout": layout}
        built: dict[str, Any] = {}
        for key, line in parts.items():
            with under(key):
                built[key] = None if line is None else line()
        measure, metrics = built["metric"], dict[str, Any](kinds("metric"))
        fits = [name for name, kind in metrics.items() if not kind.answers or self.answer in kind.answers]
        if measure.answers and self.answer not in measure.answers:
            what = f"it does not score answers of the kind {self.answer}"
            raise ScalingError(what, key="metric", value=type(measure).__name__, fix=nearest("", fits))
        measure.check(self.names)
        self.goal = Goal(self.answer, self.names, measure, order, self.none == "allowed", built["decode"])
        self.tokenizer, self.layout = built["tokenizer"], built["layout"] or table()
        self.files = {split: named for split, named in (files or {}).items() if named is not None}
        self.corpus: Corpus | None = built["corpus"]
        self.hub = dict(hub or {})
        self.columns, self.quotes, self.rename = columns, quotes, dict(rename or {})
        self.validation, self.limit, self.unlabelled = validation, limit, unlabelled
        self.layout.check(columns)
        self._check_places()

    def _check_places(self) -> None:
        """Refuse files and sets that name no training split, or what is none."""
        with under("files"):
            check_keys(self.files, dict.fromkeys(SPLITS, str | list[str]), "a task")
        if self._reads_corpus:
            return
        what = "it names neither files nor a set"
        refuse(not self.files and not self.hub, what, "set data.files={train: FILE, …}", key="files")
        if not self.files:
            splits = dict.fromkeys(SPLITS, str | Mapping[str, Any] | None)
            named = {"path": str, "revision": str, "config": str | None, **splits}
            with under("hub"):
                check_keys({"path": None, "revision": None, **self.hub}, named, "a set")
        if "train" not in (self.files or self.hub):
            raise ScalingError("there is no training split", key="files.train", fix="name its file")

    @property
    def unit(self) -> str | None:
        """The field whose equal values are held out together; None where each example is held out alone."""
        if self.group is not None:
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
        """A split: read, checked and tokenized where that is new. A set on the hub is fetched by `prepare` alone."""
        check_split(split, SPLITS)
        with under_data():
            return self._opened(split, self._home(folder, network=False))

    def prepare(self, folder: Path) -> Path:
        """The folder that holds the task as tokens."""
        with under_data():
            home = self._home(folder, network=True)
            self._opened("train", home)
        return home

    def counts(self, folder: Path) -> dict[str, int] | None:
        """The number of examples of each split; None where the task is not prepared."""
        try:
            if self._reads_corpus and not self._pointer(folder).exists():
                return None  # a corpus is not read to be listed
            return dict(store.sealed(self._home(folder, network=False))["splits"])
        except ScalingError:
            return None

    def unanswered(self, names: str) -> list[Example]:
        """The examples of files whose rows need no labels."""
        source = self._of_files(names, "FILE", self.layout.unanswered)
        examples = list(self._examples(source, "input", self.question))
        refuse(not examples, "there is no example in it", key="FILE", value=names)
        return examples

    def source_of(self, examples: Sequence[Example], folder: Path) -> Examples:
        """A source of these examples, encoded as those of the task are."""
        train = self.open("train", folder)
        assert train.codec is not None
        items = encoded(examples, self.answer, self.names, train.codec)
        source = replace(train, split="input", items=items, task=train.task.of(items))
        vars(source)["examples"] = examples
        return source

    def _opened(self, split: str, home: Path) -> Examples:
        meta = store.sealed(home)
        refuse(split not in meta["splits"], f"the task has no {split} split", "name its file", key=f"files.{split}")
        for leak in meta["leaks"]:
            _warn(leak)
        splits = {name: _split(home, name, self.answer) for name in ("train", "validation", split)}
        goal = self.goal.of(*splits.values())  # equal batches, whichever split is read first
        return Examples(goal, split, splits[split], meta["fingerprint"], meta["vocabulary"], meta["specials"], home)

    # --- what is prepared, and where it is ---

    @property
    def _reads_corpus(self) -> bool:
        return self.corpus is not None and not self.files

    def _pointer(self, folder: Path) -> Path:
        return folder / "tasks" / "requests" / store.digest(self._request(None))[:16]

    def _request(self, stamps: Any) -> dict[str, Any]:
        """All that decides what is made; `stamps` are of the content; None: the names represent it."""
        columns = {field.name: getattr(self, field.name) for field in fields(Columns)}
        tokenizer = {"kind": type(self.tokenizer).__name__, **vars(self.tokenizer)}
        if not self.tokenizer.learns:
            tokenizer = {"sha256": Codec.of(self.tokenizer).sha256}
        layout = {"kind": type(self.layout).__name__, **vars(self.layout)}
        return {
            "format": FORMAT,
            "columns": columns,
            "metric": self.goal.scores_texts,
            "order": self.goal.order,
            "tokenizer": tokenizer,
            "read": [layout, self.columns, self.rename, self.quotes, self.validation, self.limit],
            "content": {"files": self.files, "hub": self.hub} if stamps is None else stamps,
            "corpus": None if self.corpus is None else {"kind": type(self.corpus).__name__, **vars(self.corpus)},
        }

    def _home(self, folder: Path, network: bool) -> Path:
        # What the hub has is known by name until it is prepared; a local file by what it holds, each time.
        pointer = self._pointer(folder)
        tables = self._tables(folder, network)
        if tables is None:
            if pointer.exists() and _is_whole(home := folder / "tasks" / pointer.read_text().strip()):
                return home
            fix = f"{store.UNPREPARED}, or set data.files.train=FILE"
            raise ScalingError("the task has not been prepared", fix=fix)
        key = store.digest(self._request({split: table.stamp for split, table in tables.items()}))[:16]
        home = folder / "tasks" / key
        if not _is_whole(home):
            with store.alone(folder, key):
                if not _is_whole(home):  # another process was first
                    self._make(folder, home, tables)
        if not self.files:
            atomic.write(pointer, key)
        return home

    def _tables(self, folder: Path, network: bool) -> dict[str, Table] | None:
        """The rows of each split; of a corpus only their stamp. None where the hub would have to be asked."""
        tables: dict[str, Table] = {}
        if self.unlabelled is not None:
            tables[UNLABELLED] = self._of_files(self.unlabelled, UNLABELLED, self.layout.rows)
        if self._reads_corpus:
            assert self.corpus is not None
            with under("corpus"):
                return {"train": Table(self.corpus.snapshot(folder).stamp, lambda: iter(())), **tables}
        sets: dict[str | None, Published] = {}
        for split in self.splits:
            if self.files:
                tables[split] = self._of_files(self.files[split], f"files.{split}", self.layout.rows)
                continue
            with under("hub"):
                read = self._of_hub(self.hub[split], network, sets)
            if read is None:
                return None
            tables[split] = read
        return tables

    def _of_files(self, names: str | Sequence[str], key: str, read: Callable[..., Any]) -> Table:
        """A split in local files; `key` is that of the config which names them."""
        files = rows.find(names, key, ENDINGS)
        read = partial(read, files, self.columns, self.quotes)
        try:
            read()  # what is wrong with the files as a whole
        except ScalingError as error:
            raise ScalingError(error.what, key=key, value=names, fix=error.fix) from None
        return Table([rows.sha256(file) for file in files], read)

    def _of_hub(self, named: str | Mapping[str, str], network: bool, sets: dict[str | None, Published]) -> Table | None:
        """A split of a set on the hub, or of a folder with a copy of one; None where that takes a network."""
        path, revision = self.hub["path"], self.hub["revision"]
        request = {"config": self.hub.get("config"), **({"split": named} if isinstance(named, str) else named)}
        config, split = request["config"], request["split"] or "train"
        published = sets.setdefault(config, Published(path, revision, config, OFFLINE))
        if published.folder is None and not network:
            return None
        stamp: Any = published.stamp
        if "files" in stamp:
            stamp = [sha256 for _, _, sha256 in stamp["files"].values()]
        read = partial(published.rows, split)
        return Table([stamp, request], lambda: ((f"{path}, example {n}", row) for n, row in enumerate(read(), 1)))

    # --- preparing ---

    def _make(self, folder: Path, home: Path, tables: Mapping[str, Table]) -> None:
        """Read, check, split and tokenize, and put the folder in place by one rename."""
        examples = self._read(folder, tables)
        codec = Codec.of(self.tokenizer, _texts(examples["train"], getattr(self.tokenizer, "sample", 0)))
        splits = {split: encoded(of_split, self.answer, self.names, codec) for split, of_split in examples.items()}
        work = folder / "preparing" / home.name
        store.discard(work)
        work.mkdir(parents=True)
        for split, of_split in examples.items():
            np.savez(work / f"{split}.npz", **splits[split].arrays)  # type: ignore[arg-type]
            (work / f"{split}.jsonl").write_text("".join(map(dumped, of_split)), encoding="utf-8")
        codec.save(work / TOKENIZER)
        hashes = {}
        for file in sorted(work.iterdir()):
            with file.open("rb+") as content:
                atomic.flush(content)
            hashes[file.name] = rows.sha256(file)
        meta = {
            "fingerprint": fingerprint(splits, self.goal, codec.sha256),
            "vocabulary": codec.size,
            "specials": dict(codec.specials),
            "splits": {split: len(of_split) for split, of_split in examples.items()},
            "leaks": [*_leaks(examples, self.unit), *_contradictions(examples, self.answer)],
            "files": hashes,
        }
        store.seal(work, meta)
        store.discard(home)  # one that is damaged
        home.parent.mkdir(exist_ok=True)
        work.rename(home)
        atomic.flush_folder(home.parent)

    def _read(self, folder: Path, tables: Mapping[str, Table]) -> dict[str, list[Example]]:
        """The examples of each split; the training split ends with those that have no labels."""
        if self._reads_corpus:  # a pair without a split is for training
            assert self.corpus is not None
            named: dict[str, list[tuple[str, Row]]] = defaultdict(list)
            what, fix = "its documents are not pairs", "take a corpus with a source"
            for document in self.corpus.snapshot(folder).documents():
                refuse(document.source is None, what, fix, key="corpus.kind", value=type(self.corpus).__name__)
                pairs = named[document.split or "train"]
                pairs.append((f"document {len(pairs) + 1}", {"source": document.source, "text": document.text}))
            tables = {**tables, **{split: Table(None, partial(list, pairs)) for split, pairs in named.items()}}
        examples: dict[str, list[Example]] = {}
        for split in (split for split in SPLITS if split in tables):
            make = partial(self.example, secret=split == "test")
            examples[split] = list(self._examples(tables[split], f"{split} split", make))
            what = f"the {split} split is empty"
            refuse(not examples[split], what, key=f"files.{split}" if self.files else f"hub.{split}")
        if "validation" not in examples:
            sides: dict[bool, list[Example]] = {False: [], True: []}
            for one in examples["train"]:
                hashed = digest(one.texts if one.unit is None else (one.unit,))
                sides[is_held_out(hashed, self.validation)].append(one)
            if not all(sides.values()):
                what = "every example fell to validation" if sides[True] else "no example fell to validation"
                fix = "take another fraction, or name a file"
                raise ScalingError(what, key="validation", value=self.validation, fix=fix)
            examples |= {"train": sides[False], "validation": sides[True]}
        train = examples["train"]
        if self.limit is not None:
            what = f"the training split has {plural(len(train), 'example')}"
            refuse(self.limit > len(train), what, "take fewer, or leave it out", key="limit", value=self.limit)
            chosen = sorted(range(len(train)), key=lambda index: digest(train[index].texts))[: self.limit]
            examples["train"] = [train[index] for index in sorted(chosen)]
        if UNLABELLED in tables:
            examples["train"] += self._examples(tables[UNLABELLED], UNLABELLED, self.question)
        return examples

    def _examples(self, table: Table, where: str, make: Callable[[Row], Example | None]) -> Iterator[Example]:
        for name, row in table.rows():
            # A column that has its name already keeps it.
            changes = {old: new for old, new in self.rename.items() if old in row and new not in row}
            try:
                example = make({changes.get(column, column): value for column, value in row.items()})
            except ScalingError as error:
                value = f" {error.value!r}" if error.has_value else ""
                what = f"{where}, {name}: {error.what}{value}"
                raise ScalingError(what, key=error.key, fix=error.fix) from None
            if example is not None:
                yield example if self.unit is None else replace(example, unit=self._unit_of(example, row))

    def _unit_of(self, example: Example, row: Row) -> str | None:
        if self.group is not None:
            return example.group
        if not self.files or self.layout.unit is None:
            return example.texts[1]
        value = row.get(self.layout.unit)
        return None if value is None else str(value)


def _is_whole(home: Path) -> bool:
    """Whether a task is prepared, and every file as it was written; one that a disk has damaged is made again."""
    try:
        store.check_files(home, store.sealed(home)["files"])
    except (OSError, KeyError, ScalingError):
        return False
    return True


def _texts(examples: Iterable[Example], sample: int) -> Iterator[str]:
    """Training text for a tokenizer that learns, up to its `sample` of bytes."""
    for example in examples:
        for text in (" ".join(example.texts), example.target or ""):
            if sample <= 0:
                return
            yield text
            sample -= len(text.encode())


def _leaks(examples: Mapping[str, list[Example]], unit: str | None) -> list[str]:
    """What of the held-out splits is trained on too: units, texts, and texts in another case or with other spaces."""

    def folded(example: Example) -> int:
        return digest(text.strip().casefold() for text in example.texts)

    train = examples["train"]
    units = {one.unit for one in train} - {None}
    texts, near = {digest(one.texts) for one in train}, {folded(one) for one in train}
    numbers = "; numbers that begin again in each file are not a leak" if unit == "group" else ""
    leaks = []
    for split in ("validation", "test"):
        held_out = examples.get(split, ())
        others = [one for one in held_out if digest(one.texts) not in texts]
        counts = (
            (len({one.unit for one in held_out} & units), str(unit), numbers),
            (len(held_out) - len(others), "example", ""),
            (sum(folded(one) in near for one in others), "example", ", but for case or spaces at the ends"),
        )
        for count, thing, beside in filter(operator.itemgetter(0), counts):
            are = "is" if count == 1 else "are"
            leaks.append(f"{plural(count, thing)} of the {split} split {are} in the train split too{beside}")
    return leaks


def _contradictions(examples: Mapping[str, list[Example]], answer: Answer) -> list[str]:
    """Equal texts whose labels differ. Of answers that are written several may be right."""
    labels: dict[int, list[str]] = defaultdict(list)
    for one in (one for of_split in examples.values() for one in of_split if one.answer is not None):
        labels[digest(one.texts)].append(str(one.answer))
    differing = [each for each in labels.values() if len(set(each)) > 1]
    if answer in ("text", "span") or not differing:
        return []
    what = "1 text has" if len(differing) == 1 else f"{len(differing):,} texts have"
    return [f"{what} labels that contradict one another, in {sum(map(len, differing)):,} examples"]


@cache
def _warn(leak: str) -> None:
    print(f"scaling: warning: {leak}", file=sys.stderr)


@cache
def _split(home: Path, split: str, answer: Answer) -> Split:
    with np.load(home / f"{split}.npz") as arrays:
        return Split({name: arrays[name] for name in arrays.files}, answer)


# --- the examples of one file as a task: `my.csv text={review} label={verdict}` ---


def is_file(task: str) -> bool:
    """Whether a word names a file of examples and not a task."""
    return rows.format_of(Path(task)) != "text"


def task_of_file(file: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The line `data` of a file's examples, and the words with the keys of a task in full: `text` is `data.text`.

    The answer is a class unless `answer` states another kind; the labels are those of the file.
    """
    named = keys(Task)
    full = [f"data.{word}" if word.partition("=")[0].partition(".")[0] in named else word for word in words]
    stated = dict(word.removeprefix("data.").split("=", 1) for word in full if word.startswith("data."))
    answer: Any = stated.get("answer", "class")
    line = {"kind": "Task", "answer": answer, "text": "{text}", "metric": METRICS.get(answer, "Accuracy")}
    line["files"] = {"train": file}
    if answer in NAMED and "labels" not in stated:
        template, labels = stated.get("label", "{label}"), set[str]()
        for path in rows.find(file, "TASK"):
            for row in table().of_file(path, None, "csv"):
                try:
                    found = listed(value_of(template, row, "label"), answer)
                    labels.update(spelled(label) for label in found if label == label)  # pandas has NaN for no value
                except ScalingError as error:
                    raise error.at(file=path, value=template) from None
        what = f"the label has {len(labels):,} values"
        fix = "name another column, or set answer=text or number"
        refuse(len(labels) > 1000, what, fix, file=file, key="label")
        line["labels"] = sorted(labels)
    return line, full
