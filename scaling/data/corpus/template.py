"""From a row of a table to a document: `{question}` stands for a field, `{answers.text.0}` for one further in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from scaling.data.corpus.document import Document
from scaling.errors import ScalingError, nearest

_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")
_FORM = re.compile(r",?(\.[0-9]{1,2})?[deEfFgGnosxX%]?")  # without a width, which a row's memory would have to hold
_NESTED = re.compile(r"\{[^{}:\s\"']+:[^{}\s]*\{")
_CONVERSION = re.compile(r"![rsa]$")


def fill(template: str, row: Mapping[str, Any], key: str) -> str | None:
    """`template` with the row's fields in their places; None where a field of it is empty in this row."""
    _check(template, key)
    parts: list[str] = []
    end = 0
    for match in _FIELD.finditer(template):
        value = _field(match[1], row, key)
        if value is None:
            return None
        parts += [template[end : match.start()], _shown(value, match[2] or "", key)]
        end = match.end()
    return "".join([*parts, template[end:]])


@cache
def _check(template: str, key: str) -> None:
    """Refuse what Python's templates have and these do not."""
    fix = "write {field}, {field.within}, or a number as {field:.1f}"
    if nested := _NESTED.search(template):
        raise ScalingError(f"a field is within the form of another: {nested[0]}", key=key, value=template, fix=fix)
    for field in _FIELD.finditer(template):
        if _CONVERSION.search(field[1]):
            raise ScalingError(f"{field[0]} has a conversion", key=key, value=template, fix=fix)
        if not _FORM.fullmatch(field[2] or ""):
            raise ScalingError(f"{field[0]} has a form that is none of a number", key=key, value=template, fix=fix)


def document(row: Mapping[str, Any], text: str, source: str | None, split: str | None) -> Document | None:
    """The document that templates make of a row; None where a field of theirs is empty in it."""
    filled = fill(text, row, "text")
    question = None if source is None else fill(source, row, "source")
    return None if filled is None or (source is not None and question is None) else Document(filled, question, split)


def _field(path: str, row: Mapping[str, Any], key: str) -> Any:
    value: Any = row
    for name in path.split("."):
        if isinstance(value, Mapping):
            if name not in value:
                raise ScalingError(f"the data have no field {path!r}", key=key, fix=nearest(name, map(str, value)))
            value = value[name]
        elif isinstance(value, Sequence) and not isinstance(value, str) and name.isdecimal():
            value = value[int(name)] if int(name) < len(value) else None
        elif value is not None:
            raise ScalingError(f"{path!r} leads into {type(value).__name__}, which has no parts", key=key)
    return value


def _shown(value: Any, form: str, key: str) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    try:
        return format(value, form)
    except (TypeError, ValueError, OverflowError) as error:
        raise ScalingError(f"{str(value)[:80]!r} cannot be written as {form!r}", key=key) from error
