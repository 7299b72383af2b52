"""Threads: how many of a CPU's cores one run is worth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from scaling.training.experiment import Experiment
from scaling.training.ranks import rank_count

# FLOPs of an update for each thread, about a second of one core. Threads with less work gain little on an idle
# machine; where another process wants one of their cores they wait for one another far longer than they compute.
EACH = 2e10
VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def suited(experiment: Experiment, most: int) -> int:
    """The threads that a run is worth, by what it computes at once, of at most `most`.

    It depends on nothing that changes between two attempts at a run: another number of threads is another rounding.
    """
    rows = experiment.config["train.micro_batch"] or experiment.size.size(0) // rank_count(experiment.config)
    flops = experiment.cost.flops_train_per_token * experiment.row_tokens * rows
    return max(1, min(most, int(flops / EACH)))


@contextmanager
def chosen(experiment: Experiment) -> Iterator[None]:
    """Train with `train.threads` while the block lasts, where they are auto with the number that suits the run.

    OMP_NUM_THREADS counts where it is set, and so does a smaller number that the caller has set in torch. Where a GPU
    computes, the CPU's threads are left as they are.
    """
    before, number = torch.get_num_threads(), experiment.config["train.threads"]
    if number == "auto":
        left = torch.cuda.is_available() or any(variable in os.environ for variable in VARIABLES)
        number = before if left else suited(experiment, min(before, cores()))
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
