"""A law that a person writes as a formula: `E + A*N^-a + B*D^-b`, on the command line or in a YAML file.

What a parameter is follows from its place in the formula, so that it gets the same coordinates, bounds and starts as in
the laws of the papers: an additive constant is a floor, the factor of a positive term a coefficient, what is in an
exponent an exponent, what is compared with a column (N_c/N) a place on its axis.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np

from scaling.base.errors import nearest, refuse
from scaling.config.schema import check_keys
from scaling.laws.catalogue import named
from scaling.laws.formula import Expression, evaluate, names, parse
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
TWO_STEP, STEPS = "two_step", ("chinchilla", "task_sigmoid")  # a name, and the laws that it is short for
# The types of the keys of a law's file.
KEYS = {
    **dict.fromkeys(("name", "formula", "citation"), str),
    "bounds": Mapping[str, Sequence[float]],
    "tie": Mapping[str, str],
}
_HEAD = re.compile(r"\s*(?P<target>[^\W\d][\w.]*)\s*(?:\((?P<columns>[^()]*)\))?\s*=(?!=)(?P<right>.*)", re.DOTALL)


def law_of(
    text: str,
    points: Points,
    fixed: Mapping[str, float] = MappingProxyType({}),
    ties: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, Bounds] = MappingProxyType({}),
    *others: str,
) -> tuple[Law, dict[str, float]]:
    """The law that a text names or writes, as `constrained_law` returns it.

    The text is a name, two names for two steps, a formula over the columns of `points`, or a YAML file, whose formula
    may be any of these. `others` are names that the caller takes besides, for the error.
    """
    stated: dict[str, Any] = {"formula": text}
    if text.endswith((".yaml", ".yml")):
        stated = _read(text)
        limits, ties = {**stated.pop("bounds", {}), **limits}, {**stated.pop("tie", {}), **ties}
    formula = stated.pop("formula").strip()
    if formula == TWO_STEP or re.fullmatch(r"\w+\s*,\s*\w+", formula):
        law = composed(*map(named, STEPS if formula == TWO_STEP else re.split(r"\s*,\s*", formula)))
    elif re.fullmatch(r"[\w.]*", formula):
        law = named(formula, TWO_STEP, *(others if formula == text else ()))
    else:
        law = _written(formula, limits, points)
    return constrained_law(replace(law, **stated), points, fixed, ties, limits)


def constrained_law(
    law: Law,
    points: Points,
    fixed: Mapping[str, float] = MappingProxyType({}),
    ties: Mapping[str, str] = MappingProxyType({}),
    limits: Mapping[str, Bounds] = MappingProxyType({}),
) -> tuple[Law, dict[str, float]]:
    """The law with its ties and limits, and the parameters to hold: the stated ones, and chance where it is known."""
    held = known_chance(law, points) | dict(fixed)
    if law.height is not None and law.chance in held and law.height not in held:
        # The upper level of a score is at 1 or below.
        limits = {law.height: (1e-6, 1.0 - held[law.chance]), **limits}
    return constrained(law, ties, limits), held


def _read(path: str) -> dict[str, Any]:
    """The keys of a law's YAML file: `formula`, and optionally `name`, `citation`, `bounds` ({a: [0, 2]}) and `tie`."""
    from scaling.config.document import document

    config = document(path)
    with config.placing():
        law = check_keys(config.tree, KEYS, "a law")
        refuse("formula" not in law, "has no formula", "write formula: E + A*N^-a + B*D^-b", key="formula")
    if any(len(pair) != 2 for pair in law.get("bounds", {}).values()):
        raise config.error("bounds", "is not a lower and an upper bound by parameter", "write bounds: {a: [0, 2]}")
    return {"name": Path(path).stem, **law}


