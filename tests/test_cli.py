"""The command line: what a verb's signature makes of words and options; one line for every mistake; exit codes."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

import scaling
from scaling import cli
from scaling.base.errors import ScalingError, from_os, nearest
from scaling.base.numbers import Range
from scaling.base.printing import byte_size, scientific, short, span
from scaling.cli import VERBS, documented, main
from scaling.config.compose import names
from scaling.verbs import function_name
from scaling.verbs.verb import PYTHON, Flag, Result, verb

HEAVY = {"torch", "lightning", "wandb", "datasets", "numpy", "pandas", "transformers"}


def test_help_imports_nothing_heavy_and_names_every_verb():
    asked = [["--help"], [], ["--version"], ["no-such-verb"], *([*name.split(), "--help"] for name in VERBS)]
    code = (
        f"import sys; from scaling.cli import main\nfor words in {asked!r}:\n  try: main(words)\n"
        "  except SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())
    for name in VERBS:
        summary = documented(getattr(scaling, function_name(name)))[0].partition("\n")[0].rstrip(".")
        assert f"  {name} " in done.stdout
        assert done.stdout.count(summary) >= 3, "in the two lists and in the verb's own help"


def test_every_word_and_option_has_its_help():
    for name in VERBS:
        function = getattr(scaling, function_name(name))
        helps = documented(function)[1]
        assert [p.name for p in cli.shown_parameters(function) if not (cli.SHARED | helps).get(p.name)] == [], name
        assert not set(helps) - set(cli.inspect.signature(function).parameters), name


class Told(Result):
    formats = ("terminal", "list")

    def format(self, name: str) -> str:
        return f"{name}: {sorted(self.document)}\n"


def trial(
    first: str,
    second: str | None = None,
    *overrides: str,
    runs: str = "runs",
    again: bool = False,
    count: Annotated[int, Range(least=1, most=9)] | None = None,
    how: Literal["one", "other"] = "one",
    files: Sequence[str] = (),
    several: tuple[str, ...] = (),
    rename: Annotated[Mapping[str, str], Flag("map")] = {},
    targets: Annotated[Sequence[Mapping[str, float]], Flag("target")] = (),
    bounds: Mapping[str, tuple[float, float]] = {},
    callbacks: PYTHON[Sequence[Any]] = (),
    **settings: Any,
) -> Told:
    """Try it.

    Args:
        first: a word
        second: another
        again: 100% of it
    """
    given = {key: value for key, value in locals().items() if value not in (None, (), {}, False)}
    if isinstance(error := ERRORS.get(first), BaseException):
        raise error
    return Told(given, [str(given)], code=3)


FULL = "/x/y: the operating system refused: No space left on device; free some space and run the same command again"
ERRORS = {
    "wrong": ScalingError("wrong", fix="fix it"),
    "full": OSError(28, "No space left on device", "/x/y"),
    "denied": PermissionError(13, "Denied", "/x/y"),
    "interrupted": KeyboardInterrupt(),
}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(cli, "VERBS", (*VERBS, "trial"))
    monkeypatch.setattr("scaling.verbs.verb.VERBS", (*VERBS, "trial"))
    monkeypatch.setattr(scaling, "trial", verb(trial), raising=False)


INF = float("inf")
NAMES = "again bounds count extend files format help how json map runs several target"
OPTIONS = [f"--{name}" for name in NAMES.split()]
UNDERSTOOD = {
    "a": {},
    "a b": {"second": "b"},
    "a size=tiny": {"overrides": ("size=tiny",)},
    "--optimizer.lr=1 a --size=tiny --row=GeLU": {"overrides": ("optimizer.lr=1", "size=tiny", "row=GeLU")},
    "--again a --how other": {"again": True, "how": "other"},
    "a --files f b --files g": {"files": ["f", "g"], "second": "b"},
    "a --several f g": {"several": ["f", "g"]},
    "a --map N=n D=d --map L=loss": {"rename": {"N": "n", "D": "d", "L": "loss"}},
    "a --target N=1e6 D=2M --target C=1e9": {"targets": [{"N": 1e6, "D": 2e6}, {"C": 1e9}]},
    "a --bounds x=0:2 y=:1": {"bounds": {"x": (0, 2), "y": (-INF, 1)}},
    "a runs=/r": {"runs": "/r"},
    "--runs /r a": {"runs": "/r"},
    "a --files runs=3 --runs=/r": {"files": ["runs=3"], "runs": "/r"},
}


@pytest.mark.parametrize(("words", "more"), UNDERSTOOD.items())
def test_a_signature_is_a_command_line(capsys, words, more):
    assert main(["trial", *words.split()]) == 3
    assert eval(capsys.readouterr().out, {"inf": INF}) == {"first": "a", "runs": "runs", "how": "one"} | more


@pytest.mark.parametrize(
    ("args", "keywords", "more"),
    [
        (("a",), {"second": "b", "size": "tiny"}, {"second": "b", "overrides": ("size=tiny",)}),
        (("x=1", "a"), {"optimizer__lr": 1e-3}, {"overrides": ("x=1", "optimizer.lr=0.001")}),
        (("a",), {"tokens": "5M", "steps": 3}, {"overrides": ("train.tokens=5M", "trainer.max_steps=3")}),
    ],
)
def test_keywords_are_overrides(args, keywords, more):
    assert verb(trial)(*args, **keywords).document == {"first": "a", "runs": "runs", "how": "one"} | more


HELP = "(see `scaling trial --help`)"
MISTAKES = {
    "inspekt": "there is no command 'inspekt'; did you mean 'inspect'?",
    "inspect --size=tiny": f"no model is named; {nearest('', names('model'))}",
    "inspect decoder --jso": "there is no option --jso; did you mean '--json'? (see `scaling inspect --help`)",
    "inspect decoder --format csv": (
        "there is no option --format; choose from --extend, --help, --json, --lengths, --overlay, --runs "
        "(see `scaling inspect --help`)"
    ),
    "inspect decoder trainer.max_stepps=3": (
        "command line: trainer.max_stepps=3: trainer has no such key; did you mean 'max_steps'?"
    ),
    "train decoder gpt2": "word='gpt2': expected MODEL, and found one more; leave it out",
    "doctor size=tiny": "word='size=tiny': expected no words, and found one more; leave it out",
    "export": "RUN: expected RUN; see `scaling export --help`",
    "trial a --count 10": "count=10: expected a positive whole number up to 9",
    "trial a --how no": "how='no': expected one of one, other; choose from one, other",
    "trial a --count 1 --count 2": "count: is given twice: 1 and 2; give it once",
    "trial a --target N=1 D=2 N=3": "target N: is given twice: 1.0 and 3.0; give it once",
    "trial a --map N": "map='N': is not NAME=VALUE; write --map NAME=VALUE …",
    "trial a --bounds x=2": "bounds x='2': is not LOW:HIGH; write --bounds x=0:2",
    "trial a --callbacks x": f"there is no option --callbacks; {nearest('--callbacks', OPTIONS)} {HELP}",
    "trial a runs=": "runs: expected a folder; write runs=FOLDER",
    "trial a runs=b --runs c": "runs: is given twice: c and b; give it once",
    "trial a --json --format list": "format='list': a document of --json has none; leave it out",
    "trial wrong": "wrong; fix it",
    "trial denied": "/x/y: the operating system refused: Denied",
}


@pytest.mark.parametrize(("words", "printed"), MISTAKES.items())
def test_a_mistake_is_one_line_and_exit_2(words, printed, capsys):
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    assert captured.err == f"scaling: {printed}\n"
    assert captured.out == ""


@pytest.mark.parametrize(("word", "code", "printed"), [("full", 74, f"scaling: {FULL}\n"), ("interrupted", 130, "")])
def test_other_exit_codes(word, code, printed, capsys):
    assert main(["trial", word]) == code
    assert capsys.readouterr().err == printed


def test_a_range_holds_in_python_too():
    with pytest.raises(ScalingError, match="count=0: expected a positive whole number up to 9"):
        verb(trial)("a", count=0)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "{'first': 'a', 'runs': 'runs', 'how': 'one'}\n"),
        (["--format", "list"], "list: ['first', 'how', 'runs']\n"),
        (["--json"], '{\n  "schema": 1,\n  "first": "a",\n  "runs": "runs",\n  "how": "one"\n}\n'),
    ],
)
def test_a_result_is_printed_and_sets_the_exit_code(capsys, words, printed):
    assert main(["trial", "a", *words]) == 3
    assert capsys.readouterr().out == printed


def test_the_folder_of_the_ledger_is_spelled_alike_on_every_command():
    for name in VERBS:
        function = getattr(scaling, function_name(name))
        parameters = cli.inspect.signature(function).parameters
        needed = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
        expected = {"runs": "/r"} if {"runs", "settings"} & parameters.keys() else {}
        for spelling in (["runs=/r"], ["--runs=/r"], ["--runs", "/r"]):
            for words in ([*spelling, *needed], [*needed, *spelling]):
                assert cli.parsed(name, function, words)[:2] == (needed, expected), name


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_left_is_no_error(unbuffered):
    command = [sys.executable, "-m", "scaling", "--help"]
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, env=environment, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_closed_standard_error_sends_no_line_to_standard_output():
    command = f"{sys.executable} -m scaling no-such-verb 2>&-"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


@pytest.mark.parametrize(
    ("name", "choices", "fix"),
    [
        ("gelu", ["GeLU", "ReLU"], "did you mean 'GeLU'?"),
        ("Rotery", ["Rotary", "ALiBi"], "did you mean 'Rotary'?"),
        ("Switch", ["Swish", "Switch Transformer", "Switch Transformer, dense"], "did you mean 'Switch Transformer'?"),
        ("a", ["abc"], "choose from abc"),
        ("zzz", map(str, range(20)), "choose from 0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 8 more"),
        ("zzz", [], "there is none to choose from"),
    ],
)
def test_nearest(name, choices, fix):
    assert nearest(name, choices) == fix


def test_numbers_are_written_in_a_readable_unit():
    shorts = {0: "0", 999.4: "999", 999_600: "1M", 1234: "1.23k", 2e15: "2.0e15", 5e-5: "5.0e-5"}
    assert {value: short(value) for value in shorts} == shorts
    spans = {None: "?", 119: "119.0 s", 120: "2.0 min", 7200: "2.0 h", 864_000: "10.0 days"}
    assert {value: span(value) for value in spans} == spans
    assert [byte_size(count) for count in (999, 1000, 2.5e12)] == ["999 B", "1.0 kB", "2.5 TB"]
    assert scientific(1.26e-12) == "1.3 × 10⁻¹²"


def test_an_error_is_told_with_its_place_in_one_line():
    error = ScalingError("not\nso", fix="but so", file="a.yaml", line=3, key="b.c", value="x" * 200)
    assert str(error) == f"a.yaml:3: b.c='{'x' * 78}…: not so; but so"
    assert str(ScalingError("no", key="c").under("b").at(file="f", line=1)) == "f:1: b.c: no"
    assert str(from_os(OSError(2, "No such file or directory", "f"), "cannot be read")) == (
        "f: cannot be read: No such file or directory"
    )


def test_an_interrupt_during_the_import_is_no_traceback():
    code = (
        "import builtins, sys\nreal = builtins.__import__\n"
        "def stop(name, *rest):\n    if name == 'scaling.cli': raise KeyboardInterrupt\n    return real(name, *rest)\n"
        "builtins.__import__ = stop\nfrom scaling.__main__ import run; sys.exit(run())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
