"""This machine: free cores, memory, seconds of a step, the number of workers, and the scale of a study."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from scaling.data.plan import BatchSize, Windows
from scaling.executors import Resources
from scaling.model.cost import Cost
from scaling.studies.plan import Plan, Run
from scaling.studies.progress import Speed
from scaling.training.experiment import Experiment
from scaling.training.machine import cores
from scaling.training.precision import Weights

# Bytes a parameter by precision: weights, gradients, and Adam's two moments with master weights where they are kept.
BYTES = {"32-true": (4, 4, 8), "bf16-mixed": (4, 4, 8), "bf16-true": (2, 2, 12)}


def memory(cost: Cost, precision: str, rows: int, shards: int = 1, tensor: int = 1) -> dict[str, float]:
    """Bytes on each device, with `rows` windows of the batch at once; `shards` devices divide the states of a model,
    and `tensor` devices each matrix.
    """
    weights, gradients, states = BYTES[precision]
    return {
        "weights": weights * cost.parameters / shards,
        "gradients": gradients * cost.parameters_trained / shards,
        "optimizer": states * cost.parameters_trained / shards,
        # Counted in float32; what bfloat16 computes is kept in half of it.
        "activations": cost.activation_bytes * rows / tensor * (1 if precision == "32-true" else 0.5),
    }


PROCESS = 1_000_000_000  # bytes of a worker before it holds a model: the libraries
FILLED = 0.9  # of a memory that workers may fill
MOST_A_GPU = 4  # workers: beyond, they wait for one another


@dataclass(frozen=True)
class Size:
    """Jobs at the same time, the torch threads of each, and the GPUs of the machine."""

    workers: int
    threads: int = 1
    gpus: int = 0


def sized(plan: Plan, workers: int | None = None) -> Size:
    """One worker per core with one thread, or the number that memory and GPUs allow; threads share the cores that are
    left.

    Two processes of one thread do more than one of two where runs are small. It depends on the whole plan and not on
    what is left of it: another number of threads is another rounding.
    """
    gpus, given = torch.cuda.device_count(), plan.question.resources
    if gpus:
        smallest = max(1 / MOST_A_GPU, min(_gpus(run, gpus) for run in plan.runs))
        each = given.get("gpus", smallest)
        fitting = cores() if each == 0 else gpus * int(1 / each) if each <= 1 else int(gpus / each)
    else:
        largest = 1e9 * given["memory"] if "memory" in given else PROCESS + max(map(footprint, plan.runs))
        fitting = min(int(FILLED * machine_memory() / largest), cores() // int(given.get("threads", 1)))
    chosen = workers or max(1, min(fitting, len(plan.runs)))
    return Size(chosen, max(1, cores() // chosen), gpus)


def resources(job: Run, size: Size, given: Mapping[str, float]) -> Resources:
    """What a job takes, unless it is `given` by the study: the threads of a worker and the memory that the run fills;
    where there are GPUs the fraction of one that its memory fills, a worker's share at least, the GPUs that its config
    asks for, or all where none holds it alone.

    Memory is in GB and a power of two, so that runs of nearly one size are alike to a cluster.
    """
    devices, memory = job.experiment.config["trainer.devices"], None
    if not size.gpus:
        gpus, memory = 0.0, 2.0 ** math.ceil(math.log2((footprint(job) + PROCESS) / 1e9))
    elif isinstance(devices, int) and devices > 1:
        gpus = min(devices, size.gpus)
    else:
        gpus = max(_gpus(job, size.gpus), min(1.0, size.gpus / size.workers))
    return replace(Resources(size.threads, gpus, memory), **given)


def _gpus(job: Run, gpus: int) -> float:
    """The fraction of one GPU's memory that a job fills, or all GPUs where none holds it alone."""
    filled = (footprint(job) + PROCESS) / (FILLED * torch.cuda.get_device_properties(0).total_memory)
    return filled if filled <= 1 else float(gpus)


def machine_memory() -> int:
    """Bytes of this machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def footprint(run: Run) -> float:
    """Bytes of a run on one device."""
    experiment = run.experiment
    rows = experiment.config["train.micro_batch"] or experiment.size.size(0)
    return sum(memory(experiment.cost, experiment.config["trainer.precision"], rows).values())


LARGEST = 2e10  # FLOPs of the largest step that is timed: about a second of one core
SHARE = 0.25  # of this machine's memory, at most
STEPS, PATIENCE = 15, 1.5  # of each size: it is timed for so many steps, or so many seconds
BUSY = 0.5  # of the cores, at a load above which other work may have slowed the steps


def calibrate(experiments: Sequence[Experiment]) -> Speed | None:
    """The speed of one thread at the smallest, a middle and the largest of these models that it can try in a moment;
    None where it can try none of them.
    """
    models = {step_flops(experiment): experiment for experiment in experiments}.values()
    tried = sorted((experiment for experiment in map(_shrunk, models) if experiment is not None), key=step_flops)
    if not tried:
        return None
    places = sorted({0, len(tried) // 2, len(tried) - 1})
    timed = {step_flops(tried[place]): _timed(tried[place]) for place in places}
    return Speed(tuple(timed.items()), os.getloadavg()[0] / (os.cpu_count() or 1) > BUSY)


def _shrunk(experiment: Experiment) -> Experiment | None:
    """The experiment with no more rows than a moment allows; None where one row is too many."""
    rows = min(experiment.size.size(0), int(LARGEST / step_flops(experiment, 1)))
    if rows < 1 or not isinstance(experiment.batches.plan, Windows):
        return None
    is_large = sum(experiment.cost.memory(rows).values()) >= SHARE * machine_memory()
    return None if is_large else replace(experiment, size=BatchSize.of(rows))


def step_flops(experiment: Experiment, rows: int | None = None) -> float:
    """The FLOPs of a step, as it begins, or of one with so many rows."""
    return experiment.cost.flops_train_per_token * experiment.row_tokens * (rows or experiment.size.size(0))


def _timed(experiment: Experiment) -> float:
    """Seconds of the fastest step by one thread, as workers of small runs have."""
    threads, seconds = torch.get_num_threads(), list[float]()
    torch.set_num_threads(1)
    try:
        step = _step(experiment)
        step()  # in a new environment it compiles the kernels
        while len(seconds) < STEPS and sum(seconds) <= PATIENCE:
            before = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - before)
    finally:
        torch.set_num_threads(threads)
    return min(seconds)


def _step(experiment: Experiment) -> Callable[[], None]:
    """A training step: forward, backward, clipping and the optimizer's."""
    plan = experiment.batches.plan
    assert isinstance(plan, Windows)
    batches = replace(experiment.batches, plan=replace(plan, size=experiment.size))
    model = experiment.initial_model()
    weights = Weights(model, "32-true")
    optimizers = experiment.optimizer.make(weights.parameters, experiment.rate)
    numbers = itertools.count()

    def step() -> None:
        model.loss(batches.batch(next(numbers))).total.backward()
        torch.nn.utils.clip_grad_norm_(weights.masters, 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return step
