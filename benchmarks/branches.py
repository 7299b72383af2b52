"""Do branches of a shared trunk land where whole runs land? Both for each size, budget and seed, and their difference.

    python benchmarks/branches.py [--tokens 500k 1M] [--seeds 5] [--workers N]

The models and the schedule (WSD) are quickstart's. A branch starts from its size and seed's trunk, trained once for
all budgets; the whole run is trained from nothing in a ledger of its own that has no trunk. Under a difference of mean
losses stands its 95% t-interval over the seeds, each paired with itself; beside it the scatter between seeds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from scaling.laws.intervals import student
from scaling.ledger import Ledger
from scaling.studies.plan import Plan, Run, enter, plan
from scaling.studies.question import Question, read
from scaling.studies.scheduler import train

STUDY = "quickstart"
SIZES = (0, 2, 4)  # of the study's, over 1.2 decades


@dataclass(frozen=True)
class Ended:
    """How a run ended: its loss, and what names its last weights."""

    loss: float
    weights: str
    from_step: int


def question_of(tokens: list[str], seeds: int) -> Question:
    question = read(STUDY)
    assert isinstance(question.grid, Mapping)
    sizes = [question.grid["size"][place] for place in SIZES]
    grid = {"size": sizes, "train.tokens": tokens, "seed": list(range(seeds))}
    return replace(question, name="branches", grid=grid, held_out={}, laws=(), minutes=None)


def apart(found: Plan) -> Plan:
    """The same runs, each to be trained whole."""
    return Plan(found.question, tuple(map(_whole, found.runs)))


def _whole(one: Run) -> Run:
    experiment = one.experiment
    flops = experiment.cost.flops_train_per_token * experiment.tokens(one.steps)
    return replace(one, trunk=None, flops=flops)


def trained(found: Plan, workers: int | None) -> dict[str, Ended]:
    """Every run by its id, trained by workers."""
    ledger = found.ledger()
    enter(ledger, found)
    train(ledger, found, lambda _: None, workers=workers)
    return {one.run: _ended(ledger, one.run, one.steps) for one in found.runs}


def _ended(ledger: Ledger, run: str, steps: int) -> Ended:
    result, last = ledger.result(run), ledger.checkpoint(run, steps)
    if result is None or result["outcome"] != "finished" or last is None:
        raise SystemExit(f"run {run} did not finish: {result}")
    manifest = json.loads((last.folder / "manifest.json").read_text())
    weights = manifest["files"]["weights.safetensors"]["sha256"]
    return Ended(result["loss"], weights, result["circumstances"]["from_step"])


def table(found: Plan, branches: Mapping[str, Ended], whole: Mapping[str, Ended]) -> str:
    heads = ("size", "tokens", "whole run", "branch", "seeds", "difference", "95% interval", "largest", "same weights")
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found.runs:
        size, _, rest = one.name.partition(" tokens=")
        groups.setdefault((size, rest.partition(" ")[0]), []).append(one.run)
    rows: list[tuple[str, ...]] = [heads]
    for (size, tokens), runs in groups.items():
        pairs = [(whole[run], branches[run]) for run in runs]
        differences = [branch.loss - full.loss for full, branch in pairs]
        low, high = interval(differences)
        rows.append(
            (
                size,
                tokens,
                f"{statistics.fmean(full.loss for full, _ in pairs):.4f}",
                f"{statistics.fmean(branch.loss for _, branch in pairs):.4f}",
                f"± {statistics.stdev(full.loss for full, _ in pairs):.4f}",
                f"{statistics.fmean(differences):+.1e}",
                f"[{low:+.1e}, {high:+.1e}]",
                f"{max(map(abs, differences)):.1e}",
                f"{sum(full.weights == branch.weights for full, branch in pairs)} of {len(pairs)}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows)


def interval(differences: list[float]) -> tuple[float, float]:
    mean, count = statistics.fmean(differences), len(differences)
    half = student(0.95, count - 1) * statistics.stdev(differences) / count**0.5
    return mean - half, mean + half


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", nargs="+", default=["500k", "1M"], help="two budgets or more")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--workers", type=int, help="processes; what suits the machine unless said")
    given = parser.parse_args()
    if len(given.tokens) < 2 or given.seeds < 2:
        parser.error("a trunk is shared by two budgets or more, and scatter needs two seeds or more")
    question = question_of(given.tokens, given.seeds)
    with tempfile.TemporaryDirectory() as folder:
        branched, single = (
            plan(question, [f"runs={Path(folder) / name}", "log.wandb=disabled"]) for name in ("branches", "whole")
        )
        branches, whole = trained(branched, given.workers), trained(apart(single), given.workers)
    if any(ended.from_step for ended in whole.values()) or not all(ended.from_step for ended in branches.values()):
        raise SystemExit("a whole run began at a trunk, or a branch at nothing")
    print(table(branched, branches, whole))
    total = sum(job.flops for job in (*branched.runs, *branched.trunks.values()))
    print(f"trunks saved {1 - total / sum(one.flops for one in apart(single).runs):.0%} of the training compute")


if __name__ == "__main__":
    main()
