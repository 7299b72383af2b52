"""A law that a person writes as a formula: `E + A*N^-a + B*D^-b`, on the command line or in a YAML file.

What a parameter is follows from its place in the formula, so that it gets the same coordinates, bounds and starts as in
the laws of the papers: an additive constant is a floor, the factor of a positive term a coefficient, what is in an
exponent an exponent, what is compared with a column (N_c/N) a place on its axis.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from scaling.errors import ScalingError, nearest
from scaling.law.autodiff import Dual
from scaling.law.expression import Binary, Call, Expression, Name, Negation, Number, evaluate, names, parse, parts
from scaling.law.forms import named
from scaling.law.forms.composed import Composed
from scaling.law.forms.constrained import Bounds, bounded
from scaling.law.forms.form import Columns, Form, Parameter, coefficient, exponent, floor, scale
from scaling.law.points import MEANINGS, Points

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


@dataclass(frozen=True, kw_only=True)
class Formula(Form):
    """The law that an expression writes."""

    expression: Expression
    title: str
    formula: str  # type: ignore[misc]
    citation: str  # type: ignore[misc]
    target: str
    inputs: tuple[str, ...]
    parameters: tuple[Parameter, ...]

    @property
    def name(self) -> str:
        return self.title

    def curve(self, p: Any, x: Any) -> Dual:
        return evaluate(self.expression, {**vars(x), **vars(p)})


def law_of(text: str, *others: str) -> Form | Written:
    """The law that a text names or writes: a name, two names for two steps, a formula, or a YAML file.

    `others` are names that the caller takes besides, for the error.
    """
    text = "chinchilla,task_sigmoid" if text == TWO_STEP else text
    if re.fullmatch(r"\s*\w+\s*,\s*\w+\s*", text):
        return Composed(*(named(step.strip()) for step in text.split(",")))
    if text.endswith((".yaml", ".yml")):
        return read_law(text)
    return Written(text) if is_formula(text) else named(text, TWO_STEP, *others)


def is_formula(text: str) -> bool:
    """A law's name is one word; all else is a formula."""
    return re.fullmatch(r"[\w.]*", text) is None


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
    title = config.tree.get("name", Path(path).stem)
    return Written(config.tree["formula"], title, config.tree.get("citation", Written.citation), bounds, ties)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(end) in (int, float) for end in value)


def formula(law: Written, points: Points) -> Formula:
    """The law of a formula over the columns of `points`.

    A name is a column if the left side lists it (`loss(N, D) = …`) or, without such a list, if it is N, D, C or loss,
    or if it names a column and the formula raises it to a power or takes a function of it. Others are parameters.
    """
    limits = dict(law.bounds or {})
    target, listed, right = _sides(law.text)
    expression = parse(right, "law")
    every = names(expression)
    inputs = _listed(listed, every, law.text) if listed is not None else _columns(expression, target, limits, points)
    if target in inputs:
        raise _wrong(law.text, f"predicts {target} from itself", "name what it predicts: error = …")
    unknown = [name for name in every if name not in inputs]
    if not inputs or not unknown:
        lacks = "no column" if not inputs else "no parameter"
        raise _wrong(law.text, f"has {lacks}", "write one such as E + A*N^-alpha + B*D^-beta")
    for name in limits:
        if name not in unknown:
            raise ScalingError("is not a parameter of the law", key=f"bounds {name}", fix=nearest(name, unknown))
    parameters = _parameters(expression, target, inputs, unknown, limits, points)
    head = f"{target}({', '.join(inputs)}) = "
    return Formula(
        expression=expression,
        title=law.name,
        formula=head + " ".join(right.split()),
        citation=law.citation,
        target=target,
        inputs=inputs,
        parameters=parameters,
    )


def _wrong(text: str, what: str, fix: str) -> ScalingError:
    return ScalingError(what, key="law", value=text, fix=fix)


def _sides(text: str) -> tuple[str, tuple[str, ...] | None, str]:
    """What the formula predicts, the columns its left side lists if it lists any, and its right side."""
    head = _HEAD.fullmatch(text)
    if head is None:
        return "loss", None, text
    columns = None if head["columns"] is None else tuple(part.strip().strip("`") for part in head["columns"].split(","))
    return TARGETS.get(head["target"], head["target"]), columns, head["right"]


