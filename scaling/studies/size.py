"""Size: how many workers a machine takes for a plan, and with how many threads each."""

from __future__ import annotations

import os
from dataclasses import dataclass

import torch

from scaling.errors import ScalingError
from scaling.studies.memory import Layout, memory
from scaling.studies.plan import Plan, Run
from scaling.training.machine import cores, suited

PROCESS = 1_000_000_000  # bytes of a worker before it holds a model: the libraries
SHARE = 0.9  # of a memory that workers may fill
MOST_A_GPU = 4  # workers: beyond, they wait for one another


@dataclass(frozen=True)
class Size:
    """Worker processes, the torch threads of each, and the GPUs that they are dealt out to."""

    workers: int
    threads: int = 1
    gpus: int = 0


def sized(plan: Plan, workers: int | None = None) -> Size:
    """One worker per core with one thread, or the number that memory and GPUs allow; threads share the cores that are
    left.

    Two processes of one thread do more than one of two where runs are small. It depends on the whole plan and not on
    what is left of it: another number of threads is another rounding.
    """
    if workers is not None and workers < 1:
        raise ScalingError("expected at least one worker", key="--workers", value=workers)
    largest = max(map(_bytes, plan.runs))
    gpus = torch.cuda.device_count()
    if gpus:
        each = int(SHARE * torch.cuda.get_device_properties(0).total_memory / (largest + PROCESS))
        # A run that no GPU holds alone takes them all.
        fitting = gpus * min(MOST_A_GPU, each) if each else 1
        chosen = workers or max(1, min(fitting, len(plan.runs)))
        return Size(chosen, max(1, cores() // chosen), gpus if each else 0)
    fitting = int(SHARE * machine_memory() / (largest + PROCESS))
    chosen = workers or max(1, min(cores(), fitting, len(plan.runs)))
    return Size(chosen, max(1, cores() // chosen))


def threads(plan: Plan, most: int) -> int:
    """The threads of each worker: the number that suits the largest run, of those that it could have."""
    return max(suited(run.experiment, most) for run in plan.runs)


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _bytes(run: Run) -> float:
    experiment = run.experiment
    rows = experiment.config["train.micro_batch"] or experiment.size.size(0)
    return sum(memory(experiment.cost, experiment.config["trainer.precision"], rows, Layout()).values())
