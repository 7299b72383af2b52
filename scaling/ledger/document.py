"""Documents: JSON on disk that carries its own checksum, so that a torn or flipped one is never taken for a whole one.

The checksum is the last key and covers every byte before it: a file stays plain JSON for other tools, and is checked
without being written out again. JSON has no NaN, so non-finite numbers are kept as the strings "NaN", "Infinity" and
"-Infinity" and come back as numbers.
"""

from __future__ import annotations

import hashlib
import json
import math
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

SPELLED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LINE = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_PAGE = json.JSONEncoder(allow_nan=False, indent=1)
_SEAL = ',\n "sha256": "%s"\n}\n'
_SEAL_LENGTH = len(_SEAL % ("0" * 64))
_STAMP = b',"crc":"%08x"}'
_STAMP_LENGTH = len(_STAMP % 0)


class Damaged(ValueError):
    """A document whose checksum does not match what it holds."""


def text(value: Any) -> str:
    """One line of strict JSON."""
    return _encoded(value, _LINE)


def seal(document: Mapping[str, Any]) -> bytes:
    """The bytes of a document, which is not empty, for people to read, with a SHA-256 as its last key."""
    body = _encoded(dict(document), _PAGE).removesuffix("\n}")
    return (body + _SEAL % hashlib.sha256(body.encode()).hexdigest()).encode()


def unseal(content: bytes) -> dict[str, Any]:
    """The document within sealed bytes; `Damaged` where the checksum differs."""
    body, tail = content[:-_SEAL_LENGTH], content[-_SEAL_LENGTH:]
    if tail != (_SEAL % hashlib.sha256(body).hexdigest()).encode():
        raise Damaged("the checksum does not match")
    document = parse(body + b"}")
    if not isinstance(document, dict):
        raise Damaged("not a JSON object")
    return document


def read(path: Path, wrong: Callable[[dict[str, Any]], str | None] = lambda _: None) -> dict[str, Any] | None:
    """The sealed document at `path`, None where there is no such file; `Damaged` where it is not whole, or `wrong`
    states which key of it is of another form.
    """
    try:
        content = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        document = unseal(content)
        if (key := wrong(document)) is not None:
            raise Damaged(f"{key} is of another form")
        return document
    except Damaged as damage:
        raise Damaged(f"{path}: {damage}") from None


def stamp(entry: Mapping[str, Any]) -> bytes:
    """One line of a log, with a CRC-32 as its last key; cheap enough for every step."""
    body = text(entry)[:-1].encode()
    return body + _STAMP % zlib.crc32(body) + b"\n"


def unstamp(line: bytes) -> dict[str, Any] | None:
    """The entry of one stamped line, None where the line is torn or flipped."""
    body, tail = line[:-_STAMP_LENGTH], line[-_STAMP_LENGTH:]
    if tail != _STAMP % zlib.crc32(body):
        return None
    try:
        return parse(body + b"}")
    except Damaged:
        return None


def parse(content: bytes | str) -> Any:
    """Strict JSON to plain Python; whatever is wrong with it, deep nesting and endless digits too, is `Damaged`."""
    try:
        string = content.decode() if isinstance(content, bytes) else content
        value = json.loads(string)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"not JSON: {error}") from None
    return _numbers(value) if '"NaN"' in string or 'Infinity"' in string else value


def _encoded(value: Any, style: json.JSONEncoder) -> str:
    try:
        return style.encode(value)
    except ValueError:
        return style.encode(spelled(value))


def spelled(value: Any) -> Any:
    """The value with numbers that are not finite as strings, as JSON holds them."""
    if isinstance(value, Mapping):
        return {key: spelled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [spelled(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    return SPELLED.get(value, value) if isinstance(value, str) else value
