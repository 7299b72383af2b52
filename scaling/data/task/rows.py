"""Rows of a split, wherever they are: files in a layout, a set of `datasets`, or a corpus of pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaling.data.corpus import reading
from scaling.data.corpus.document import Corpus, Document
from scaling.data.corpus.hub import OFFLINE, Hub
from scaling.data.corpus.saved import Saved
from scaling.data.task.layout import Columns, Layout, Row
from scaling.errors import ScalingError, nearest

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
