"""What a parameter of a verb is on the command line, where its type alone does not show it.

    def fit(points: Any, *, rename: Annotated[Mapping[str, str], Flag("map")] = {}, progress: PYTHON[bool] = True): ...

`cli.py` reads these; a caller in Python does not notice them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

from scaling.build import check

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line, where it differs from the parameter's."""

    name: str


@dataclass(frozen=True)
class Python:
    """The parameter has no option: what it takes is an object of Python."""


PYTHON = Annotated[Value, Python()]


def verb(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Refuse a keyword whose value is not of the annotated type or outside its range, before anything is done."""
    signature = inspect.signature(function, eval_str=True)

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        for name, value in kwargs.items():
            parameter = signature.parameters.get(name)
            if parameter is not None and parameter.kind is parameter.KEYWORD_ONLY:
                check(spelled(parameter).replace("_", "-"), value, parameter.annotation)
        return function(*args, **kwargs)

    return checked


def spelled(parameter: inspect.Parameter) -> str:
    """The name of a parameter's option, without its dashes."""
    flags = [mark.name for mark in marks(parameter.annotation) if isinstance(mark, Flag)]
    return flags[0] if flags else parameter.name.replace("_", "-")


def marks(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())
