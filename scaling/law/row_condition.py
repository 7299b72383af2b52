"""Conditions on rows: `C<1e21`, `N>=100M`, `D/N>20`, `corpus=c4`, `status!=failed`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.expression import evaluate, names, parse
from scaling.law.parse_number import numeric, parse_column, parse_number

SAME = 1e-9
"""Numbers that differ by less than this fraction are equal: 6*N*D and a C that was printed."""

_SIGN = re.compile(r">=|<=|!=|==|=|<|>")
_ORDER = {">=": np.greater_equal, "<=": np.less_equal, ">": np.greater, "<": np.less}


@dataclass(frozen=True)
class Condition:
    """left (sign) right, each a formula of columns; or a column of words and the word it equals or does not."""

    left: str
    sign: str
    right: str

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"

    def mask(self, columns: Mapping[str, np.ndarray], option: str, source: str = "") -> np.ndarray:
        """Which rows meet it."""
        if self.left in columns and not _is_numeric(self.left, columns[self.left]):
            return self._mask_of_words(columns[self.left], option, source)
        with np.errstate(all="ignore"):
            left = self._side(self.left, columns, option, source)
            right = self._side(self.right, columns, option, source)
            if self.sign in _ORDER:
                mask = _ORDER[self.sign](left, right)
            else:
                equal = np.isclose(left, right, rtol=SAME, atol=0.0)
                mask = equal if self.sign == "=" else ~equal & ~np.isnan(left) & ~np.isnan(right)
        rows = len(next(iter(columns.values()), ()))
        return np.broadcast_to(mask, (rows,)).copy()

    def _mask_of_words(self, words: np.ndarray, option: str, source: str) -> np.ndarray:
        if self.sign in _ORDER:
            raise ScalingError(
                f"compares {self.left}, a column of words",
                file=source or None,
                key=option,
                value=str(self),
                fix="use = or !=",
            )
        same = np.array([str(word) == self.right for word in words], bool)
        return same if self.sign == "=" else ~same

    def _side(self, text: str, columns: Mapping[str, np.ndarray], option: str, source: str) -> np.ndarray:
        if text in columns:
            return numeric(text, columns[text], source)
        plain = parse_number(text)
        if plain is not None:
            return np.array(plain)
        try:
            expression = parse(text, option, suffixes=True)
        except ScalingError as error:
            raise ScalingError(error.what, key=option, value=str(self), fix=error.fix) from None
        for name in names(expression):
            if name not in columns:
                what = f"there is no column {name!r}"
                if text == self.right == name:
                    what = f"{name!r} is no bound: neither a number nor a column"
                raise ScalingError(what, file=source or None, key=option, value=str(self), fix=nearest(name, columns))
        values = {name: numeric(name, columns[name], source) for name in names(expression)}
        return np.asarray(evaluate(expression, values), float)


def is_condition(text: str) -> bool:
    """A column's name alone is none."""
    return _SIGN.search(text) is not None


def condition(text: str, option: str) -> Condition:
    """The condition that `text` writes."""
    sign = _SIGN.search(text)
    if sign is None or not text[: sign.start()].strip() or not text[sign.end() :].strip():
        raise ScalingError(
            "is no condition",
            key=option,
            value=text,
            fix="write a column, =, !=, <, <=, > or >=, and a value: 'N>=1e8'",
        )
    left, right = text[: sign.start()].strip(), text[sign.end() :].strip()
    if _SIGN.search(right):
        raise ScalingError("has two comparisons", key=option, value=text, fix="write them apart: 'N>=1e8' 'N<1e9'")
    return Condition(left.strip("`"), "=" if sign[0] == "==" else sign[0], right.strip("'\"") or right)


def _is_numeric(name: str, values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.number) or parse_column(name, values.tolist()) is not None
