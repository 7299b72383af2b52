"""Every shape that a piece's `forward` promises is checked while the tests run."""

import importlib
import inspect
import pkgutil
from types import ModuleType

from beartype import beartype
from jaxtyping import jaxtyped
from torch import nn

import scaling.model


def check_every_forward() -> None:
    """Not by jaxtyping's hook on imports, which also wraps each function inside a function anew at every call of it:
    more than half of the time of a test of a model."""
    for info in pkgutil.walk_packages(scaling.model.__path__, "scaling.model."):
        for piece in _made_in(importlib.import_module(info.name)):
            if "forward" in vars(piece):
                piece.forward = jaxtyped(piece.forward, typechecker=beartype)


def _made_in(module: ModuleType) -> list[type[nn.Module]]:
    classes = [value for value in vars(module).values() if inspect.isclass(value)]
    return [piece for piece in classes if issubclass(piece, nn.Module) and piece.__module__ == module.__name__]
