"""Calibration: how fast this machine trains the models of a study, by a few real steps of a few of them.

They are timed as workers will take them, as many processes at once as cores allow, since cores may share caches and
arithmetic units. Between the steps that were timed, seconds are a power of FLOPs; beyond the largest they grow as FLOPs
do, below the smallest by their root, for calls cost there as well as work. Other work on the machine can only slow a
step down: the minimum of several short repetitions counts, is kept for a day, and is taken again where the machine was
busy.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from scaling import atomic
from scaling.data.plan import BatchSize, Windows
from scaling.studies.busy_cores import busy_cores
from scaling.studies.size import machine_memory
from scaling.training.experiment import Experiment
from scaling.training.machine import environment
from scaling.training.precision import Weights

LARGEST = 2e10  # FLOPs of the largest step that is timed: about a second of one core
SHARE = 0.25  # of this machine's memory, at most
SIZES = 3
TURNS, STEPS, PATIENCE = 3, 5, 0.5  # of each size; a turn ends after STEPS steps or PATIENCE seconds
DAY = 86400.0
BUSY = 0.5  # of the cores, at a load above which other work may have slowed the steps


@dataclass(frozen=True)
class Speed:
    """Seconds of a step by its FLOPs, as they were timed, the smallest first."""

    timed: tuple[tuple[float, float], ...]
    load: float = 0.0  # of the machine meanwhile, a core

    @property
    def busy(self) -> bool:
        """Whether the machine had other work, so that it may be faster than this."""
        return self.load > BUSY

    def seconds(self, flops: float) -> float:
        """Seconds of one step."""
        (first, least), (last, most) = self.timed[0], self.timed[-1]
        if flops <= first:
            return least * math.sqrt(flops / first)
        if flops >= last:
            return most * flops / last
        low, high = next(pair for pair in zip(self.timed, self.timed[1:]) if flops <= pair[1][0])
        share = math.log(flops / low[0]) / math.log(high[0] / low[0])
        return low[1] * (high[1] / low[1]) ** share


def calibrate(experiments: Sequence[Experiment], cache: Path, workers: int = 1) -> Speed | None:
    """The speed of one of so many workers at the smallest, a middle and the largest of these that it can try in a
    moment.

    One thread, as workers of small runs have. None where it can try none of them. What was timed is kept in the folder
    `cache`, by machine, versions, model and workers.
    """
    workers = min(workers, os.cpu_count() or 1)  # those of a cluster are not on one machine
    models = {_flops(experiment): experiment for experiment in experiments}.values()
    tried = sorted((experiment for experiment in map(_shrunk, models) if experiment is not None), key=_flops)
    if not tried:
        return None
    chosen = {
        _flops(experiment): experiment
        for experiment in (tried[round(at * (len(tried) - 1) / (SIZES - 1))] for at in range(SIZES))
    }
    files = [cache / f"{_key(experiment, workers)}.json" for experiment in chosen.values()]
    kept = [_kept(file) for file in files]
    timings = [timing for timing in kept if timing is not None and not Speed((), timing["load"]).busy]
    if len(timings) < len(kept):
        timings = [
            _better(timing, {"seconds": seconds, "load": load(), "taken": time.time()})
            for timing, seconds in zip(kept, _timed(list(chosen.values()), workers))
        ]
        with suppress(OSError):  # a folder that may only be read is timed again the next time
            cache.mkdir(parents=True, exist_ok=True)
            for file, timing in zip(files, timings):
                atomic.write_json(file, timing)
    return Speed(
        tuple(zip(chosen, (timing["seconds"] for timing in timings))),
        max(timing["load"] for timing in timings),
    )


def load() -> float:
    """The processes per core that were ready to run in the last minute."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _shrunk(experiment: Experiment) -> Experiment | None:
    """The experiment with no more rows than a moment allows; None where one row is too many."""
    cost, rows = experiment.cost, experiment.size.size(0)
    each = cost.flops_train_per_token * experiment.row_tokens
    fitting = min(rows, int(LARGEST / each))
    if fitting < 1 or not isinstance(experiment.batches.plan, Windows):
        return None
    shrunk = replace(experiment, size=BatchSize.of(fitting))
    return shrunk if sum(cost.memory(fitting).values()) < SHARE * machine_memory() else None


def _flops(experiment: Experiment) -> float:
    return experiment.cost.flops_train_per_token * experiment.row_tokens * experiment.size.size(0)


def _key(experiment: Experiment, workers: int) -> str:
    tree = experiment.config.tree
    model = [tree["model"], tree["size"], tree["objective"], tree["optimizer"], experiment.size.size(0)]
    document = json.dumps([platform.node(), environment(), workers, *model], sort_keys=True)
    return hashlib.sha256(document.encode()).hexdigest()[:16]


def _kept(file: Path) -> dict[str, float] | None:
    """What was timed in the last day."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        document = atomic.read_json(file)
        if 0 <= time.time() - document["taken"] < DAY:
            return {key: float(document[key]) for key in ("seconds", "load", "taken")}
    return None


def _better(earlier: dict[str, float] | None, other: dict[str, float]) -> dict[str, float]:
    return other if earlier is None else {key: min(earlier[key], other[key]) for key in other}


def _timed(experiments: Sequence[Experiment], workers: int) -> list[float]:
    """Seconds of the fastest step of each; they take turns, so that a busy moment is not one model's alone."""
    fastest = [math.inf] * len(experiments)
    with _one_thread(), busy_cores(workers - 1, lambda: _round(experiments)):
        steps = [_step(experiment) for experiment in experiments]
        for _ in range(TURNS):
            for place, step in enumerate(steps):
                fastest[place] = min(fastest[place], *_turn(step))
    return fastest


def _round(experiments: Sequence[Experiment]) -> Callable[[], None]:
    """A step of each."""
    steps = [_step(experiment) for experiment in experiments]

    def once() -> None:
        for step in steps:
            step()

    return once


def _turn(step: Callable[[], None]) -> Iterator[float]:
    started = time.perf_counter()
    for _ in range(STEPS):
        before = time.perf_counter()
        step()
        after = time.perf_counter()
        yield after - before
        if after - started > PATIENCE:
            return


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


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
