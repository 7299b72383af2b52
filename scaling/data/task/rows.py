"""Rows of a split, wherever they are: tables, two files side by side, CoNLL's columns, SQuAD's JSON, or a set of
`datasets`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.data.corpus import parallel, reading, separated
from scaling.data.corpus.diagnosis import opened
from scaling.data.corpus.document import Corpus, Document
from scaling.data.corpus.hub import OFFLINE, Hub
from scaling.data.corpus.saved import Saved
from scaling.errors import ScalingError, nearest

SPLITS = ("train", "validation", "test")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """A split that does not change: what names its content, and its rows, each with its name for errors."""

    stamp: Any
    rows: Callable[[], Iterator[tuple[str, Row]]]


def of_files(names: str | Sequence[str], key: str, layout: str, columns: Sequence[str] | None, quotes: str) -> Place:
    """A split in local files; `key` is that of the config which names them."""
    files = reading.find(names, key, (*reading.OF_FOLDERS, ".conll", ".iob", ".bio", ".data", ".mrg"))
    if layout == "parallel":
        return Place([reading.sha256(file) for file in files], _parallel(files, names, key, columns))

    def rows() -> Iterator[tuple[str, Row]]:
        for file in files:
            for number, row in enumerate(_of_file(file, layout, columns, quotes), 1):
                yield f"{file.name}, example {number}", row

    return Place([reading.sha256(file) for file in files], rows)


def of_corpus(corpus: Corpus, folder: Path) -> dict[str, Place]:
    """The splits of a corpus of pairs: rows of `source` and `text`. One that states no split is for training."""
    if len(corpus.sides) != 2:
        name = type(corpus).__name__
        raise ScalingError("its documents are no pairs", key="corpus", value=name, fix="take a corpus with a source")
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


def _of_file(file: Path, layout: str, columns: Sequence[str] | None, quotes: str) -> Iterator[Row]:
    if layout == "conll":
        return conll(file, columns)
    if layout == "squad":
        return squad(file)
    if reading.builder(file) == "separated":
        return separated.rows(file, columns, quotes == "csv")
    if reading.builder(file) == "text":
        raise ScalingError("a file of examples is JSON lines, CSV, TSV or Parquet", file=file, fix="set data.layout")
    return reading.rows([file])


def _parallel(
    files: Sequence[Path], names: object, key: str, columns: Sequence[str] | None
) -> Callable[[], Iterator[tuple[str, Row]]]:
    """Two files, of which each line of one answers the same line of the other."""
    if len(files) != 2:
        fix = "write [SOURCE, TARGET]"
        raise ScalingError(
            f"a parallel split is in two files, and it names {len(files)}", key=key, value=names, fix=fix
        )
    left, right = columns or ("source", "target")

    def rows() -> Iterator[tuple[str, Row]]:
        for number, (source, target) in enumerate(parallel.pairs(*files), 1):
            yield f"{files[0].name}, line {number}", {left: source, right: target}

    return rows


def conll(file: Path, columns: Sequence[str] | None) -> Iterator[Row]:
    """A word a line, its columns separated by spaces, an empty line after each sentence (Tjong Kim Sang and De Meulder
    2003): a row is a sentence, each column a list.
    """
    if not columns:
        raise ScalingError("the columns have no names", key="columns", fix="name them, as in [tokens, tags]")
    words: list[list[str]] = []
    for number, line in enumerate(_lines(file), 1):
        fields = line.split()
        if not fields or fields[0] == "-DOCSTART-":
            if words:
                yield dict(zip(columns, map(list, zip(*words))))
            words = []
        elif len(fields) != len(columns):
            what = f"the line has {len(fields)} columns, and {len(columns)} are named"
            raise ScalingError(what, file=file, line=number, fix="name every column in data.columns")
        else:
            words.append(fields)
    if words:
        yield dict(zip(columns, map(list, zip(*words))))


def squad(file: Path) -> Iterator[Row]:
    """Paragraphs with questions and answers, as SQuAD 1.1 and 2.0 are published (Rajpurkar et al. 2016, 2018)."""
    try:
        articles = json.loads("\n".join(_lines(file)))["data"]
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    answers = [] if question.get("is_impossible") else question["answers"]
                    yield {
                        "id": question.get("id"),
                        "title": article.get("title"),
                        "context": paragraph["context"],
                        "question": question["question"],
                        "answers": {
                            "text": [answer["text"] for answer in answers],
                            "answer_start": [answer["answer_start"] for answer in answers],
                        },
                    }
    except (ValueError, KeyError, TypeError) as error:
        what = f"it is not laid out as SQuAD's JSON: {error}"
        raise ScalingError(what, file=file, fix="take data.layout=table for JSON lines") from error


def _lines(file: Path) -> Iterator[str]:
    try:
        with opened(file) as content:
            for line in content:
                yield line.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise ScalingError("it is not UTF-8", file=file, fix="convert the file to UTF-8") from error


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
