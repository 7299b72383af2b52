"""A law that a person writes as a formula: `E + A*N^-a + B*D^-b`, on the command line or in a YAML file.

What a parameter is follows from its place in the formula, so that it gets the same coordinates, bounds and starts as in
the laws of the papers: an additive constant is a floor, the factor of a positive term a coefficient, what is in an
exponent an exponent, what is compared with a column (N_c/N) a place on its axis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.laws.catalogue import named
from scaling.laws.formula import Expression, evaluate, names, parse, parts
from scaling.laws.law import (
    MEANINGS,
    Bounds,
    Columns,
    Form,
    Parameter,
    bounded,
    coefficient,
    composed,
    constrained,
    exponent,
    floor,
    number,
    place,
    upper_level,
)
from scaling.laws.points import Points, known_chance

ALWAYS_COLUMNS = frozenset({"N", "D", "C", "loss"})
TARGETS = {"L": "loss"}
"""How the papers write a column on the left of a formula."""

SMALLEST = 1e-3
"""The least exponent that something is divided by."""

BEYOND = 1e3
"""A place on an axis is looked for this far outside the points."""

TWO_STEP = "two_step"
"""The name of `chinchilla,task_sigmoid`."""

KEYS = ("name", "formula", "citation", "bounds", "tie")
_HEAD = re.compile(r"\s*(?P<target>[^\W\d][\w.]*)\s*(?:\((?P<columns>[^()]*)\))?\s*=(?!=)(?P<right>.*)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A law as it was written: its formula, its name, and where it is from."""

    text: str
    name: str = "formula"
    citation: str = "no citation given"
    bounds: Mapping[str, Bounds] | None = None
    ties: Mapping[str, str] | None = None


def law_of(text: str, *others: str) -> Form | Written:
    """The law that a text names or writes: a name, two names for two steps, a formula, or a YAML file.

    `others` are names that the caller takes besides, for the error.
    """
    text = "chinchilla,task_sigmoid" if text == TWO_STEP else text
    if re.fullmatch(r"\s*\w+\s*,\s*\w+\s*", text):
        return composed(*(named(step.strip()) for step in text.split(",")))
    if text.endswith((".yaml", ".yml")):
        return read_law(text)
    is_name = re.fullmatch(r"[\w.]*", text) is not None
    return named(text, TWO_STEP, *others) if is_name else Written(text)


def read_law(path: str | Path) -> Written:
    """The law of a YAML file: `formula`, and if it likes `name`, `citation`, `bounds` ({a: [0, 2]}) and `tie`."""
    from scaling.config import document

    config = document(path)
    for key in config.tree:
        if key not in KEYS:
            raise config.error(key, "is no key of a law", nearest(key, KEYS))
    for key in ("name", "formula", "citation"):
        if key in config.tree and not isinstance(config.tree[key], str):
            raise config.error(key, "is not a text", "put it in quotes")
    if "formula" not in config.tree:
        raise ScalingError("has no formula", file=path, key="formula", fix="write formula: E + A*N^-a + B*D^-b")
    limits, ties = (config.tree.get(key) or {} for key in ("bounds", "tie"))
    if not isinstance(limits, dict) or not all(_is_pair(pair) for pair in limits.values()):
        raise config.error("bounds", "is not a lower and an upper bound by parameter", "write bounds: {a: [0, 2]}")
    if not isinstance(ties, dict) or not all(isinstance(name, str) for name in ties.values()):
        raise config.error("tie", "is not a parameter by parameter", "write tie: {alpha: beta}")
    bounds = {name: (float(low), float(high)) for name, (low, high) in limits.items()}
    name, citation = config.tree.get("name", Path(path).stem), config.tree.get("citation", Written.citation)
    return Written(config.tree["formula"], name, citation, bounds, ties)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(end) in (int, float) for end in value)


def written_law(law: Written, points: Points) -> Form:
    """The law of a formula over the columns of `points`.

    A name is a column if the left side lists it (`loss(N, D) = …`) or, without such a list, if it is N, D, C or loss,
    or if it names a column and the formula raises it to a power or takes a function of it. Others are parameters.
    """

    def refuse(what: str, fix: str) -> ScalingError:
        return ScalingError(what, key="law", value=law.text, fix=fix)

    limits = law.bounds or {}
    head = _HEAD.fullmatch(law.text)
    right = law.text if head is None else head["right"]
    target = "loss" if head is None else TARGETS.get(head["target"], head["target"])
    expression = parse(right, "law")
    every = names(expression)
    if head is None or head["columns"] is None:
        inputs = _columns(expression, target, limits, points)
    else:
        inputs = tuple(dict.fromkeys(name.strip().strip("`") for name in head["columns"].split(",")))
        for name in inputs:
            if name not in every:
                raise refuse(f"lists the column {name!r} and does not use it", nearest(name, every))
    if target in inputs:
        raise refuse(f"predicts {target} from itself", "name what it predicts: error = …")
    unknown = [name for name in every if name not in inputs]
    if not inputs or not unknown:
        lacks = "no column" if not inputs else "no parameter"
        raise refuse(f"has {lacks}", "write one such as E + A*N^-alpha + B*D^-beta")
    for name in limits:
        if name not in unknown:
            raise ScalingError("is not a parameter of the law", key=f"bounds {name}", fix=nearest(name, unknown))
    points.refuse_absent((*inputs, target))
    columns = {name: points.numbers(name) for name in inputs}
    parameters = _parameters(expression, target, unknown, limits, columns)
    return Form(
        name=law.name,
        formula=f"{target}({', '.join(inputs)}) = {' '.join(right.split())}",
        citation=law.citation,
        target=target,
        inputs=inputs,
        parameters=tuple(bounded(each, limits[each.name]) if each.name in limits else each for each in parameters),
        curve=lambda p, x: evaluate(expression, {**vars(x), **vars(p)}),
    )


