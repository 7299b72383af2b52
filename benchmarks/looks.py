"""CPU seconds of a look at a study's law after each of its runs: `python benchmarks/looks.py --studies 6`.

The studies are those of benchmarks/coverage; a look fits the law and computes the intervals of E of one look and
under repeated looks. It takes longest where few runs leave an end of the interval open.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.coverage.simulated import looks
from benchmarks.coverage.studies import SEEDS, candidates, draw_candidates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=6)
    field, seconds = candidates(), []
    for study in range(parser.parse_args().studies):
        rng = np.random.Generator(np.random.Philox([1, study]))
        losses, order = draw_candidates(field, rng), rng.permutation(len(field) // SEEDS)
        before = time.process_time()
        for _ in looks(field, losses, order):
            seconds.append(time.process_time() - before)
            before = time.process_time()
    median, most, longest = np.quantile(seconds, [0.5, 0.95, 1.0])
    print(f"{len(seconds)} looks: {median:.2f} s in the median, {most:.2f} s for 95 of 100, {longest:.2f} s at most")


if __name__ == "__main__":
    main()
