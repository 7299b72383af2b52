"""Corpora of pairs: parallel files, catalogues of translations, docstrings."""

from __future__ import annotations

import ast
import hashlib
import re
import struct
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

from scaling.data.corpus import reading
from scaling.data.corpus.document import Document, Snapshot, opened, sides
from scaling.data.corpus.python import Python
from scaling.errors import ScalingError, nearest, plural
from scaling.schema import BelowOne, Long, PositiveInt


@dataclass(frozen=True, kw_only=True)
class Parallel:
    """Two texts of equally many lines, of which line i of `target` answers line i of `source`."""

    source: str
    target: str

    @property
    def sides(self) -> tuple[str, ...]:
        return sides(self.source)

    def snapshot(self, folder: Path) -> Snapshot:
        (source,), (target,) = self._file("source"), self._file("target")

        def documents() -> Iterator[Document]:
            yield from (Document(right, left) for left, right in pairs(source, target))

        return Snapshot(
            {"files": reading.stamp([source, target])}, source.stat().st_size + target.stat().st_size, documents
        )

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp["files"], self.source, self.target)

    def _file(self, key: str) -> list[Path]:
        files = reading.find(getattr(self, key), key, (*reading.OF_FOLDERS, ""))
        if len(files) > 1:
            raise ScalingError(f"{len(files)} files", key=key, value=getattr(self, key), fix="name one file a side")
        return files


def pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files, side by side. Files of unequal length are refused before their first pair is given."""
    counts = [sum(1 for _ in lines(file)) for file in (source, target)]
    if counts[0] != counts[1]:
        (few, short), (many, long) = sorted(zip(counts, (source, target), strict=True), key=lambda side: side[0])
        what = f"it has {plural(few, 'line')}, and {long.name} has {many:,}: line {few + 1} there has no partner"
        raise ScalingError(what, file=short, line=few + 1, fix="give both files a line for each pair, in one order")
    for number, (left, right) in enumerate(zip_longest(lines(source), lines(target)), 1):
        for file, text in ((source, left), (target, right)):
            if not text.strip():
                fix = "remove this line from both files, or write the sentence"
                raise ScalingError("the line is empty, so the pair has one side", file=file, line=number, fix=fix)
        yield left, right


def lines(file: Path) -> Iterator[str]:
    """The lines of a text without what ends them, plain or compressed."""
    number = 0
    try:
        with opened(file) as content:
            for number, line in enumerate(content, 1):
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        what = f"the line is not UTF-8: byte 0x{error.object[error.start]:02x}"
        raise ScalingError(what, file=file, line=number, fix="convert the file to UTF-8") from error


FOLDERS = ("/usr/share/locale", "/usr/share/locale-langpack", "/usr/local/share/locale")
_CONTEXT = "\x04"  # between a message's context and its text
_MAGIC = 0x950412DE
_CHARSET = re.compile(rb"charset=([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Gettext:
    """Messages in English and their translations into `language`, from the `.mo` catalogues in `folder`, or in the
    places where systems put them.

    A whole catalogue is held out, where the hash of its name is below `held_out` of all hashes, without the messages
    that other catalogues have too. Runs of white space become one space; of plurals the first form counts.
    """

    language: str = "de"
    folder: str | None = None
    held_out: BelowOne = 0.1

    @property
    def sides(self) -> tuple[str, ...]:
        return ("text", "source")

    def snapshot(self, folder: Path) -> Snapshot:
        catalogues = self._catalogues()

        def documents() -> Iterator[Document]:
            trained: set[str] = set()
            last = sorted(catalogues, key=self._is_held_out)  # those held out come after all that are trained on
            for file in last:
                held_out = self._is_held_out(file)
                for source, text in _messages(file):
                    if held_out and source in trained:
                        continue
                    if not held_out:
                        trained.add(source)
                    yield Document(text, source, "validation" if held_out else "train")

        size = sum(file.stat().st_size for file in catalogues)
        return Snapshot({"files": reading.stamp(catalogues)}, size, documents)

    def changed(self, stamp: dict[str, Any]) -> Path | None:
        return reading.changed(stamp["files"])

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
    """Each message of a catalogue and its translation, without contexts and without what is empty."""
    try:
        entries = list(_entries(file.read_bytes()))
        header = dict(entries).get(b"", b"")
        found = _CHARSET.search(header)
        charset = found[1].decode() if found else "utf-8"
        pairs = [(message.decode(charset), text.decode(charset)) for message, text in entries if message]
    except (OSError, ValueError, LookupError, struct.error) as error:
        fix = "remove the file, or install its package again"
        raise ScalingError(f"it is no message catalogue: {error}", file=file, fix=fix) from error
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