def constrained_law(
    law: Form | Written,
    points: Points,
    fixed: Mapping[str, float] = MappingProxyType({}),
    ties: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, Bounds] = MappingProxyType({}),
) -> tuple[Form, dict[str, float]]:
    """The law with its ties and limits, and the parameters to hold: the stated ones, and chance where it is known."""
    if isinstance(law, Written):
        form = written_law(replace(law, bounds={**(law.bounds or {}), **limits}), points)
        return constrained(form, {**(law.ties or {}), **ties}, {}), dict(fixed)
    held = known_chance(law, points) | dict(fixed)
    return constrained(law, ties, upper_level(law, held) | dict(limits)), held


def _columns(expression: Expression, target: str, limits: Mapping[str, Bounds], points: Points) -> tuple[str, ...]:
    """Which names are columns, by what the table has and by their place in the formula."""
    direct: set[str] = set()
    """Names that are themselves raised to a power or the argument of a function."""
    for node in ast.walk(expression):
        match node:
            case ast.BinOp(ast.Name(name), ast.Pow(), _):
                direct.add(name)
            case ast.Call(_, arguments):
                direct |= {argument.id for argument in arguments if isinstance(argument, ast.Name)}
    columns = []
    for name in names(expression):
        if name in limits:
            continue
        if name in ALWAYS_COLUMNS or (name in direct and (name in points or name in MEANINGS)):
            columns.append(name)
        elif name in points and len(name) > 1:
            what = f"{name} is a column of the table and may be a parameter"
            fix = f"list the columns: '{target}(N, D) = …', with {name} if it is one"
            raise ScalingError(what, key="law", fix=fix)
    return tuple(columns)


def _parameters(
    expression: Expression, target: str, unknown: Sequence[str], limits: Mapping[str, Bounds], columns: Columns
) -> list[Parameter]:
    """Each parameter by its role; the linear ones first, as the laws of the papers list them."""
    linear: list[str] = []
    for name in unknown:
        if _degree(expression, {*linear, name}) <= 1:
            linear.append(name)
    negative = {name for name, (low, _) in limits.items() if low < 0}
    unit = "nats per token" if target == "loss" else f"unit of {target}"
    parameters = []
    for name in linear:
        sign, is_constant = _cofactor(expression, name, negative)
        if sign is None:
            parameters.append(Parameter(name, f"unit of {target}", "linear", -1e100, 1e100, (-1.0, 1.0), linear=True))
        elif is_constant:
            parameters.append(replace(floor(name, unit), upper=1e6 if target == "loss" else 1e100))
        else:
            parameters.append(coefficient(name) if target == "loss" else coefficient(name, unit))
    return parameters + [_nonlinear(expression, name, columns) for name in unknown if name not in linear]


def _degree(expression: Expression, of: set[str]) -> float:
    """The degree of the formula as a polynomial in these names; infinite where it is none."""
    match expression:
        case ast.Name(name):
            return float(name in of)
        case ast.UnaryOp(_, operand):
            return _degree(operand, of)
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            return max(_degree(left, of), _degree(right, of))
        case ast.BinOp(left, ast.Mult(), right):
            return _degree(left, of) + _degree(right, of)
        case ast.BinOp(left, ast.Div(), right) if _degree(right, of) == 0:
            return _degree(left, of)
    return np.inf if of & set(names(expression)) else 0.0


def _cofactor(expression: Expression, name: str, negative: set[str]) -> tuple[int | None, bool]:
    """The sign of what multiplies a linear parameter, None where it may be either, and whether it is a constant."""
    match expression:
        case ast.UnaryOp(minus, operand):
            sign, is_constant = _cofactor(operand, name, negative)
            return (-sign if sign and isinstance(minus, ast.USub) else sign), is_constant
        case ast.BinOp(left, operator, right):
            terms = []
            for part, other, turn in ((left, right, 1), (right, left, -1 if isinstance(operator, ast.Sub) else 1)):
                if name not in names(part):
                    continue
                sign, is_constant = _cofactor(part, name, negative)
                if isinstance(operator, ast.Mult | ast.Div):
                    factor = _sign(other, negative)
                    sign = sign * factor if sign and factor else None
                    is_constant = is_constant and not names(other)
                terms.append((sign * turn if sign else None, is_constant))
            is_one_sign = len({sign for sign, _ in terms}) == 1
            return (terms[0][0] if is_one_sign else None), all(is_constant for _, is_constant in terms)
    return 1, True  # the parameter itself


