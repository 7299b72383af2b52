"""What the quickstart finds under other seeds: the whole study again and again, and a table of its answers.

    python benchmarks/seeds.py [--seeds 10] [--runs runs/seeds] [--keep docs/results/quickstart] [--done]

Each study goes through `scaling study` with its own workers. What a seed says is kept in a file of its own
(KEEP/seed-N.json) and not found again, so that a study of many seeds can go on elsewhere. The tables, Markdown, have
for each seed the irreducible loss with its interval and the test on the held-out run, by the final losses and by whole
curves; below them, how far losses of one size and budget lie apart.
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

import scaling
from scaling import atomic

STUDY = "quickstart"


@dataclass(frozen=True)
class Answer:
    floor: float
    low: float | None  # None where the interval is open
    high: float | None
    error: float  # of the held-out loss
    excess: float  # of its distance from the entropy
    inside: bool

    def holds(self, entropy: float) -> bool:
        return (self.low is None or self.low <= entropy) and (self.high is None or entropy <= self.high)

    @property
    def width(self) -> float:
        return math.inf if self.low is None or self.high is None else self.high - self.low


@dataclass(frozen=True)
class Seed:
    """What the study says under a seed; `losses` are N, D and the final loss of each run."""

    seed: int
    entropy: float
    final: Answer
    curves: Answer
    losses: list[list[float]]
    day: str
    hardware: str

    @staticmethod
    def read(path: Path) -> Seed:
        document = json.loads(path.read_text())
        answers = {name: Answer(**document[name]) for name in ("final", "curves")}
        return Seed(**{**document, **answers})


def found(runs: Path, seed: int) -> Seed:
    """The answers of a study, which is trained as far as it is not done."""
    command = [sys.executable, "-m", "scaling", "study", STUDY, f"seed={seed}", f"runs={runs}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    folder = runs / "studies" / f"{STUDY}-seed-{seed}"
    report = json.loads((folder / "report" / "fit.json").read_text())
    with (folder / "report" / "points.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["status"] == "finished"]
    losses = [[float(row[name]) for name in ("N", "D", "loss")] for row in rows]
    known = report["entropy"]
    (tested,) = report["held_out"]["points"]
    final = _answer(report["intervals"]["E"], tested, known["excess_errors"][0])
    document = scaling.fit_curves(folder).to_json()
    (tested,) = document["held_out"]
    excess = (tested["predicted"] - known["known"]) / (tested["loss"] - known["known"]) - 1
    curves = _answer(document["intervals"]["E"], tested, excess)
    return Seed(seed, known["known"], final, curves, losses, date.today().isoformat(), _hardware(runs, rows[0]["run"]))


def _answer(floor: dict[str, Any], tested: dict[str, Any], excess: float) -> Answer:
    return Answer(floor["estimate"], floor["low"], floor["high"], tested["relative_error"], excess, tested["covered"])


def _hardware(runs: Path, run: str) -> str:
    """Of the machine that trained, as a run's result names it."""
    circumstances = json.loads((runs / "store" / run / "result.json").read_text())["circumstances"]
    return f"{circumstances['processor']}, {circumstances['cores']} cores, {circumstances['threads']} threads a worker"


def table(seeds: Sequence[Seed], kind: str) -> Iterator[str]:
    new = "inside its 95% interval of a new run"
    yield f"| seed | E | 95% interval | holds the entropy | held-out loss | its excess | {new} |"
    yield "|---:|---:|---|---|---:|---:|---|"
    answers: list[Answer] = [getattr(one, kind) for one in seeds]
    held = [answer.holds(one.entropy) for one, answer in zip(seeds, answers, strict=True)]
    for one, answer, holds in zip(seeds, answers, held, strict=True):
        low, high = ("open" if end is None else f"{end:.4f}" for end in (answer.low, answer.high))
        about = f"| {one.seed} | {answer.floor:.4f} | {low} to {high} | {_yes_no(holds)} "
        yield about + f"| {answer.error:+.2%} | {answer.excess:+.1%} | {_yes_no(answer.inside)} |"
    floors = [answer.floor for answer in answers]
    yield ""
    yield (
        f"The interval holds the entropy {sum(held)} times of {len(answers)}; the held-out loss lies inside its "
        f"interval of a new run {sum(answer.inside for answer in answers)} times, and is predicted to "
        f"{max(abs(answer.error) for answer in answers):.2%} at worst, its excess to "
        f"{statistics.median(abs(answer.excess) for answer in answers):.1%} in the median. "
        f"E is {statistics.mean(floors):.4f} on average, with a standard deviation of {statistics.stdev(floors):.4f}; "
        f"median width {statistics.median(answer.width for answer in answers):.3f}."
    )


def spread(seeds: Sequence[Seed]) -> Iterator[str]:
    """Losses of one size and budget: their mean over seeds, and how far they lie apart."""
    losses: dict[tuple[float, float], list[float]] = defaultdict(list)
    for one in seeds:
        for size, tokens, loss in one.losses:
            losses[size, tokens].append(loss)
    yield "| N | D | loss, mean | standard deviation | least | most |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for (size, tokens), every in sorted(losses.items()):
        about = f"| {size:,.0f} | {tokens:,.0f} | {statistics.mean(every):.4f} | {statistics.stdev(every):.4f} "
        yield about + f"| {min(every):.4f} | {max(every):.4f} |"


def _yes_no(holds: bool) -> str:
    return "yes" if holds else "**no**"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--runs", type=Path, default=Path("runs/seeds"))
    parser.add_argument("--keep", type=Path, default=Path("runs/seeds/kept"))
    parser.add_argument("--done", action="store_true", help="read the seeds that are kept, and train none")
    given = parser.parse_args()
    seeds = []
    for number in range(given.seeds):
        kept = given.keep / f"seed-{number}.json"
        if not kept.exists():
            if given.done:
                continue
            kept.parent.mkdir(parents=True, exist_ok=True)
            atomic.write_json(kept, asdict(found(given.runs, number)))
            print(f"seed {number}: kept in {kept}", file=sys.stderr, flush=True)
        seeds.append(Seed.read(kept))
    if len(seeds) < 2:
        raise SystemExit("a spread takes two seeds")
    for kind, what in (("final", "By final losses"), ("curves", "By whole curves")):
        print("\n".join([f"## {what}", "", *table(seeds, kind), ""]))
    print("\n".join(spread(seeds)))


if __name__ == "__main__":
    main()
