"""Task: labelled examples from files, a published set or a corpus of pairs, as any family can be trained on them.

tasks/KEY/              the examples of each split, as tokens and as text; put in place by one rename
tasks/requests/KEY      which of them a line of a set on the hub, or of a corpus, became
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural, refuse, under
from scaling.base.numbers import BelowOne, PositiveInt
from scaling.config.schema import Recipe, check_keys, keys, piece_of
from scaling.data import rows, store
from scaling.data.codec import Codec
from scaling.data.documents import Corpus, Document, digest, is_held_out, until, value_of
from scaling.data.rows import Row
from scaling.data.sets import Published
from scaling.data.source import under_data
from scaling.data.store import TOKENIZER, described
from scaling.data.task.answers import KINDS, Goal, spelled
from scaling.data.task.columns import Columns
from scaling.data.task.example import Example, Split
from scaling.data.task.layout import table
from scaling.data.task.source import SPLITS, Examples, dumped, encoded, fingerprint, loaded

FORMAT = 1
UNLABELLED = "unlabelled"
ENDINGS = (*rows.OF_FOLDERS, ".conll", ".conllu", ".iob", ".bio", ".data", ".mrg")
OFFLINE = "set data.files.train=FILE, or data.hub.path to a folder with a copy of the set"
# A split, or one of another config; `kind` is the split that a config below names in its place.
_OF_SET = dict.fromkeys(SPLITS, str | Mapping[Literal["config", "split", "kind"], str | None] | None)
_OF_HUB = {"path": str, "revision": str, "config": str | None, **_OF_SET}


class Table(NamedTuple):
    """The rows of a split, each with its name for errors, and a stamp of what they hold."""

    stamp: Any
    rows: Iterable[Any]  # pairs of a name and a row; of a corpus its documents


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
        measure, strategy = piece_of("metric", metric), piece_of("decode", decode)
        self.tokenizer, pairs = piece_of("tokenizer", tokenizer), piece_of("corpus", corpus)
        self.layout = piece_of("layout", layout) or table()
        fix = f"take another, as metric={self.kind.file_metric}"
        is_other = measure.answers and self.answer not in measure.answers
        what = f"it does not score answers of the kind {self.answer}"
        refuse(is_other, what, fix, key="metric", value=type(measure).__name__)
        measure.check(self.names)
        self.goal = self.kind(self.names, measure, self.values, self.label, order, self.none == "allowed", strategy)
        self.columns, self.quotes, self.rename = columns, quotes, dict(rename or {})
        self.validation, self.limit, self.unlabelled = validation, limit, unlabelled
        self.files = {split: named for split, named in (files or {}).items() if named is not None}
        self.corpus: Corpus | None = None if self.files else pairs
        self.hub = {} if self.files or self.corpus is not None else dict(hub or {})
        with under("files"):
            check_keys(self.files, dict.fromkeys(SPLITS, str | list[str]), "a task")
        if self.hub:
            with under("hub"):
                check_keys({"path": None, "revision": None, **self.hub}, _OF_HUB, "a set")
        train = self.corpus or self.files.get("train", self.hub.get("train"))
        refuse(train is None, "there is no training split", "name its file", key="files.train")

    @property
    def unit(self) -> tuple[str, str] | None:
        column = self.layout.unit if self.files and self.group is None else None
        return super().unit if column is None else (column, f"{{{self.rename.get(column, column)}}}")

    def open(self, split: str, folder: Path) -> Examples:
        """A split: read, checked and tokenized where that is new. A set on the hub is fetched by `prepare` alone."""
        with under_data():
            home = self._home(folder, network=False)
            meta = store.sealed(home)
            place, fix = ("hub", "name that of the set") if self.hub else ("files", "name its file")
            refuse(split not in meta["splits"], f"the task has no {split} split", fix, key=f"{place}.{split}")
        for leak in meta["leaks"]:
            _warn(leak)
        splits = {name: _split(home / f"{name}.npz") for name in ("train", "validation", split)}
        goal = self.goal.of(*splits.values())  # equal batches, whichever split is read first
        load, meaning = partial(loaded, home / f"{split}.jsonl"), (meta["vocabulary"], meta["specials"])
        return Examples(goal, split, splits[split], meta["fingerprint"], *meaning, load, home)

    def prepare(self, folder: Path) -> Path:
        """The folder that holds the task as tokens."""
        with under_data():
            return self._home(folder, network=True)

    def counts(self, folder: Path) -> dict[str, int] | None:
        """The number of examples of each split; None where the task is not prepared."""
        try:
            return dict(store.sealed(self._home(folder, network=False))["splits"])
        except ScalingError:
            return None

    def unanswered(self, names: str) -> list[Example]:
        """The examples of files whose rows need no labels."""
        files = rows.find(names, "FILE", ENDINGS)
        unanswered = self.layout.unanswered(files, self.columns, self.quotes)
        examples = list(self._examples(unanswered, "input", self.question))
        refuse(not examples, "there is no example in it", key="FILE", value=names)
        return examples

    def source_of(self, examples: Sequence[Example], folder: Path) -> Examples:
        """A source of these examples, encoded as those of the task are."""
        train = self.open("train", folder)
        items = encoded(examples, self.goal, cast(Codec, train.codec))
        return replace(train, split="input", items=items, task=train.task.of(items), load=lambda: examples)

    # --- what is prepared, and where it is ---

    def _request(self, content: Any) -> dict[str, Any]:
        """All that decides what is made; `content` are the names of what is read, or the stamps of what they hold."""
        tokenizer = described(self.tokenizer) if self.tokenizer.learns else {"sha256": Codec.of(self.tokenizer).sha256}
        return {
            "format": FORMAT,
            "columns": {field.name: getattr(self, field.name) for field in fields(Columns)},
            "metric": self.goal.scores_texts,
            "order": self.goal.order,
            "tokenizer": tokenizer,
            "read": [described(self.layout), self.columns, self.rename, self.quotes, self.validation, self.limit],
            "content": content,
            "corpus": None if self.corpus is None else described(self.corpus),
        }

    def _home(self, folder: Path, network: bool) -> Path:
        """The folder of the task, prepared where that is new."""
        # What the hub has is known by name until it is prepared; a local file by what it holds, each time.
        request, tasks = self._request({"files": self.files, "hub": self.hub}), folder / "tasks"
        pointer = tasks / "requests" / store.digest(request)[:16]
        if self.hub and not network and self._published(None).folder is None:
            fix = f"{store.UNPREPARED}, or set data.files.train=FILE"
            is_prepared = pointer.exists() and _is_whole(tasks / pointer.read_text().strip())
            refuse(not is_prepared, "the task has not been prepared", fix)
            return tasks / pointer.read_text().strip()
        tables = self._tables(folder)
        key = store.digest(self._request({split: table.stamp for split, table in tables.items()}))[:16]
        home = tasks / key
        if not _is_whole(home):
            with store.alone(folder, key):
                if not _is_whole(home):  # another process was first
                    self._make(folder / "preparing" / key, home, tables)
        if not self.files:
            atomic.write(pointer, key)
        return home

    def _tables(self, folder: Path) -> dict[str, Table]:
        """The rows of each split that is named; those of a corpus are all the training split's."""
        named = {f"files.{split}": files for split, files in self.files.items()}
        named |= {} if self.unlabelled is None else {UNLABELLED: self.unlabelled}
        tables = {key.removeprefix("files."): self._of_files(files, key) for key, files in named.items()}
        if self.corpus is not None:
            with under("corpus"):
                snapshot = self.corpus.snapshot(folder)
            tables["train"] = Table(snapshot.stamp, snapshot.documents())
        sets: dict[str | None, Published] = {}
        for split in SPLITS:
            if self.hub.get(split) is not None:
                with under("hub"):
                    tables[split] = self._of_hub(self.hub[split], sets)
        return tables

    def _of_files(self, names: str | Sequence[str], key: str) -> Table:
        """A split in local files; `key` is that of the config which names them."""
        files = rows.find(names, key, ENDINGS)
        return Table(list(map(rows.sha256, files)), self.layout.rows(files, self.columns, self.quotes))

    def _of_hub(self, named: str | Mapping[str, str], sets: dict[str | None, Published]) -> Table:
        """A split of a set on the hub, or of a folder with a copy of one."""
        request = {"config": self.hub.get("config"), **({"split": named} if isinstance(named, str) else named)}
        published = sets.setdefault(request["config"], self._published(request["config"]))
        stamp: Any = published.stamp
        if "files" in stamp:
            stamp = [sha256 for _, _, sha256 in stamp["files"].values()]
        read = enumerate(published.rows(request.get("split") or "train"), 1)
        return Table([stamp, request], ((f"{published.path}, example {number}", row) for number, row in read))

    def _published(self, config: str | None) -> Published:
        return Published(self.hub["path"], self.hub["revision"], config, OFFLINE)

    # --- preparing ---

    def _make(self, work: Path, home: Path, tables: Mapping[str, Table]) -> None:
        """Read, check, split and tokenize in the folder `work`, and put it in place by one rename."""
        examples = self._read(tables)
        texts = (Document(text) for one in examples["train"] for text in (" ".join(one.texts), one.target or ""))
        sample = until(texts, getattr(self.tokenizer, "sample", 0))
        codec = Codec.of(self.tokenizer, (document.text for document in sample))
        splits = {split: encoded(of_split, self.goal, codec) for split, of_split in examples.items()}
        store.discard(work)
        for split, of_split in examples.items():
            content = io.BytesIO()
            np.savez(content, **splits[split].arrays)  # type: ignore[arg-type]
            atomic.write(work / f"{split}.npz", content.getvalue())
            atomic.write(work / f"{split}.jsonl", "".join(map(dumped, of_split)))
        codec.save(work / TOKENIZER)
        meta = {
            "fingerprint": fingerprint(splits, self.goal, codec.sha256),
            "vocabulary": codec.size,
            "specials": dict(codec.specials),
            "splits": {split: len(of_split) for split, of_split in examples.items()},
            "leaks": _leaks(examples, self.unit, self.kind.is_open),
            "files": {file.name: rows.sha256(file) for file in sorted(work.iterdir())},
        }
        store.seal(work, meta)
        store.discard(home)  # one that is damaged
        home.parent.mkdir(exist_ok=True)
        work.rename(home)
        atomic.flush_folder(home.parent)

    def _read(self, tables: Mapping[str, Table]) -> dict[str, list[Example]]:
        """The examples of each split; the training split ends with those that have no labels."""
        if self.corpus is not None:  # a pair without a split is for training
            pairs = defaultdict[str, list[tuple[str, Row]]](list)
            what, fix = "its documents are not pairs", "take a corpus with a source"
            for document in tables["train"].rows:
                refuse(document.source is None, what, fix, key="corpus.kind", value=type(self.corpus).__name__)
                own = pairs[document.split or "train"]
                own.append((f"document {len(own) + 1}", {"source": document.source, "text": document.text}))
            tables = {**tables, **{split: Table(None, own) for split, own in pairs.items()}}
        examples: dict[str, list[Example]] = {}
        for split in (split for split in SPLITS if split in tables):
            make, key = partial(self.example, goal=self.goal, secret=split == "test"), "files" if self.files else "hub"
            examples[split] = list(self._examples(tables[split].rows, f"{split} split", make))
            refuse(not examples[split], f"the {split} split is empty", key=f"{key}.{split}")
        if "validation" not in examples:
            shared = (one.texts if one.unit is None else (one.unit,) for one in examples["train"])
            sides = [is_held_out(digest(texts), self.validation) for texts in shared]
            what = f"{sum(sides):,} of {plural(len(sides), 'example')} fell to validation"
            fix = "take another fraction, or name a file"
            refuse(all(sides) or not any(sides), what, fix, key="validation", value=self.validation)
            examples["validation"] = [one for one, is_out in zip(examples["train"], sides) if is_out]
            examples["train"] = [one for one, is_out in zip(examples["train"], sides) if not is_out]
        train = examples["train"]
        if self.limit is not None:
            what = f"the training split has {plural(len(train), 'example')}"
            refuse(self.limit > len(train), what, "take fewer, or leave it out", key="limit", value=self.limit)
            chosen = sorted(range(len(train)), key=lambda index: digest(train[index].texts))[: self.limit]
            examples["train"] = [train[index] for index in sorted(chosen)]
        if UNLABELLED in tables:
            examples["train"] += self._examples(tables[UNLABELLED].rows, UNLABELLED, self.question)
        return examples

    def _examples(
        self, rows: Iterable[tuple[str, Row]], where: str, make: Callable[[Row], Example | None]
    ) -> Iterator[Example]:
        for name, row in rows:
            # A column that has its name already keeps it.
            changes = {old: new for old, new in self.rename.items() if old in row and new not in row}
            try:
                example = make({changes.get(column, column): value for column, value in row.items()})
            except ScalingError as error:
                value = f" {error.value!r}" if error.has_value else ""
                what = f"{where}, {name}: {error.what}{value}"
                raise ScalingError(what, key=error.key, fix=error.fix) from None
            if example is not None:
                yield example


