"""Dual numbers: values that carry their exact gradient through a formula written in plain numpy.

A law is written once, as its formula; evaluated on `Dual` parameters it returns the loss and the exact derivative by
each parameter (Wengert 1964, Communications of the ACM 7(8)). The gradient is sparse, a dict from the parameter's index
to an array, because a term of a law knows only its own two or three parameters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray
Number: TypeAlias = "Dual | Array | float"


class Dual:
    """A value and its gradient, both broadcast over (starts, points). numpy's functions accept it."""

    __slots__ = ("gradient", "value")

    def __init__(self, value: Array, gradient: dict[int, Array]):
        self.value, self.gradient = value, gradient

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> Dual:
        if method != "__call__" or options:
            return NotImplemented
        if ufunc in SLOPES:
            value = ufunc(self.value)
            return self._chain(value, SLOPES[ufunc](self.value, value))
        return OPERATIONS[ufunc](*operands) if ufunc in OPERATIONS else NotImplemented

    def _chain(self, value: Array, slope: Array | float) -> Dual:
        """Return f(self) from its value and f'."""
        return Dual(value, {index: slope * part for index, part in self.gradient.items()})

    def __add__(self, other: Number) -> Dual:
        if not isinstance(other, Dual):
            return Dual(self.value + other, self.gradient)
        gradient = dict(self.gradient)
        for index, part in other.gradient.items():
            gradient[index] = gradient[index] + part if index in gradient else part
        return Dual(self.value + other.value, gradient)

    def __mul__(self, other: Number) -> Dual:
        if not isinstance(other, Dual):
            return self._chain(self.value * other, other)
        return _combine(self.value * other.value, (self, other.value), (other, self.value))

    def __neg__(self) -> Dual:
        return self._chain(-self.value, -1.0)

    def __sub__(self, other: Number) -> Dual:
        return self + (-other)

    def __rsub__(self, other: Number) -> Dual:
        return -self + other

    def __truediv__(self, other: Number) -> Dual:
        return self * (other._reciprocal() if isinstance(other, Dual) else 1.0 / np.asarray(other))

    def __rtruediv__(self, other: Number) -> Dual:
        return self._reciprocal() * other

    def _reciprocal(self) -> Dual:
        inverse = 1.0 / self.value
        return self._chain(inverse, -inverse * inverse)

    def __pow__(self, exponent: Number) -> Dual:
        """Return self ^ exponent; self may be negative where the exponent has no gradient."""
        if isinstance(exponent, Dual):
            return np.exp(exponent * np.log(self))
        exponent = np.asarray(exponent, float)
        return self._chain(self.value**exponent, exponent * self.value ** (exponent - 1.0))

    def __rpow__(self, base: Array | float) -> Dual:
        return np.exp(self * np.log(base))

    __radd__, __rmul__ = __add__, __mul__


def sigmoid(x: Any) -> Any:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _combine(value: Array, *parts: tuple[Number, Array]) -> Dual:
    """Return a dual number from its value and its derivative by each operand; a plain operand has no gradient."""
    gradient: dict[int, Array] = {}
    for operand, slope in parts:
        if isinstance(operand, Dual):
            for index, part in operand.gradient.items():
                part = part * slope
                gradient[index] = gradient[index] + part if index in gradient else part
    return Dual(value, gradient)


def _value(x: Number) -> Any:
    return x.value if isinstance(x, Dual) else x


def _choice(function: Callable[..., Array], is_first: Callable[..., Array]) -> Callable[[Number, Number], Dual]:
    """The smaller or the larger of two numbers; the derivative is that of the number chosen."""

    def choose(x: Number, y: Number) -> Dual:
        first = is_first(_value(x), _value(y))
        return _combine(function(_value(x), _value(y)), (x, first), (y, ~first))

    return choose


def _logaddexp(x: Number, y: Number) -> Dual:
    """log(exp(x) + exp(y)) without overflow."""
    difference = _value(x) - _value(y)
    return _combine(np.logaddexp(_value(x), _value(y)), (x, sigmoid(difference)), (y, sigmoid(-difference)))


SLOPES: dict[Any, Callable[[Array, Array], Array]] = {
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
"""The derivative f'(x) of each function from x and f(x)."""

OPERATIONS: dict[Any, Callable[[Any, Any], Dual]] = {
    np.add: lambda x, y: y + x,
    np.subtract: lambda x, y: -y + x,
    np.multiply: lambda x, y: y * x,
    np.divide: lambda x, y: x * y._reciprocal() if isinstance(y, Dual) else x / y,
    np.power: lambda x, y: y.__rpow__(x) if not isinstance(x, Dual) else x**y,
    np.minimum: _choice(np.minimum, np.less),
    np.maximum: _choice(np.maximum, np.greater),
    np.logaddexp: _logaddexp,
}
"""Functions of two numbers, of which one at least is dual. An array on the left of an operator arrives here."""
