"""Verbs: the words, options and keywords of a function of `scaling/verbs`, and its result.

def fit(points: Any, *, seed: Annotated[Seed, "the seed of all random numbers"] = 0, progress: PYTHON[bool] = True): ...

A text among the marks of a parameter is its help; a `Flag` has the option's name if it differs from the parameter's.
"""

from __future__ import annotations

import functools
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, ParamSpec, TypeVar

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import Range
from scaling.base.printing import Table, join, tag
from scaling.config.schema import check
from scaling.verbs import COMMANDS, function_name

if TYPE_CHECKING:
    import pandas

RUNS = "runs"  # the ledger's folder, unless another is named; as in defaults.yaml
RunName = Annotated[str | PathLike, "the beginning of a run's id, a folder, or STUDY:ROW"]  # or a `Run`
Executor = Annotated[Literal["local", "slurm", "ray"], "where the runs or jobs are executed"]
OVERRIDE = re.compile(r"[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)
SHORT = {"tokens": "train.tokens", "steps": "trainer.max_steps"}  # keys whose section may be left out


def words(overrides: Sequence[str], settings: Mapping[str, Any]) -> list[str]:
    """`("size=tiny",)` and `{"tokens": "5M", "optimizer__lr": 0.1}` as `size=tiny train.tokens=5M optimizer.lr=0.1`."""
    texts = {key: each if isinstance(each, str) else json.dumps(each, default=str) for key, each in settings.items()}
    return [*overrides, *(f"{SHORT.get(key, key.replace('__', '.'))}={text}" for key, text in texts.items())]


# The types of a value that holds others, by the type of an option that takes several.
_SEVERAL: Mapping[Any, tuple[type, ...]] = {Mapping: (Mapping,), Sequence: (list, tuple), tuple: (list, tuple)}
VERBS = tuple(command for commands in COMMANDS.values() for command in commands)  # in the order of `scaling --help`

Value = TypeVar("Value")
Arguments = ParamSpec("Arguments")
Returned = TypeVar("Returned")


@dataclass(frozen=True)
class Flag:
    """The option's name on the command line, if it differs from the parameter's; "" means no option."""

    name: str


PYTHON = Annotated[Value, Flag("")]  # the type of a parameter whose value is an object of Python


@dataclass(frozen=True)
class Output:
    """The mark of an option that names a file to write, with one of the `endings` where there are any, or a folder."""

    endings: tuple[str, ...] = ()
    is_folder: bool = False

    def check(self, path: str | PathLike, option: str = "to") -> None:
        """Refuse what cannot be written under this name, before anything is computed."""
        path, key = Path(path), f"--{option}"
        is_other, fix = self.endings and path.suffix not in self.endings, f"take {', '.join(self.endings)}"
        refuse(is_other, "no such kind of file", fix, key=key, value=str(path))
        refuse(path.is_dir() and not self.is_folder, "is a folder", "name a file", key=key, value=str(path))
        folders = (path, *path.parents) if self.is_folder else path.parents
        file = next((each for each in folders if each.exists() and not each.is_dir()), None)
        refuse(file is not None, "is a file, not a folder", "name a folder", key=key, value=str(file))


def verb(function: Callable[Arguments, Returned]) -> Callable[Arguments, Returned]:
    """Let a function take `key=value` among its words and as unknown keywords, and check the range of its values."""

    @functools.wraps(function)
    def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Returned:
        parameters = inspect.signature(function, eval_str=True).parameters
        named = [parameter for parameter in parameters.values() if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        needed = [parameter.name for parameter in named if parameter.default is parameter.empty]

        def is_override(arg: object) -> bool:
            return "overrides" in parameters and isinstance(arg, str) and OVERRIDE.match(arg) is not None

        options = {name: value for name, value in kwargs.items() if name in parameters or "settings" not in parameters}
        for parameter in parameters.values():
            value, kind = options.get(parameter.name), value_type(parameter.annotation)
            is_plain = not isinstance(value, (types.NoneType, *_SEVERAL.get(typing.get_origin(kind), ())))
            if parameter.kind is parameter.KEYWORD_ONLY and is_plain:
                check(spelled(parameter), value, kind)
                for output in (mark for mark in marks(parameter.annotation) if isinstance(mark, Output)):
                    output.check(str(value), spelled(parameter))
        positional = [arg for arg in args if not is_override(arg)]
        if len(positional) > len(named) and not {"words", "others"} & parameters.keys():
            titles = " ".join(each.name.upper() for each in named) or "no words"
            what, extra = f"expected {titles}, and found one more", positional[len(named)]
            raise ScalingError(what, value=extra, key="word", fix="leave it out")
        if missing := [name.upper() for name in needed[len(positional) :] if name not in options]:
            command = next((each for each in VERBS if function_name(each) == function.__name__), function.__name__)
            titles, fix = " ".join(needed).upper(), f"see `scaling {command} --help`"
            raise ScalingError(f"expected {titles}", key=missing[0], fix=fix)
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


def value_type(annotation: Any) -> Any:
    """The type of an option's values with its range, without help, name and None."""
    inner = typing.get_args(annotation)
    choices = [choice for choice in inner if choice is not type(None)]
    if marks(annotation):
        return annotation if any(isinstance(mark, Range) for mark in inner[1:]) else value_type(inner[0])
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return value_type(choices[0]) if is_union and len(choices) == 1 else annotation


def marks(annotation: Any) -> tuple[Any, ...]:
    return getattr(annotation, "__metadata__", ())


def documented(function: Any) -> tuple[str, dict[str, str]]:
    """A verb's help: its docstring, and the texts in the annotations of its parameters."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    helps = {p.name: mark for p in parameters for mark in marks(p.annotation) if isinstance(mark, str)}
    return inspect.getdoc(function) or "", helps


def frame(rows: Any, columns: Any = None) -> pandas.DataFrame:
    """A DataFrame of records."""
    import pandas

    return pandas.DataFrame(rows, columns=columns)


@dataclass(frozen=True, repr=False)
class Result:
    """The `document` of `--json` (docs/json.md), whose keys are attributes, the texts and tables that are printed
    (`parts`), and the exit code.
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
        """One row for each entry of the document, if it is a list."""
        return frame(self.document)

    def to_json(self) -> Any:
        from scaling.ledger import document

        return document.spelled(self.document)

    def __str__(self) -> str:
        return "\n".join(part if isinstance(part, str) else part.text() for part in self.parts)

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return join(*(tag("pre", part) if isinstance(part, str) else part.html() for part in self.parts))
