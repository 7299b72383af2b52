"""The command line: `scaling VERB [WORD …] [key=value …] [--option VALUE …]`.

A verb is a function of `import scaling`. Its positional parameters are the words of the command, `*overrides` are its
`key=value`, its keyword-only parameters are its options, and its docstring is its help (see `verbs/verb.py`). Its
result is printed: `str(result)`, with `--json` `result.to_json()`, with `--format` `result.format(NAME)`.
"""

import argparse
import inspect
import json
import math
import os
import re
import select
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from scaling.base import __version__
from scaling.base.errors import BAD_INPUT, ScalingError, from_os, near, nearest, refuse
from scaling.base.signals import Stopped, leave, listening
from scaling.base.standard_error import keep_going, say
from scaling.config.schema import check, extend
from scaling.verbs import function_of
from scaling.verbs.verb import OVERRIDE, VERBS, documented, marks, spelled, value_type

SCHEMA = 1  # increases when a key of a JSON document is removed or its meaning changes (docs/json.md)
_CONTROL = re.compile("[\x7f-\x9f]")  # JSON does not escape these, and a terminal may execute them
HELP = """Overrides of a config are key=value, at any place among the words.
For every command, runs=FOLDER or --runs FOLDER names the folder of the ledger (default: runs/).
For every command, --extend PATH names a Python file; its classes are added to the slots that they name."""
SHARED = {  # the help of parameters that mean the same in every verb
    "overrides": "keys of the config, such as size=tiny or optimizer.lr=1e-3",
    "runs": "the folder of the ledger; also as runs=FOLDER",
    "model": "a model, a table's row or a file",
    "at": "a scale that the study names, such as paper",
    "budget": "maximum FLOPs of --adaptive (default: the FLOPs of the grid)",
    "retry_failed": "also retry runs that failed too often",
    "device": "cpu, cuda, … (default: cuda if the machine has it)",
    "extend": "a Python file; its classes are added to the slots that they name; repeats",
    "split": "the split that is scored",
    "limit": "score only the first N examples or documents",
    "to": "write one line for each example, document or prompt to this file: .jsonl or .csv",
    "workers": "processes (default: the number that suits the machine)",
    "set": "settings of SLURM (options of sbatch, timeout_min, mem_gb) or Ray (address, num_cpus, num_gpus)",
    "rename": "names of columns, or formulas: loss=final_loss C=6*N*D N=params-embedding",
    "level": "the level of the intervals",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return its exit code; a mistake of the user is one line on standard error."""
    if argv is None:
        keep_going()
        if os.uname().machine == "x86_64":  # where torch multiplies by another library
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's matrices are small, and idle threads spin
    try:
        with listening(to_the_end=argv is None):
            code = _run(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return code
    except Stopped as stopped:
        say(f"{stopped}; run the same command again to continue")
        if argv is None:
            leave(stopped.code)
        return stopped.code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        if not poll.poll(0):
            raise  # standard output has a reader: another pipe broke, and the command is not done
        # The reader (head, less) has gone; point stdout elsewhere so that the interpreter's own flush stays silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UnicodeEncodeError as error:  # of a file: bytes that are not UTF-8 arrive as half characters
        say(ScalingError(f"a name is not UTF-8: {near(error)}", fix="rename the file or the folder"))
        return BAD_INPUT
    except (ScalingError, OSError) as error:
        refusal = from_os(error, "the operating system refused") if isinstance(error, OSError) else error
        say(refusal)
        return refusal.code


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help", "--version"):
        print(__version__ if words[:1] == ["--version"] else _help())
        return 0
    verb, words = named(words)
    function = function_of(verb)
    arguments, options, shared = parsed(verb, function, words)
    for path in shared.get("--extend", ()):
        extend(path)
    result, is_json = function(*arguments, **options), "--json" in shared
    for each in result if isinstance(result, Iterator) else [result]:
        _print(each, is_json, shared.get("--format"))
        if is_json:
            break
    return getattr(result, "code", 0)


def named(words: Sequence[str]) -> tuple[str, list[str]]:
    """The verb, of one word or two, and the words after it."""
    for count in (2, 1):
        if " ".join(words[:count]) in VERBS:
            return " ".join(words[:count]), list(words[count:])
    groups = [verb for verb in VERBS if verb.startswith(f"{words[0]} ")]
    wrong = " ".join(words[: 2 if groups else 1])
    raise ScalingError(f"there is no command {wrong!r}", fix=nearest(wrong, groups or VERBS))


def _print(result: Any, is_json: bool, layout: str | None) -> None:
    from scaling.training.ranks import first

    if result is None or not first():
        return
    if not is_json:
        print(str(result) if layout is None else result.format(layout).rstrip("\n"), flush=True)
        return
    document = result.to_json()
    document = {"schema": SCHEMA, **document} if isinstance(document, Mapping) else document
    is_ascii = not (sys.stdout.encoding or "utf-8").lower().startswith("utf")  # JSON has escapes of its own
    text = json.dumps(document, indent=2, allow_nan=False, ensure_ascii=is_ascii)
    print(_CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def parsed(
    verb: str, function: Callable[..., Any], words: Sequence[str]
) -> tuple[list[str], dict[str, Any], dict[str, Any]]:
    """The arguments of a verb, its options, and the options that every verb has; words and options mix freely."""
    options = [p for p in shown_parameters(function) if p.kind is p.KEYWORD_ONLY]
    try:
        namespace, others = _parser(verb, function).parse_known_args(words)
    except argparse.ArgumentError as error:
        raise ScalingError(str(error), fix=f"see `scaling {verb} --help`") from None
    raw = vars(namespace)
    if "--json" in raw and "--format" in raw:
        raise ScalingError("a document of --json has none", key="format", value=raw["--format"], fix="leave it out")
    shared = ("extend", "help", "json", "runs", *(["format"] if _formats(function) else []))
    names = [f"--{name}" for name in (*map(spelled, options), *shared)]
    others = [_undashed(word, verb, names) for word in others]
    values = {p.name: _value(spelled(p), raw[p.name], _type(p)) for p in options if p.name in raw}
    folders = [
        *raw.get("runs", ()),
        *(word[len("runs=") :] for word in others if word.startswith("runs=")),
    ]
    refuse("" in folders, "expected a folder", "write runs=FOLDER", key="runs")
    if folders and {"runs", "settings"} & inspect.signature(function).parameters.keys():
        values["runs"] = _only("runs", folders)
    return [word for word in others if not word.startswith("runs=")], values, raw


def _undashed(word: str, verb: str, names: Iterable[str]) -> str:
    """A word that no option has read; W&B's agent writes overrides as `--optimizer.lr=1`."""
    from scaling.config.compose import SECTIONS

    option, plain = word.partition("=")[0], word.removeprefix("--")
    if not word.startswith("-") or " " in option:
        return word
    if OVERRIDE.match(plain) and ("." in option or option.removeprefix("--") in (*SECTIONS, "row", "study")):
        return plain
    raise ScalingError(f"there is no option {word}", fix=f"{nearest(option, names)} (see `scaling {verb} --help`)")


def _parser(verb: str, function: Callable[..., Any]) -> argparse.ArgumentParser:
    """The parser of a verb: its options from the keyword-only parameters, its help from the docstring."""
    about, helps = documented(function)
    helps, parameters = SHARED | helps, shown_parameters(function)
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY]
    titles = {p.name: _title(p) for p in parameters if p not in options}
    words = [f"  {title:<22}{helps.get(name, '')}" for name, title in titles.items()]
    parser = argparse.ArgumentParser(
        prog=f"scaling {verb}",
        usage=" ".join([f"scaling {verb}", *titles.values(), "[options]"]),
        description="\n".join([about, *([""] if words else []), *words]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for parameter in options:
        default, name = parameter.default, spelled(parameter)
        is_shown = isinstance(default, str | int | float) and default is not False and default != ""
        shown = helps.get(parameter.name, "") + (f" (default {default})" if is_shown else "")
        keywords = _option(name, _type(parameter))
        parser.add_argument(f"--{name}", dest=parameter.name, help=shown.replace("%", "%%"), **keywords)
    parser.add_argument("--runs", action="append", metavar="FOLDER", help=SHARED["runs"])
    parser.add_argument("--extend", dest="--extend", action="append", help=SHARED["extend"], metavar="PATH")
    parser.add_argument("--json", dest="--json", action="store_const", const=True, help="print one JSON document")
    if formats := _formats(function):
        what = f"the format of the output (default {formats[0]})"
        parser.add_argument("--format", dest="--format", choices=formats, help=what)
    return parser


def _formats(function: Callable[..., Any]) -> Sequence[str]:
    """The formats of a verb's printed result, the default first; empty if there is only one."""
    return getattr(inspect.signature(function, eval_str=True).return_annotation, "formats", ())


def shown_parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that a user may write after a verb, except the ledger's folder, which all verbs have."""
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [p for p in parameters if p.name != "runs" and p.kind is not p.VAR_KEYWORD and spelled(p)]


def _title(parameter: inspect.Parameter) -> str:
    """A word of the usage line: `NAME`, or `[NAME]` if it may be left out."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "[key=value …]" if parameter.name == "overrides" else f"[{parameter.name.upper().rstrip('S')} …]"
    return parameter.name.upper() if parameter.default is parameter.empty else f"[{parameter.name.upper()}]"


def _type(parameter: inspect.Parameter) -> Any:
    """The type of an option's values, without their range."""
    kind = value_type(parameter.annotation)
    return get_args(kind)[0] if marks(kind) else kind


def _option(option: str, kind: Any) -> dict[str, Any]:
    """The arguments of `add_argument` for an option of a type; the words of its occurrences are a list."""
    if kind is bool:
        return {"action": "store_const", "const": True}
    origin, inner = get_origin(kind), get_args(kind)
    is_pairs = Mapping in (origin, *map(get_origin, inner))
    metavar = "{" + ",".join(map(str, inner)) + "}" if origin is Literal else {int: "N", float: "NUMBER"}.get(kind)
    metavar = "NAME=VALUE" if is_pairs else metavar or option.upper()
    action = {"action": "extend" if origin in (Mapping, tuple) else "append", "metavar": metavar}
    return action | ({"nargs": "+"} if is_pairs or origin is tuple else {})


def _value(option: str, words: Any, kind: Any, fix: str = "give it once") -> Any:
    """The value of an option from the words of its occurrences."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is bool:
        return words
    if origin is Mapping:
        pairs = [_pair(option, word, inner[1]) for word in words]
        return {name: _only(f"{option} {name}", [value for n, value in pairs if n == name], fix) for name, _ in pairs}
    if origin in (Sequence, tuple):
        again = f"write --{option} again for the second"
        return [_value(option, each if isinstance(each, list) else [each], inner[0], again) for each in words]
    return _only(option, [_read(option, word, kind) for word in words], fix)


def _only(title: str, values: Sequence[Any], fix: str = "give it once") -> Any:
    """The only one of several values; a second, different value is refused."""
    if other := [value for value in values if value != values[0]]:
        raise ScalingError(f"is given twice: {values[0]} and {other[0]}", key=title, fix=fix)
    return values[0]


def _pair(option: str, word: str, kind: Any) -> tuple[str, Any]:
    """NAME=VALUE; the value has the type, or is a pair of limits such as `0:2` and `:2`."""
    name, _, text = (part.strip() for part in word.partition("="))
    refuse(not name or not text, "is not NAME=VALUE", f"write --{option} NAME=VALUE …", key=option, value=word)
    title = f"{option} {name}"
    if get_origin(kind) is not tuple:
        return name, _read(title, text, kind)
    low, colon, high = text.partition(":")
    refuse(not colon, "is not LOW:HIGH", f"write --{option} {name}=0:2", key=title, value=text)
    ends = ((low, -math.inf), (high, math.inf))
    return name, tuple(_read(title, end, float) if end else open_end for end, open_end in ends)


def _read(title: str, text: str, kind: Any) -> Any:
    """The value of a word: text, a number such as 1e9, 10M or 1,000, or any value of a config."""
    from scaling.config.strict_yaml import scalar

    value = scalar(text)
    if kind is Any:
        return value
    if kind in (int, float) and isinstance(value, str):
        from scaling.laws.formula import parse_number

        number = parse_number(text)
        value = text if number is None else number
    return check(title, value if kind in (int, float) else text, kind)


def _help() -> str:
    width, abouts = max(map(len, VERBS)), {verb: function_of(verb).__doc__ or "" for verb in VERBS}
    lines = "\n".join(f"  {verb:<{width}}  {text.splitlines()[0].rstrip('.')}" for verb, text in abouts.items())
    return f"usage: scaling VERB … (`scaling VERB --help` prints more)\n\n{lines}\n\n{HELP}"
