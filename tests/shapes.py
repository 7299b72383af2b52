"""Every shape that a piece's `forward` promises is checked while the tests run."""

import importlib
import inspect
import pkgutil

from beartype import beartype
from jaxtyping import jaxtyped
from torch import nn

import scaling.model


def check_every_forward() -> None:
    """Not by jaxtyping's hook on imports, which also wraps each function inside a function anew at every call of it:
    more than half of the time of a test of a model."""
    for info in pkgutil.walk_packages(scaling.model.__path__, "scaling.model."):
        for _, piece in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
            if issubclass(piece, nn.Module) and piece.__module__ == info.name and "forward" in vars(piece):
                piece.forward = jaxtyped(piece.forward, typechecker=beartype)
