"""Numbers as people write them: 1e9, 10M, 1.5B, 1,000, 1_000. A decimal comma is refused, never guessed at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaling.errors import ScalingError

SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
"""Thousands, millions, billions (giga) and trillions, in either case."""

FRACTIONAL = frozenset({"loss", "lr", "M", "error", "accuracy"})
"""Columns in which 3,125 may mean 3.125: more than one group of three digits, or a point, has to decide."""

_SUFFIX = re.compile(r"(?P<number>.*[0-9.])\s?(?P<suffix>[kKmMbBgGtT])")
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u00a0\u202f][0-9]{3})+)(?:\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(
    r"[-+]?[0-9]{1,3}(?:\.[0-9]{3})*,[0-9]+|[-+]?[0-9]+,[0-9]+|[-+]?[0-9]{1,3}(?:\.[0-9]{3}){2,}"
)
_SEPARATORS = re.compile("[, \u00a0\u202f]")


def parse_number(value: Any) -> float | None:
    """The number that a cell or a word writes, or None. `1,000` is a thousand."""
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        pass
    except OverflowError:  # a whole number beyond the largest float
        return float("inf") if value > 0 else float("-inf")
    if not isinstance(value, str):
        return None
    text = value.strip()
    suffixed = _SUFFIX.fullmatch(text)
    if suffixed is not None:
        plain = parse_number(suffixed["number"])
        return None if plain is None else _scaled(plain, SUFFIXES[suffixed["suffix"].lower()])
    return float(_SEPARATORS.sub("", text)) if _GROUPED.fullmatch(text) else None


def _scaled(plain: float, size: float) -> float:
    """1.1B is 1,100,000,000 exactly: a whole number stays one."""
    value = plain * size
    return float(round(value)) if abs(value) < 2**53 and abs(value - round(value)) < 1e-6 else value


def parse_column(name: str, values: Sequence[Any], source: str = "") -> np.ndarray | None:
    """The numbers of a column, an empty cell as nan; None where a cell is a word. Refuses a decimal comma."""
    try:
        return np.array(values, dtype=float)  # plain numbers, at once
    except (TypeError, ValueError, OverflowError):
        pass
    cells = [None if is_empty(value) else value for value in values]
    numbers = [np.nan if cell is None else parse_number(cell) for cell in cells]
    if all(value is not None for value in numbers):
        texts = [cell.strip() for cell in cells if isinstance(cell, str)]
        commas = [text for text in texts if "," in text]
        decided = any(text.count(",") > 1 or "." in text for text in texts)
        if commas and name in FRACTIONAL and not decided:
            raise _ambiguous(name, commas[0], source)
        return np.array(numbers, dtype=float)
    words = [cell for cell, value in zip(cells, numbers, strict=True) if value is None]
    european = next((word for word in words if isinstance(word, str) and _DECIMAL_COMMA.fullmatch(word.strip())), None)
    # One such cell among words is a word; a column of them is a column of numbers.
    if european is not None and all(isinstance(word, str) and _is_european(word) for word in words):
        raise _ambiguous(name, european, source)
    return None


def _is_european(word: str) -> bool:
    return _DECIMAL_COMMA.fullmatch(word.strip()) is not None


def _ambiguous(name: str, cell: str, source: str) -> ScalingError:
    bare = cell.strip()
    integer, _, fraction = bare.rpartition(",") if "," in bare else (bare, "", "")
    plain = integer.replace(".", "").replace(",", "") + (f".{fraction}" if fraction else "")
    return ScalingError(
        "may have a decimal comma",
        file=source or None,
        key=name,
        value=cell,
        fix=f"write numbers with a decimal point and no separators, such as {plain}",
    )


def numeric(name: str, values: np.ndarray, source: str = "") -> np.ndarray:
    """A column of numbers, or of words that all are; a word that is none is refused."""
    if np.issubdtype(values.dtype, np.number):
        return values.astype(float)
    numbers = parse_column(name, values.tolist(), source)
    if numbers is None:
        word = next(str(word) for word in values if not is_empty(word) and parse_number(word) is None)
        raise ScalingError(
            "is not a number", file=source or None, key=name, value=word, fix="correct the cell or map another"
        )
    return numbers


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def parse_argument(text: str, option: str, name: str) -> float:
    """The finite number that a word of the command line writes."""
    value = parse_number(text)
    if value is None or not np.isfinite(value):
        what = "is not a number" if value is None else "is not a finite number"
        raise ScalingError(what, key=name, value=text, fix=f"write --{option} {name}=1e9")
    return value
