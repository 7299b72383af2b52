"""The command line: `scaling VERB [WORD …] [key=value …] [--option VALUE …]`.

A verb is a function of `import scaling`. Its positional parameters are the words of the command, `*overrides` are its
`key=value`, its keyword-only parameters are its options, and its docstring is its help (see `verbs/signature.py`). What
it returns is printed: `str(result)`, under `--json` `result.to_json()`, under `--format` `result.format(NAME)`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import os
import re
import select
import sys
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TextIO

import scaling
from scaling import parent
from scaling.errors import ScalingError, from_os, nearest
from scaling.standard_error import keep_going
from scaling.training.signals import Stopped, leave, listening
from scaling.verbs.signature import VERBS, Python, documented, function_name, marks, spelled, without_none

SCHEMA = 1
"""Rises when a key of a JSON document goes or changes its meaning (docs/json.md)."""
SIGINT_EXIT = 130
_CONTROL = re.compile("[\x7f-\x9f]")  # which JSON leaves as they are and a terminal may obey
OVERRIDE = re.compile(r"(--)?[A-Za-z_][\w-]*(\.[\w-]+)*=", re.ASCII)
SHARED = {
    "overrides": "keys of the config, as size=tiny or optimizer.lr=1e-3",
    "runs": "the folder of the ledger; also as runs=FOLDER",
    "device": "cpu, cuda, … (cuda where there is one)",
    "extend": "a Python file whose classes join the slots that they name; repeats",
    "overlays": "a file to lay over the config; repeats",
}
"""Help of the parameters that mean the same in every verb."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; a mistake of the user is one line on standard error."""
    words = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        keep_going()
    try:
        with listening(to_the_end=argv is None):
            parent.follow()
            return _code(words)
    except Stopped as stopped:
        _say(f"{stopped}; run the same command again to continue")
        if argv is None:
            leave(stopped.code)
        return stopped.code


def _code(words: list[str]) -> int:
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except ScalingError as error:
        _say(error)
        return error.code
    except KeyboardInterrupt:
        return SIGINT_EXIT
    except BrokenPipeError:
        if not _is_closed(sys.stdout):
            raise  # another pipe broke, and the command is not done
        # The reader (head, less) has gone; point stdout elsewhere so that the interpreter's own flush stays silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        refusal = from_os(error, "the operating system refused")
        _say(refusal)
        return refusal.code


def _is_closed(stream: TextIO) -> bool:
    """Whether a stream has no reader any more."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)
    return bool(poll.poll(0))  # an error or a hang-up, which need not be asked for


def _say(what: object) -> None:
    print(f"scaling: {what}", file=sys.stderr, flush=True)


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help())
        return 0
    if words[0] == "--version":
        print(scaling.__version__)
        return 0
    name, rest = named(words)
    call = parsed(name, rest)
    for path in call.extensions:
        scaling.extend(path)
    result = call.function(*call.words, **call.options)
    if isinstance(result, Iterator):
        for each in result:
            _print(each, call)
            if call.json:
                break
        return 0
    _print(result, call)
    return getattr(result, "code", 0)


def named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two, and the words after it."""
    for count in (2, 1):
        if " ".join(words[:count]) in VERBS:
            return " ".join(words[:count]), list(words[count:])
    groups = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    wrong = " ".join(words[:2]) if groups else words[0]
    raise ScalingError(f"there is no command {wrong!r}", fix=nearest(wrong, groups or VERBS))


