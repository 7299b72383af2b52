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
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from scaling.base.errors import ScalingError, nearest, plural, refuse
from scaling.laws.law import sigmoid

LONGEST = 2000  # characters
DEEPEST = 60  # operations within one another

# Thousands, millions, billions (giga) and trillions, in either case.
SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}

_SUFFIXED = re.compile(r"(?P<number>.*[0-9.])\s?(?P<suffix>[kKmMbBgGtT])")
_GROUPED = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u00a0\u202f][0-9]{3})+)(?:\.[0-9]+)?")


def parse_number(value: Any) -> float | None:
    """The number that a cell or a word writes, or None: 1e9, 10M, 1.5B, 1,000, 1_000."""
    text, scale = str(value).strip(), 1.0
    if suffixed := _SUFFIXED.fullmatch(text):
        text, scale = suffixed["number"], SUFFIXES[suffixed["suffix"].lower()]
    if _GROUPED.fullmatch(text):
        text = re.sub("[, \u00a0\u202f]", "", text)
    try:
        number = float(text) * scale
    except ValueError:
        return None
    is_whole = scale > 1 and abs(number) < 2**53 and abs(number - round(number)) < 1e-6
    return float(round(number)) if is_whole else number  # 1.1B is 1,100,000,000 exactly


def is_empty(value: Any) -> bool:
    return value is None or str(value).strip() in ("", "nan")


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
        place = "" if lines else f", in row {row + 1} of the {plural(len(values), 'row')} in use"
        is_comma = "," in str(values[row])
        fix = "write a decimal point and no separators, such as 1000.5" if is_comma else "correct the cell"
        line = lines[row] if lines else None
        what = f"is not a number{place}"
        raise ScalingError(what, file=source or None, line=line, key=name, value=values[row], fix=fix)
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
            fix = f"write {digits}*{suffix or 'N'}, or a number such as 1e9"
            refuse(number in (None, math.inf), f"has {match[0]!r}", fix, **place)
            return f" {number!r} "
        if match["sign"]:
            return _SIGNS[match["sign"]]
        names.append(match["name"] or match["quoted"])
        return f" v{len(names) - 1} "

    def check(node: Expression, depth: int) -> None:
        """Refuse a tree that holds more than the grammar, and give each name its own word."""
        refuse(depth > DEEPEST, f"nests deeper than {DEEPEST}", "write a simpler formula", **place)
        match node:
            case ast.Name():
                name = node.id = names[int(node.id[1:])]
                refuse(name in FUNCTIONS, f"has the function {name} without its argument", f"write {name}(…)", **place)
            case ast.Call(func=ast.Name() as function, keywords=[]):
                name = function.id = names[int(function.id[1:])]
                fix = f"{nearest(name, FUNCTIONS)}; a product is {name}*(…)"
                refuse(name not in FUNCTIONS, f"has no function {name!r}", fix, **place)
                arguments, count = len(node.args), FUNCTIONS[name][0]
                is_wrong = arguments < count or (arguments > count and name not in ("min", "max"))
                refuse(is_wrong, f"gives {name} {arguments} arguments", f"it takes {count}", **place)
            case ast.Constant(value=float()) | ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                pass
            case _ if not (isinstance(node, ast.BinOp) and type(node.op) in OPERATORS):
                fix = "write numbers, names, + - * / ^ and functions; a comparison belongs to --where"
                raise ScalingError("is not a formula", fix=fix, **place)
        for part in parts(node):
            check(part, depth + 1)

    refuse(len(text) > LONGEST, f"has {len(text)} characters", f"{LONGEST} are the most", **place)
    try:
        expression = ast.parse(" ".join(_TOKEN.sub(python, text).split()), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        what = "is not a formula: it breaks off, or has a bracket that is not closed, or not opened"
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

_COMPARISONS: Mapping[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ">=": np.greater_equal,
    "<=": np.less_equal,
    ">": np.greater,
    "<": np.less,
    "=": lambda left, right: np.isclose(left, right, rtol=SAME, atol=0.0),
    "!=": lambda left, right: ~np.isclose(left, right, rtol=SAME, atol=0.0) & ~np.isnan(left) & ~np.isnan(right),
}
_CONDITION = re.compile(
    r"(?P<left>(?:[^<>!=]|!(?!=))+)(?P<sign>[<>!]=|==?|[<>])\s*"
    r"(?:(?P<quote>['\"])(?P<quoted>.+)(?P=quote)|(?P<right>(?:[^<>!=]|!(?!=))+))"
)


def matching(text: str, columns: Mapping[str, np.ndarray], option: str, source: str = "") -> np.ndarray:
    """Whether each row meets a condition, `C<1e21` or `corpus=c4`: it compares formulas of columns, or a column of
    words with a word.
    """
    place: dict[str, Any] = {"file": source or None, "key": option, "value": text}
    match = _CONDITION.fullmatch(text.strip())
    if match is None:
        fix = "write a column, =, !=, <, <=, > or >=, and a value: 'N>=1e8'; of two comparisons make two conditions"
        raise ScalingError("is not a condition", fix=fix, **place)
    left, sign, right = match["left"].strip(), match["sign"], (match["quoted"] or match["right"]).strip()

    def side(text: str) -> np.ndarray:
        name = text.strip("`")
        if name in columns:
            return numeric(name, columns[name], source)
        if (number := parse_number(text)) is not None:
            return np.array(number)
        expression = parse(text, option, suffixes=True)
        for name in names(expression):
            refuse(name not in columns, f"there is no column {name!r}", nearest(name, columns), **place)
        return np.asarray(evaluate(expression, {n: numeric(n, columns[n], source) for n in names(expression)}), float)

    words = columns.get(left.strip("`"))
    if words is not None and words.dtype == object and None in _numbers(words):
        same = np.array([str(word) == right for word in words], bool)
        refuse(sign not in ("=", "==", "!="), f"compares {left}, a column of words", "use = or !=", **place)
        refuse(sign != "!=" and not same.any(), f"no row has {text}", nearest(right, map(str, words)), **place)
        return ~same if sign == "!=" else same
    with np.errstate(all="ignore"):
        mask = _COMPARISONS["=" if sign == "==" else sign](side(left), side(right))
    return np.broadcast_to(mask, (len(next(iter(columns.values()), ())),)).copy()
