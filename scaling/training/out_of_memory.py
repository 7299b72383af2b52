"""Out of memory: whether an error means that, whoever ran out, and what would fit instead."""

from __future__ import annotations

import errno
import math
import re

import torch

from scaling.errors import ScalingError
from scaling.training.experiment import Experiment
from scaling.training.ranks import rank_count

# The messages of torch, its backends and the C++ library in a RuntimeError, which has no type of its own for it.
MESSAGES = re.compile(
    r"DefaultCPUAllocator|std::bad_alloc|out of memory|cannot allocate memory|not enough memory|ALLOC_FAILED", re.I
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, is that of an allocation that failed."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if isinstance(error, RuntimeError) and MESSAGES.search(str(error)):
        return True
    return error.__cause__ is not None and is_out_of_memory(error.__cause__)


def advice(experiment: Experiment) -> ScalingError:
    """The one line that is printed: with fewer rows at once, of which the batch is a multiple, it may fit."""
    micro = experiment.config["train.micro_batch"]
    rows = math.gcd(*experiment.size.sizes) // rank_count(experiment.config)
    most = (micro or rows) // 2
    varied = experiment.batches.objective.takes != "windows"  # batches of pairs and examples are split anyhow
    fewer = next((count for count in range(most, 0, -1) if varied or rows % count == 0), None)
    fix = (
        "take more devices, or trainer.precision=bf16-true"
        if fewer is None
        else f"accumulate: train.micro_batch={fewer}"
    )
    return ScalingError("out of memory", key="train.micro_batch", value=micro, fix=fix, code=1)
