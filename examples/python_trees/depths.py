"""Probe the layers of a run for the depth of each word in the syntax tree of Python sources (by Python's parser).

python examples/python_trees/depths.py RUN        for a run on data=python; depths from 1 to 8 and more
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import scaling
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.store import root
from scaling.inside.probe import Labelled, Reading, baselines, probe, some
from scaling.interop.pretrained import pretrained
from scaling.training.finetune import corpus

DEEPEST = 8  # the last depth covers all further ones

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")  # as the parser counts: a form feed ends no line
_PLACED = ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias
_WORDS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)


@dataclass(frozen=True)
class Word:
    """A word of a source: its characters, and the depth below the module of the deepest node that covers it."""

    start: int
    stop: int
    depth: int


@dataclass(frozen=True)
class Statement:
    """One statement of a module's top level with its words in order."""

    text: str
    words: tuple[Word, ...]


def statements(source: str) -> Iterator[Statement]:
    """The top-level statements of a source; empty if this Python cannot parse it."""
    module = _parsed(source)
    if module is None:
        return
    lines = _LINE.findall(source)
    for node in module.body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        text = "".join(lines[first - 1 : node.end_lineno])
        words = _words(text, node, first)
        if words:
            yield Statement(text, words)


def _parsed(source: str) -> ast.Module | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in other people's sources
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


class _Text:
    """The characters of nodes in the lines of a source; the first line has this number."""

    def __init__(self, source: str, first: int):
        self.lines, self.first = _LINE.findall(source), first
        self.offsets = [0]
        for line in self.lines:
            self.offsets.append(self.offsets[-1] + len(line))

    def span(self, node: Any) -> tuple[int, int]:
        return self._place(node.lineno, node.col_offset), self._place(node.end_lineno, node.end_col_offset)

    def _place(self, line: int, column: int) -> int:
        """The character of a place whose column is in bytes, as in `ast`."""
        own = self.lines[line - self.first]
        characters = column if own.isascii() else len(own.encode()[:column].decode(errors="ignore"))
        return self.offsets[line - self.first] + characters


def _words(text: str, node: ast.stmt, first: int) -> tuple[Word, ...]:
    characters = _Text(text, first)
    offsets, depths = characters.offsets, [0] * len(text)

    def descend(node: ast.AST, depth: int) -> None:
        if isinstance(node, _PLACED):
            start, stop = characters.span(node)
            depths[start:stop] = [depth] * (stop - start)
            depth += 1
        for child in ast.iter_child_nodes(node):
            descend(child, depth)

    try:
        descend(node, 1)
        found = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError, IndexError, RecursionError):
        return ()
    words = []
    for token in found:
        if token.type in _WORDS:
            start = offsets[token.start[0] - 1] + token.start[1]
            stop = offsets[token.end[0] - 1] + token.end[1]
            words.append(Word(start, stop, max(1, depths[start])))
    return tuple(words)


def labelled(documents: Iterable[tuple[int, Any]], codec: Codec, reading: Reading) -> Iterator[Labelled]:
    """The depth of each word of a top-level statement, from 1 up to `DEEPEST`."""
    ends = set(codec.specials.values())
    for _, tokens in documents:
        text = codec.decode([token for token in tokens if int(token) not in ends])
        for statement in statements(text):
            encoding = codec.tokenizer.encode(statement.text, add_special_tokens=False)
            starts, stops = np.array(encoding.offsets, np.int64).reshape(-1, 2).T
            if reading.family == "decoder":  # the token with the word's last character
                places = np.searchsorted(stops, [word.stop for word in statement.words], side="left")
            else:
                places = np.searchsorted(starts, [word.start for word in statement.words], side="right") - 1
            depths = np.minimum([word.depth for word in statement.words], DEEPEST).astype(np.int64)
            words = [statement.text[word.start : word.stop] for word in statement.words]
            yield reading.labelled(encoding.ids, places, depths - 1, words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="the beginning of a run's id")
    parser.add_argument("--tokens", type=int, default=20_000, help="labelled words of each split (20,000)")
    parser.add_argument("--runs", default="runs", help="the ledger (runs)")
    options = parser.parse_args()
    source = pretrained(options.run, options.runs)
    model, data = scaling.load(source.folder), build("data", corpus(source, None, runs=options.runs))
    codec, reading = model.tokenizer, Reading(model.family, model.ids, source.length)
    assert codec is not None
    train, test = (
        some(labelled(data.open(split, root(options.runs)).documents(), codec, reading), options.tokens)
        for split in ("train", "validation")
    )
    print(baselines(train, test))
    for score in probe(model.module, train, test, DEEPEST, pad=model.ids.get("pad", 0)):
        print(score)


if __name__ == "__main__":
    main()
