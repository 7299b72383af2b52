"""The command line: what a verb's signature makes of words and options; one line for every mistake; exit codes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest

import scaling
from scaling.base import standard_error
from scaling.base.errors import ScalingError, nearest
from scaling.base.numbers import Range
from scaling.base.printing import byte_size, short, span
from scaling.config.files import names
from scaling.verbs import command_line as cli
from scaling.verbs import function_name, function_of
from scaling.verbs.command_line import VERBS, documented, main
from scaling.verbs.verb import Flag, Result, verb
from tests.command_line import refuses

HEAVY = {"torch", "lightning", "wandb", "datasets", "numpy", "pandas", "transformers"}


def test_help_imports_nothing_heavy_and_names_every_verb_and_reports_and_requests_need_no_torch():
    asked = [["--help"], [], ["--version"], ["no-such-verb"], *([*name.split(), "--help"] for name in VERBS)]
    code = f"import sys; from scaling.verbs.command_line import main\nfor words in {asked!r}:\n  try: main(words)\n"
    code += "  except SystemExit: pass\nprint(*sys.modules)\n"
    code += "import scaling.reports.write, scaling.training.finetune\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *_, modules, has_torch = done.stdout.splitlines()
    assert not HEAVY & set(modules.split())
    assert has_torch == "False"
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
    **settings: Any,
) -> Told:
    """Try it."""
    given = {key: value for key, value in locals().items() if value not in (None, (), {}, False)}
    if isinstance(error := ERRORS.get(first), BaseException):
        raise error
    return Told(given, [str(given)], code=3)


FULL = "/x/y: the operating system refused: No space left on device; free some space and run the same command again"
ERRORS = {
    "wrong": ScalingError("wrong", fix="fix it"),
    "full": OSError(28, "No space left on device", "/x/y"),
    "interrupted": KeyboardInterrupt(),
}


@pytest.fixture(autouse=True)
def known(monkeypatch):
    monkeypatch.setattr(cli, "VERBS", (*VERBS, "trial"))
    monkeypatch.setattr("scaling.verbs.verb.VERBS", (*VERBS, "trial"))
    made = verb(trial)
    monkeypatch.setattr(cli, "function_of", lambda name: made if name == "trial" else function_of(name))


INF = float("inf")
UNDERSTOOD = {
    "a": {},
    "a b": {"second": "b"},
    "a size=tiny": {"overrides": ("size=tiny",)},
    "--optimizer.lr=1 a --size=tiny --row=GeLU": {"overrides": ("optimizer.lr=1", "size=tiny", "row=GeLU")},
    "--again a --files f b --files g --how other": {"again": True, "files": ["f", "g"], "second": "b", "how": "other"},
    "a --several f g": {"several": ["f", "g"]},
    "a --map N=n D=d --map L=loss": {"rename": {"N": "n", "D": "d", "L": "loss"}},
    "a --target N=1e6 D=2M --target C=1e9": {"targets": [{"N": 1e6, "D": 2e6}, {"C": 1e9}]},
    "a --bounds x=0:2 y=:1": {"bounds": {"x": (0, 2), "y": (-INF, 1)}},
    "a --files runs=3 --runs=/r": {"files": ["runs=3"], "runs": "/r"},
}
PLAIN = {"first": "a", "runs": "runs", "how": "one"}


def test_a_signature_is_a_command_line_whose_result_is_printed_and_sets_the_exit_code(capsys):
    for words, more in UNDERSTOOD.items():
        assert main(["trial", *words.split()]) == 3
        assert eval(capsys.readouterr().out, {"inf": INF}) == PLAIN | more, words
    assert main(["trial", "a", "--format", "list"]) == 3
    assert capsys.readouterr().out == "list: ['first', 'how', 'runs']\n"
    assert main(["trial", "a", "--json"]) == 3
    assert capsys.readouterr().out == '{\n  "schema": 1,\n  "first": "a",\n  "runs": "runs",\n  "how": "one"\n}\n'


def test_keywords_are_overrides_and_a_range_holds_in_python_too():
    called = verb(trial)("a", second="b", optimizer__lr=1e-3, tokens="5M", steps=3).document
    overrides = ("optimizer.lr=0.001", "train.tokens=5M", "trainer.max_steps=3")
    assert called == PLAIN | {"second": "b", "overrides": overrides}
    assert verb(trial)("x=1", "a").document == PLAIN | {"overrides": ("x=1",)}
    refuses("count=0: expected a positive whole number up to 9", verb(trial), "a", count=0)


def test_a_mistake_is_one_line_and_exit_2_and_other_troubles_have_codes_of_their_own(capsys):
    mistakes = {
        "inspekt": "there is no command 'inspekt'; did you mean 'inspect'?",
        "inspect --size=tiny": f"no model is named; {nearest('', names('model'))}",
        "inspect decoder trainer.max_stepps=3": (
            "command line: trainer.max_stepps=3: trainer has no such key; did you mean 'max_steps'?"
        ),
        "doctor size=tiny": "word='size=tiny': expected no words, and found one more; leave it out",
        "export": "RUN: expected RUN; see `scaling export --help`",
        "trial a --count 1 --count 2": "count: is given twice: 1 and 2; give it once",
        "inspect decoder --jso": "there is no option --jso; did you mean '--json'? (see `scaling inspect --help`)",
        "trial a runs=": "runs: expected a folder; write runs=FOLDER",
        "trial a runs=b --runs c": "runs: is given twice: c and b; give it once",
        "trial a --json --format list": "format='list': a document of --json has none; leave it out",
        "trial wrong": "wrong; fix it",
    }
    for words, printed in mistakes.items():
        assert main(words.split()) == 2
        assert capsys.readouterr() == ("", f"scaling: {printed}\n")
    for word, code, err in (("full", 74, f"scaling: {FULL}\n"), ("interrupted", 130, "")):
        assert main(["trial", word]) == code
        assert capsys.readouterr().err == err


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


@pytest.mark.parametrize("encoding", ["ascii", "utf-8:strict"])
def test_what_a_terminal_cannot_spell_is_escaped(encoding, tmp_path):
    name = os.fsdecode(b"caf\xc3\xa9 \xff.csv")  # a name need not be UTF-8
    points = [f"{n}e6,{n * d}e7,{3 / n + d}" for n in (1, 2, 4) for d in (1, 3)]
    (tmp_path / name).write_text("\n".join(["N,D,loss", *points]))
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    for options in ([], ["--json"]):
        command = [sys.executable, "-m", "scaling", "fit", tmp_path / name, "--intervals", "none", *options]
        done = subprocess.run(command, capture_output=True, env=environment, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout)["law"] == "chinchilla"


def test_a_closed_standard_error_sends_no_line_to_standard_output():
    command = f"{sys.executable} -m scaling no-such-verb 2>&-"
    done = subprocess.run(["bash", "-c", command], stdout=subprocess.PIPE, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_the_progress_of_compressed_text_names_no_total_that_it_has_passed(monkeypatch, capsys):
    monkeypatch.setattr(standard_error, "EVERY", 0.0)
    advance = standard_error.progress("part 1", 2_000_000)
    advance(1_000_000)
    advance(2_000_000)
    first, second = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"part 1: 1 MB of 2 MB, \d+ s left, .* MB/s", first)
    assert re.fullmatch(r"part 1: 3 MB, .* MB/s", second)


def test_numbers_are_written_in_a_readable_unit():
    assert [*map(short, (0, 999.4, 999_600, 1234, 2e15, 5e-5))] == ["0", "999", "1M", "1.23k", "2.0e15", "5.0e-5"]
    assert [*map(span, (None, 119, 120, 7200, 864_000))] == ["?", "119.0 s", "2.0 min", "2.0 h", "10.0 days"]
    assert [*map(byte_size, (999, 1000, 2.5e12))] == ["999 B", "1.0 kB", "2.5 TB"]


def test_an_interrupt_during_the_import_is_no_traceback():
    code = "import builtins, sys\nreal = builtins.__import__\ndef stop(name, *rest):\n"
    code += "    if name == 'scaling.verbs.command_line': raise KeyboardInterrupt\n    return real(name, *rest)\n"
    code += "builtins.__import__ = stop\nfrom scaling.__main__ import run; sys.exit(run())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