def _is_whole(home: Path) -> bool:
    """Whether a task is prepared, and every file as it was written; one that a disk has damaged is made again."""
    try:
        store.check_files(home, store.sealed(home)["files"])
    except (OSError, KeyError, ScalingError):
        return False
    return True


def _leaks(examples: Mapping[str, list[Example]], unit: tuple[str, str] | None, is_open: bool) -> list[str]:
    """What of the held-out splits is trained on too: units, texts, and texts in another case or with other spaces; and
    equal texts whose labels differ, unless several may be right.
    """
    from pandas import DataFrame

    every = [(split, one) for split, of_split in examples.items() for one in of_split]
    columns = {
        "split": [split for split, _ in every],
        "unit": [one.unit for _, one in every],
        "same": [digest(one.texts) for _, one in every],
        "folded": [digest(text.strip().casefold() for text in one.texts) for _, one in every],
        "label": [None if is_open or one.answer is None else str(one.answer) for _, one in every],
    }
    rows: Any = DataFrame(columns)
    train, leaks = rows[rows["split"] == "train"], list[str]()
    name = "example" if unit is None else unit[0]
    numbers = "; numbers that begin again in each file are not a leak" if name == "group" else ""
    for split in ("validation", "test"):
        own = rows[rows["split"] == split]
        is_same = own["same"].isin(train["same"])
        for thing, is_leak, beside in (
            (name, own["unit"].dropna().drop_duplicates().isin(train["unit"]), numbers),
            ("example", is_same, ""),
            ("example", own["folded"].isin(train["folded"]) & ~is_same, ", but for case or spaces at the ends"),
        ):
            if count := int(is_leak.sum()):
                are = "is" if count == 1 else "are"
                leaks.append(f"{plural(count, thing)} of the {split} split {are} in the train split too{beside}")
    labelled = rows[rows["label"].notna()]
    differing = labelled["same"][labelled.groupby("same")["label"].transform("nunique") > 1]
    if len(differing):
        what = "1 text has" if differing.nunique() == 1 else f"{differing.nunique():,} texts have"
        leaks.append(f"{what} labels that contradict one another, in {len(differing):,} examples")
    return leaks


@cache
def _warn(leak: str) -> None:
    print(f"scaling: warning: {leak}", file=sys.stderr)


@cache
def _split(file: Path) -> Split:
    with np.load(file) as arrays:
        return Split(dict(arrays))


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
    answer = stated.get("answer", "class")
    kind = KINDS.get(answer, Goal)
    line: dict[str, Any] = {"kind": "Task", "answer": answer, "text": "{text}", "metric": kind.file_metric}
    line["files"] = {"train": file}
    if "classes" in kind.head_keys and "labels" not in stated:
        template, labels = stated.get("label", "{label}"), set[str]()
        for _, row in table().rows(rows.find(file, "TASK"), None, "csv"):
            try:
                value = value_of(template, row, "label")
                found = [] if value in (None, "") else kind.listed(value)
                labels.update(spelled(label) for label in found if label == label)  # pandas has NaN for no value
            except ScalingError as error:
                raise error.at(file=file, value=template) from None
        what, fix = f"the label has {len(labels):,} values", "name another column, or set answer=text or number"
        refuse(len(labels) > 1000, what, fix, file=file, key="label")
        line["labels"] = sorted(labels)
    return line, full
