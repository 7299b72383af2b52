"""Lightning; in a process of the command line without the metrics that it loads on its way.

`import lightning` imports the whole of torchmetrics, and by it scipy's signals, matplotlib and transformers: more than
half of its time (docs/performance.md), which each of a study's workers would pay. `scaling train` logs nothing through
Lightning, so a substitute is enough there. A user's program may log by `self.log`, whose values are metrics of
torchmetrics: it has the whole.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib.metadata import version
from types import ModuleType
from typing import ParamSpec, TypeVar

from scaling import process
from scaling.deferred import StandIn

METRICS = "torchmetrics"


@contextmanager
def _without_metrics() -> Iterator[None]:
    if not process.is_own() or METRICS in sys.modules or "lightning" in sys.modules:
        yield
        return
    module = ModuleType(METRICS)
    of_module = {"__module__": METRICS}
    module.__dict__.update({name: StandIn(name, (), of_module) for name in ("Metric", "MetricCollection")})
    module.__dict__["__version__"] = version(METRICS)
    sys.modules[METRICS] = module
    try:
        yield
    finally:
        del sys.modules[METRICS]


Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


def hook(method: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """A method that Lightning calls, in which whatever goes wrong is an error.

    Lightning takes a StopIteration for the end of the data, and by a SystemExit the command would end without a word.
    """

    @wraps(method)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        try:
            return method(*args, **kwargs)
        except (StopIteration, SystemExit) as error:
            raise RuntimeError(f"a step of training raised {type(error).__name__}") from error

    return called


with _without_metrics(), warnings.catch_warnings():
    warnings.filterwarnings("ignore", "IProgress not found")  # of a notebook without widgets, by what metrics import
    from lightning import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
    from lightning.pytorch.strategies import ModelParallelStrategy, Strategy


class PlainTrainer(Trainer):
    """Lightning's Trainer with the arguments that it is given. By its own name it takes others from the environment, as
    PL_TRAINER_MAX_STEPS.
    """


__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningEnvironment",
    "LightningModule",
    "ModelParallelStrategy",
    "PlainTrainer",
    "Strategy",
    "TorchElasticEnvironment",
    "Trainer",
    "hook",
]
