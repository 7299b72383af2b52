"""How long a fit of many whole curves takes: `python benchmarks/curves.py --curves 1000 --points 100`."""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.coverage.studies import KINDS, RATE, curve_design, draw_curves
from scaling.laws.catalogue import CURVE_LAWS
from scaling.laws.curves import Curve, fit_curves


def many(count: int, points: int) -> list[Curve]:
    """Runs of sizes over two decades, each with a schedule of its own length and `points` evaluations."""
    like = curve_design()[-1]
    curves = []
    for place in range(count):
        steps = 1500 + 500 * (place % 7)
        way = np.linspace(0.0, 1.0, steps)
        rates = (
            RATE
            * np.minimum(1.0, (np.arange(steps) + 1) / 97)
            * np.minimum(1.0, (1.0 - way) / (0.2 + 0.8 * (place % 2)))
        )
        logged = np.unique(np.geomspace(0.12 * steps, steps, points).round().astype(int))
        ones = np.ones(len(logged))
        size = float(5e3 * 100 ** (place % 50 / 50))
        curves.append(
            replace(
                like,
                run=f"{place:05d}",
                trunk="",
                N=size,
                rates=rates,
                steps=logged,
                losses=ones,
                kinds=ones.astype(int),
            )
        )
    return draw_curves(curves, next(iter(KINDS.values())), np.random.default_rng(0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curves", type=int, default=1000)
    parser.add_argument("--points", type=int, default=100)
    arguments = parser.parse_args()
    curves = many(arguments.curves, arguments.points)
    for law in CURVE_LAWS:
        wall, cpu = time.perf_counter(), time.process_time()
        found = fit_curves(curves, law)
        print(f"{law}: {time.process_time() - cpu:.1f} s of CPU, {time.perf_counter() - wall:.1f} s; {found}")


if __name__ == "__main__":
    main()
