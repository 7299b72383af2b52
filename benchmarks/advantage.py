"""How often `scaling compare` holds the truth: simulated pairs of studies whose k is known.

    python benchmarks/advantage.py [--studies 200] [--noise 0.004]

A ladder has five sizes with 20 tokens a parameter and three seeds each; a grid has five sizes by four token budgets.
The loss of B at C is that of A at k C. Printed are the coverage of k, how often B is called better, and the median
width.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from scaling.laws.compare import advantage
from scaling.laws.points import Points


def draw(rng: np.random.Generator, kind: str, k: float, noise: float) -> Points:
    size = np.geomspace(1e5, 3e7, 5)
    if kind == "ladder":
        N = np.repeat(size, 3)
        D = 20 * N
        loss = 2 + 8 * (k * 6 * N * D / 1e12) ** -0.06
    else:
        N, D = (each.ravel() for each in np.meshgrid(size, np.geomspace(2e6, 6e8, 4)))
        loss = 2 + 30 * (N * k**0.5) ** -0.3 + 60 * (D * k**0.5) ** -0.3
    return Points({"N": N, "D": D, "C": 6 * N * D, "loss": loss * np.exp(noise * rng.standard_normal(len(N)))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=200)
    parser.add_argument("--noise", type=float, default=0.004)
    told = parser.parse_args()
    print("| study | k | k is inside | B is called better | high / low of k | s a comparison |")
    print("|---|---:|---:|---:|---:|---:|")
    for kind in ("ladder", "grid"):
        for k in (1.0, 1.2, 2.0):
            rng, started = np.random.default_rng(0), time.perf_counter()
            found = [
                advantage(draw(rng, kind, 1.0, told.noise), draw(rng, kind, k, told.noise)).k
                for _ in range(told.studies)
            ]
            seconds = (time.perf_counter() - started) / told.studies
            inside = 100 * np.mean([each.covers(k) for each in found])
            better = 100 * np.mean([each.low > 1 for each in found])
            width = np.median([each.high / each.low for each in found])
            print(f"| {kind} | {k:g} | {inside:.1f}% | {better:.1f}% | {width:.2f} | {seconds:.2f} |", flush=True)


if __name__ == "__main__":
    main()
