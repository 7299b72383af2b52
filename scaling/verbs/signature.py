"""What a parameter of a verb is on the command line, where its type alone does not show it.

    def fit(points: Any, *, rename: Annotated[Mapping[str, str], Flag("map")] = {}, progress: PYTHON[bool] = True): ...

`cli.py` reads these; a caller in Python does not notice them.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ParamSpec, TypeVar

from scaling.schema import check

VERBS = (
    *("train", "finetune", "study", "plan", "table", "sweep", "fit"),
    *("fit-curves", "report", "watch", "work", "decide", "predict-run", "predictions", "agent", "pull"),
    *("evaluate", "evaluate-options", "evaluate-corpus", "evaluate-cloze", "evaluate-harness", "predict", "tasks"),
    *("inspect", "explain", "data list", "data prepare", "data show", "runs", "show", "diff", "gc"),
    *("generate", "look", "probe", "landscape", "export", "import", "doctor"),
)
"""The commands, in the order of `scaling --help`."""

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
            if parameter is None or value is None or isinstance(value, Mapping | list | tuple):
                continue
            if parameter.kind is parameter.KEYWORD_ONLY:
                check(spelled(parameter), value, without_none(parameter.annotation))
        return function(*args, **kwargs)

    return checked


def spelled(parameter: inspect.Parameter) -> str:
    """The name of a parameter's option, without its dashes."""
    flags = [mark.name for mark in marks(parameter.annotation) if isinstance(mark, Flag)]
    return flags[0] if flags else parameter.name.replace("_", "-")


def without_none(annotation: Any) -> Any:
    """`int` of `int | None`; an annotation of several other types as it is."""
    choices = [choice for choice in typing.get_args(annotation) if choice is not type(None)]
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return choices[0] if is_union and len(choices) == 1 else annotation


def marks(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def function_name(verb: str) -> str:
    """The name of a verb's function; Python keeps `import` for itself."""
    return "import_" if verb == "import" else re.sub("[ -]", "_", verb)


def documented(function: object) -> tuple[str, dict[str, str]]:
    """A verb's docstring: the text before `Args:`, and the help of each parameter under it."""
    about, _, lines = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    helps: dict[str, str] = {}
    name = ""
    for line in lines.splitlines():
        if match := re.match(r"    (\w+): (.*)", line):
            name = match[1]
            helps[name] = match[2]
        elif name:
            helps[name] += " " + line.strip()
    return about.rstrip(), helps
