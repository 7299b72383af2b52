"""Write docs/api.md from the docstrings of what `import scaling` gives; with --check, see that it is up to date."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import scaling
from scaling.cli import SHARED, documented

PAGE = Path(__file__).with_name("api.md")
HEAD = """# Python API

`import scaling` gives the verbs of the command line as functions with typed results. Nothing is imported before it is
used. A mistake that a user can fix is raised as `scaling.ScalingError`, with its file, line, key and value. This page
is written from the docstrings by `python docs/build_api.py`; `make check` compares them.
"""
ORDER = ["train", "study", "plan", "table", "fit", "sweep"]
"""What users come for; everything else follows by name."""


def page() -> str:
    names = [name for name in scaling.__all__ if not name.startswith("_")]
    modules = [name for name in names if inspect.ismodule(getattr(scaling, name))]
    functions = [name for name in names if inspect.isfunction(getattr(scaling, name))]
    functions.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    classes = [name for name in names if inspect.isclass(getattr(scaling, name))]
    parts = [
        *(HEAD, "## Functions\n", *map(_function, functions)),
        *("## Results\n", *map(_class, classes)),
        *("## Modules\n", *map(_module, modules)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _function(name: str) -> str:
    value = getattr(scaling, name)
    return f"### `scaling.{name}`\n\n```python\n{name}{_signature(value)}\n```\n\n{_text(value)}\n"


def _class(name: str) -> str:
    value = getattr(scaling, name)
    return f"### `scaling.{name}`\n\n{_text(value)}\n\n{_table(_members(value))}".rstrip() + "\n"


def _module(name: str) -> str:
    value = getattr(scaling, name)
    members = ((member, getattr(value, member)) for member in value.__all__)
    kinds = (inspect.isclass, inspect.isfunction, inspect.ismodule)
    rows = [
        (f"{member}()" if inspect.isfunction(found) else member, _first(found))
        for member, found in members
        if any(kind(found) for kind in kinds)
    ]
    return f"### `scaling.{name}`\n\n{_text(value)}\n\n{_table(rows)}".rstrip() + "\n"


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| `{member}` | {first} |" for member, first in rows]
    return "\n".join(["| | |", "|---|---|", *lines, ""]) if lines else ""


def _first(value: object) -> str:
    """The first paragraph of a docstring as a cell."""
    return " ".join((inspect.getdoc(value) or "").partition("\n\n")[0].split()).replace("|", r"\|")


def _members(value: type) -> Iterator[tuple[str, str]]:
    """The documented methods and properties of a class, each with its first sentence."""
    for member, found in vars(value).items():
        function = getattr(found, "fget", None) or getattr(found, "func", None) or found
        first = _first(function)
        if member.startswith("_") or not first or not inspect.isfunction(function):
            continue
        yield f"{member}()" if inspect.isfunction(found) else member, first


def _signature(function: object) -> str:
    """A parameter on a line where they do not fit on one."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    text = str(signature).replace("'", "")
    if len(text) <= 100:
        return text
    lines, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            starred = True
        elif parameter.kind is parameter.KEYWORD_ONLY and not starred:
            lines.append("*")
            starred = True
        lines.append(re.sub(r"^(\*{0,2}\w+: )'([^']*)'", r"\1\2", str(parameter)))
    ends = "" if signature.return_annotation is signature.empty else f" -> {signature.return_annotation!s}"
    return "(\n" + "".join(f"    {line},\n" for line in lines) + ")" + ends


def _text(value: object) -> str:
    """The docstring, its indented lines as blocks of code, its arguments as a list."""
    about, helps = documented(value)
    if inspect.isfunction(value):
        known = SHARED | helps
        helps = {name: known[name] for name in inspect.signature(value).parameters if name in known}
    arguments = "\n".join(f"- `{name}`: {text}" for name, text in helps.items())
    return "\n\n".join([*map(_paragraph, about.split("\n\n")), *([arguments] if helps else [])])


def _paragraph(text: str) -> str:
    if text.startswith("    ") or _is_code(text):
        language = "sh" if text.lstrip().startswith("scaling ") else "python"
        return f"```{language}\n{inspect.cleandoc(text)}\n```"
    return text


def _is_code(paragraph: str) -> bool:
    return re.match(r"(\w+ = )?(scaling|fit|model|study)\.\w+\(", paragraph) is not None


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != page():
            sys.exit("docs/api.md is not what the docstrings say: run python docs/build_api.py")
    else:
        PAGE.write_text(page(), encoding="utf-8")
