"""What a step costs beyond the model: `scaling train`'s own loop beside a bare loop of the same model and optimizer.

    OMP_NUM_THREADS=1 python benchmarks/train.py [WORD ...] [--steps 400] [--rounds 5] [--shares] [--profile]

Rounds alternate, each takes the same batches; the least of the rounds' means counts, since a busy machine only adds.
WORDs are those of `scaling train`; without any it is the smallest model of all, where whatever is not the model shows.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import re
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from scaling.base.batch import Batch
from scaling.config import compose as config
from scaling.ledger import Ledger
from scaling.training.experiment import Experiment, assemble
from scaling.training.machine import flushed, keep_freed
from scaling.training.parametrization import initialise
from scaling.training.precision import Weights
from scaling.training.run import train_run

TINY = ("decoder", "size=tiny", "size.length=64", "size.vocabulary=null", "train.batch=16")


def experiment(words: Sequence[str], steps: int, runs: Path, seed: int) -> Experiment:
    quiet = ["log.wandb=disabled", "evaluate.points=1", "evaluate.windows=16", "train.checkpoint_every=1000000"]
    told = [*words[1:], f"trainer.max_steps={steps}", *quiet, f"seed={seed}", f"runs={runs}", "schedule.warmup=1"]
    return assemble(config.load(words[0], told))


def plainest(one: Experiment) -> Callable[[int, Batch], None]:
    """One update as a person writes it: the same optimizer, clip, schedule and precision, and nothing else."""
    keep_freed()  # which the whole loop does for the process, so that a later round would have it anyhow
    precision = one.config["trainer.precision"]
    model = initialise(one.model(), one.parametrization, one.seed)
    weights = Weights(model, precision)
    (optimizer,) = one.optimizer.make(weights.parameters, one.rate)
    autocast = torch.autocast("cpu", torch.bfloat16) if precision == "bf16-mixed" else nullcontext()

    def update(step: int, batch: Batch) -> None:
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * one.schedule.factor(step, one.steps)
        with autocast:
            loss = weights.trained.loss(batch).total
        loss.backward()
        weights.gather()
        torch.nn.utils.clip_grad_norm_(weights.masters, one.config["trainer.gradient_clip_val"])
        optimizer.step()
        optimizer.zero_grad()
        weights.round()

    return update


def bare(one: Experiment) -> float:
    """Milliseconds a step of the plainest loop, over batches made beforehand."""
    update = plainest(one)
    batches = [one.batches.batch(step) for step in range(one.steps)]
    update(0, batches[0])
    started = time.perf_counter()
    for step, batch in enumerate(batches[1:], start=1):
        update(step, batch)
    return 1000 * (time.perf_counter() - started) / (one.steps - 1)


def framed(one: Experiment, ledger: Ledger) -> float:
    """Milliseconds a step of the whole: Lightning, the loader, the log, from the first logged step to the last."""
    marks: list[tuple[int, float]] = []

    def mark(entry) -> None:
        if entry["kind"] == "train":
            marks.append((entry["step"], time.perf_counter()))

    train_run(one, ledger, listeners=[mark])
    (first, started), (last, ended) = marks[0], marks[-1]
    return 1000 * (ended - started) / (last - first)


def compare(words: Sequence[str], steps: int, rounds: int) -> tuple[float, float]:
    """Milliseconds a step of the bare loop and of the whole one."""
    alone, whole = [], []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(folder)
        for seed in range(rounds):
            one = experiment(words, steps, Path(folder), seed)
            with flushed():  # as the whole loop does too
                alone.append(bare(one))
            whole.append(framed(one, ledger))
    return min(alone), min(whole)


PRODUCTS = re.compile(r"aten::(mm|addmm|bmm|baddbmm|addbmm|_?scaled_dot_product.*|mkldnn.*)")
OPTIMIZER = re.compile(r"aten::(_foreach_norm|linalg_vector_norm|_foreach_mul_|_foreach_copy_)|Optimizer\..*")


def shares(words: Sequence[str], steps: int = 20) -> dict[str, float]:
    """Where a bare step's time goes, as shares of it while it is watched: watching makes small operations dearer."""
    with tempfile.TemporaryDirectory() as folder:
        one = experiment(words, steps + 3, Path(folder), 0)
    update, batches = plainest(one), [one.batches.batch(step) for step in range(one.steps)]
    for step in range(3):
        update(step, batches[step])
    with flushed(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as watched:
        started = time.perf_counter()
        for step in range(3, one.steps):
            update(step, batches[step])
        seconds = time.perf_counter() - started
    spent: dict[str, float] = defaultdict(float)
    for event in watched.events() or ():
        spent[_kind(event)] += 1e-6 * event.self_cpu_time_total
    spent["Python and dispatch"] += seconds - sum(spent.values())
    return {kind: value / seconds for kind, value in sorted(spent.items(), key=lambda item: -item[1])}


def _kind(event) -> str:
    names, one = [], event
    while one is not None:
        names.append(one.name)
        one = one.cpu_parent
    if PRODUCTS.fullmatch(names[0]):
        return "matrix products"
    if any(OPTIMIZER.match(name) for name in names):
        return "optimizer and clip"
    if any("_CrossEntropy" in name for name in names):
        return "cross-entropy"
    if any("softmax" in name for name in names):
        return "softmax"
    if any("norm" in name.lower() for name in names):
        return "norms"
    return "other elementwise and copies" if names[0].startswith("aten::") else "Python and dispatch"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", default=TINY)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shares", action="store_true", help="print what a bare step's time goes into")
    parser.add_argument("--profile", action="store_true", help="print where the whole loop spends its time")
    given = parser.parse_args()
    alone, whole = compare(given.words, given.steps, given.rounds)
    if given.shares:
        for kind, share in shares(given.words).items():
            print(f"{kind:<30} {share:6.1%}")
    if given.profile:
        with tempfile.TemporaryDirectory() as folder:
            one = experiment(given.words, given.steps, Path(folder), given.rounds)
            profile = cProfile.Profile()
            profile.runcall(train_run, one, Ledger.create(folder))
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    lost = whole - alone
    print(f"{' '.join(given.words)}: bare {alone:.3f} ms, whole {whole:.3f} ms, lost {lost:.3f} ms a step", end=" ")
    print(f"({lost / alone:.1%}); {given.rounds} rounds of {given.steps} steps, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
