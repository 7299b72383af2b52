"""Functions of this machine's Python sources and the sentences that sum them up: summaries that everyone has."""

from __future__ import annotations

import ast
import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from scaling.data.corpus.document import Document, Snapshot
from scaling.data.corpus.python import Python
from scaling.schema import BelowOne, Long, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Docstrings:
    """The first paragraph of a function's docstring, which answers its source without the docstring. (Barone &
    Sennrich 2017)

    The sources are those of `Python`, with its `reach` and `limit`. Functions of less than `shortest` or more than
    `longest` characters are left out. Whole files are held out, where the hash of their text is below `held_out` of all
    hashes, without the functions that other files have too.
    """

    split_rule: ClassVar[int] = 2  # 1: functions of files that are trained on could be held out too

    reach: Literal["installed", "standard"] = "installed"
    limit: Long | None = None
    shortest: PositiveInt = 64
    longest: PositiveInt = 2000
    held_out: BelowOne = 0.05

    @property
    def sides(self) -> tuple[str, ...]:
        return ("text", "source")

    def snapshot(self, folder: Path) -> Snapshot:
        sources = Python(reach=self.reach, limit=self.limit).snapshot(folder)

        def documents() -> Iterator[Document]:
            trained: set[int] = set()
            held_out: list[tuple[str, str]] = []  # they come after all that are trained on
            for source in sources.documents():
                hashed = int.from_bytes(hashlib.blake2b(source.text.encode(), digest_size=8).digest(), "big")
                for code, summary in functions(source.text):
                    if not self.shortest <= len(code) <= self.longest:
                        continue
                    if hashed < self.held_out * 2**64:
                        held_out.append((code, summary))
                    else:
                        trained.add(Document(code).digest())
                        yield Document(summary, code, "train")
            for code, summary in held_out:
                if Document(code).digest() not in trained:
                    yield Document(summary, code, "validation")

        return Snapshot(sources.stamp, sources.bytes, documents)

    def changed(self, stamp: dict[str, Any]) -> None:
        """Nothing: the snapshot was taken so that packages may change."""


def functions(text: str) -> Iterator[tuple[str, str]]:
    """The source of each function without its docstring, and the docstring's first paragraph in one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):  # of another version of Python
        return
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if not docstring or len(node.body) < 2:
            continue
        summary = " ".join(docstring.strip().partition("\n\n")[0].split())
        node.body = node.body[1:]
        try:
            code = ast.unparse(node)
            f"{code}{summary}".encode()
        except (RecursionError, UnicodeEncodeError):
            continue
        if summary:
            yield code, summary
