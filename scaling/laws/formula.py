"""Numbers, formulas and conditions as people write them: `10M`, `params - embedding`, `D/N>20`.

One grammar serves laws, computed columns and conditions. It is Python's: + - * / and ** (or ^), brackets, numbers,
names and the functions of `FUNCTIONS`. Python's parser reads a formula; what is not in the grammar is refused, and
nothing is run as code. A name is a letter and then letters, digits, `_` and `.`; any other column is in backticks:
`train/loss`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.laws.law import sigmoid

LONGEST = 2000  # characters
DEEPEST = 60  # operations within one another

# Thousands, millions, billions (giga) and trillions, in either case.
SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}

_SUFFIXED = re.compile(r"(?P<number>.*[0-9.])\s?(?P<suffix>[kKmMbBgGtT])")
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u00a0\u202f][0-9]{3})+)(?:\.[0-9]+)?")


def parse_number(value: Any) -> float | None:
    """The number that a cell or a word writes, or None: 1e9, 10M, 1.5B, 1,000, 1_000."""
    if isinstance(value, bool | np.bool_):
        return None
    scale = 1.0
    if isinstance(value, str):
        value = value.strip()
        if suffixed := _SUFFIXED.fullmatch(value):
            value, scale = suffixed["number"], SUFFIXES[suffixed["suffix"].lower()]
        value = re.sub("[, \u00a0\u202f]", "", value) if _GROUPED.fullmatch(value) else value
    try:
        number = float(value) * scale
    except (TypeError, ValueError):
        return None
    except OverflowError:  # a whole number beyond the largest float
        return math.inf if value > 0 else -math.inf
    is_whole = scale > 1 and abs(number) < 2**53 and abs(number - round(number)) < 1e-6
    return float(round(number)) if is_whole else number  # 1.1B is 1,100,000,000 exactly


def is_empty(value: Any) -> bool:
    is_nan = isinstance(value, float) and math.isnan(value)
    return value is None or is_nan or (isinstance(value, str) and not value.strip())


def _numbers(cells: Iterable[Any]) -> list[float | None]:
    """The number of each cell: nan where it is empty, None where it is another word."""
    return [math.nan if is_empty(cell) else parse_number(cell) for cell in cells]


def numeric(name: str, values: np.ndarray, source: str = "", lines: Sequence[int] = ()) -> np.ndarray:
    """A column of numbers, or of words that all are numbers; an empty cell is nan, another word is refused."""
    if np.issubdtype(values.dtype, np.number):
        return values.astype(float)
    numbers = _numbers(values)
    if None in numbers:
        row = numbers.index(None)
        cell, what = values[row], "is not a number" + ("" if lines else f", in row {row + 1}")
        comma = isinstance(cell, str) and "," in cell
        fix = "write a decimal point and no separators, such as 1000.5" if comma else "correct the cell or map another"
        line = lines[row] if lines else None
        raise ScalingError(what, file=source or None, line=line, key=name, value=cell, fix=fix)
    return np.array(numbers, float)


Expression: TypeAlias = ast.expr  # A tree of ast.Constant, ast.Name, ast.UnaryOp, ast.BinOp and ast.Call.

Value: TypeAlias = Any  # a float, an array or a Dual

# Every function by name, with the number of its arguments (`min` and `max` take two or more).
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

OPERATORS: Mapping[type, Callable[..., Value]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}

_TOKEN = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?)(?P<suffix>\w*)"
    r"|(?P<name>[^\W\d][\w.]*)|`(?P<quoted>[^`]+)`|(?P<sign>[\^−·×÷\#])"
)
_SIGNS = {"^": "**", "−": "-", "·": "*", "×": "*", "÷": "/", "#": "?"}  # what Python would read as a comment is refused


def parse(text: str, key: str = "formula", suffixes: bool = False) -> Expression:
    """The formula that `text` writes. With `suffixes`, 10M and 1.5B are numbers, as in a condition."""
    place: dict[str, Any] = {"key": key, "value": text}
    names: list[str] = []  # Python reads the name v3 in the place of names[3]

    def python(match: re.Match[str]) -> str:
        digits, suffix = match["number"], match["suffix"]
        if digits:
            number = parse_number(digits + suffix) if suffixes or not suffix else None
            refuse(number is None, f"has {match[0]!r}", f"write {digits}*{suffix}", **place)
            refuse(number == math.inf, f"has {match[0]!r}, which is not a number", "write it as 1e9", **place)
            return f" {number!r} "
        if match["sign"]:
            return _SIGNS[match["sign"]]
        names.append(match["name"] or match["quoted"])
        return f" v{len(names) - 1} "

    def check(node: Expression, depth: int) -> None:
        """Refuse a tree that holds more than the grammar, and give each name its own word."""
        refuse(depth > DEEPEST, f"nests deeper than {DEEPEST}", "write a simpler formula", **place)
        if isinstance(node, ast.Name):
            name = node.id = names[int(node.id[1:])]
            refuse(name in FUNCTIONS, f"has the function {name} without its argument", f"write {name}(…)", **place)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
            name = node.func.id = names[int(node.func.id[1:])]
            fix = f"{nearest(name, FUNCTIONS)}; a product is {name}*(…)"
            refuse(name not in FUNCTIONS, f"has no function {name!r}", fix, **place)
            arguments, count = len(node.args), FUNCTIONS[name][0]
            is_wrong = arguments < count or (arguments > count and name not in ("min", "max"))
            refuse(is_wrong, f"gives {name} {arguments} arguments", f"it takes {count}", **place)
        else:
            refuse(isinstance(node, ast.Compare), "compares", "a comparison belongs to --where", **place)
            is_number = isinstance(node, ast.Constant) and isinstance(node.value, float)
            is_sign = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd)
            is_operation = isinstance(node, ast.BinOp) and type(node.op) in OPERATORS
            fix = "write one of numbers, names, + - * / ^ and functions"
            refuse(not (is_number or is_sign or is_operation), "is not a formula", fix, **place)
        for part in parts(node):
            check(part, depth + 1)

    what = f"is a formula of {len(text)} characters"
    refuse(len(text) > LONGEST, what, f"{LONGEST} are the most", **place)
    try:
        expression = ast.parse(" ".join(_TOKEN.sub(python, text).split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        breaks_off = not text.strip() or text.strip()[-1] in "+-*/^(,−·×÷"
        refuse(breaks_off, "breaks off", "write what follows the last sign", **place)
        matched = text.count("(") == text.count(")")
        what = "is not a formula" if matched else "has a bracket that is not closed, or not opened"
        fix = "write a sign between two values, such as 6*N, and balance the brackets"
        raise ScalingError(what, fix=fix, **place) from None
    check(expression, 1)
    return expression


def parts(expression: Expression) -> list[ast.expr]:
    """The formulas that this one is made of, from left to right."""
    if isinstance(expression, ast.Call):
        return expression.args
    return [part for part in ast.iter_child_nodes(expression) if isinstance(part, ast.expr)]


def names(expression: Expression) -> tuple[str, ...]:
    """Every name of a column or parameter, each once, in the order in which they appear."""
    if isinstance(expression, ast.Name):
        return (expression.id,)
    return tuple(dict.fromkeys(name for part in parts(expression) for name in names(part)))


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


SAME = 1e-9  # Numbers that differ by less than this fraction are equal: 6*N*D and a C that was printed

COMPARISON = re.compile(r">=|<=|!=|==|=|<|>")
_COMPARE: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ">=": np.greater_equal,
    "<=": np.less_equal,
    ">": np.greater,
    "<": np.less,
    "=": lambda left, right: np.isclose(left, right, rtol=SAME, atol=0.0),
    "!=": lambda left, right: ~np.isclose(left, right, rtol=SAME, atol=0.0) & ~np.isnan(left) & ~np.isnan(right),
}


@dataclass(frozen=True)
class Condition:
    """A condition on rows, `C<1e21` or `corpus=c4`: formulas of columns, or a column of words and a word."""

    left: str
    sign: str
    right: str

    def __str__(self) -> str:
        return f"{self.left}{self.sign}{self.right}"

    def mask(self, columns: Mapping[str, np.ndarray], option: str, source: str = "") -> np.ndarray:
        """Whether each row meets the condition."""
        place: dict[str, Any] = {"file": source or None, "key": option, "value": str(self)}

        def side(text: str) -> np.ndarray:
            if text in columns:
                return numeric(text, columns[text], source)
            if (plain := parse_number(text)) is not None:
                return np.array(plain)
            expression = parse(text, option, suffixes=True)
            for name in names(expression):
                is_word = text == self.right == name
                what = f"{name!r} is not a bound: neither a number nor a column"
                what = what if is_word else f"there is no column {name!r}"
                refuse(name not in columns, what, nearest(name, columns), **place)
            values = {name: numeric(name, columns[name], source) for name in names(expression)}
            return np.asarray(evaluate(expression, values), float)

        words = columns.get(self.left)
        if words is not None and not np.issubdtype(words.dtype, np.number) and None in _numbers(words):
            refuse(self.sign not in ("=", "!="), f"compares {self.left}, a column of words", "use = or !=", **place)
            same = np.array([str(word) == self.right for word in words], bool)
            return same if self.sign == "=" else ~same
        with np.errstate(all="ignore"):
            mask = _COMPARE[self.sign](side(self.left), side(self.right))
        return np.broadcast_to(mask, (len(next(iter(columns.values()), ())),)).copy()


def condition(text: str, option: str) -> Condition:
    """The condition that `text` writes."""
    left, *others = (part.strip() for part in COMPARISON.split(text, maxsplit=1))
    right = others[0] if others else ""
    fix = "write a column, =, !=, <, <=, > or >=, and a value: 'N>=1e8'"
    refuse(not left or not right, "is not a condition", fix, key=option, value=text)
    sign, is_quoted = COMPARISON.findall(text)[0], len(right) > 2 and right[0] == right[-1] and right[0] in "'\""
    fix = "write two conditions: 'N>=1e8' 'N<1e9'; or put the value in quotes"
    refuse(COMPARISON.search(right) and not is_quoted, "has two comparisons", fix, key=option, value=text)
    left = left.strip("`") if re.fullmatch("`[^`]+`", left) else left
    return Condition(left, "=" if sign == "==" else sign, right[1:-1] if is_quoted else right)
