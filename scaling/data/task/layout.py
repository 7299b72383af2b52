"""How the examples of a task lie in files of one's own: the kinds of the slot `layout`.

They are named in lower case, as configs named them before they were kinds.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from scaling.base import json_lines
from scaling.base.errors import ScalingError, plural, refuse
from scaling.data import rows
from scaling.data.rows import Row, lines
from scaling.data.task.example import places
from scaling.metrics import trees as bracketed

Columns = Sequence[str] | None  # the names of the task's key `columns`


class Layout(Protocol):
    """A layout is given the task's keys `columns` and `quotes`, which mean what it takes them for."""

    unit: str | None = None  # the column by which examples are held out together; None: each is held out alone

    def rows(self, files: Sequence[Path], columns: Columns, quotes: str) -> Iterator[tuple[str, Row]]:
        """The rows of a split, each with its name for errors."""
        for file in files:
            for number, row in enumerate(self.of_file(file, columns, quotes), 1):
                yield f"{file.name}, example {number}", row

    def unanswered(self, files: Sequence[Path], columns: Columns, quotes: str) -> Iterator[tuple[str, Row]]:
        """The rows of files that need no answers: whose prediction is asked for."""
        return self.rows(files, columns, quotes)

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        """The rows of one file, where each file of a split is read alone."""
        ...


class table(Layout):
    """JSON lines, CSV, TSV or Parquet, by the file's suffix."""

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        form = rows.format_of(file)
        refuse(form == "text", "a file of examples is JSON lines, CSV, TSV or Parquet", "set data.layout", file=file)
        if form == "separated":
            return rows.separated(file, columns, quotes == "csv")
        return rows.read(file)


class parallel(Layout):
    """Two files whose lines answer one another: a row has `source` and `target`, or the two names of `columns`."""

    def rows(self, files: Sequence[Path], columns: Columns, quotes: str) -> Iterator[tuple[str, Row]]:
        what = f"a parallel split is in two files, and it names {len(files)}"
        refuse(len(files) != 2, what, "write [SOURCE, TARGET]", key="files")
        names = columns or ("source", "target")
        refuse(len(names) != 2, "two files need two columns", "write [source, target]", key="columns", value=columns)
        for number, pair in enumerate(rows.pairs(files[0], files[1]), 1):
            yield f"{files[0].name}, line {number}", dict(zip(names, pair))

    def unanswered(self, files: Sequence[Path], columns: Columns, quotes: str) -> Iterator[tuple[str, Row]]:
        """The source alone, a line each; or a table with a column of its name."""
        if len(files) != 1:
            return self.rows(files, columns, quotes)
        if rows.format_of(files[0]) != "text":
            return table().rows(files, None, quotes)
        return _texts(files[0], (columns or ("source",))[0])


class conll(Layout):
    """A word a line, its columns separated by spaces, an empty line after each sentence (Tjong Kim Sang and De Meulder
    2003): a row is a sentence, each column a list.
    """

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        columns = columns or ()
        refuse(not columns, "the columns have no names", "name them, as in [tokens, tags]", key="columns")
        what = f"columns, and {len(columns)} are named"
        for words in _sentences(file, None, len(columns), what, "name every column in data.columns"):
            yield dict(zip(columns, map(list, zip(*words.values()))))


class conllu(Layout):
    """A word a line in the ten columns of CoNLL-U (Nivre et al. 2016) or CoNLL-X (Buchholz and Marsi 2006), which tabs
    separate: a row is a sentence with the lists `tokens`, `upos`, `xpos` (of CoNLL-X coarse and fine tags), `heads`
    (from 1; 0: the root), `relations` and `depths`, the words up to the root.
    """

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        what, fix = "columns, and CoNLL-U has 10, separated by tabs", "take data.layout=conll for other columns"
        for lines_ in _sentences(file, "\t", 10, what, fix):
            # The others are words that span several, and empty ones.
            words = {line: fields for line, fields in lines_.items() if fields[0].isdecimal()}
            if not words:
                continue
            for place, (line, fields) in enumerate(words.items(), 1):
                what = "words are numbered from 1 in their order"
                refuse(fields[0] != str(place), what, file=file, line=line, value=fields[0])
            _, tokens, _, upos, xpos, _, heads, relations, _, _ = map(list, zip(*words.values()))
            try:
                depths = [str(depth) for depth, _, _ in places(heads)]
            except ScalingError as error:
                wrong = [line for line, fields in words.items() if error.has_value and fields[6] == error.value]
                raise error.at(file=file, line=min(wrong or words)) from None
            tags = {"upos": upos, "xpos": xpos}
            yield {"tokens": tokens, **tags, "heads": heads, "relations": relations, "depths": depths}


