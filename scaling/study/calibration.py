"""Calibration: how fast this machine trains the models of a study, by a few real steps of a few of them.

Between the steps that were timed, seconds are a power of FLOPs; beyond the largest they grow as FLOPs do, below the
smallest they stay, because there the calls cost and not the work.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from scaling import atomic
from scaling.data.plan import BatchSize, Windows
from scaling.study.size import machine_memory
from scaling.train.experiment import Experiment
from scaling.train.parametrization import initialise
from scaling.train.precision import Weights
from scaling.train.run import surroundings

LARGEST = 2e10  # FLOPs of the largest step that is timed: about a second of one core
SHARE = 0.25  # of this machine's memory, at most
WARM, STEPS = 2, 5
SIZES = 3


@dataclass(frozen=True)
class Speed:
    """Seconds of a step by its FLOPs, as they were timed, the smallest first."""

    timed: tuple[tuple[float, float], ...]

    def seconds(self, flops: float) -> float:
        """Seconds of one step."""
        (first, least), (last, most) = self.timed[0], self.timed[-1]
        if flops <= first:
            return least
        if flops >= last:
            return most * flops / last
        low, high = next(pair for pair in zip(self.timed, self.timed[1:]) if flops <= pair[1][0])
        share = math.log(flops / low[0]) / math.log(high[0] / low[0])
        return low[1] * (high[1] / low[1]) ** share


def calibrate(experiments: Sequence[Experiment], cache: Path) -> Speed | None:
    """The speed of this machine at the smallest, a middle and the largest of these that it can try in a moment.

    One thread, as workers of small runs have. None where it can try none of them. What was timed is kept in the folder
    `cache`, by machine, versions and model.
    """
    tried = sorted((one for one in map(_shrunk, experiments) if one is not None), key=_flops)
    if not tried:
        return None
    chosen = {_flops(one): one for one in (tried[round(at * (len(tried) - 1) / (SIZES - 1))] for at in range(SIZES))}
    return Speed(tuple((flops, _kept(one, cache)) for flops, one in chosen.items()))


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


def _kept(experiment: Experiment, cache: Path) -> float:
    """Seconds a step, from the cache where they were timed before."""
    tree = experiment.config.tree
    told = [surroundings(), tree["model"], tree["size"], tree["objective"], tree["optimizer"], experiment.size.size(0)]
    file = cache / f"{hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:16]}.json"
    with suppress(OSError, ValueError, KeyError):
        return float(atomic.read_json(file)["seconds"])
    seconds = _timed(experiment)
    with suppress(OSError):  # a folder that may only be read is timed again the next time
        cache.mkdir(parents=True, exist_ok=True)
        atomic.write_json(file, {"seconds": seconds, "machine": told[0]})
    return seconds


def _timed(experiment: Experiment) -> float:
    """Seconds of the fastest of a few steps: forward, backward, clipping and the optimizer's."""
    plan = experiment.batches.plan
    assert isinstance(plan, Windows)
    batches = replace(experiment.batches, plan=replace(plan, size=experiment.size))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    weights = Weights(model, "float32")
    optimizers = experiment.optimizer.make(weights.parameters, experiment.parametrization)
    found = []
    with _one_thread():
        for step in range(WARM + STEPS):
            begun = time.perf_counter()
            model.loss(batches.batch(step)).total.backward()
            torch.nn.utils.clip_grad_norm_(weights.masters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            found.append(time.perf_counter() - begun)
    return min(found[WARM:])


@contextmanager
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