def _listed(columns: Sequence[str], every: Sequence[str], text: str) -> tuple[str, ...]:
    for name in columns:
        if name not in every:
            raise _wrong(text, f"lists the column {name!r} and does not use it", nearest(name, every))
    return tuple(dict.fromkeys(columns))


def _columns(expression: Expression, target: str, limits: Mapping[str, Bounds], points: Points) -> tuple[str, ...]:
    """Which names are columns, by what the table has and by their place in the formula."""
    columns = []
    direct = set(_direct(expression))
    for name in names(expression):
        if name in limits:
            continue
        if name in ALWAYS_COLUMNS or (name in direct and (name in points or name in MEANINGS)):
            columns.append(name)
        elif name in points and len(name) > 1:
            raise ScalingError(
                f"{name} is a column of the table and may be a parameter",
                key="law",
                fix=f"list the columns: '{target}(N, D) = …', with {name} if it is one",
            )
    return tuple(columns)


def _direct(expression: Expression):
    """Names that are themselves raised to a power or the argument of a function."""
    match expression:
        case Binary("^", Name(name), _):
            yield name
        case Call(_, arguments):
            yield from (argument.name for argument in arguments if isinstance(argument, Name))
    for part in parts(expression):
        yield from _direct(part)


def _parameters(
    expression: Expression,
    target: str,
    inputs: tuple[str, ...],
    unknown: Sequence[str],
    limits: Mapping[str, Bounds],
    points: Points,
) -> tuple[Parameter, ...]:
    """Each parameter by its role; the linear ones first, as the laws of the papers list them."""
    linear: list[str] = []
    for name in unknown:
        if _degree(expression, {*linear, name}) <= 1:
            linear.append(name)
    negative = {name for name, (low, _) in limits.items() if low < 0}
    points.refuse_absent((*inputs, target))
    columns = {name: points.numbers(name) for name in inputs}
    parameters = []
    for name in linear:
        sign, alone = _cofactor(expression, name, inputs, negative)
        if alone and sign is not None:
            parameter = floor(name)
            parameter = parameter if target == "loss" else replace(parameter, unit=f"unit of {target}", upper=1e100)
        elif sign is not None:
            parameter = coefficient(name) if target == "loss" else coefficient(name, f"unit of {target}")
        else:
            parameter = Parameter(name, f"unit of {target}", "linear", -1e100, 1e100, (-1.0, 1.0), linear=True)
        parameters.append(parameter)
    for name in unknown:
        if name not in linear:
            parameters.append(_nonlinear(expression, name, columns))
    return tuple(
        bounded(parameter, limits[parameter.name]) if parameter.name in limits else parameter
        for parameter in parameters
    )


def _degree(expression: Expression, of: set[str]) -> float:
    """The degree of the formula as a polynomial in these names; infinite where it is none."""
    match expression:
        case Name(name):
            return float(name in of)
        case Negation(operand):
            return _degree(operand, of)
        case Binary("+" | "-", left, right):
            return max(_degree(left, of), _degree(right, of))
        case Binary("*", left, right):
            return _degree(left, of) + _degree(right, of)
        case Binary("/", left, right) if _degree(right, of) == 0:
            return _degree(left, of)
    return np.inf if of & set(names(expression)) else 0.0


def _cofactor(expression: Expression, name: str, inputs: Sequence[str], negative: set[str]) -> tuple[int | None, bool]:
    """The sign of what multiplies a linear parameter, None where it may be either, and whether it is a constant."""
    match expression:
        case Name():
            return 1, True
        case Negation(operand):
            sign, alone = _cofactor(operand, name, inputs, negative)
            return None if sign is None else -sign, alone
        case Binary(operator, left, right):
            terms = []
            for part, other, turn in ((left, right, 1), (right, left, -1 if operator == "-" else 1)):
                if name not in names(part):
                    continue
                sign, alone = _cofactor(part, name, inputs, negative)
                if operator in "*/":
                    factor = _sign(other, negative)
                    sign = None if sign is None or factor is None else sign * factor
                    alone = alone and not names(other)
                terms.append((None if sign is None else sign * turn, alone))
            same = len({sign for sign, _ in terms}) == 1
            return terms[0][0] if same else None, all(alone for _, alone in terms)
    raise AssertionError(expression)


