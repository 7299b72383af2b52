"""The law of the ranks, q(r) ∝ (r + 1)^−s: all the chance there is in a synthetic source, hence its entropy.

Logarithms are taken in decimal arithmetic, where they are rounded correctly, and the law is cut into 64-bit integers:
the same draws on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property, lru_cache

import numpy as np

_DIGITS = Context(prec=50)


def logarithm(number: int | Decimal) -> Decimal:
    return _DIGITS.ln(Decimal(number))


@dataclass(frozen=True)
class Ranks:
    """Ranks 0 to `symbols` − 1, drawn by Zipf's law with an exponent (Zipf 1935)."""

    symbols: int
    exponent: float

    @staticmethod
    @lru_cache(maxsize=64)
    def of(symbols: int, exponent: float) -> Ranks:
        """The ranks of a law, whose decimals are computed once: the runs of a study are of one language."""
        return Ranks(symbols, exponent)

    @cached_property
    def _law(self) -> list[Decimal]:
        # The exponent as it is written, not as binary rounds it: 1.6 is 16/10.
        slope = Decimal(repr(self.exponent))
        weights = [_DIGITS.exp(_DIGITS.multiply(-slope, logarithm(r + 1))) for r in range(self.symbols)]
        total = sum(weights)
        return [_DIGITS.divide(weight, total) for weight in weights]

    @cached_property
    def entropy(self) -> float:
        """H(q) = −Σ q ln q, in nats."""
        return float(-sum(_DIGITS.multiply(q, logarithm(q)) for q in self._law))

    @cached_property
    def probabilities(self) -> np.ndarray:
        """[symbols] q(r)."""
        return np.array([float(q) for q in self._law])

    @cached_property
    def losses(self) -> np.ndarray:
        """[symbols] −ln q(r), float32."""
        return np.array([float(-logarithm(q)) for q in self._law], np.float32)

    @cached_property
    def _bounds(self) -> np.ndarray:
        cumulated, bounds = Decimal(0), []
        for q in self._law[:-1]:
            cumulated = _DIGITS.add(cumulated, q)
            bounds.append(int(_DIGITS.multiply(cumulated, Decimal(1 << 64))))
        return np.array(bounds, np.uint64)

    def drawn(self, words: np.ndarray) -> np.ndarray:
        """The rank that each uniform 64-bit word means."""
        return np.searchsorted(self._bounds, words, side="right")
