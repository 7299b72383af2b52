"""Lightning, without the metrics that it loads on its way.

`import lightning` imports the whole of torchmetrics, and by it scipy's signals, matplotlib and transformers: more than
half of its time (docs/performance.md). All that Lightning asks of it is whether a value that is logged is a metric, and
none of ours is. Who uses torchmetrics beside us imports it, before or after, and its metrics are known as such.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from types import ModuleType

METRICS = "torchmetrics"


class _StandIn(type):
    """A class whose instances are those of the real one of its name, once that has been imported."""

    def __instancecheck__(cls, one: object) -> bool:
        real = getattr(sys.modules.get(METRICS), cls.__name__, cls)
        return real is not cls and isinstance(one, real)


@contextmanager
def _without_metrics() -> Iterator[None]:
    if METRICS in sys.modules or "lightning" in sys.modules:
        yield
        return
    module = ModuleType(METRICS)
    module.__dict__.update({name: _StandIn(name, (), {}) for name in ("Metric", "MetricCollection")})
    module.__dict__["__version__"] = version(METRICS)
    sys.modules[METRICS] = module
    try:
        yield
    finally:
        del sys.modules[METRICS]


with _without_metrics():
    from lightning import Callback, LightningDataModule, LightningModule, Trainer
    from lightning.fabric.plugins.environments import LightningEnvironment, TorchElasticEnvironment
    from lightning.pytorch.strategies import ModelParallelStrategy, Strategy

__all__ = [
    "Callback",
    "LightningDataModule",
    "LightningEnvironment",
    "LightningModule",
    "ModelParallelStrategy",
    "Strategy",
    "TorchElasticEnvironment",
    "Trainer",
]
