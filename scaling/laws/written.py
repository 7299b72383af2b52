"""A law that a person writes as a formula: `E + A*N^-a + B*D^-b`, on the command line or in a YAML file.

What a parameter is follows from its place in the formula, so that it gets the same coordinates, bounds and starts as in
the laws of the papers: an additive constant is a floor, the factor of a positive term a coefficient, what is in an
exponent an exponent, what is compared with a column (N_c/N) a place on its axis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from scaling.base.errors import ScalingError, nearest, refuse
from scaling.config.schema import check_keys
from scaling.laws.catalogue import named
from scaling.laws.formula import Expression, evaluate, names, parse, parts
from scaling.laws.law import (
    MEANINGS,
    PROPORTIONS,
    SIGNED,
    Bounds,
    Columns,
    Dual,
    Law,
    Parameter,
    coefficient,
    composed,
    constrained,
    exponent,
    floor,
    place,
)
from scaling.laws.points import Points, known_chance

SAMPLES = 64
CONSTANT = 1e-9  # derivatives that differ by less than this fraction are one
BEYOND = 1e3  # a place on an axis is looked for this far outside the points
TWO_STEP = "two_step"  # the name of `chinchilla,task_sigmoid`
# The types of the keys of a law's file.
KEYS = {
    **dict.fromkeys(("name", "formula", "citation"), str),
    "bounds": Mapping[str, Sequence[float]],
    "tie": Mapping[str, str],
}
_HEAD = re.compile(r"\s*(?P<target>[^\W\d][\w.]*)\s*(?:\((?P<columns>[^()]*)\))?\s*=(?!=)(?P<right>.*)", re.DOTALL)


@dataclass(frozen=True)
class Written:
    """A law as it was written: its formula, its name, and where it is from."""

    text: str
    name: str = "formula"
    citation: str = "no citation given"
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    ties: Mapping[str, str] = field(default_factory=dict)


def law_of(text: str, *others: str) -> Law | Written:
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
    from scaling.config.document import document

    config = document(path)
    try:
        law = check_keys(config.tree, KEYS, "a law")
    except ScalingError as error:
        raise config.place(error) from None
    fix = "write formula: E + A*N^-a + B*D^-b"
    refuse("formula" not in law, "has no formula", fix, file=path, key="formula")
    bounds = {name: tuple(pair) for name, pair in law.get("bounds", {}).items()}
    if any(len(pair) != 2 for pair in bounds.values()):
        raise config.error("bounds", "is not a lower and an upper bound by parameter", "write bounds: {a: [0, 2]}")
    names = {"name": Path(path).stem, **{key: law[key] for key in ("name", "citation") if key in law}}
    return Written(law["formula"], **names, bounds=bounds, ties=law.get("tie", {}))


def written_law(law: Written, limits: Mapping[str, Bounds], points: Points) -> Law:
    """The law of a formula over the columns of `points`, without its ties and bounds.

    A name is a column if the left side lists it (`loss(N, D) = …`) or, without such a list, if it is N, D, C or loss,
    or if it names a column and the formula raises it to a power or takes a function of it. Others are parameters.
    """
    head, place = _HEAD.fullmatch(law.text), {"key": "law", "value": law.text}
    right = law.text if head is None else head["right"]
    # The papers write the loss as L.
    target = "loss" if head is None or head["target"] == "L" else head["target"]
    expression = parse(right, "law")
    used = names(expression)
    if head is None or head["columns"] is None:
        inputs = _columns(expression, target, limits, points)
    else:
        inputs = tuple(dict.fromkeys(name.strip().strip("`") for name in head["columns"].split(",")))
    for name in inputs:
        refuse(name not in used, f"lists the column {name!r} and does not use it", nearest(name, used), **place)
    refuse(target in inputs, f"predicts {target} from itself", "name what it predicts: error = …", **place)
    unknown = [name for name in used if name not in inputs]
    for kind, names_of in {"column": inputs, "parameter": unknown}.items():
        refuse(not names_of, f"has no {kind}", "write one such as E + A*N^-alpha + B*D^-beta", **place)
    points.refuse_absent((*inputs, target))
    columns = {name: points.numbers(name) for name in inputs}
    with np.errstate(all="ignore"):
        parameters = _parameters(expression, target, unknown, columns)
    return Law(
        name=law.name,
        formula=f"{target}({', '.join(inputs)}) = {' '.join(right.split())}",
        citation=law.citation,
        target=target,
        inputs=inputs,
        parameters=tuple(parameters),
        curve=lambda p, x: evaluate(expression, {**vars(x), **vars(p)}),
        objective="squared" if target in PROPORTIONS | SIGNED else "log_huber",
    )


def constrained_law(
    law: Law | Written,
    points: Points,
    fixed: Mapping[str, float] = MappingProxyType({}),
    ties: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, Bounds] = MappingProxyType({}),
) -> tuple[Law, dict[str, float]]:
    """The law with its ties and limits, and the parameters to hold: the stated ones, and chance where it is known."""
    if isinstance(law, Written):
        limits, ties = {**law.bounds, **limits}, {**law.ties, **ties}
        law = written_law(law, limits, points)
    held = known_chance(law, points) | dict(fixed)
    if law.height is not None and law.chance in held and law.height not in held:
        # The upper level of a score is at 1 or below.
        limits = {law.height: (1e-6, 1.0 - held[law.chance]), **limits}
    return constrained(law, ties, limits), held


def _columns(expression: Expression, target: str, limits: Mapping[str, Bounds], points: Points) -> tuple[str, ...]:
    """The names that are columns, by the table and by their place in the formula."""
    nodes = list(ast.walk(expression))
    powers = (node.left for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow))
    arguments = (argument for node in nodes if isinstance(node, ast.Call) for argument in node.args)
    direct = {node.id for node in (*powers, *arguments) if isinstance(node, ast.Name)}
    columns = []
    for name in names(expression):
        if name in limits:
            continue
        is_column = name in ("N", "D", "C", "loss") or (name in direct and (name in points or name in MEANINGS))
        what = f"{name} is a column of the table and may be a parameter"
        fix = f"list the columns: '{target}(N, D) = …', with {name} if it is one"
        refuse(not is_column and name in points and len(name) > 1, what, fix, key="law")
        columns += [name] if is_column else []
    return tuple(columns)


def _parameters(expression: Expression, target: str, unknown: Sequence[str], columns: Columns) -> list[Parameter]:
    """Each parameter by its role; the linear ones first, as the laws of the papers list them.

    The formula is affine in linear parameters: between two points that differ in these it is the mean of its ends. Its
    derivative by a floor is a constant. A coefficient has a derivative of one sign at any positive columns and
    parameters.
    """
    rng = np.random.default_rng(0)
    values = {name: np.exp(rng.uniform(-2.0, 2.0, SAMPLES)) for name in names(expression)}
    linear: list[str] = []
    for name in unknown:
        others = {each: values[each][::-1] for each in (*linear, name)}
        middle = values | {each: 0.5 * (values[each] + other) for each, other in others.items()}
        first, second, between = (evaluate(expression, each) for each in (values, values | others, middle))
        finite = np.isfinite(first) & np.isfinite(second) & np.isfinite(between)
        mean = 0.5 * (first + second)
        if finite.any() and np.allclose(between[finite], mean[finite], rtol=CONSTANT, atol=0.0):
            linear.append(name)
    unit, parameters = "nats per token" if target == "loss" else f"unit of {target}", []
    for name in linear:
        dual = evaluate(expression, {**values, name: Dual(values[name], {0: np.ones(SAMPLES)})})
        slope = np.broadcast_to(dual.gradient[0], SAMPLES)
        if not (np.all(slope > 0) or np.all(slope < 0)):
            parameters.append(Parameter(name, f"unit of {target}", "linear", -1e100, 1e100, (-1.0, 1.0), linear=True))
        elif np.ptp(slope) <= CONSTANT * np.abs(slope).max():
            parameters.append(replace(floor(name, unit), upper=1e6 if target == "loss" else 1e100))
        else:
            parameters.append(coefficient(name) if target == "loss" else coefficient(name, unit))
    return parameters + [_nonlinear(expression, name, columns, values) for name in unknown if name not in linear]


def _nonlinear(expression: Expression, name: str, columns: Columns, values: Columns) -> Parameter:
    """An exponent, a place on a column's axis or its inverse, or a plain number."""
    powers = [
        node.right
        for node in ast.walk(expression)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
        if name in names(node.right) and columns.keys() & set(names(node.left))
    ]
    inner = (node for power in powers for node in ast.walk(power) if isinstance(node, ast.BinOp))
    if any(isinstance(each.op, ast.Div) and name in names(each.right) for each in inner):
        return exponent(name, 1e-3)  # something is divided by it
    if powers:
        # Does the formula grow less with some column the larger the exponent is?
        ones = np.ones(SAMPLES)
        duals = {column: Dual(1.1 * ones, {index: ones}) for index, column in enumerate(columns)}
        at = ({**values, **duals, name: place * ones} for place in (0.01, 0.02))
        below, above = (evaluate(expression, each).gradient for each in at)
        falls = any(np.all(above[k] <= below[k]) and np.any(above[k] < below[k]) for k in below)
        return exponent(name) if falls else exponent(name, -5.0, start=(-1.0, 1.0))
    column, is_inverse = _neighbour(expression, name, columns) or (None, False)
    if column is not None and columns[column].min() > 0:
        low, high = columns[column].min() / BEYOND, columns[column].max() * BEYOND
        unit = f"unit of {column}" + (" ^ -1" if is_inverse else "")
        return replace(place(name, column, unit), start=(1.0 / high, 1.0 / low) if is_inverse else (low, high))
    return exponent(name, -1e6, 1e6, (0.02, 2.0))


def _neighbour(expression: Expression, name: str, columns: Columns) -> tuple[str, bool] | None:
    """The column next to a parameter in the smallest part that holds both; whether as its inverse."""
    inner = next((neighbour for part in parts(expression) if (neighbour := _neighbour(part, name, columns))), None)
    if inner is not None:
        return inner
    column = next((other for other in names(expression) if other in columns), None)
    if column is None or name not in names(expression):
        return None
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Mult):
        return column, True
    if isinstance(expression, ast.BinOp) and isinstance(expression.op, ast.Div):
        return column, {name, column} <= set(names(expression.left))
    return column, False