def _written(text: str, limits: Mapping[str, Bounds], points: Points) -> Law:
    """The law of a formula over the columns of `points`, without its ties and bounds.

    A name is a column if the left side lists it (`loss(N, D) = …`) or, without such a list, if it is N, D, C or loss,
    or if it names a column and the formula raises it to a power or takes a function of it. Others are parameters.
    """
    head, place = _HEAD.fullmatch(text), {"key": "law", "value": text}
    right = text if head is None else head["right"]
    # The papers write the loss as L.
    target = "loss" if head is None or head["target"] == "L" else head["target"]
    expression = parse(right, "law")
    used = names(expression)
    if head is None or head["columns"] is None:
        inputs = _columns(expression, target, limits, points)
    else:
        inputs = tuple(dict.fromkeys(column.strip().strip("`") for column in head["columns"].split(",")))
    for column in inputs:
        refuse(column not in used, f"lists the column {column!r} and does not use it", nearest(column, used), **place)
    refuse(target in inputs, f"predicts {target} from itself", "name what it predicts: error = …", **place)
    unknown = [each for each in used if each not in inputs]
    what = f"has no {'parameter' if inputs else 'column'}"
    refuse(not (inputs and unknown), what, "write one such as E + A*N^-alpha + B*D^-beta", **place)
    points.refuse_absent((*inputs, target))
    columns = {column: points.numbers(column) for column in inputs}
    with np.errstate(all="ignore"):
        parameters = _parameters(expression, target, unknown, columns)
    return Law(
        name="formula",
        formula=f"{target}({', '.join(inputs)}) = {' '.join(right.split())}",
        citation="no citation given",
        target=target,
        inputs=inputs,
        parameters=tuple(parameters),
        curve=lambda p, x: evaluate(expression, {**vars(x), **vars(p)}),
        objective="squared" if target in PROPORTIONS | SIGNED else "log_huber",
    )


def _columns(expression: Expression, target: str, limits: Mapping[str, Bounds], points: Points) -> tuple[str, ...]:
    """The names that are columns, by the table and by their place in the formula."""
    powers = [node.left for node in ast.walk(expression) if _is(node, ast.Pow)]
    arguments = [argument for node in ast.walk(expression) if isinstance(node, ast.Call) for argument in node.args]
    direct = {node.id for node in (*powers, *arguments) if isinstance(node, ast.Name)}
    columns = []
    for name in (name for name in names(expression) if name not in limits):
        is_column = name in ("N", "D", "C", "loss") or (name in direct and (name in points or name in MEANINGS))
        what = f"{name} is a column of the table and may be a parameter"
        fix = f"list the columns: '{target}(N, D) = …', with {name} if it is one"
        refuse(not is_column and name in points and len(name) > 1, what, fix, key="law")
        columns += [name] if is_column else []
    return tuple(columns)


def _is(node: ast.AST, operator: type[ast.operator]) -> TypeGuard[ast.BinOp]:
    return isinstance(node, ast.BinOp) and isinstance(node.op, operator)


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
    holding = [node for node in ast.walk(expression) if isinstance(node, ast.expr) and name in names(node)]
    powers = [
        node.right
        for node in holding
        if _is(node, ast.Pow) and name in names(node.right) and columns.keys() & {*names(node.left)}
    ]
    if any(_is(node, ast.Div) and name in names(node.right) for power in powers for node in ast.walk(power)):
        return exponent(name, 1e-3)  # something is divided by it
    if powers:
        # Does the formula grow less with some column the larger the exponent is?
        ones = np.ones(SAMPLES)
        duals = {column: Dual(1.1 * ones, {index: ones}) for index, column in enumerate(columns)}
        at = ({**values, **duals, name: place * ones} for place in (0.01, 0.02))
        below, above = (evaluate(expression, each).gradient for each in at)
        falls = any(np.all(above[k] <= below[k]) and np.any(above[k] < below[k]) for k in below)
        return exponent(name) if falls else exponent(name, -5.0, start=(-1.0, 1.0))
    # The column next to it is in the smallest part that holds both.
    smallest = [node for node in holding if columns.keys() & {*names(node)}][-1]
    column = next(each for each in names(smallest) if each in columns)
    low, high = columns[column].min() / BEYOND, columns[column].max() * BEYOND
    if not low > 0:
        return exponent(name, -1e6, 1e6, (0.02, 2.0))
    if _is(smallest, ast.Mult):
        return replace(place(name, column, f"unit of {column} ^ -1"), start=(1.0 / high, 1.0 / low))
    return replace(place(name, column, f"unit of {column}"), start=(low, high))
