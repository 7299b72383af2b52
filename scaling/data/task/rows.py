"""Rows of a split, wherever they are: tables, two files side by side, CoNLL's columns, a treebank, SQuAD's JSON, or a
set of `datasets`.
"""

from __future__ import annotations

import itertools
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
from scaling.data.tree import depths as tree_depths
from scaling.errors import ScalingError, nearest
from scaling.metric import trees
from scaling.number import plural

SPLITS = ("train", "validation", "test")
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Place:
    """A split that does not change: what names its content, and its rows, each with its name for errors."""

    stamp: Any
    rows: Callable[[], Iterator[tuple[str, Row]]]


def of_files(names: str | Sequence[str], key: str, layout: str, columns: Sequence[str] | None, quotes: str) -> Place:
    """A split in local files; `key` is that of the config which names them."""
    files = reading.find(names, key, (*reading.OF_FOLDERS, ".conll", ".conllu", ".iob", ".bio", ".data", ".mrg"))
    if layout == "parallel":
        return Place([reading.sha256(file) for file in files], _parallel(files, names, key, columns))

    def rows() -> Iterator[tuple[str, Row]]:
        for file in files:
            for number, row in enumerate(_of_file(file, layout, columns, quotes), 1):
                yield f"{file.name}, example {number}", row

    return Place([reading.sha256(file) for file in files], rows)


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


def _of_file(file: Path, layout: str, columns: Sequence[str] | None, quotes: str) -> Iterator[Row]:
    if layout == "conll":
        return conll(file, columns)
    if layout == "conllu":
        return conllu(file)
    if layout == "squad":
        return squad(file)
    if layout == "trees":
        return treebank(file)
    if layout == "dialogue":
        return dialogue(file)
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


def conllu(file: Path) -> Iterator[Row]:
    """A word a line in the ten columns of CoNLL-U (Nivre et al. 2016) or CoNLL-X (Buchholz and Marsi 2006), which tabs
    separate: a row is a sentence with the lists `tokens`, `upos`, `xpos` (of CoNLL-X coarse and fine tags), `heads`
    (from 1; 0: the root), `relations` and `depths`, the words up to the root.
    """
    words: list[list[str]] = []
    first = 0
    for number, line in enumerate(itertools.chain(_lines(file), [""]), 1):
        fields = line.split("\t")
        if not line.strip():
            if words:
                yield _sentence(file, first, words)
            words = []
        elif line.startswith("#") and not words:
            continue
        elif len(fields) == len(_CONLLU) and not fields[0].isdecimal():
            continue  # words that span several others, and empty ones
        elif len(fields) != len(_CONLLU):
            what = f"the line has {len(fields)} columns, and CoNLL-U has {len(_CONLLU)}, separated by tabs"
            raise ScalingError(what, file=file, line=number, fix="take data.layout=conll for other columns")
        else:
            first = first if words else number
            words.append([*fields, str(number)])


_CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


def _sentence(file: Path, first: int, words: Sequence[Sequence[str]]) -> Row:
    _, tokens, _, upos, xpos, _, heads, relations, _, _, lines = map(list, zip(*words))
    for place, (number, head, line) in enumerate(zip((word[0] for word in words), heads, lines), 1):
        if number != str(place):
            raise ScalingError("words are numbered from 1 in their order", file=file, line=int(line), value=number)
        if not head.isdecimal() or int(head) > len(words):
            what = f"the sentence has {plural(len(words), 'word')}, and the head is none of them"
            raise ScalingError(what, file=file, line=int(line), key="head", value=head, fix="write its number, or 0")
    depths = tree_depths([int(head) for head in heads])
    if depths is None:
        raise ScalingError("the heads of the sentence form a circle", file=file, line=first, key="head")
    return {
        "tokens": tokens,
        "upos": upos,
        "xpos": xpos,
        "heads": heads,
        "relations": relations,
        "depths": list(map(str, depths)),
    }


def treebank(file: Path) -> Iterator[Row]:
    """Bracketed trees as the Penn Treebank has them (Marcus et al. 1993): a row is a sentence with its `words`, its
    `tree` in one line as the file has it, and the `sequence` that a model learns to write (Vinyals et al. 2015).
    """
    for tree in trees.read(_lines(file), file):
        learned = trees.plain(tree)
        if learned is not None:
            words = " ".join(leaf.word or "" for leaf in learned.words())
            yield {"words": words, "tree": str(tree), "sequence": trees.linear(learned)}


def dialogue(file: Path) -> Iterator[Row]:
    """Conversations, one a line of JSON: {"turns": [{"speaker": "ann", "text": "Hello."}, …]}. A row is a reply: its
    `history` has every turn before it behind its speaker's mark, `<ann> Hello. <bob>`, and ends with the mark of who
    replies; `reply` and `speaker` are the turn's own, and `turn` is its number from 1.
    """
    for number, line in enumerate(_lines(file), 1):
        try:
            turns = [(str(turn["speaker"]), str(turn["text"])) for turn in json.loads(line)["turns"]]
        except (ValueError, KeyError, TypeError) as error:
            fix = 'write {"turns": [{"speaker": "ann", "text": "Hello."}, …]}'
            raise ScalingError(f"the line is no dialogue: {error}", file=file, line=number, fix=fix) from error
        if len(turns) < 2:
            fix = "remove the line, or write the turn that replies"
            raise ScalingError(f"it has {plural(len(turns), 'turn')}, so no reply", file=file, line=number, fix=fix)
        said = ""
        for turn, (speaker, text) in enumerate(turns, 1):
            mark = f"<{speaker}>"
            if turn > 1:
                yield {"history": f"{said}{mark}", "reply": text, "speaker": speaker, "turn": turn}
            said += f"{mark} {text} "


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
