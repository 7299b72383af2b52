"""`scaling train` as a whole process beside a plain loop over the fastest peer of the same shape.

    python benchmarks/throughput.py [--shapes 64 128 256 512] [--rounds 3] [--steps N] [--seeds 3] [--json FILE]

Ours are whole processes with everything on: log, W&B's files, checkpoints, evaluations. A long one less a short one is
what the steps between cost, for start and end fall out; a short one with more evaluations tells what these cost. The
peers (GPT-2 as nanoGPT, transformers, litgpt and x-transformers write it) run a plain loop in .venv-peers: AdamW, clip,
tokens drawn at random, no log, no evaluation; what is timed is the loop alone. Each contestant first tries its
precisions, and the best of each library, in a process of its own, takes turns with ours. A figure is the median of the
rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

from model import CONTESTANTS, RIVALS, ROOT, SIZES, Size, peers

GOALS = {64: 2.2, 128: 2.7, 256: 1.8, 512: 1.4}
FRAME = 128  # the width at which Lightning, ledger and log may cost 3% of a step
STEPS = {64: 1000, 128: 600, 256: 150, 512: 40}  # about two minutes of ours a round
OURS = ("32-true", "bf16-mixed", "bf16-true")
THEIRS = ("float32", "bfloat16", "autocast")
STILL = [f"model.{piece}.dropout=0" for piece in ("embedding", "block.residual", "block.mixer")]
POINTS = 12  # evaluations of a run, as they come

Step = Callable[[], None]


# A peer's plain loop, in the peers' environment


def plain(size: Size, contestant: str, precision: str) -> Step:
    """One update of a model drawn anew."""
    import torch

    torch.manual_seed(0)
    model, loss = CONTESTANTS[contestant](size)
    if precision == "bfloat16":
        model.to(torch.bfloat16)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else nullcontext()

    def update() -> None:
        tokens = torch.randint(size.vocabulary, (size.rows, size.length + 1))
        with autocast:
            found = loss(tokens)
        found.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return update


def take_turns(size: Size, names: Iterable[tuple[str, str]], steps: int) -> dict[str, list[float]]:
    """Seconds of each step of each contestant that works at all; two more come before, to warm up."""
    taken: dict[str, list[float]] = {}
    updates: dict[str, Step] = {}
    for contestant, precision in names:
        try:
            update = plain(size, contestant, precision)
            update()
            update()
        except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            print(f"{contestant} in {precision}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
            continue
        updates[f"{contestant} in {precision}"] = update
    for _ in range(steps):
        for name, update in updates.items():
            started = time.perf_counter()
            update()
            taken.setdefault(name, []).append(time.perf_counter() - started)
    return taken


def as_peer(size: Size, names: Sequence[tuple[str, str]], steps: int) -> dict[str, list[float]]:
    """The same in a process of the peers' environment."""
    told = json.dumps([asdict(size), names, steps])
    done = subprocess.run([peers(), __file__, "--turns", told], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def library(name: str) -> str:
    return name.partition(" in ")[0].partition(",")[0]


def finalists(size: Size, steps: int) -> dict[str, tuple[str, str]]:
    """The best form and precision of each library."""
    taken = as_peer(size, [(name, precision) for name in RIVALS for precision in THEIRS], steps)
    best: dict[str, str] = {}
    for name in sorted(taken, key=lambda name: statistics.median(taken[name])):
        best.setdefault(library(name), name)
    return {key: tuple(name.rsplit(" in ", 1)) for key, name in best.items()}  # type: ignore[misc]


# Ours, as processes


@dataclass(frozen=True)
class Whole:
    """Milliseconds of one of our steps, log and checkpoints on; of one evaluation; of a step with its share of them."""

    step: float
    evaluation: float
    with_evaluations: float


class Runs:
    """`scaling train` in one shape, each time in a ledger of its own."""

    def __init__(self, size: Size, folder: Path, wandb: str, windows: int):
        shape = {key: value for key, value in asdict(size).items() if key != "rows"}
        self.words = ["gpt2", f"size={json.dumps(shape)}", *STILL, "data=synthetic", f"train.batch={size.rows}"]
        self.words.append(f"evaluate.windows={windows}")
        self.folder, self.wandb, self.numbers = folder, wandb, count()

    def train(self, precision: str, steps: int, points: int, seed: int = 0) -> tuple[float, float]:
        """Seconds of the whole process, and the loss that it ends with."""
        told = [f"trainer.precision={precision}", f"trainer.max_steps={steps}", "trainer.devices=1", f"seed={seed}"]
        told += [f"evaluate.points={points}", f"schedule.warmup={max(1, steps // 20)}", f"log.wandb={self.wandb}"]
        command = [sys.executable, "-m", "scaling", "train", *self.words, *told, "--json"]
        command.append(f"runs={self.folder / str(next(self.numbers))}")
        started = time.perf_counter()
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
        if done.returncode:
            raise SystemExit(f"{' '.join(command)}\nended with code {done.returncode}:\n{done.stderr[-3000:]}")
        return seconds, json.loads(done.stdout)["loss"]

    def measure(self, precision: str, steps: int, seed: int) -> Whole:
        from scaling.training.evaluation import evaluation_steps

        short = max(2, steps // 10)
        few, (more, _), (long, _) = (
            self.train(precision, short, 1, seed)[0],
            self.train(precision, short, POINTS, seed),
            self.train(precision, steps, POINTS, seed),
        )
        evaluation = (more - few) / max(1, len(evaluation_steps(short, POINTS)) - 1)
        further = len(evaluation_steps(steps, POINTS)) - 1
        whole = (long - few) / (steps - short)
        return Whole(1e3 * (whole - further * evaluation / (steps - short)), 1e3 * evaluation, 1e3 * whole)

    def best(self, steps: int) -> str:
        """The precision whose steps take least."""
        taken = {}
        for precision in OURS:
            taken[precision] = -self.train(precision, 2, 1)[0] + self.train(precision, 2 + steps, 1)[0]
        return min(taken, key=lambda precision: taken[precision])


# The report


@dataclass(frozen=True)
class Figures:
    size: Size
    precision: str
    rounds: list[Whole]
    theirs: Mapping[str, list[float]]  # by contestant in its precision, milliseconds a step of each round
    flops: float  # of the model, a step

    def median(self, key: str) -> float:
        return statistics.median(getattr(one, key) for one in self.rounds)

    def table(self, rate: float) -> str:
        size, step, whole = self.size, self.median("step"), self.median("with_evaluations")
        peers = {name: statistics.median(told) for name, told in self.theirs.items()}
        fastest = min(peers, key=lambda name: peers[name])
        tokens = size.rows * size.length
        rows = [
            (f"**scaling train**, {self.precision}, log and checkpoints", step),
            (f"the same with {POINTS} evaluations of {self.median('evaluation'):,.0f} ms", whole),
            *sorted(peers.items(), key=lambda told: told[1]),
        ]
        shape = f"{size.layers} layers × {size.width}, windows of {size.length}, batch {size.rows}"
        lines = [f"{shape}, vocabulary {size.vocabulary:,}", "", "| | ms a step | tokens a second |", "|---|---:|---:|"]
        lines += [f"| {name} | {ms:.1f} | {1e3 * tokens / ms:,.0f} |" for name, ms in rows]
        ratios = f"{peers[fastest] / step:.2f} times the fastest peer, with evaluations {peers[fastest] / whole:.2f}"
        spread = ", ".join(f"{one.step:.1f}" for one in self.rounds)
        lines += ["", f"{ratios}; the goal is {GOALS[size.width]}. Rounds of ours: {spread}."]
        achieved = 1e3 * self.flops / step
        lines += [f"Model FLOPs: {achieved / 1e9:,.0f} G a second, {achieved / rate:.0%} of the best product's.", ""]
        return "\n".join(lines)


def best_rate() -> tuple[float, str]:
    """The highest rate at which this machine multiplies matrices, and where."""
    import torch

    found = []
    for dtype in (torch.float32, torch.bfloat16):
        for width in (256, 512, 1024, 2048):
            a, b = torch.randn(width, width).to(dtype), torch.randn(width, width).to(dtype)
            for _ in range(11):
                started = time.perf_counter()
                torch.mm(a, b)
                seconds = time.perf_counter() - started
                found.append((2 * width**3 / seconds, f"{width} × {width} in {str(dtype).removeprefix('torch.')}"))
            if seconds > 0.1:  # a processor that has no products of this precision: larger ones take minutes
                break
    return max(found)


def compared(size: Size, given: argparse.Namespace, folder: Path) -> Figures:
    from scaling.config.compose import load
    from scaling.model.cost import cost

    steps, runs = given.steps or STEPS[size.width], Runs(size, folder, given.wandb, given.windows)
    best = finalists(size, given.heat)
    precision = given.precision or runs.best(4 * given.heat)
    ours, theirs = [], {" in ".join(name): [] for name in best.values()}
    for seed in range(given.rounds):
        ours.append(runs.measure(precision, steps, seed))
        for name in best.values():
            (taken,) = as_peer(size, [name], max(2, steps // 4)).values()
            theirs[" in ".join(name)].append(1e3 * statistics.fmean(taken))
    flops = cost(load(runs.words[0], runs.words[1:])).flops_train_per_token * size.rows * size.length
    return Figures(size, precision, ours, theirs, flops)


def frame(size: Size, precision: str, steps: int, rounds: int) -> str:
    """What Lightning, ledger and log cost, and where a bare step's time goes."""
    from train import compare, shares

    words = [*Runs(size, Path(), "disabled", 16).words, f"trainer.precision={precision}"]
    bare, whole = compare(words, steps, rounds)
    lines = [f"At width {size.width} in {precision}: {bare:.1f} ms bare, {whole:.1f} ms whole, which is"]
    lines[0] += f" {(whole - bare) / bare:+.1%} (below 3% is wanted). A bare step, watched:"
    lines += ["", "| | share |", "|---|---:|"]
    lines += [*(f"| {kind} | {share:.1%} |" for kind, share in shares(words, min(steps, 20)).items()), ""]
    return "\n".join(lines)


def losses(size: Size, precision: str, seeds: int, steps: int, folder: Path) -> str:
    """Whether a run ends at the same loss in a low precision as in float32, beside what seeds make of it."""
    runs = Runs(size, folder, "disabled", 1024)
    ends = {kind: [runs.train(kind, steps, 1, seed)[1] for seed in range(seeds)] for kind in ("32-true", precision)}
    apart = [low - full for low, full in zip(ends[precision], ends["32-true"])]
    spread = statistics.stdev(ends["32-true"]) if seeds > 1 else float("nan")
    told = f"{precision} less float32 {statistics.fmean(apart):+.5f} on average of {seeds} seeds"
    return f"Width {size.width}, loss after {steps:,} steps: {told}; float32's seeds differ by {spread:.5f} (s.d.).\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=int, nargs="+", default=[size.width for size in SIZES], help="widths")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, help=f"of ours; {STEPS} unless given; a peer takes a quarter of them")
    parser.add_argument("--heat", type=int, default=5, help="steps in which each finds its best precision")
    parser.add_argument("--precision", choices=OURS, help="ours; the fastest unless given")
    parser.add_argument("--windows", type=int, default=128, help="of one evaluation")
    parser.add_argument("--wandb", default="offline", help="log.wandb of ours")
    parser.add_argument("--seeds", type=int, default=0, help="compare this many seeds' losses with float32's")
    parser.add_argument("--loss-steps", type=int, default=1000)
    parser.add_argument("--json", type=Path, help="a file for the figures")
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns is not None:
        size, names, steps = json.loads(given.turns)
        print(json.dumps(take_turns(Size(**size), [tuple(name) for name in names], steps)))
        return
    sys.path.insert(0, str(ROOT))
    facts: dict[str, Any] = {"date": date.today().isoformat(), "command": " ".join(["python", *sys.argv])}
    facts |= {"cores": len(os.sched_getaffinity(0)), "load_before": os.getloadavg()}
    rate, where = best_rate()
    facts["best product"] = f"{rate / 1e9:,.0f} GFLOP a second, {where}"
    figures = []
    with tempfile.TemporaryDirectory() as name:
        for size in SIZES:
            if size.width not in given.shapes:
                continue
            found = compared(size, given, Path(name) / str(size.width))
            figures.append(found)
            print(found.table(rate), flush=True)
            if size.width == FRAME:
                print(
                    frame(size, found.precision, max(10, (given.steps or STEPS[FRAME]) // 4), given.rounds), flush=True
                )
            if given.seeds:
                folder = Path(name) / f"{size.width}-losses"
                print(losses(size, found.precision, given.seeds, given.loss_steps, folder), flush=True)
    facts["load_after"] = os.getloadavg()
    print("\n".join(f"{name}: {value}" for name, value in facts.items()))
    if given.json:
        given.json.write_text(json.dumps({**facts, "figures": [asdict(one) for one in figures]}, indent=1))


if __name__ == "__main__":
    main()
