"""How often an interval of E misses at any look, where a study is looked at after each of its runs.

    python -m scaling.coverage.looks [--studies 40]

Simulated studies of the quickstart's 21 fitted runs, which end in a random order; runs of a trunk share errors.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from scaling.coverage.adaptive import ANY_WIDTH, SEEDS, TRUTH, candidates, drawn
from scaling.laws.catalogue import named
from scaling.laws.design import Candidates
from scaling.laws.intervals import Interval
from scaling.laws.next_run import interval_of_all_looks, look


def looks(field: Candidates, losses: np.ndarray, order: np.ndarray) -> Iterator[tuple[Interval, Interval | None]]:
    """The interval of one look and that of all looks, after each run that leaves the law two degrees of freedom."""
    form = named("chinchilla")
    whole = sorted(int(row) for row in order)
    for count in range(len(form.parameters) + 2, len(order) + 1):
        rows = [int(row) for row in order[:count]]
        seen = look(ANY_WIDTH, [form], field, rows, losses[rows])
        if seen.interval is not None:
            yield seen.interval, interval_of_all_looks(ANY_WIDTH, field, rows, seen, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=40)
    count = parser.parse_args().studies
    field = candidates()
    missed, last, widths, opened, total = np.zeros(2), np.zeros(2), [], 0, 0
    for study in range(count):
        rng = np.random.Generator(np.random.Philox([1, study]))
        losses, order = drawn(field, TRUTH, rng), rng.permutation(len(field) // SEEDS)
        seen = list(looks(field, losses, order))
        misses = [[not (each is None or each.covers(TRUTH["E"])) for each in pair] for pair in seen]
        missed += np.any(misses, axis=0)
        last += misses[-1]
        opened += sum(pair[1] is None for pair in seen)
        total += len(seen)
        one, every = seen[-1]
        if every is not None:
            widths.append((every.high - every.low) / (one.high - one.low))
    print("| interval | studies | missed E at some look | at the last look |")
    print("|---|--:|--:|--:|")
    for name, some, end in zip(("of one look", "under repeated looks"), missed, last, strict=True):
        print(f"| {name} | {count} | {some / count:.1%} | {end / count:.1%} |")
    print(f"\n{opened / total:.0%} of the looks had no interval under repeated looks yet.", end=" ")
    print(f"At the last look it is {np.median(widths):.2f} times as wide as that of one look, in the median.")


if __name__ == "__main__":
    main()
