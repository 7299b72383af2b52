"""A model from its config: with its weights, without them (for counting it, or before they are drawn or read), and with
what the section `tuning` puts into it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from scaling.base.errors import under
from scaling.config.document import Config
from scaling.config.schema import build
from scaling.model.contract import Tuning
from scaling.model.family import Family


@contextmanager
def blank() -> Iterator[None]:
    """Everything made here lies on the meta device, and what `torch.nn.init` would draw is not drawn."""
    with torch.device("meta"), _Undrawn():
        yield


class _Undrawn(TorchFunctionMode):
    """Drawing costs time even where there is nothing to hold the numbers: a quarter of building 175B."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        return func(*args, **kwargs)


def tune(model: Family, tree: Mapping[str, Any]) -> Tuning | None:
    """Put into a model what the section `tuning` names, and return it; None where the config has no such section.

    An error is placed under `tuning`.
    """
    line = tree.get("tuning")
    if line is None:
        return None
    with under("tuning"):
        tuning: Tuning = build("tuning", line)
        tuning.apply(model)
        return tuning


def blank_model(config: Config) -> tuple[Family, Tuning | None]:
    """The model of a config without weights, and the tuning that was put into it."""
    with blank():
        model = config.build("model", config["size"])
        with config.placing():
            return model, tune(model, config.tree)


def build_model(tree: Mapping[str, Any]) -> Family:
    """The model of the sections `model`, `size` and, where there is one, `tuning`."""
    model: Family = build("model", tree["model"], tree["size"])
    tune(model, tree)
    return model


def sections(tree: Mapping[str, Any]) -> dict[str, Any]:
    """The sections that describe a model, of a config or a spec."""
    return {name: tree[name] for name in ("model", "size", "tuning") if tree.get(name) is not None}
