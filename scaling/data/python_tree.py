"""Syntax trees of Python sources, by the interpreter's own parser: statements, and the depth of their words."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_WORDS = (tokenize.NAME, tokenize.NUMBER, tokenize.STRING, tokenize.OP)


@dataclass(frozen=True)
class Word:
    """A word of a source: its characters, and how many nodes the deepest one that covers it is below the module."""

    start: int
    stop: int
    depth: int


@dataclass(frozen=True)
class Statement:
    """One statement of a module's top level with its words in their order."""

    text: str
    words: tuple[Word, ...]


def statements(source: str) -> Iterator[Statement]:
    """The top-level statements of a source; none of one that this interpreter cannot parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in other people's sources
        try:
            module = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
    lines = source.splitlines(keepends=True)
    for node in module.body:
        first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
        text = "".join(lines[first - 1 : node.end_lineno])
        words = _words(text, node, first)
        if words:
            yield Statement(text, words)


def _words(text: str, node: ast.stmt, first: int) -> tuple[Word, ...]:
    lines = text.splitlines(keepends=True)
    offsets = [0]
    for line in lines:
        offsets.append(offsets[-1] + len(line))

    def place(line: int, column: int) -> int:
        """The character of a place whose column is in bytes, as in `ast`."""
        own = lines[line - first]
        characters = column if own.isascii() else len(own.encode()[:column].decode(errors="ignore"))
        return offsets[line - first] + characters

    depths = [0] * len(text)

    def descend(node: ast.AST, depth: int) -> None:
        if isinstance(node, ast.expr | ast.stmt | ast.excepthandler | ast.arg | ast.keyword | ast.alias):
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start, stop = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
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
