"""The command line: what a verb's signature makes of words and options; one line for every mistake; exit codes."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

import scaling
from scaling import cli
from scaling.cli import VERBS, documented, function_name, main, parsed
from scaling.config import names
from scaling.errors import ScalingError, from_os, nearest
from scaling.schema import Range
from scaling.verbs.signature import PYTHON, Flag, verb

HEAVY = {"torch", "lightning", "wandb", "datasets", "numpy", "pandas", "transformers", "omegaconf"}


def test_help_names_every_verb(capsys):
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name in VERBS:
        summary = documented(getattr(scaling, function_name(name)))[0].partition("\n")[0].rstrip(".")
        assert summary, name
        assert f"  {name} " in printed
        assert summary in printed


@pytest.mark.parametrize(
    "words",
    [["--help"], [], ["--version"], ["no-such-verb"], *([*name.split(), "--help"] for name in VERBS)],
    ids=" ".join,
)
def test_help_imports_nothing_heavy(words):
    code = (
        f"import sys; from scaling.cli import main\ntry: main({words!r})\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("name", VERBS)
def test_every_word_and_option_has_its_help(name):
    function = getattr(scaling, function_name(name))
    helps = cli.SHARED | documented(function)[1]
    for parameter in cli.shown_parameters(function):
        assert helps.get(parameter.name), parameter.name
    assert not set(documented(function)[1]) - set(cli.inspect.signature(function).parameters)


MISTAKES = {
    ("inspekt",): "there is no command 'inspekt'; did you mean 'inspect'?",
    ("data", "shaw"): "there is no command 'data shaw'; did you mean 'data show'?",
    ("inspect", "--size=tiny"): f"no model is named; {nearest('', names('model'))}",
    ("inspect", "decoder", "--jso"): "there is no option --jso; did you mean '--json'? (see `scaling inspect --help`)",
    ("inspect", "decoder", "--sice.width=1"): ("command line: sice: there is no such section; did you mean 'size'?"),
    ("inspect", "decodr"): "there is no model 'decodr'; did you mean 'decoder'?",
    ("inspect", "decoder", "trainer.max_stepps=3"): (
        "command line: trainer.max_stepps=3: trainer has no such key; did you mean 'max_steps'?"
    ),
    ("train", "decoder", "gpt2"): "word='gpt2': expected MODEL, and found one more; leave it out",
    ("doctor", "size=tiny"): "size=tiny: `scaling doctor` has no settings; leave it out",
    ("export",): "RUN: expected RUN; see `scaling export --help`",
}


@pytest.mark.parametrize(("words", "printed"), MISTAKES.items(), ids=map(" ".join, MISTAKES))
def test_a_mistake_is_one_line_and_exit_2(words, printed, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err == f"scaling: {printed}\n"
    assert captured.out == ""


class Told(dict):
    """What a verb of the tests was called with."""

    formats = ("terminal", "list")
    code = 3

    def to_json(self) -> dict[str, Any]:
        return dict(self)

    def format(self, name: str) -> str:
        return f"{name}: {sorted(self)}\n"


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
    return Told(given)


@pytest.fixture
def call(monkeypatch, capsys):
    monkeypatch.setattr(cli, "VERBS", (*VERBS, "trial"))
    monkeypatch.setattr(scaling, "trial", verb(trial), raising=False)

    def called(*words: str) -> dict[str, Any]:
        return parsed("trial", words).function(*parsed("trial", words).words, **parsed("trial", words).options)

    called.verb = verb(trial)
    return called


NAMES = "again bounds count extend files format help how json map runs several target"
OPTIONS = ["-h", *(f"--{name}" for name in NAMES.split())]
USUAL = {"first": "a", "runs": "runs", "how": "one"}


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["a"], {}),
        (["a", "b"], {"second": "b"}),
        (["a", "size=tiny"], {"overrides": ("size=tiny",)}),
        (
            ["--optimizer.lr=1", "a", "--size=tiny", "--row=GeLU"],
            {"overrides": ("optimizer.lr=1", "size=tiny", "row=GeLU")},
        ),
        (["a", "--count", "3", "b", "x.y=1"], {"count": 3, "second": "b", "overrides": ("x.y=1",)}),
        (["--again", "a", "--how", "other"], {"again": True, "how": "other"}),
        (["a", "--files", "f", "b", "--files", "g"], {"files": ["f", "g"], "second": "b"}),
        (["a", "--several", "f", "g"], {"several": ["f", "g"]}),
        (["a", "--map", "N=n", "D = d", "--map", "L=loss"], {"rename": {"N": "n", "D": "d", "L": "loss"}}),
        (["a", "--target", "N=1e6", "D=2M", "--target", "C=1e9"], {"targets": [{"N": 1e6, "D": 2e6}, {"C": 1e9}]}),
        (["a", "--bounds", "x=0:2", "y=:1"], {"bounds": {"x": (0, 2), "y": (float("-inf"), 1)}}),
        (["a", "runs=/r"], {"runs": "/r"}),
        (["--runs", "/r", "a"], {"runs": "/r"}),
        (["a", "--files", "runs=3", "--runs=/r"], {"files": ["runs=3"], "runs": "/r"}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_signature_is_a_command_line(call, words, more):
    assert call(*words) == USUAL | more


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["a", "--count", "10"], "count=10: expected a positive whole number up to 9"),
        (["a", "--count", "x"], "argument --count: invalid int value: 'x'; see `scaling trial --help`"),
        (
            ["a", "--how", "none"],
            "argument --how: invalid choice: 'none' (choose from one, other); see `scaling trial --help`",
        ),
        (["a", "--count", "1", "--count", "2"], "count: is given twice: 1 and 2; give it once"),
        (["a", "--map", "N"], "map='N': is not NAME=VALUE; write --map NAME=VALUE …"),
        (["a", "--map", "N=a", "N=b"], "map N: is given twice: a and b; give it once"),
        (["a", "--bounds", "x=2"], "bounds x='2': is not LOW:HIGH; write --bounds x=0:2"),
        (
            ["a", "--callbacks", "x"],
            f"there is no option --callbacks; {nearest('--callbacks', OPTIONS)} (see `scaling trial --help`)",
        ),
        (["a", "runs="], "runs: expected a folder; write runs=FOLDER"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_what_a_signature_refuses_is_one_line(call, capsys, words, printed):
    assert main(["trial", *words]) == 2
    assert capsys.readouterr().err.replace("'one', 'other'", "one, other") == f"scaling: {printed}\n"


def test_a_range_holds_in_python_too(call):
    with pytest.raises(ScalingError, match="count=0: expected a positive whole number up to 9"):
        call.verb("a", count=0)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ([], "{'first': 'a', 'runs': 'runs', 'how': 'one'}\n"),
        (["--format", "list"], "list: ['first', 'how', 'runs']\n"),
    ],
)
def test_a_result_is_printed_and_sets_the_exit_code(call, capsys, words, printed):
    assert main(["trial", "a", *words]) == 3
    assert capsys.readouterr().out == printed


def test_a_json_document_has_the_number_of_its_schema(call, capsys):
    assert main(["trial", "a", "--json"]) == 3
    assert capsys.readouterr().out.startswith('{\n  "schema": 1,\n  "first": "a",')


FULL = "/x/y: the operating system refused: No space left on device; free some space and run the same command again"
EXITS = [
    (ScalingError("wrong", fix="fix it"), 2, "scaling: wrong; fix it\n"),
    (OSError(28, "No space left on device", "/x/y"), 74, f"scaling: {FULL}\n"),
    (PermissionError(13, "Denied", "/x/y"), 2, "scaling: /x/y: the operating system refused: Denied\n"),
    (KeyboardInterrupt(), 130, ""),
]


@pytest.mark.parametrize(("error", "code", "told"), EXITS, ids=lambda item: type(item).__name__)
def test_exit_codes(monkeypatch, capsys, error, code, told):
    def run() -> None:
        """Fail."""
        raise error

    monkeypatch.setattr(cli, "VERBS", ("trial",))
    monkeypatch.setattr(scaling, "trial", run, raising=False)
    assert main(["trial"]) == code
    assert capsys.readouterr().err == told


def test_a_reader_that_left_is_no_error():
    code = "import sys; from scaling.cli import main; sys.exit(main(['--help']))"
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("name", "choices", "fix"),
    [
        ("gelu", ["GeLU", "ReLU"], "did you mean 'GeLU'?"),
        ("Rotery", ["Rotary", "ALiBi"], "did you mean 'Rotary'?"),
        ("Switch", ["Swish", "Switch Transformer", "Switch Transformer, dense"], "did you mean 'Switch Transformer'?"),
        ("mo", ["mode", "momentum"], "did you mean 'mode'?"),
        ("a", ["abc"], "choose from abc"),
        ("zzz", ["b", "a"], "choose from a, b"),
        ("zzz", map(str, range(20)), "choose from 0, 1, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19 and 8 more"),
        ("zzz", [], "there is none to choose from"),
    ],
)
def test_nearest(name, choices, fix):
    assert nearest(name, choices) == fix


def test_an_error_is_told_with_its_place_in_one_line():
    error = ScalingError("not\nso", fix="but so", file="a.yaml", line=3, key="b.c", value="x" * 200)
    assert str(error) == f"a.yaml:3: b.c='{'x' * 78}…: not so; but so"
    assert str(ScalingError("no", key="c").under("b").at(file="f", line=1)) == "f:1: b.c: no"
    assert str(from_os(OSError(2, "No such file or directory", "f"), "cannot be read")) == (
        "f: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize("name", VERBS)
@pytest.mark.parametrize("spelling", [["runs=/shared/runs"], ["--runs=/shared/runs"], ["--runs", "/shared/runs"]])
def test_the_folder_of_the_ledger_is_spelled_alike_on_every_command(name: str, spelling: list[str]) -> None:
    function = getattr(scaling, function_name(name))
    parameters = cli.inspect.signature(function).parameters
    needed = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    for words in ([*spelling, *needed], [*needed, *spelling]):
        call = parsed(name, words)
        if "runs" in parameters:
            assert call.options["runs"] == "/shared/runs"
            assert call.words == needed
        elif "overrides" in parameters or "words" in parameters:
            assert call.words[-1] == "runs=/shared/runs"


def test_an_interrupt_during_the_import_is_no_traceback() -> None:
    code = "import sys; sys.modules['scaling.cli'] = None\nimport builtins; real = builtins.__import__\n"
    code += (
        "def stop(name, *rest):\n    if name == 'scaling.cli': raise KeyboardInterrupt\n    return real(name, *rest)\n"
    )
    code += "builtins.__import__ = stop\nfrom scaling.__main__ import run; sys.exit(run())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