def _sign(expression: Expression, negative: set[str]) -> int | None:
    """1 where the formula is positive at any positive columns and parameters, -1 where negative, None otherwise."""
    match expression:
        case ast.Constant(float(value)):
            return int(np.sign(value)) or None
        case ast.Name(name):
            return None if name in negative else 1
        case ast.UnaryOp(minus, operand):
            sign = _sign(operand, negative)
            return -sign if sign and isinstance(minus, ast.USub) else sign
        case ast.BinOp(base, ast.Pow(), _):
            return 1 if _sign(base, negative) == 1 else None
        case ast.BinOp(left, operator, right):
            first, second = _sign(left, negative), _sign(right, negative)
            if first is None or second is None:
                return None
            if isinstance(operator, ast.Mult | ast.Div):
                return first * second
            return first if first == (-second if isinstance(operator, ast.Sub) else second) else None
        case ast.Call(ast.Name("exp" | "sqrt" | "abs" | "sigmoid"), _):
            return 1
        case ast.Call(ast.Name("min" | "max"), arguments):
            signs = {_sign(argument, negative) for argument in arguments}
            return signs.pop() if len(signs) == 1 else None
    return None


def _nonlinear(expression: Expression, name: str, columns: Columns) -> Parameter:
    """An exponent, a place on a column's axis or its inverse, or a plain number."""
    if uses := list(_exponents(expression, name, set(columns), 1)):
        is_falling = any(sign < 0 for sign, _ in uses)
        if any(divides for _, divides in uses):
            return exponent(name, SMALLEST)
        return exponent(name) if is_falling else exponent(name, -5.0, start=(-1.0, 1.0))
    column, is_inverse = _neighbour(expression, name, columns) or (None, False)
    if column is not None and columns[column].min() > 0:
        low, high = columns[column].min() / BEYOND, columns[column].max() * BEYOND
        unit = f"unit of {column}" + (" ^ -1" if is_inverse else "")
        return replace(place(name, column, unit), start=(1.0 / high, 1.0 / low) if is_inverse else (low, high))
    return number(name, -1e6, 1e6, (0.02, 2.0))


def _exponents(expression: Expression, name: str, columns: set[str], sign: int) -> Iterator[tuple[int, bool]]:
    """For each time `name` is in an exponent over columns: the sign of its effect on the columns' growth, and
    whether it divides there."""
    match expression:
        case ast.BinOp(base, ast.Pow(), power):
            if columns & set(names(base)) and name in names(power):
                above, below = _places(base, columns, True)
                yield from _inside(power, name, -sign if below and not above else sign, False)
            yield from _exponents(base, name, columns, sign)
        case ast.BinOp(left, ast.Div() | ast.Sub(), right):
            yield from _exponents(left, name, columns, sign)
            yield from _exponents(right, name, columns, -sign)
        case ast.UnaryOp(ast.USub(), operand):
            yield from _exponents(operand, name, columns, -sign)
        case _:
            for part in parts(expression):
                yield from _exponents(part, name, columns, sign)


def _inside(power: Expression, name: str, sign: int, divides: bool) -> Iterator[tuple[int, bool]]:
    """The signs of a parameter within an exponent, and whether it divides there."""
    match power:
        case ast.Name(other) if other == name:
            yield sign, divides
        case ast.UnaryOp(ast.USub(), operand):
            yield from _inside(operand, name, -sign, divides)
        case ast.BinOp(left, operator, right):
            yield from _inside(left, name, sign, divides)
            turned = -sign if isinstance(operator, ast.Sub) else sign
            yield from _inside(right, name, turned, divides or isinstance(operator, ast.Div))
        case _:
            for part in parts(power):
                yield from _inside(part, name, sign, divides)


def _places(expression: Expression, columns: set[str], above: bool) -> tuple[bool, bool]:
    """Whether columns are where they make the formula larger, and where they make it smaller: below a fraction."""
    match expression:
        case ast.Name(name):
            return (above, not above) if name in columns else (False, False)
        case ast.BinOp(left, ast.Div(), right):
            pairs = [_places(left, columns, above), _places(right, columns, not above)]
        case ast.BinOp(base, ast.Pow(), _):
            pairs = [_places(base, columns, above)]
        case _:
            pairs = [_places(part, columns, above) for part in parts(expression)]
    return any(pair[0] for pair in pairs), any(pair[1] for pair in pairs)


def _neighbour(expression: Expression, name: str, columns: Columns) -> tuple[str, bool] | None:
    """The column next to a parameter in the smallest part that holds both; whether as its inverse."""
    for part in parts(expression):
        if name in names(part) and (inner := _neighbour(part, name, columns)) is not None:
            return inner
    column = next((other for other in names(expression) if other in columns), None)
    if column is None or name not in names(expression):
        return None
    match expression:
        case ast.BinOp(_, ast.Mult(), _):
            return column, True
        case ast.BinOp(left, ast.Div(), _):
            return column, name in names(left) and column in names(left)
    return column, False