def _print(result: Any, call: Call) -> None:
    if result is None or not _is_first_rank():
        return
    if call.json:
        document = result.to_json()
        document = {"schema": SCHEMA, **document} if isinstance(document, Mapping) else document
        text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False)
        print(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    else:
        print(str(result) if call.format is None else result.format(call.format).rstrip("\n"), flush=True)


def _is_first_rank() -> bool:
    return int(os.environ.get("RANK", 0)) == 0 or int(os.environ.get("WORLD_SIZE", 1)) == 1


@typing.final
class Call(typing.NamedTuple):
    """A command line that was understood: the verb's function and its arguments, and how its result is printed."""

    function: Callable[..., Any]
    words: list[str]
    options: dict[str, Any]
    extensions: list[str]
    json: bool
    format: str | None


def parsed(verb: str, words: Sequence[str]) -> Call:
    """The call that a verb's words and options mean; options, words and overrides mix freely."""
    function = getattr(scaling, function_name(verb))
    signature = inspect.signature(function, eval_str=True)
    parameters = signature.parameters.values()
    parser = _parser(verb, function, signature)
    found, unknown = parser.parse_known_intermixed_args(_undashed(words, parser))
    for word in unknown:
        fix = nearest(word.partition("=")[0], parser.options)
        raise ScalingError(f"there is no option {word}", fix=f"{fix} (see `{parser.prog} --help`)")
    if found.json and found.format is not None:
        raise ScalingError("a document of --json has none", key="format", value=found.format, fix="leave it out")
    given = {p.name: getattr(found, p.name, None) for p in parameters if p.kind is p.KEYWORD_ONLY}
    options = {name: value for name, value in given.items() if value is not None}
    words = found.words
    if found.runs is not None:
        if found.runs == "":
            raise ScalingError("expected a folder", key="runs", fix="write runs=FOLDER")
        if "runs" in signature.parameters:
            options["runs"] = found.runs
        elif "overrides" in signature.parameters:
            words = [*words, f"runs={found.runs}"]
    return Call(function, _words(verb, signature, words), options, found.extensions, found.json, found.format)


def _words(verb: str, signature: inspect.Signature, words: Sequence[str]) -> list[Any]:
    """The positional arguments: words by their order, then overrides."""
    named = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    several = next((p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
    overrides = [word for word in words if OVERRIDE.match(word)] if several != "words" else []
    names = [word for word in words if word not in overrides]
    if overrides and several != "overrides":
        raise ScalingError(f"`scaling {verb}` has no settings", key=overrides[0], fix="leave it out")
    needed = [p.name.upper() for p in named if p.default is p.empty]
    if len(names) < len(needed):
        fix = f"see `scaling {verb} --help`"
        raise ScalingError(f"expected {' '.join(needed)}", key=needed[len(names)], fix=fix)
    if len(names) > len(named) and several in (None, "overrides"):
        what = f"expected {' '.join(p.name.upper() for p in named) or 'no words'}, and found one more"
        raise ScalingError(what, value=names[len(named)], key="word", fix="leave it out")
    missing = [p.default for p in named[len(names) :]] if overrides else []
    return [*names, *missing, *overrides]


class _Parser(argparse.ArgumentParser):
    """argparse whose complaints are our one line. `options` has the action of each option by its name."""

    def __init__(self, **settings: Any):
        self.options: dict[str, argparse.Action] = {}
        super().__init__(**settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        action = super().add_argument(*names, **settings)
        self.options |= dict.fromkeys(action.option_strings, action)
        return action

    def error(self, message: str) -> typing.NoReturn:
        raise ScalingError(message, fix=f"see `{self.prog} --help`")


class _Once(argparse.Action):
    """An option of one value: a second, different one is refused, not put in the place of the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        before = getattr(namespace, self.dest)
        if before is not None and before != values:
            what = f"is given twice: {before} and {values}"
            raise ScalingError(what, key=str(option_string).lstrip("-"), fix="give it once")
        setattr(namespace, self.dest, values)


class _Pairs(argparse.Action):
    """NAME=VALUE words as a mapping; `several`: a mapping each time the option is given."""

    def __init__(self, *arguments: Any, value: Callable[[str, str, str], Any], several: bool = False, **more: Any):
        super().__init__(*arguments, **more)
        self._value, self._several = value, several

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        option, before = str(option_string).lstrip("-"), getattr(namespace, self.dest)
        pairs = {} if self._several or before is None else before
        for word in values:
            name, sign, text = (part.strip() for part in word.partition("="))
            if not sign or not name or not text:
                raise ScalingError("is not NAME=VALUE", key=option, value=word, fix=f"write --{option} NAME=VALUE …")
            value = self._value(text, option, name)
            if pairs.setdefault(name, value) != value:
                what = f"is given twice: {pairs[name]} and {value}"
                raise ScalingError(what, key=f"{option} {name}", fix="give it once")
        setattr(namespace, self.dest, [*(before or []), pairs] if self._several else pairs)


def _parser(verb: str, function: Callable[..., Any], signature: inspect.Signature) -> _Parser:
    """The parser of a verb: its options from the keyword-only parameters, its help from the docstring."""
    about, own = documented(function)
    helps = SHARED | own
    parameters = shown_parameters(function)
    titles = {p.name: _title(p) for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL)}
    words = [f"  {title:<22}{helps.get(name, '')}" for name, title in titles.items()]
    parser = _Parser(
        prog=f"scaling {verb}",
        usage=" ".join([f"scaling {verb}", *titles.values(), "[options]"]),
        description="\n".join([about, *([""] if words else []), *words]).replace("%", "%%"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY:
            default = parameter.default
            shown = (
                ""
                if default is None or default is False or default in ((), "") or isinstance(default, Mapping)
                else f" (default {default})"
            )
            helped = (helps.get(parameter.name, "") + shown).replace("%", "%%")
            how = _argument(without_none(parameter.annotation))
            parser.add_argument(f"--{spelled(parameter)}", dest=parameter.name, help=helped, **how)
    parser.add_argument("--runs", metavar="FOLDER", help=SHARED["runs"])
    parser.add_argument(
        "--extend", action="append", default=[], dest="extensions", help=SHARED["extend"], metavar="PATH"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    formats = getattr(signature.return_annotation, "formats", None)
    if formats:
        parser.add_argument("--format", choices=formats, help=f"of what is printed (default {formats[0]})")
    parser.set_defaults(format=None)
    return parser


def shown_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """What a person may write after a verb, but for the ledger's folder, which all verbs take."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [
        parameter
        for parameter in parameters
        if parameter.name != "runs"
        and parameter.kind is not parameter.VAR_KEYWORD
        and not any(isinstance(mark, Python) for mark in marks(parameter.annotation))
    ]


def _title(parameter: inspect.Parameter) -> str:
    """A word of the usage line: `NAME`, `[NAME]` where it may be left out."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "[key=value …]" if parameter.name == "overrides" else f"[{parameter.name.upper().rstrip('S')} …]"
    return parameter.name.upper() if parameter.default is parameter.empty else f"[{parameter.name.upper()}]"


def _argument(annotation: Any) -> dict[str, Any]:
    """How argparse reads a type: a flag, a choice, a number, several words, or NAME=VALUE."""
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _argument(inner[0])
    if origin is Literal:
        return {"action": _Once, "choices": inner}
    if annotation is bool:
        return {"action": "store_const", "const": True}
    if annotation in (int, float):
        return {"action": _Once, "type": annotation, "metavar": "N" if annotation is int else "NUMBER"}
    if origin is tuple:
        return {"action": "extend", "nargs": "+", "type": _plain(inner[0])}
    if origin is Sequence and typing.get_origin(inner[0]) is Mapping:
        value = typing.get_args(inner[0])[1]
        return {"action": _Pairs, "nargs": "+", "value": _VALUES[value], "several": True, "metavar": "NAME=VALUE"}
    if origin is Sequence:
        return {"action": "append"}
    if origin is Mapping:
        return {"action": _Pairs, "nargs": "+", "value": _VALUES[inner[1]], "metavar": "NAME=VALUE"}
    return {"action": _Once}


def _plain(annotation: Any) -> type:
    return annotation if annotation in (int, float) else str


def _number(text: str, option: str, name: str) -> float:
    from scaling.laws.formula import parse_number

    value = parse_number(text)
    if value is None or not math.isfinite(value):
        what = "is not a number" if value is None else "is not a finite number"
        raise ScalingError(what, key=name, value=text, fix=f"write --{option} {name}=1e9")
    return value


def _limits(text: str, option: str, name: str) -> tuple[float, float]:
    """`0:2`; an end that is left out is open."""
    from scaling.laws.formula import parse_number

    low, colon, high = text.partition(":")
    ends = parse_number(low or "-inf"), parse_number(high or "inf")
    if not colon or ends[0] is None or ends[1] is None:
        fix = f"write --{option} {name}=0:2"
        raise ScalingError("is not LOW:HIGH", key=f"{option} {name}", value=text, fix=fix)
    return ends[0], ends[1]


def _scalar(text: str, option: str, name: str) -> Any:
    from scaling.config import scalar

    return scalar(text)


_VALUES: dict[Any, Callable[[str, str, str], Any]] = {
    str: lambda text, *_: text,
    float: _number,
    tuple[float, float]: _limits,
    Any: _scalar,
}


def _undashed(words: Sequence[str], parser: _Parser) -> list[str]:
    """The words with the dashes of overrides taken off, as W&B's agent writes `--optimizer.lr=1`, and with `runs=` as
    the option that it is; the value of an option stays as it is.
    """
    from scaling.config import SECTIONS

    actions, spelled_out, before = parser.options, [], None
    for word in words:
        action = actions.get(before or "")
        if action is None or action.nargs == 0:
            key, sign, _ = word.removeprefix("--").partition("=")
            is_override = sign and word.startswith("--") and ("." in key or key in (*SECTIONS, "row", "study"))
            if word.startswith("runs="):
                word = f"--{word}"
            elif is_override and f"--{key}" not in actions:
                word = word.removeprefix("--")
        spelled_out.append(word)
        before = word
    return spelled_out


def _help() -> str:
    functions = {verb: getattr(scaling, function_name(verb)) for verb in VERBS}
    first = {verb: documented(function)[0].partition("\n")[0].rstrip(".") for verb, function in functions.items()}
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {summary}" for verb, summary in first.items()]
    spelling = [
        "Overrides of a config are key=value, anywhere among the words.",
        "Every command takes the folder of the ledger as runs=FOLDER or --runs FOLDER; it is runs/ unless given,",
        "and --extend PATH, a Python file whose classes join the slots that they name.",
    ]
    usage = "usage: scaling VERB … (`scaling VERB --help` prints more)"
    return "\n".join([usage, "", *lines, "", *spelling])
