"""How often a size is said to lie off the law though it does not: `python -m scaling.coverage.residuals`.

Studies of independent noise around a known law, each fitted as `scaling fit` does; and, to see what the test finds,
the same with one size shifted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scaling.errors import ScalingError
from scaling.law.fit import fit
from scaling.law.forms import named

LAW = "chinchilla"
THETA = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])
GRIDS = {"6 sizes × 4 budgets": (6, 4), "5 sizes × 5 budgets": (5, 5), "10 sizes × 8 budgets": (10, 8)}
NOISE = 0.002
STUDIES = 500
STARTS = 64


def grid(sizes: int, budgets: int) -> dict[str, np.ndarray]:
    """N and D of every size at every budget."""
    axes = np.meshgrid(np.geomspace(1e7, 1e9, sizes), np.geomspace(1e9, 1e11, budgets))
    return dict(zip("ND", (axis.ravel() for axis in axes), strict=True))


def study(columns: dict[str, np.ndarray], rng: np.random.Generator, shift: float) -> dict[str, np.ndarray]:
    """Losses with independent noise; those of the second size are shifted, in multiples of the noise."""
    law = np.log(named(LAW).predict(THETA, columns))
    off = columns["N"] == np.unique(columns["N"])[1]
    return columns | {"loss": np.exp(law + NOISE * (rng.standard_normal(len(law)) + shift * off))}


def rate(sizes: int, budgets: int, shift: float = 0.0, studies: int = STUDIES, seed: int = 0) -> float:
    """The fraction of the studies whose fit names a size."""
    columns, rng = grid(sizes, budgets), np.random.default_rng(seed)
    named_sizes = fitted = 0
    while fitted < studies:
        try:
            found = fit(LAW, study(columns, rng, shift), starts=STARTS)
        except ScalingError:
            continue  # it did not converge
        named_sizes += any("does not fit this size" in reason for reason in found.unreliable)
        fitted += 1
    return named_sizes / studies


def lines() -> Iterator[str]:
    yield "| grid | studies | a size is named, independent noise | one size off by 3 standard deviations |"
    yield "|---|---:|---:|---:|"
    for name, shape in GRIDS.items():
        yield f"| {name} | {STUDIES} | {rate(*shape):.1%} | {rate(*shape, 3.0):.1%} |"


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        print("\n".join(lines()))
