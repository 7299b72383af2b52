"""Forward-mode derivatives for laws: numbers that carry their exact gradient through a formula.

A law is written once, as its formula; evaluated on `Dual` parameters it returns the loss and the exact derivative
with respect to each parameter (Wengert 1964, Communications of the ACM 7(8)). The gradient is sparse, a dict from the
parameter's index to an array, because a term of a law knows only its own two or three parameters.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray
Number: TypeAlias = "Dual | Array | float"


class Dual:
    """A value and its gradient, both broadcast over (starts, points)."""

    __slots__ = ("gradient", "value")
    __array_ufunc__ = None  # so that `array ** dual` asks the dual, not numpy's object loop

    def __init__(self, value: Array, gradient: dict[int, Array]):
        self.value, self.gradient = value, gradient

    def _chain(self, value: Array, slope: Array | float) -> Dual:
        """f(self), given its value and f'."""
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
        gradient = {index: part * other.value for index, part in self.gradient.items()}
        for index, part in other.gradient.items():
            part = part * self.value
            gradient[index] = gradient[index] + part if index in gradient else part
        return Dual(self.value * other.value, gradient)

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
        return exp(exponent * log(self))

    def __rpow__(self, base: Array | float) -> Dual:
        return exp(self * np.log(base))

    __radd__, __rmul__ = __add__, __mul__


def exp(x: Dual) -> Dual:
    value = np.exp(x.value)
    return x._chain(value, value)


def log(x: Dual) -> Dual:
    return x._chain(np.log(x.value), 1.0 / x.value)


def expm1(x: Dual) -> Dual:
    return x._chain(np.expm1(x.value), np.exp(x.value))


def log1p_exp(x: Dual) -> Dual:
    """log(1 + eˣ) without overflow."""
    return x._chain(np.logaddexp(0.0, x.value), sigmoid_of(x.value))


def sigmoid(x: Dual) -> Dual:
    value = sigmoid_of(x.value)
    return x._chain(value, value * (1.0 - value))


def sigmoid_of(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def tanh(x: Dual) -> Dual:
    value = np.tanh(x.value)
    return x._chain(value, 1.0 - value * value)


def absolute(x: Dual) -> Dual:
    return x._chain(np.abs(x.value), np.sign(x.value))


def power(x: Dual, exponent: Array | float) -> Dual:
    """x ^ exponent for an exponent without a gradient, where x may be negative."""
    exponent = np.asarray(exponent, float)
    return x._chain(x.value**exponent, exponent * x.value ** (exponent - 1.0))


def minimum(x: Number, y: Number) -> Any:
    """min(x, y); the derivative is that of whichever is the smaller."""
    if not isinstance(x, Dual) and not isinstance(y, Dual):
        return np.minimum(x, y)
    first, second = (part if isinstance(part, Dual) else Dual(np.asarray(part, float), {}) for part in (x, y))
    below = first.value < second.value
    gradient = {index: part * below for index, part in first.gradient.items()}
    for index, part in second.gradient.items():
        part = part * ~below
        gradient[index] = gradient[index] + part if index in gradient else part
    return Dual(np.where(below, first.value, second.value), gradient)


def maximum(x: Number, y: Number) -> Any:
    """max(x, y); the derivative is that of whichever is the larger."""
    return -minimum(-x, -y)
