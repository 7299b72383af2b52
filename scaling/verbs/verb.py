"""Verbs: how the words, options and keywords of a function of `scaling/verbs` are read, and what it returns.

def fit(points: Any, *, rename: Annotated[Mapping[str, str], Flag("map")] = {}, progress: PYTHON[bool] = True): ...
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

from scaling.base.errors import ScalingError
from scaling.base.printing import columns, html_table, join, tag
from scaling.config.schema import check
from scaling.ledger import document
from scaling.verbs import COMMANDS, function_name

if TYPE_CHECKING:
    import pandas

RUNS = "runs"
"""The ledger's folder, unless another is named; as in defaults.yaml."""
RunName = str | PathLike  # the bare class, which a value is checked against
"""A run: the beginning of its id, its folder, STUDY:ROW, or a `Run`."""
OVERRIDE = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)
SHORT = {"tokens": "train.tokens", "steps": "trainer.max_steps"}
"""Keys that are asked for so often that their section may be left out."""


def words(overrides: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """`("size=tiny",)` and `{"tokens": "5M", "optimizer__lr": 1e-3}` as `size=tiny train.tokens=5M optimizer.lr=0.001`.

    A double underscore in a keyword is the dot that Python does not allow there.
    """
    values = {
        key: value if isinstance(value, str) else json.dumps(value, default=str) for key, value in settings.items()
    }
    return [*overrides, *(f"{SHORT.get(key, key.replace('__', '.'))}={value}" for key, value in values.items())]


VERBS = tuple(command for commands in COMMANDS.values() for command in commands)
"""The commands, in the order of `scaling --help`."""

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line, where it differs from the parameter's."""

    name: str


PYTHON = Annotated[Value, "python"]
"""The type of a parameter without an option: its value is an object of Python."""


def verb(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Let a function take words in their order, `key=value` words, and unknown keywords as further such words. A value
    outside the range of its annotation is refused.
    """
    parameters = inspect.signature(function, eval_str=True).parameters
    named = [parameter for parameter in parameters.values() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    needed = [parameter.name for parameter in named if parameter.default is parameter.empty]
    command = next((each for each in VERBS if function_name(each) == function.__name__), function.__name__)

    def is_override(arg: object) -> bool:
        return "overrides" in parameters and isinstance(arg, str) and OVERRIDE.match(arg) is not None

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        options = {name: value for name, value in kwargs.items() if name in parameters or "settings" not in parameters}
        for name, value in options.items():
            parameter, is_plain = parameters.get(name), not isinstance(value, Mapping | list | tuple | None)
            if parameter is not None and parameter.kind is parameter.KEYWORD_ONLY and is_plain:
                check(spelled(parameter), value, without_none(parameter.annotation))
        positional = [arg for arg in args if not is_override(arg)]
        if len(positional) > len(named) and not {"words", "others"} & parameters.keys():
            extra, titles = positional[len(named)], " ".join(parameter.name.upper() for parameter in named)
            if "overrides" not in parameters and OVERRIDE.match(str(extra)):
                raise ScalingError(f"`scaling {command}` has no settings", key=str(extra), fix="leave it out")
            what = f"expected {titles or 'no words'}, and found one more"
            raise ScalingError(what, value=extra, key="word", fix="leave it out")
        if missing := [name.upper() for name in needed[len(positional) :] if name not in options]:
            what, fix = f"expected {' '.join(needed).upper()}", f"see `scaling {command} --help`"
            raise ScalingError(what, key=missing[0], fix=fix)
        settings = {name: value for name, value in kwargs.items() if name not in options}
        overrides = words([str(arg) for arg in args if is_override(arg)], settings)
        if overrides:
            positional += [options.pop(each.name, each.default) for each in named[len(positional) :]]
        return function(*positional, *overrides, **options)  # pyright: ignore[reportCallIssue]

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


def documented(function: object) -> tuple[str, dict[str, str]]:
    """A verb's docstring: the text before `Args:`, and the help of each parameter under it."""
    about, _, lines = (inspect.getdoc(function) or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", lines, re.MULTILINE)
    return about.rstrip(), {name: " ".join(text.split()) for name, text in entries}


Table = tuple[Sequence[str], Sequence[Sequence[Any]]]


@dataclass(frozen=True, repr=False)
class Result:
    """A result with the `document` of `--json` (docs/json.md), whose keys are attributes. `parts` are the texts and
    tables that are printed, `code` is the exit code.
    """

    document: Any
    parts: Sequence[str | Table] = field(default=(), repr=False)
    code: int = field(default=0, repr=False)

    def __getattr__(self, key: str) -> Any:
        document = self.__dict__.get("document", {})  # which is not there yet while a copy is made
        if not isinstance(document, dict) or key not in document:
            raise AttributeError(f"{type(self).__name__} has no {key!r}")
        return document[key]

    @property
    def data(self) -> pandas.DataFrame:
        """A row of the DataFrame is an entry of the document, where that is a list."""
        import pandas

        return pandas.DataFrame(self.document)

    def to_json(self) -> Any:
        return document.spelled(self.document)

    def _parts(self) -> Iterable[str | Table]:
        """What is printed: the keys of the document, where a result names nothing else."""
        return self.parts or [(["key", "value"], [[key, str(value)] for key, value in dict(self.document).items()])]

    def __str__(self) -> str:
        return "\n".join(part if isinstance(part, str) else columns(*part) for part in self._parts())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return join(*(tag("pre", part) if isinstance(part, str) else html_table(*part) for part in self._parts()))
