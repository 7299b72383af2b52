"""Pairs that every machine has: translations in the catalogues of its programs, and functions with their docstrings."""

from __future__ import annotations

import ast
import hashlib
import re
import struct
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import BelowOne, Long, PositiveInt
from scaling.data import rows
from scaling.data.corpus import Python
from scaling.data.documents import Document, Part, Snapshot, digest

FOLDERS = ("/usr/share/locale", "/usr/share/locale-langpack", "/usr/local/share/locale")
_CONTEXT = "\x04"  # between a message's context and its text
_MAGIC = 0x950412DE
_CHARSET = re.compile(rb"charset=([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Gettext:
    """Messages in English and their translations into `language`, from the `.mo` catalogues in `folder` or in the usual
    folders of systems.

    A whole catalogue is held out if the hash of its name is below `held_out` of all hashes, without the messages that
    other catalogues have too. Runs of white space become one space; for plurals the first form is used.
    """

    slot = "corpus"

    language: str = "de"
    folder: str | None = None
    held_out: BelowOne = 0.1

    def snapshot(self, folder: Path) -> Snapshot:
        catalogues = self._catalogues()
        return Snapshot(self, rows.stamp(catalogues), [{"files": [*map(str, catalogues)]}])

    def read(self, part: Part) -> Iterator[Document]:
        trained: set[str] = set()
        last = sorted(map(Path, part["files"]), key=self._is_held_out)  # those held out come after all others
        for file in last:
            held_out = self._is_held_out(file)
            for source, text in _messages(file):
                if held_out and source in trained:
                    continue
                if not held_out:
                    trained.add(source)
                yield Document(text, source, "validation" if held_out else "train")

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return rows.changed(stamp)

    def _catalogues(self) -> list[Path]:
        roots = [Path(self.folder).expanduser()] if self.folder is not None else _roots()
        files = [file for root in roots for file in sorted(root.glob(f"{self.language}/LC_MESSAGES/*.mo"))]
        if files:
            return files
        there = sorted({file.parents[1].name for root in roots for file in root.glob("*/LC_MESSAGES/*.mo")})
        where = ", ".join(map(str, roots))
        if not there:
            fix = "install programs with their translations, or name a folder of LANGUAGE/LC_MESSAGES/*.mo"
            raise ScalingError(f"no message catalogues in {where}", key="folder", value=self.folder, fix=fix)
        fix = nearest(self.language, there) or f"take one of {', '.join(there[:12])}"
        raise ScalingError(f"no catalogue in {where} is of this language", key="language", value=self.language, fix=fix)

    def _is_held_out(self, file: Path) -> bool:
        hashed = int.from_bytes(hashlib.blake2b(file.name.encode(), digest_size=8).digest(), "big")
        return hashed < self.held_out * 2**64


def _roots() -> list[Path]:
    places = [Path(name) for name in (*FOLDERS, f"{sys.prefix}/share/locale")]
    return list(dict.fromkeys(place.resolve() for place in places if place.is_dir())) or places[:1]


def _messages(file: Path) -> Iterator[tuple[str, str]]:
    """Each message of a catalogue and its translation, without contexts and empty texts."""
    try:
        entries = list(_entries(file.read_bytes()))
        header = dict(entries).get(b"", b"")
        found = _CHARSET.search(header)
        charset = found[1].decode() if found else "utf-8"
        pairs = [(message.decode(charset), text.decode(charset)) for message, text in entries if message]
    except (OSError, ValueError, LookupError, struct.error) as error:
        fix = "remove the file, or install its package again"
        raise ScalingError(f"it is not a message catalogue: {error}", file=file, fix=fix) from error
    for message, translation in pairs:
        singular, first = message.partition("\0")[0], translation.partition("\0")[0]
        source, text = " ".join(singular.rpartition(_CONTEXT)[2].split()), " ".join(first.split())
        if source and text:
            yield source, text


def _entries(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The texts of a `.mo` file as they are: two tables of lengths and places, in either order of bytes. (The manual of
    GNU gettext, section 10.3)
    """
    order = next((order for order in "<>" if struct.unpack_from(f"{order}I", content)[0] == _MAGIC), None)
    if order is None:
        raise ValueError("its first bytes are not those of one")
    count, messages, translations = struct.unpack_from(f"{order}3I", content, 8)
    for number in range(count):
        texts = []
        for table in (messages, translations):
            length, place = struct.unpack_from(f"{order}2I", content, table + 8 * number)
            texts.append(content[place : place + length])
        yield texts[0], texts[1]


@dataclass(frozen=True, kw_only=True)
class Docstrings:
    """Pairs of a function's source without its docstring, and the docstring's first paragraph. (Barone &
    Sennrich 2017)

    The sources are those of `Python`, with its `reach` and `limit`. Functions of less than `shortest` or more than
    `longest` characters are left out. Whole files are held out if the hash of their text is below `held_out` of all
    hashes, without the functions that other files have too.
    """

    slot = "corpus"

    reach: Literal["installed", "standard"] = "installed"
    limit: Long | None = None
    shortest: PositiveInt = 64
    longest: PositiveInt = 2000
    held_out: BelowOne = 0.05

    def snapshot(self, folder: Path) -> Snapshot:
        sources = self._sources().snapshot(folder)
        return Snapshot(self, sources.stamp, [{"sources": sources.parts}])

    def _sources(self) -> Python:
        return Python(reach=self.reach, limit=self.limit)

    def read(self, part: Part) -> Iterator[Document]:
        trained: set[int] = set()
        held_out: list[tuple[str, str]] = []  # they come after all that are trained on
        for source in (source for each in part["sources"] for source in self._sources().read(each)):
            hashed = int.from_bytes(hashlib.blake2b(source.text.encode(), digest_size=8).digest(), "big")
            for code, summary in functions(source.text):
                if not self.shortest <= len(code) <= self.longest:
                    continue
                if hashed < self.held_out * 2**64:
                    held_out.append((code, summary))
                else:
                    trained.add(digest([code]))
                    yield Document(summary, code, "train")
        for code, summary in held_out:
            if digest([code]) not in trained:
                yield Document(summary, code, "validation")

    def changed(self, stamp: dict[str, Any]) -> None:
        """Nothing: there is a snapshot, so packages may change."""


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
