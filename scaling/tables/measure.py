"""Measures: what a table may show of its rows besides size and operations. They import torch when they are taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import Any

from scaling.config import Config
from scaling.errors import ScalingError
from scaling.schema import kinds


@dataclass(frozen=True)
class Setting:
    """The config of a row, with what more than one measure of it needs."""

    config: Config

    @cached_property
    def dependence(self) -> dict[str, int]:
        from scaling.tables.ops import dependence

        return dependence(self.config)

    @cached_property
    def half(self) -> Setting:
        """The same at half of the length."""
        return Setting(self.config.varied({"size.length": self.config["size.length"] // 2}))


@dataclass(frozen=True)
class Measure:
    """`title` heads the column, `of` takes the measure, `form` writes it."""

    title: str
    of: Callable[[Setting], float]
    form: Callable[[Any], str] = "{:,}".format


def _sequential(setting: Setting) -> int:
    return setting.dependence["sequential"]


def _path(setting: Setting) -> int:
    return setting.dependence["path"]


def _operations(setting: Setting) -> int:
    from scaling.tables.ops import mixer_flops

    return mixer_flops(setting.config)


def _training(setting: Setting) -> int:
    """The FLOPs of `trainer.max_steps` updates, forward and backward: those of a window's tokens times a batch's."""
    from scaling.cost import cost
    from scaling.training.values import batch_size

    config = setting.config
    steps, size = config["trainer.max_steps"], batch_size(config)
    if steps is None:
        raise ScalingError(
            "training FLOPs are those of trainer.max_steps", key="trainer.max_steps", fix="set it in the table"
        )
    each = cost(config)
    sides = 2 if kinds("model")[config["model.kind"]].family == "encoder_decoder" else 1  # type: ignore[attr-defined]
    tokens = size.before(steps) * each.tokens if size.tokens is None else steps * sides * size.tokens
    return round(each.flops_train_per_token * tokens)


def _growth(title: str, of: Callable[[Setting], float]) -> Measure:
    """The power of the length that a measure grows by, from half of it on."""

    def power(setting: Setting) -> float:
        if not (before := of(setting.half)):
            raise setting.config.error("model.block", "it has no mixer with products", "take a block with such a mixer")
        return log2(of(setting) / before)

    return Measure(title, power, "{:.2f}".format)


MEASURES = {
    "sequential": Measure("Sequential steps, measured", _sequential),
    "path": Measure("Path length, measured", _path),
    "operations_growth": _growth("Operations grow by n to the", _operations),
    "sequential_growth": _growth("Steps by n to the", _sequential),
    "path_growth": _growth("Path by n to the", _path),
    "training": Measure("Training FLOPs, ours", _training, lambda flops: f"{flops:.1e}".replace("e+", "e")),
}
