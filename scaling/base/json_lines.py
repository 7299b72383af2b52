"""JSON lines: a record a line, with the file and the line of each mistake; JSON in whole files; nested values."""

from __future__ import annotations

import codecs
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from scaling.base.errors import ScalingError

DEEPEST = 100  # lists and records within one another: what walks through a value calls itself for each
_BLOCK = 10 << 20  # bytes of lines
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def records(
    lines: Iterable[bytes], file: Path, first: int = 1, *, nan: bool = False
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the record of each line that is not blank, numbered from `first`; `nan` allows NaN and Infinity,
    which are not JSON.
    """
    for number, line in enumerate(lines, first):
        text = decoded(line, file, number)
        if text.strip():
            yield number, record(parse(text, file, number, nan=nan), file, number)


def blocks(content: IO[bytes], file: Path) -> Iterator[list[dict[str, Any]]]:
    """The records of lines, some megabytes at a time. A field that some records so far have is None in others."""
    first, before = 1, []
    while lines := content.readlines(_BLOCK):
        block = completed([*before, *(each for _, each in records(lines, file, first))])
        yield block[len(before) :]
        first, before = first + len(lines), block[:1]


def whole(content: bytes, file: Path) -> Any:
    """The value that a whole file has."""
    return parse(decoded(content, file), file)


def decoded(content: bytes, file: Path, line: int | None = None) -> str:
    """The text of a line, or of a file, in UTF-8; the mark at the beginning of a file is not part of it."""
    if line in (None, 1) and content.startswith(_UTF16):
        raise ScalingError("is UTF-16", file=file, line=line, fix="convert the file to UTF-8")
    try:
        return content.decode("utf-8-sig" if line in (None, 1) else "utf-8")
    except UnicodeDecodeError as error:
        place = "" if line is None else " of the line"
        what = f"byte {error.start}{place} is 0x{error.object[error.start]:02x}, which is not UTF-8"
        raise ScalingError(what, file=file, line=line, fix="convert the file to UTF-8") from None


def parse(text: str, file: Path, line: int | None = None, *, nan: bool = False) -> Any:
    """The value of a text of JSON, which is a line of the file or, without `line`, the whole of it."""

    def constant(name: str) -> float:
        if not nan:
            raise ValueError(f"{name} is none of its values; write null")
        return float(name)

    fix, place = "correct the line", line
    try:
        value = json.loads(text, parse_constant=constant)
        if max(text.count("["), text.count("{")) > DEEPEST // 2 and _is_deep(value):
            raise RecursionError
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        what, place = f"is not JSON ({error.msg})", line or error.lineno
    except RecursionError:
        what, fix = f"is nested more than {DEEPEST} deep", "write it flatter"
    except UnicodeEncodeError:
        what, fix = "holds half a surrogate pair", "write the character, or both halves"
    except ValueError as error:  # a number of too many digits, or NaN
        what = f"is not JSON ({'a number has too many digits' if 'digits' in str(error) else error})"
    raise ScalingError(what, file=file, line=place, fix=fix)


def record(value: Any, file: Path, line: int | None, name: str = "") -> dict[str, Any]:
    """A value that has to be an object."""
    if not isinstance(value, dict):
        fix = 'write a record a line, as {"text": "…"}'
        raise ScalingError(f"{name}is not a record, an object with named fields", file=file, line=line, fix=fix)
    return value


def _is_deep(value: Any) -> bool:
    """Whether lists and records are more than `DEEPEST` within one another."""
    level = [value]
    for _ in range(DEEPEST + 1):
        level = [inner for each in level for inner in _within(each)]
    return bool(level)


def _within(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def completed(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The records with all fields that one of them has, those within fields too."""
    for name in dict.fromkeys(name for record in records for name in record):
        values = [record.setdefault(name, None) for record in records]
        listed = (value if isinstance(value, list) else [value] for value in values)
        completed([each for several in listed for each in several if isinstance(each, dict)])
    return records


# Nested values


def mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    """Nested mappings and lists with their leaves changed."""
    if isinstance(value, Mapping):
        return {key: mapped(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mapped(item, change) for item in value]
    return change(value)


def flat(
    tree: Mapping[str, Any], is_leaf: Callable[[Mapping[str, Any]], object] = operator.not_, above: str = ""
) -> dict[str, Any]:
    """Nested mappings as one, keyed by the dotted path; a mapping that is a leaf, by default an empty one, is kept."""
    leaves: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and not is_leaf(value):
            leaves |= flat(value, is_leaf, f"{above}{key}.")
        else:
            leaves[f"{above}{key}"] = value
    return leaves


def put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    """Set the value under a dotted key of nested mappings."""
    *above, last = dotted.split(".")
    for key in above:
        tree = tree.setdefault(key, {})
    tree[last] = value
