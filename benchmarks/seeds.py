"""What the quickstart finds under other seeds: the whole study again and again, and a table of its answers.

    python benchmarks/seeds.py [--seeds 20] [--runs runs/seeds] [--done] [--curves 20]

Each study goes through `scaling study` with its own workers; one that is done is read and not trained again. The table,
Markdown, has for each seed the irreducible loss with its interval and the test on the held-out run; below it, how far
losses of one size and budget lie apart. With `--curves`, each run is evaluated so many times, which changes none of
them, and a second table has the same answers by a law of whole curves.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import scaling

STUDY = "quickstart"


@dataclass(frozen=True)
class Answer:
    seed: int
    floor: float
    low: float
    high: float
    entropy: float
    error: float  # of the held-out loss
    excess: float  # of its distance from the entropy
    inside: bool

    @property
    def contained(self) -> bool:
        return self.low <= self.entropy <= self.high


def folder(runs: Path, seed: int) -> Path:
    return runs / "studies" / f"{STUDY}-seed-{seed}" / "report"


def report_of(runs: Path, seed: int) -> dict[str, Any] | None:
    """What the page of a study says, where all of its runs are done."""
    path = folder(runs, seed) / "fit.json"
    told = json.loads(path.read_text()) if path.exists() else None
    return told if told and told["points"]["used"] == told["points"]["planned"] else None


def answer(runs: Path, seed: int, evaluations: int | None) -> Answer:
    if report_of(runs, seed) is None:
        words = [sys.executable, "-m", "scaling", "study", STUDY, f"seed={seed}", f"runs={runs}"]
        words += [] if evaluations is None else [f"evaluate.points={evaluations}"]
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    told = report_of(runs, seed)
    assert told is not None
    (held_out,) = told["held_out"]["points"]
    floor, known = told["intervals"]["E"], told["entropy"]
    inside = held_out["covered"]
    errors = (held_out["relative_error"], known["excess_errors"][0])
    return Answer(seed, floor["estimate"], floor["low"], floor["high"], known["known"], *errors, inside)


def answer_of_curves(runs: Path, final: Answer) -> Answer:
    """The answer of all evaluations of a study's runs, in the place of their final losses."""
    document = scaling.fit_curves(folder(runs, final.seed).parent).to_json()
    (held_out,) = document["held_out"]
    floor = document["intervals"]["E"]
    low = -math.inf if floor["low"] is None else floor["low"]
    high = math.inf if floor["high"] is None else floor["high"]
    excess = (held_out["predicted"] - final.entropy) / (held_out["loss"] - final.entropy) - 1
    about = (held_out["relative_error"], excess, held_out["covered"])
    return Answer(final.seed, floor["estimate"], low, high, final.entropy, *about)


def table(answers: Sequence[Answer]) -> Iterator[str]:
    new = "inside its 95% interval of a new run"
    yield f"| seed | E | 95% interval | holds the entropy | held-out loss | its excess | {new} |"
    yield "|---:|---:|---|---|---:|---:|---|"
    for one in answers:
        about = f"| {one.seed} | {one.floor:.4f} | {one.low:.4f} to {one.high:.4f} | {_yes_no(one.contained)} "
        yield about + f"| {one.error:+.2%} | {one.excess:+.1%} | {_yes_no(one.inside)} |"
    floors, widths = [one.floor for one in answers], [one.high - one.low for one in answers]
    yield ""
    yield (
        f"The interval holds the entropy {sum(one.contained for one in answers)} times of {len(answers)}; the held-out "
        f"loss lies inside its interval of a new run {sum(one.inside for one in answers)} times, and is predicted to "
        f"{max(abs(one.error) for one in answers):.2%} at worst, its excess to "
        f"{statistics.median(abs(one.excess) for one in answers):.1%} in the median. "
        f"E is {statistics.mean(floors):.4f} on average, with a "
        f"standard deviation of {statistics.stdev(floors):.4f}; median width {statistics.median(widths):.3f}."
    )


def spread(runs: Path, seeds: Sequence[int]) -> Iterator[str]:
    """Losses of one size and budget: their mean over seeds, and how far they lie apart."""
    losses: dict[tuple[int, int], list[float]] = defaultdict(list)
    for seed in seeds:
        with (folder(runs, seed) / "points.csv").open(newline="") as file:
            for row in csv.DictReader(file):
                if row["status"] == "finished":
                    losses[int(row["N"]), int(row["D"])].append(float(row["loss"]))
    yield "| N | D | loss, mean | standard deviation | least | most |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for (size, tokens), found in sorted(losses.items()):
        about = f"| {size:,} | {tokens:,} | {statistics.mean(found):.4f} | {statistics.stdev(found):.4f} "
        yield about + f"| {min(found):.4f} | {max(found):.4f} |"


def _yes_no(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--done", action="store_true", help="read the seeds that are done, and train none")
    parser.add_argument("--curves", type=int, metavar="EVALUATIONS", help="evaluate each run so often, and fit curves")
    given = parser.parse_args()
    seeds = list(range(given.seeds))
    if given.done:
        seeds = [seed for seed in seeds if report_of(given.runs, seed) is not None]
    if len(seeds) < 2:
        raise SystemExit("a spread takes two seeds")
    answers = [answer(given.runs, seed, given.curves) for seed in seeds]
    print("\n".join([*table(answers), "", *spread(given.runs, seeds)]))
    if given.curves is not None:
        print("\n".join(["", *table([answer_of_curves(given.runs, one) for one in answers])]))


if __name__ == "__main__":
    main()