def _sentences(file: Path, separator: str | None, width: int, what: str, fix: str) -> Iterator[dict[int, list[str]]]:
    """The fields of each word by its line's number. Empty lines separate sentences; tabs come with comments."""

    def is_word(numbered: tuple[int, str]) -> bool:
        return bool(numbered[1].strip()) and not numbered[1].startswith("-DOCSTART-")

    for is_sentence, numbered in itertools.groupby(enumerate(lines(file), 1), is_word):
        if is_sentence:
            words = {number: line.split(separator) for number, line in numbered if not (separator and line[0] == "#")}
            for number, fields in words.items():
                refuse(len(fields) != width, f"the line has {len(fields)} {what}", fix, file=file, line=number)
            yield words


class trees(Layout):
    """Bracketed trees as the Penn Treebank has them (Marcus et al. 1993): a row is a sentence with its `words`, its
    `tree` in one line as the file has it, and the `sequence` that a model learns to write (Vinyals et al. 2015); that
    of `tagged` has parts of speech in the place of words.
    """

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        for tree in bracketed.read(lines(file), file):
            learned = bracketed.plain(tree)
            if learned is not None:
                words = " ".join(leaf.word or "" for leaf in learned.words())
                sequences = {"sequence": bracketed.linear(learned), "tagged": bracketed.linear(learned, tags=True)}
                yield {"words": words, "tree": str(tree), **sequences}

    def unanswered(self, files: Sequence[Path], columns: Columns, quotes: str) -> Iterator[tuple[str, Row]]:
        """Trees, or sentences of words that spaces separate, a line each."""
        for file in files:
            first = next((line for line in map(str.strip, lines(file)) if line), "")
            yield from self.rows([file], columns, quotes) if first.startswith("(") else _texts(file, "words")


class dialogue(Layout):
    """Conversations, one a line of JSON: {"turns": [{"speaker": "ann", "text": "Hello."}, …]}. A row is a reply: its
    `history` has every turn before it behind its speaker's mark, `<ann> Hello. <bob>`, and ends with the mark of who
    replies; `reply` and `speaker` are the turn's own, `turn` is its number from 1, and `dialogue` is the whole one.
    """

    unit = "dialogue"

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        with rows.opened(file) as content:
            for number, record in json_lines.records(content, file):
                try:
                    turns = [(str(turn["speaker"]), str(turn["text"])) for turn in record["turns"]]
                except (KeyError, TypeError) as error:
                    fix = 'write {"turns": [{"speaker": "ann", "text": "Hello."}, …]}'
                    raise ScalingError(
                        f"the line is not a dialogue: {error}", file=file, line=number, fix=fix
                    ) from error
                what = f"it has {plural(len(turns), 'turn')}, so no reply"
                refuse(len(turns) < 2, what, "remove the line, or write the turn that replies", file=file, line=number)
                marked = [f"<{speaker}> {text}" for speaker, text in turns]
                for turn, (speaker, text) in enumerate(turns[1:], 2):
                    history = " ".join([*marked[: turn - 1], f"<{speaker}>"])
                    row = {"history": history, "reply": text, "speaker": speaker, "turn": turn}
                    yield {**row, "dialogue": " ".join(marked)}


class squad(Layout):
    """Paragraphs with questions and answers, as SQuAD 1.1 and 2.0 are published (Rajpurkar et al. 2016, 2018)."""

    unit = "context"

    def of_file(self, file: Path, columns: Columns, quotes: str) -> Iterator[Row]:
        with rows.opened(file) as content:
            value = json_lines.whole(content.read(), file)
        try:
            for article in value["data"]:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        answers = [] if question.get("is_impossible") else question["answers"]
                        yield {
                            "id": question.get("id"),
                            "title": article.get("title"),
                            "context": paragraph["context"],
                            "question": question["question"],
                            "answers": {key: [answer[key] for answer in answers] for key in ("text", "answer_start")},
                        }
        except (KeyError, TypeError, AttributeError) as error:
            what = f"it is not laid out as SQuAD's JSON: {error}"
            raise ScalingError(what, file=file, fix="take data.layout=table for JSON lines") from error


def _texts(file: Path, column: str) -> Iterator[tuple[str, Row]]:
    """The lines of a file as one column."""
    return ((f"{file.name}, line {number}", {column: line}) for number, line in enumerate(lines(file), 1))
