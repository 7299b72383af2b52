"""What a step costs beyond the model: `scaling train`'s own loop beside a bare loop of the same model and optimizer.

    OMP_NUM_THREADS=1 python benchmarks/train.py [--size tiny] [--steps 400] [--rounds 5] [--profile]

Rounds alternate, each takes the same batches; the least of the rounds' means counts, since a busy machine only adds.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import tempfile
import time
from pathlib import Path

import torch

from scaling import config
from scaling.ledger import Ledger
from scaling.train.experiment import Experiment, assemble
from scaling.train.parametrization import initialise
from scaling.train.precision import Weights
from scaling.train.run import train_run


def experiment(size: str, steps: int, runs: Path, seed: int) -> Experiment:
    told = [f"size={size}", "size.length=64", "size.vocabulary=null", "train.batch=16", f"train.steps={steps}"]
    quiet = ["log.wandb=disabled", "evaluate.points=1", "evaluate.windows=16", "train.checkpoint_every=1000000"]
    return assemble(config.load("decoder", [*told, *quiet, f"seed={seed}", f"runs={runs}", "schedule.warmup=10"]))


def bare(one: Experiment) -> float:
    """Milliseconds a step of the plainest loop: batches made beforehand, the same clip and schedule."""
    model = initialise(one.model(), one.parametrization, one.seed)
    weights = Weights(model, "float32")
    (optimizer,) = one.optimizer.make(weights.parameters, one.parametrization)
    batches = [one.batches.batch(step) for step in range(one.steps)]
    begun = time.perf_counter()
    for step, batch in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * one.schedule.factor(step, one.steps)
        model.loss(batch).total.backward()
        torch.nn.utils.clip_grad_norm_(weights.masters, one.config["train.clip"])
        optimizer.step()
        optimizer.zero_grad()
    return 1000 * (time.perf_counter() - begun) / one.steps


def framed(one: Experiment, ledger: Ledger) -> float:
    """Milliseconds a step of the whole: Lightning, the loader, the log, from the first logged step to the last."""
    marks: list[tuple[int, float]] = []
    train_run(one, ledger, [lambda entry: marks.append((entry["step"], time.perf_counter()))])
    trained = marks[:-1] if len(marks) > 2 else marks  # the last is the evaluation
    (first, begun), (last, ended) = trained[0], trained[-1]
    return 1000 * (ended - begun) / (last - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="print where the whole loop spends its time")
    given = parser.parse_args()
    alone, whole = [], []
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(folder)
        for seed in range(given.rounds):
            one = experiment(given.size, given.steps, Path(folder), seed)
            alone.append(bare(one))
            whole.append(framed(one, ledger))
        if given.profile:
            one = experiment(given.size, given.steps, Path(folder), given.rounds)
            profile = cProfile.Profile()
            profile.runcall(train_run, one, ledger)
            pstats.Stats(profile).sort_stats("tottime").print_stats(40)
    lost = min(whole) - min(alone)
    print(f"{given.size}: bare {min(alone):.3f} ms, whole {min(whole):.3f} ms, lost {lost:.3f} ms a step", end=" ")
    print(f"({lost / min(whole):.0%}); {given.rounds} rounds of {given.steps} steps, {torch.get_num_threads()} threads")


if __name__ == "__main__":
    main()
