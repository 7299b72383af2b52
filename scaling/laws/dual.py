"""Dual numbers: values that carry their exact gradient through a formula written in plain numpy.

A law is written once, as its formula; evaluated on `Dual` parameters it returns the loss and the exact derivative by
each parameter (Wengert 1964, Communications of the ACM 7(8)). The gradient is sparse, a dict from the parameter's index
to an array, because a term of a law knows only its own two or three parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Array: TypeAlias = np.ndarray
Number: TypeAlias = "Dual | Array | float"


class Dual(NDArrayOperatorsMixin):
    """A value and its gradient, both broadcast over (starts, points). numpy's operators and functions accept it."""

    __slots__ = ("gradient", "value")

    def __init__(self, value: Array, gradient: dict[int, Array]):
        self.value, self.gradient = value, gradient

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Dual:
        if method != "__call__" or options:
            return NotImplemented
        if ufunc in SLOPES:
            value = ufunc(self.value)
            slope = SLOPES[ufunc](self.value, value)
            return Dual(value, {index: slope * part for index, part in self.gradient.items()})
        if ufunc in COMPOSED:
            return COMPOSED[ufunc](*operands)
        if ufunc not in SLOPES_OF_TWO:
            return NotImplemented
        x, y = (operand.value if isinstance(operand, Dual) else operand for operand in operands)
        gradient: dict[int, Array] = {}
        for operand, slope_of in zip(operands, SLOPES_OF_TWO[ufunc], strict=True):
            if isinstance(operand, Dual):
                slope = slope_of(x, y)
                for index, part in operand.gradient.items():
                    part = part if slope is None else slope * part
                    gradient[index] = gradient[index] + part if index in gradient else part
        return Dual(ufunc(x, y), gradient)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _power(x: Number, y: Number) -> Any:
    """x ^ y; x may be negative where y has no gradient."""
    if isinstance(y, Dual) or not isinstance(x, Dual):
        return np.exp(y * np.log(x))
    y = np.asarray(y, float)
    slope = y * x.value ** (y - 1.0)
    return Dual(x.value**y, {index: slope * part for index, part in x.gradient.items()})


# The derivative f'(x) of each function from x and f(x).
SLOPES: dict[Any, Callable[[Array, Array], Any]] = {
    np.negative: lambda x, f: -1.0,
    np.reciprocal: lambda x, f: -f * f,
    np.exp: lambda x, f: f,
    np.expm1: lambda x, f: np.exp(x),
    np.log: lambda x, f: 1.0 / x,
    np.log2: lambda x, f: 1.0 / (x * np.log(2.0)),
    np.log10: lambda x, f: 1.0 / (x * np.log(10.0)),
    np.log1p: lambda x, f: 1.0 / (1.0 + x),
    np.sqrt: lambda x, f: 0.5 / f,
    np.tanh: lambda x, f: 1.0 - f * f,
    np.absolute: lambda x, f: np.sign(x),
}

# The derivatives by x and by y of each function of both; None is 1.
SLOPES_OF_TWO: dict[Any, tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = {
    np.add: (lambda x, y: None, lambda x, y: None),
    np.multiply: (lambda x, y: y, lambda x, y: x),
    np.minimum: (lambda x, y: x < y, lambda x, y: ~(x < y)),
    np.maximum: (lambda x, y: x > y, lambda x, y: ~(x > y)),
    np.logaddexp: (lambda x, y: sigmoid(x - y), lambda x, y: sigmoid(y - x)),
}

COMPOSED: dict[Any, Callable[[Any, Any], Any]] = {
    np.subtract: lambda x, y: x + (-y),
    np.divide: lambda x, y: x * (np.reciprocal(y) if isinstance(y, Dual) else 1.0 / np.asarray(y)),
    np.power: _power,
}