def _sign(expression: Expression, negative: set[str]) -> int | None:
    """1 where the formula is positive at any positive columns and parameters, -1 where negative, None otherwise."""
    match expression:
        case Number(value):
            return int(np.sign(value)) or None
        case Name(name):
            return None if name in negative else 1
        case Negation(operand):
            sign = _sign(operand, negative)
            return None if sign is None else -sign
        case Binary("^", base, _):
            return 1 if _sign(base, negative) == 1 else None
        case Binary(operator, left, right):
            first, second = _sign(left, negative), _sign(right, negative)
            if first is None or second is None:
                return None
            if operator in "*/":
                return first * second
            second = -second if operator == "-" else second
            return first if first == second else None
        case Call("exp" | "sqrt" | "abs" | "sigmoid", _):
            return 1
        case Call("min" | "max", arguments):
            signs = {_sign(argument, negative) for argument in arguments}
            return signs.pop() if len(signs) == 1 else None
    return None


def _nonlinear(expression: Expression, name: str, columns: Columns) -> Parameter:
    """An exponent, a place on a column's axis or its inverse, or a plain number."""
    uses = list(_exponents(expression, name, set(columns), 1))
    if uses:
        falling = any(sign < 0 for sign, _ in uses)
        divides = any(divisor for _, divisor in uses)
        if falling:
            return exponent(name, SMALLEST if divides else 0.0)
        return exponent(name, SMALLEST if divides else -5.0, start=(-1.0, 1.0) if not divides else (0.02, 1.0))
    neighbour = _neighbour(expression, name, columns)
    if neighbour is not None:
        column, inverse = neighbour
        values = columns[column]
        if values.min() > 0:
            low, high = values.min() / BEYOND, values.max() * BEYOND
            span = (1.0 / high, 1.0 / low) if inverse else (low, high)
            return replace(scale(name, column, f"unit of {column}" + (" ^ -1" if inverse else "")), start=span)
    return Parameter(name, "1", "linear", -1e6, 1e6, (0.02, 2.0))


def _exponents(expression: Expression, name: str, columns: set[str], sign: int):
    """For each time `name` is in an exponent over columns: the sign of its effect on the columns' growth, and
    whether it divides there."""
    match expression:
        case Binary("^", base, power):
            turned = sign * (-1 if _falls(base, columns) else 1)
            if columns & set(names(base)) and name in names(power):
                yield from _inside(power, name, turned, False)
            yield from _exponents(base, name, columns, sign)
        case Binary("/" | "-", left, right):
            yield from _exponents(left, name, columns, sign)
            yield from _exponents(right, name, columns, -sign)
        case Negation(operand):
            yield from _exponents(operand, name, columns, -sign)
        case _:
            for part in parts(expression):
                yield from _exponents(part, name, columns, sign)


def _inside(power: Expression, name: str, sign: int, divisor: bool):
    match power:
        case Name(other) if other == name:
            yield sign, divisor
        case Negation(operand):
            yield from _inside(operand, name, -sign, divisor)
        case Binary(operator, left, right):
            yield from _inside(left, name, sign, divisor)
            turned = -sign if operator == "-" else sign
            yield from _inside(right, name, turned, divisor or operator == "/")
        case _:
            for part in parts(power):
                yield from _inside(part, name, sign, divisor)


def _falls(expression: Expression, columns: set[str]) -> bool:
    """Whether columns are only where they make it smaller: below a fraction's line."""
    above, below = _places(expression, columns, True)
    return below and not above


def _places(expression: Expression, columns: set[str], above: bool) -> tuple[bool, bool]:
    match expression:
        case Name(name):
            return (above, not above) if name in columns else (False, False)
        case Binary("/", left, right):
            pairs = (_places(left, columns, above), _places(right, columns, not above))
        case Binary("^", base, _):
            pairs = (_places(base, columns, above),)
        case _:
            pairs = tuple(_places(part, columns, above) for part in parts(expression))
    return any(pair[0] for pair in pairs), any(pair[1] for pair in pairs)


def _neighbour(expression: Expression, name: str, columns: Columns) -> tuple[str, bool] | None:
    """The column next to a parameter in the smallest part that holds both; whether as its inverse."""
    for part in parts(expression):
        if name in names(part):
            inner = _neighbour(part, name, columns)
            if inner is not None:
                return inner
    column = next((other for other in names(expression) if other in columns), None)
    if column is None or name not in names(expression):
        return None
    match expression:
        case Binary("*", _, _):
            return column, True
        case Binary("/", left, _):
            return column, name in names(left) and column in names(left)
    return column, False
