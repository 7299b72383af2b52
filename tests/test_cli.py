"""The door: help without weight, one line for every mistake, exit codes."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from scaling.cli import VERBS, main, parsed
from scaling.config import names
from scaling.errors import ScalingError, from_os, nearest

HEAVY = {"torch", "lightning", "wandb", "datasets", "numpy", "pandas", "transformers", "omegaconf"}


def test_help_names_every_verb(capsys):
    assert main(["--help"]) == 0
    told = capsys.readouterr().out
    for verb, summary in VERBS.items():
        assert verb in told
        assert summary in told


@pytest.mark.parametrize(
    "words", [["--help"], [], ["--version"], ["no-such-verb"], *([verb, "--help"] for verb in VERBS)]
)
def test_the_door_is_light(words):
    """Help of every verb, and a wrong verb, are told without importing anything heavy."""
    code = (
        f"import sys; from scaling.cli import main\ntry: main({words!r})\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_module_that_explains_itself(verb):
    command = importlib.import_module(f"scaling.command.{verb.replace('-', '_')}")
    assert command.__doc__
    assert callable(command.add_arguments)
    assert callable(command.run)


MISTAKES = {
    ("inspekt",): "there is no command 'inspekt'; did you mean 'inspect'?",
    ("inspect", "--size=tiny"): f"no model is named; {nearest('', names('model'))}",
    ("inspect", "decoder", "--jso"): "unrecognized arguments: --jso; see `scaling inspect --help`",
    ("inspect", "decoder", "--size"): "command line: size='--size': an override needs a value; write --size=VALUE",
    ("inspect", "decoder", "--sice.width=1"): (
        "command line: sice='--sice.width=1': there is no such section; did you mean 'size'?"
    ),
    ("inspect", "decodr"): "there is no model 'decodr'; did you mean 'decoder'?",
    ("inspect", "decoder", "trainer.max_stepps=3"): (
        "command line: trainer.max_stepps=3: trainer has no such key; did you mean 'max_steps'?"
    ),
}


@pytest.mark.parametrize(("words", "told"), MISTAKES.items(), ids=map(" ".join, MISTAKES))
def test_a_mistake_is_one_line_and_exit_2(words, told, capsys):
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.err == f"scaling: {told}\n"
    assert captured.out == ""


def verb(monkeypatch, run):
    class Command:
        """A verb of the test's."""

        run: Callable[..., int]

        @staticmethod
        def add_arguments(parser):
            parser.add_argument("words", nargs="*")
            parser.add_argument("--seed", type=int)

    Command.run = staticmethod(run)
    monkeypatch.setitem(VERBS, "trial", "a verb of the test's")
    monkeypatch.setitem(sys.modules, "scaling.command.trial", Command)


def test_overrides_lose_their_dashes_and_flags_keep_theirs(monkeypatch):
    seen = []
    verb(monkeypatch, seen.append)
    assert main(["trial", "--optimizer.lr=1", "a", "--seed=3", "size=tiny", "--row=GeLU"]) == 0
    assert seen[0].words == ["optimizer.lr=1", "a", "size=tiny", "row=GeLU"]
    assert seen[0].seed == 3


FULL = "/x/y: the operating system refused: No space left on device; free some space and run the same command again"
EXITS = [
    (ScalingError("wrong", fix="fix it"), 2, "scaling: wrong; fix it\n"),
    (OSError(28, "No space left on device", "/x/y"), 74, f"scaling: {FULL}\n"),
    (PermissionError(13, "Denied", "/x/y"), 2, "scaling: /x/y: the operating system refused: Denied\n"),
    (KeyboardInterrupt(), 130, ""),
]


@pytest.mark.parametrize(("error", "code", "told"), EXITS, ids=lambda item: type(item).__name__)
def test_exit_codes(monkeypatch, capsys, error, code, told):
    def run(_):
        raise error

    verb(monkeypatch, run)
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


NEEDED = {
    "plan": ["quickstart"],
    "study": ["quickstart"],
    "table": ["narang2021"],
    "work": ["quickstart"],
    "watch": ["quickstart"],
    "report": ["quickstart"],
    "agent": ["me/scaling/abcd1234"],
    "pull": ["me/scaling"],
    "data": ["list"],
    "show": ["3fa9"],
    "diff": ["3fa9", "71c0"],
    "finetune": ["3fa9", "cola"],
    "evaluate": ["3fa9"],
    "predict-run": ["decoder", "--points", "points.csv"],
    "predict": ["3fa9", "--input", "new.jsonl"],
    "generate": ["3fa9"],
    "look": ["3fa9", "--text", "a"],
    "probe": ["3fa9", "ranks"],
    "landscape": ["3fa9"],
    "export": ["3fa9"],
    "import": ["folder"],
    "fit": ["points.csv"],
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("spelling", [["runs=/shared/runs"], ["--runs=/shared/runs"], ["--runs", "/shared/runs"]])
def test_the_folder_of_the_ledger_is_spelled_alike_on_every_command(verb: str, spelling: list[str]) -> None:
    names = NEEDED.get(verb, [])
    for words in ([*spelling, *names], [*names, *spelling], [*spelling, *names, *spelling]):
        arguments = parsed(verb, words)
        assert arguments.runs == "/shared/runs"
        if "words" in arguments:
            assert arguments.words[-1] == "runs=/shared/runs"
            assert [word for word in arguments.words[:-1] if "runs" in word] == []


def test_the_value_of_a_flag_that_looks_like_the_ledger_stays_its_value() -> None:
    arguments = parsed("generate", ["3fa9", "--prompt", "runs=3", "--runs", "elsewhere"])
    assert arguments.prompt == ["runs=3"]
    assert arguments.runs == "elsewhere"


@pytest.mark.parametrize("words", [["runs", "runs="], ["runs", "--runs="], ["export", "3fa9", "--runs"]])
def test_a_ledger_without_a_folder_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.count("\n") == 1
