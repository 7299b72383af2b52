"""What the quickstart finds under other seeds: the whole study again and again, and a table of its answers.

    python benchmarks/seeds.py [--seeds 10] [--runs runs/seeds] [--keep docs/results/quickstart] [--done]

Each study goes through `scaling study` with its own workers. What a seed says is kept in a file of its own
(KEEP/seed-N.json) and not found again, so that a study of many seeds can go on elsewhere. The first table, Markdown,
has for each seed the irreducible loss and the exponent α with their intervals, and the test on the held-out run; the
second, how far losses of one size and budget lie apart.
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
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from scaling.base import atomic

STUDY = "quickstart"


@dataclass(frozen=True)
class Seed:
    """What the study says under a seed. An interval's end is None where it is open."""

    seed: int
    entropy: float
    floor: float
    interval: tuple[float | None, float | None]  # of the floor
    alpha: tuple[float | None, float | None]
    not_identified: list[str]  # sentences
    error: float  # of the held-out loss, relative
    excess_error: float  # of its distance from the entropy, relative
    inside: bool  # the held-out loss, in its interval of a new run
    losses: list[list[float]]  # N, D and the final loss of each run
    day: str
    hardware: str

    @property
    def holds(self) -> bool:
        low, high = self.interval
        return (low is None or low <= self.entropy) and (high is None or self.entropy <= high)

    @property
    def width(self) -> float:
        low, high = self.interval
        return math.inf if low is None or high is None else high - low


def run(runs: Path, seed: int) -> Seed:
    """The answers of a study, which is trained as far as it is not done."""
    command = [sys.executable, "-m", "scaling", "study", STUDY, f"seed={seed}", f"runs={runs}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    report = runs / "studies" / f"{STUDY}-seed-{seed}" / "report"
    fit = json.loads((report / "fit.json").read_text())
    with (report / "points.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "finished"]
    (tested,) = fit["held_out"]["points"]
    known = fit["entropy"]
    return Seed(
        seed=seed,
        entropy=known["known"],
        floor=fit["estimates"]["E"],
        interval=_ends(fit, "E"),
        alpha=_ends(fit, "alpha"),
        not_identified=fit["not_identified"],
        error=tested["relative_error"],
        excess_error=known["excess_errors"][0],
        inside=tested["covered"],
        losses=[[float(row[name]) for name in ("N", "D", "loss")] for row in rows],
        day=date.today().isoformat(),
        hardware=_hardware(runs, rows[0]["run"]),
    )


def _ends(fit: dict[str, Any], name: str) -> tuple[float | None, float | None]:
    return fit["intervals"][name]["low"], fit["intervals"][name]["high"]


def _hardware(runs: Path, name: str) -> str:
    """Of the machine that trained, as a run's result names it."""
    circumstances = json.loads((runs / "store" / name / "result.json").read_text())["circumstances"]
    return f"{circumstances['processor']}, {circumstances['cores']} cores, {circumstances['threads']} threads a worker"


def answers(seeds: Sequence[Seed]) -> Iterator[str]:
    yield (
        "| seed | E | 95% interval | holds the entropy | α, 95% interval | not identified "
        "| error of the held-out loss | of its excess | inside its 95% interval of a new run |"
    )
    yield "|---:|---:|---|---|---|---|---:|---:|---|"
    for seed in seeds:
        doubts = "; ".join(seed.not_identified) or "–"
        about = f"| {seed.seed} | {seed.floor:.4f} | {_written(seed.interval, 4)} | {_yes_no(seed.holds)} "
        about += f"| {_written(seed.alpha, 2)} | {doubts} "
        yield about + f"| {seed.error:+.2%} | {seed.excess_error:+.1%} | {_yes_no(seed.inside)} |"
    floors = [seed.floor for seed in seeds]
    yield ""
    yield (
        f"The interval holds the entropy {sum(seed.holds for seed in seeds)} times of {len(seeds)}; the held-out loss "
        f"lies inside its interval of a new run {sum(seed.inside for seed in seeds)} times, and is predicted to "
        f"{max(abs(seed.error) for seed in seeds):.2%} at worst, its excess to "
        f"{statistics.median(abs(seed.excess_error) for seed in seeds):.1%} in the median. "
        f"All parameters are identified in {sum(not seed.not_identified for seed in seeds)}. "
        f"E is {statistics.mean(floors):.4f} on average, with a standard deviation of {statistics.stdev(floors):.4f}; "
        f"median width {statistics.median(seed.width for seed in seeds):.3f}."
    )


def _written(interval: tuple[float | None, float | None], digits: int) -> str:
    low, high = ("open" if end is None else f"{end:.{digits}f}" for end in interval)
    return f"{low} to {high}"


def scatter(seeds: Sequence[Seed]) -> Iterator[str]:
    """Losses of one size and budget: their mean over seeds, and how far they lie apart."""
    losses: dict[tuple[float, float], list[float]] = defaultdict(list)
    for seed in seeds:
        for size, tokens, loss in seed.losses:
            losses[size, tokens].append(loss)
    yield "| N | D | loss, mean | standard deviation | least | most |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for (size, tokens), values in sorted(losses.items()):
        about = f"| {size:,.0f} | {tokens:,.0f} | {statistics.mean(values):.4f} | {statistics.stdev(values):.4f} "
        yield about + f"| {min(values):.4f} | {max(values):.4f} |"


def _yes_no(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--keep", type=Path, default=Path("runs/seeds/kept"))
    parser.add_argument("--done", action="store_true", help="read the seeds that are kept, and train none")
    options = parser.parse_args()
    seeds = []
    for number in range(options.seeds):
        kept = options.keep / f"seed-{number}.json"
        if not kept.exists():
            if options.done:
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_json(kept, asdict(run(options.runs, number)))
            print(f"seed {number}: kept in {kept}", file=sys.stderr, flush=True)
        seeds.append(Seed(**json.loads(kept.read_text())))
    if len({len(seed.losses) for seed in seeds}) > 1:
        raise SystemExit("some seeds have a smaller grid, which a busy machine is given: delete their files, run again")
    if len(seeds) < 2:
        raise SystemExit("a standard deviation takes two seeds")
    print("\n".join(["## What each seed says", "", *answers(seeds), "", "## How far losses lie apart", ""]))
    print("\n".join(scatter(seeds)))


if __name__ == "__main__":
    main()
