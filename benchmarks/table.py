"""What a training step of every row of a table costs beside its own operations and the paper's speed.

    python benchmarks/table.py [TABLE] [key=value …] [--row ROW] [--rounds 15] [--profile]

Forward, backward and optimizer in float32 by one thread, on batches made beforehand. The rows take turns, one step each
a round, in another order every round, so that what disturbs the machine disturbs all. Times are CPU time, and a figure
is the median of the rounds: the first is not counted. Operations are of the forward pass, as it runs; the paper's ratio
is of the inverse of its Step/s. `time / operations` above 1.5 is a row that is slower than its operations say.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import platform
import pstats
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from scaling.base.batch import Batch
from scaling.tables.count import Counts, counts
from scaling.tables.table import Table, read
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights

# An endless text of as many symbols as the table's own text has tokens, so that nothing has to be prepared.
TEXT = ("data=synthetic", "data.symbols=499", "data.order=1")
BATCHES = 4


class Contestant:
    """A row that is trained step by step."""

    def __init__(self, table: Table, counted: Counts, words: Sequence[str]):
        self.counted, self.name = counted, counted["row"]
        experiment = assemble(table.load(self.name, words))
        self.batches: list[Batch] = [experiment.batches.batch(step) for step in range(BATCHES)]
        self.model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
        weights = Weights(self.model, "32-true").parameters
        self.optimizers = experiment.optimizer.make(weights, experiment.rate)
        self.taken = 0

    def step(self) -> tuple[float, float]:
        """CPU seconds of forward and backward, and of the optimizer."""
        started = time.process_time()
        self.model.loss(self.batches[self.taken % BATCHES]).total.backward()
        between = time.process_time()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.taken += 1
        return between - started, time.process_time() - between


@dataclass(frozen=True)
class Figure:
    """A row's milliseconds, and its ratios to the baseline's; None is what the paper did not measure."""

    row: str
    gradient_ms: float
    optimizer_ms: float
    time: float
    operations: float
    published: float | None

    @property
    def excess(self) -> float:
        return self.time / self.operations


def measured(contestants: Sequence[Contestant], rounds: int) -> dict[str, list[tuple[float, float]]]:
    times: dict[str, list[tuple[float, float]]] = {one.name: [] for one in contestants}
    order = random.Random(0)
    for number in range(rounds + 1):
        for one in order.sample(contestants, len(contestants)):
            found = one.step()
            if number:
                times[one.name].append(found)
        print(f"round {number} of {rounds}", file=sys.stderr)
    return times


def figures(
    contestants: Sequence[Contestant], times: dict[str, list[tuple[float, float]]], baseline: str
) -> Iterator[Figure]:
    first = next(one.counted for one in contestants if one.name == baseline)
    base_ms = statistics.median(map(sum, times[baseline])) * 1e3
    base_speed = _speed(first)
    for one in contestants:
        gradient, optimizer = (statistics.median(part) * 1e3 for part in zip(*times[one.name], strict=True))
        whole = statistics.median(map(sum, times[one.name])) * 1e3
        speed = _speed(one.counted)
        published = base_speed / speed if base_speed and speed else None
        yield Figure(
            one.name,
            gradient,
            optimizer,
            whole / base_ms,
            one.counted["flops_forward"] / first["flops_forward"],
            published,
        )


def _speed(counted: Counts) -> float | None:
    """The published steps per second."""
    speed = counted["published"].get("step_per_s")
    return None if speed is None else float(speed)


def markdown(found: Sequence[Figure]) -> str:
    head = ("row", "gradient, ms", "optimizer, ms", "time", "operations", "time / operations", "paper's time")
    lines = [" | ".join(head), " | ".join(["---", *["---:"] * (len(head) - 1)])]
    for one in found:
        excess = f"**{one.excess:.2f}**" if one.excess > 1.5 else f"{one.excess:.2f}"
        ratios = (f"{one.time:.2f}", f"{one.operations:.2f}", excess)
        published = "–" if one.published is None else f"{one.published:.2f}"
        lines.append(" | ".join((one.row, f"{one.gradient_ms:.1f}", f"{one.optimizer_ms:.1f}", *ratios, published)))
    return "\n".join(f"| {line} |" for line in lines)


def profiled(one: Contestant, rounds: int) -> None:
    """Where a row's steps spend their time: operators, then our own functions."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as operators:
        for _ in range(rounds):
            one.step()
    print(one.name)
    print(operators.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=50))
    functions = cProfile.Profile()
    for _ in range(rounds):
        functions.runcall(one.step)
    pstats.Stats(functions).sort_stats("tottime").print_stats(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", default="narang2021_cpu")
    parser.add_argument("words", nargs="*", metavar="key=value")
    parser.add_argument("--row", action="append", default=[], help="this row beside the baseline; repeats")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--profile", action="store_true", help="print where the rows' time goes instead")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = read(given.table)
    table = table.only([table.baseline, *given.row] if given.row else [])
    with tempfile.TemporaryDirectory() as runs:
        words = [*TEXT, f"runs={runs}", *given.words]
        contestants = [Contestant(table, counted, words) for counted in counts(table, words)]
        if given.profile:
            for one in contestants:
                profiled(one, given.rounds)
            return
        before = os.getloadavg()[0]
        found = list(figures(contestants, measured(contestants, given.rounds), table.baseline))
    print(markdown(found))
    where = f"{platform.processor() or platform.machine()}, {torch.backends.cpu.get_cpu_capability()}"
    print(f"\n{date.today()}, {where}, torch {torch.__version__}, one thread, {given.rounds} rounds; ", end="")
    print(f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
    if given.json:
        given.json.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")


if __name__ == "__main__":
    main()
