"""Numbers, formulas and conditions as people write them: `10M`, `params - embedding`, `D/N>20`.

One grammar serves laws, computed columns and conditions. It is Python's: + - * / and ** (or ^), brackets, numbers,
names and the functions of `FUNCTIONS`. Python's parser reads a formula; what is not in the grammar is refused, and
nothing is run as code. A name is a letter and then letters, digits, `_` and `.`; any other column is in backticks:
`train/loss`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.laws.dual import sigmoid

LONGEST = 2000  # characters
DEEPEST = 60  # operations within one another

SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
"""Thousands, millions, billions (giga) and trillions, in either case."""

FRACTIONAL = frozenset({"loss", "lr", "M", "error", "accuracy"})
"""Columns in which 3,125 may mean 3.125."""

_SUFFIX = re.compile(r"(?P<number>.*[0-9.])\s?(?P<suffix>[kKmMbBgGtT])")
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u00a0\u202f][0-9]{3})+)(?:\.[0-9]+)?")
_SEPARATORS = re.compile("[, \u00a0\u202f]")


def parse_number(value: Any) -> float | None:
    """The number that a cell or a word writes, or None: 1e9, 10M, 1.5B, 1,000, 1_000."""
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
    if suffixed := _SUFFIX.fullmatch(text):
        plain = parse_number(suffixed["number"])
        if plain is None:
            return None
        number = plain * SUFFIXES[suffixed["suffix"].lower()]
        is_whole = abs(number) < 2**53 and abs(number - round(number)) < 1e-6
        return float(round(number)) if is_whole else number  # 1.1B is 1,100,000,000 exactly
    return float(_SEPARATORS.sub("", text)) if _GROUPED.fullmatch(text) else None


def is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def word_in(name: str, values: Iterable[Any]) -> int | None:
    """The place of the first value that is no number of this column, None where all are; an empty cell is missing."""
    for index, value in enumerate(values):
        comma = name in FRACTIONAL and isinstance(value, str) and "," in value
        if not is_empty(value) and (comma or parse_number(value) is None):
            return index
    return None


def numeric(name: str, values: np.ndarray, source: str = "") -> np.ndarray:
    """A column of numbers, or of words that all are numbers; an empty cell is nan, another word is refused."""
    if np.issubdtype(values.dtype, np.number):
        return values.astype(float)
    row = word_in(name, values)
    if row is not None:
        raise not_a_number(name, values[row], file=source or None, row=row + 1)
    return np.array([np.nan if is_empty(value) else parse_number(value) for value in values], float)


def not_a_number(name: str, value: Any, row: int | None = None, **place: Any) -> ScalingError:
    what = "is not a number" + (f", in row {row}" if row else "")
    comma = isinstance(value, str) and "," in value
    fix = "write a decimal point and no separators, such as 1000.5" if comma else "correct the cell or map another"
    return ScalingError(what, key=name, value=value, fix=fix, **place)


def is_numeric(name: str, values: np.ndarray) -> bool:
    return np.issubdtype(values.dtype, np.number) or word_in(name, values) is None


Expression: TypeAlias = ast.expr
"""A tree of ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp and ast.Call."""

Value: TypeAlias = Any  # a float, an array or a Dual

FUNCTIONS: Mapping[str, tuple[int, Callable[..., Value]]] = {
    "exp": (1, np.exp),
    "log": (1, np.log),
    "ln": (1, np.log),
    "log2": (1, np.log2),
    "log10": (1, np.log10),
    "sqrt": (1, np.sqrt),
    "abs": (1, np.abs),
    "sigmoid": (1, sigmoid),
    "tanh": (1, np.tanh),
    "pow": (2, np.power),
    "min": (2, np.minimum),
    "max": (2, np.maximum),
}
"""Every function by name, with the number of its arguments (`min` and `max` take two or more)."""

OPERATORS: Mapping[type, Callable[..., Value]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\w*)"
    r"|(?P<name>[^\W\d][\w.]*)"
    r"|`(?P<quoted>[^`]+)`"
    r"|(?P<sign>\*\*|[-+*/^(),−·×÷])"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_SIGNS = {"^": "**", "−": "-", "·": "*", "×": "*", "÷": "/"}


def parse(text: str, key: str = "formula", suffixes: bool = False) -> Expression:
    """The formula that `text` writes. With `suffixes`, 10M and 1.5B are numbers, as in a condition."""

    def refuse(what: str, fix: str) -> ScalingError:
        return ScalingError(what, key=key, value=text, fix=fix)

    if len(text) > LONGEST:
        raise refuse(f"is a formula of {len(text)} characters", f"{LONGEST} are the most")
    words: list[str] = []  # each name of the formula; Python reads the name v3 in the place of words[3]
    source: list[str] = []
    previous, spaced = "", False
    for match in _TOKEN.finditer(text):
        kind, token = str(match.lastgroup), str(match[str(match.lastgroup)])
        if kind == "space":
            spaced = True
            continue
        if kind == "other":
            fix = "write one formula of numbers, names, + - * / ^ and functions"
            fix = "a comparison belongs to --where" if token in "<>=!&|" else fix
            raise refuse(f"has {token!r}, which no formula has", fix)
        calls = token == "(" and previous == "name" and not spaced
        if (kind != "sign" or token == "(") and not calls and previous in ("number", "name", ")"):
            raise refuse(f"has no sign before {token!r}", "write * or / there")
        if kind == "number":
            source.append(_constant(token, suffixes, refuse))
        elif kind in ("name", "quoted"):
            source.append(f"v{len(words)}")
            words.append(token)
            kind = "name"
        else:
            source.append(_SIGNS.get(token, token))
        previous, spaced = ")" if token == ")" else kind, False
    try:
        expression = ast.parse(" ".join(source), mode="eval").body
    except (SyntaxError, RecursionError, MemoryError):
        if not source or source[-1] in ("+", "-", "*", "/", "**", "(", ","):
            raise refuse("breaks off", "write what follows the last sign") from None
        matched = source.count("(") == source.count(")")
        what = "is no formula" if matched else "has a bracket that is not closed, or not opened"
        raise refuse(what, "balance the brackets and signs") from None
    for node in ast.walk(expression):
        if isinstance(node, ast.Name):
            node.id = words[int(node.id[1:])]
    _check(expression, 1, refuse)
    return expression


def _constant(token: str, suffixes: bool, refuse: Callable[[str, str], ScalingError]) -> str:
    """A number as Python writes it; letters at its end are refused, or are those of its thousands."""
    plain = token.rstrip("kKmMbBgGtT") if suffixes else token
    try:
        float(plain)
    except ValueError:
        digits = re.match(r"[0-9_.]+(?:[eE][-+]?[0-9]+)?", token)
        number = digits[0] if digits else token
        raise refuse(f"has {token!r}", f"write {number}*{token.removeprefix(number)}") from None
    value = parse_number(token)
    if value is None or not np.isfinite(value):
        raise refuse(f"has {token!r}, which is no number", "write it as 1e9")
    return repr(value)


def _check(expression: ast.expr, depth: int, refuse: Callable[[str, str], ScalingError]) -> None:
    """Refuse a tree that holds more than the grammar."""
    if depth > DEEPEST:
        raise refuse(f"nests deeper than {DEEPEST}", "write a simpler formula")
    match expression:
        case ast.Name(name) if name in FUNCTIONS:
            raise refuse(f"has the function {name} without its argument", f"write {name}(…)")
        case ast.Constant() | ast.Name() | ast.UnaryOp() | ast.BinOp():
            pass
        case ast.Call(ast.Name(name), arguments, []):
            if name not in FUNCTIONS:
                fix = f"{nearest(name, FUNCTIONS)}; a product is {name}*(…)"
                raise refuse(f"has no function {name!r}", fix)
            count = FUNCTIONS[name][0]
            if len(arguments) < count or (len(arguments) > count and name not in ("min", "max")):
                raise refuse(f"gives {name} {len(arguments)} arguments", f"it takes {count}")
        case _:
            raise refuse("is no formula", "write one of numbers, names, + - * / ^ and functions")
    for part in parts(expression):
        _check(part, depth + 1, refuse)


def parts(expression: Expression) -> list[Expression]:
    """The formulas that this one is made of, from left to right."""
    match expression:
        case ast.UnaryOp(_, operand):
            return [operand]
        case ast.BinOp(left, _, right):
            return [left, right]
        case ast.Call(_, arguments):
            return arguments
    return []


def names(expression: Expression) -> tuple[str, ...]:
    """Every name of a column or parameter, each once, in the order in which they appear."""

    def walk(node: Expression) -> Iterator[str]:
        if isinstance(node, ast.Name):
            yield node.id
        for part in parts(node):
            yield from walk(part)

    return tuple(dict.fromkeys(walk(expression)))


def evaluate(expression: Expression, values: Mapping[str, Value]) -> Value:
    """The formula at values by name; on Dual numbers with its exact derivative."""
    match expression:
        case ast.Constant(value):
            return value
        case ast.Name(name):
            return values[name]
        case ast.UnaryOp(sign, operand):
            value = evaluate(operand, values)
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left, operator, right):
            return OPERATORS[type(operator)](evaluate(left, values), evaluate(right, values))
        case ast.Call(ast.Name(function), arguments):
            apply = FUNCTIONS[function][1]
            first, *others = (evaluate(argument, values) for argument in arguments)
            return reduce(apply, others, first) if others else apply(first)
    raise AssertionError(expression)


SAME = 1e-9
"""Numbers that differ by less than this fraction are equal: 6*N*D and a C that was printed."""

_COMPARISON = re.compile(r">=|<=|!=|==|=|<|>")
_ORDER = {">=": np.greater_equal, "<=": np.less_equal, ">": np.greater, "<": np.less}


@dataclass(frozen=True)
class Condition:
    """A condition on rows, `C<1e21` or `corpus=c4`: formulas of columns, or a column of words and a word."""

    left: str
    sign: str
    right: str

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"

    def mask(self, columns: Mapping[str, np.ndarray], option: str, source: str = "") -> np.ndarray:
        """Which rows meet it."""
        if self.left in columns and not is_numeric(self.left, columns[self.left]):
            if self.sign in _ORDER:
                what = f"compares {self.left}, a column of words"
                raise ScalingError(what, file=source or None, key=option, value=str(self), fix="use = or !=")
            same = np.array([str(word) == self.right for word in columns[self.left]], bool)
            return same if self.sign == "=" else ~same
        with np.errstate(all="ignore"):
            left, right = (self._side(text, columns, option, source) for text in (self.left, self.right))
            if self.sign in _ORDER:
                mask = _ORDER[self.sign](left, right)
            else:
                equal = np.isclose(left, right, rtol=SAME, atol=0.0)
                mask = equal if self.sign == "=" else ~equal & ~np.isnan(left) & ~np.isnan(right)
        rows = len(next(iter(columns.values()), ()))
        return np.broadcast_to(mask, (rows,)).copy()

    def _side(self, text: str, columns: Mapping[str, np.ndarray], option: str, source: str) -> np.ndarray:
        if text in columns:
            return numeric(text, columns[text], source)
        if (plain := parse_number(text)) is not None:
            return np.array(plain)
        try:
            expression = parse(text, option, suffixes=True)
        except ScalingError as error:
            raise ScalingError(error.what, key=option, value=str(self), fix=error.fix) from None
        for name in names(expression):
            if name not in columns:
                is_word = text == self.right == name
                what = f"{name!r} is no bound: neither a number nor a column" if is_word else no_column(name)
                raise ScalingError(what, file=source or None, key=option, value=str(self), fix=nearest(name, columns))
        values = {name: numeric(name, columns[name], source) for name in names(expression)}
        return np.asarray(evaluate(expression, values), float)


def no_column(name: str) -> str:
    return f"there is no column {name!r}"


def is_condition(text: str) -> bool:
    """Whether a text compares: a column's name alone does not."""
    return _COMPARISON.search(text) is not None


def condition(text: str, option: str) -> Condition:
    """The condition that `text` writes."""
    sign = _COMPARISON.search(text)
    if sign is None or not text[: sign.start()].strip() or not text[sign.end() :].strip():
        fix = "write a column, =, !=, <, <=, > or >=, and a value: 'N>=1e8'"
        raise ScalingError("is no condition", key=option, value=text, fix=fix)
    left, right = text[: sign.start()].strip(), text[sign.end() :].strip()
    if is_condition(right):
        raise ScalingError("has two comparisons", key=option, value=text, fix="write two conditions: 'N>=1e8' 'N<1e9'")
    return Condition(left.strip("`"), "=" if sign[0] == "==" else sign[0], right.strip("'\"") or right)
