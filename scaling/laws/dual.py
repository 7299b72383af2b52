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


class Dual(NDArrayOperatorsMixin):
    """A value and its gradient, both broadcast over (starts, points). numpy's operators and functions accept it."""

    __slots__ = ("gradient", "value")

    def __init__(self, value: Array, gradient: dict[int, Array]):
        self.value, self.gradient = value, gradient

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Dual:
        if method != "__call__" or options or ufunc not in SLOPES:
            return NotImplemented
        values = [operand.value if isinstance(operand, Dual) else operand for operand in operands]
        if ufunc is np.power and isinstance(operands[1], Dual):  # faster by logarithms; x may be negative elsewhere
            return np.exp(operands[1] * np.log(operands[0]))
        value, gradient = ufunc(*values), {}
        for operand, slope_of in zip(operands, SLOPES[ufunc], strict=False):
            if isinstance(operand, Dual):
                slope = slope_of(*values, value)
                for index, part in operand.gradient.items():
                    part = part if slope is None else slope * part
                    gradient[index] = gradient[index] + part if index in gradient else part
        return Dual(value, gradient)


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


# The derivative of each function by each of its arguments, from the arguments and the function's value f; None is 1.
SLOPES: dict[Any, tuple[Callable[..., Any], ...]] = {
    np.negative: (lambda x, f: -1.0,),
    np.reciprocal: (lambda x, f: -f * f,),
    np.exp: (lambda x, f: f,),
    np.expm1: (lambda x, f: np.exp(x),),
    np.log: (lambda x, f: 1.0 / x,),
    np.log2: (lambda x, f: 1.0 / (x * np.log(2.0)),),
    np.log10: (lambda x, f: 1.0 / (x * np.log(10.0)),),
    np.log1p: (lambda x, f: 1.0 / (1.0 + x),),
    np.sqrt: (lambda x, f: 0.5 / f,),
    np.tanh: (lambda x, f: 1.0 - f * f,),
    np.absolute: (lambda x, f: np.sign(x),),
    np.add: (lambda x, y, f: None, lambda x, y, f: None),
    np.subtract: (lambda x, y, f: None, lambda x, y, f: -1.0),
    np.multiply: (lambda x, y, f: y, lambda x, y, f: x),
    np.divide: (lambda x, y, f: 1.0 / np.asarray(y), lambda x, y, f: -f / y),
    np.power: (lambda x, y, f: y * x ** (np.asarray(y, float) - 1.0),),
    np.minimum: (lambda x, y, f: x < y, lambda x, y, f: ~(x < y)),
    np.maximum: (lambda x, y, f: x > y, lambda x, y, f: ~(x > y)),
    np.logaddexp: (lambda x, y, f: sigmoid(x - y), lambda x, y, f: sigmoid(y - x)),
}
