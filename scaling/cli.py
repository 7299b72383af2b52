"""The command line: `scaling VERB …`. Each verb is a module of `scaling.command`, imported when it is called."""

from __future__ import annotations

import argparse
import importlib
import os
import select
import sys
from collections.abc import Sequence
from typing import TextIO

from scaling import parent
from scaling.errors import ScalingError, from_os, nearest
from scaling.standard_error import keep_going
from scaling.training.signals import Stopped, leave, listening
from scaling.version import __version__

VERBS = {
    "train": "train one run, resume it, or print its result",
    "finetune": "train a run further on a task, with a new head",
    "evaluate": "score a finetuned run on a split of a task, with intervals",
    "predict": "predict the answers of examples in a file with a finetuned run",
    "tasks": "list the shipped tasks: answers, metric, examples",
    "study": "plan a grid of runs, train them, fit a law, test it",
    "report": "write a study's page from the runs that are done: law, test, runs, reliability",
    "watch": "watch a study while its runs go on: the law, an interval valid under repeated looks, the time left",
    "predict-run": "put a prediction of a run's loss on record before it begins, and list how such predictions held",
    "plan": "estimate a study before it runs: time, memory, money, the expected interval",
    "work": "one worker of a study, on any machine that sees its folder",
    "table": "a paper's ablation table: count its rows, train them, print them next to the published figures",
    "sweep": "check a W&B sweep, register it, or run it here with no server",
    "agent": "one agent of a W&B sweep, for a whole node",
    "pull": "bring runs back from W&B, complete, as points and as a ledger that tables and fits read",
    "inspect": "parameters, FLOPs and memory of models, side by side",
    "explain": "what a name in a config means: slots, kinds, sections, laws; formulas, keys, citations",
    "fit": "fit a scaling law to a table of runs: estimates, intervals, diagnostics, figures",
    "data": "list, prepare and show corpora: counts, bytes per token, windows",
    "runs": "list runs: state, progress, loss, speed, host, age",
    "show": "one run: result, attempts, settings, loss curve",
    "diff": "what two runs or configs differ in",
    "generate": "let a model continue a prompt: greedily, by sampling, by beam search",
    "look": "show what each attention head of a run weighs: a page, a figure, the scores of each head",
    "probe": "what a linear classifier reads from each layer of a run, and what it only learns by heart",
    "landscape": "draw the held-out loss around the weights of runs",
    "export": "write a model as a folder that transformers loads",
    "import": "read a folder that transformers saved",
    "gc": "free disk space that no run needs any more",
    "doctor": "check this machine: devices, threads, disk, versions, W&B",
}

SIGINT_EXIT = 130


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
        print(__version__)
        return 0
    verb, rest = words[0], words[1:]
    if verb not in VERBS:
        raise ScalingError(f"there is no command {verb!r}", fix=nearest(verb, VERBS))
    command = importlib.import_module(f"scaling.command.{verb.replace('-', '_')}")
    arguments = parsed(verb, rest)
    if extensions := getattr(arguments, "extensions", ()):
        from scaling import schema

        for path in extensions:
            schema.extend(path)
    return int(command.run(arguments) or 0)


def parsed(verb: str, words: Sequence[str]) -> argparse.Namespace:
    """The arguments of a verb; overrides mix freely with its flags, as people and W&B agents type them.

    The ledger's folder is `runs=FOLDER` or `--runs FOLDER`: `arguments.runs` of the verb, and the last of its words.
    `arguments.extensions` are the files of `--extend`, unless the verb loads a config with the one it takes.
    """
    command = importlib.import_module(f"scaling.command.{verb.replace('-', '_')}")
    parser = _Parser(prog=f"scaling {verb}", description=command.__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    command.add_arguments(parser)
    parser.add_argument("--runs", metavar="FOLDER", help="the folder of the ledger (runs); as runs=FOLDER")
    if "--extend" not in parser._option_string_actions:
        what = "a .py file whose classes join the slots they name; repeats"
        parser.add_argument("--extend", action="append", default=[], dest="extensions", metavar="PATH", help=what)
    arguments = parser.parse_intermixed_args(parser.spelled(words))
    if arguments.runs == "":
        raise ScalingError("expected a folder", key="runs", fix="write runs=FOLDER")
    if arguments.runs is not None and "words" in arguments:
        arguments.words = [*arguments.words, f"runs={arguments.runs}"]
    return arguments


class _Parser(argparse.ArgumentParser):
    """argparse whose complaints are our one line, and which takes `--optimizer.lr=1` for the override it is."""

    def spelled(self, words: Sequence[str]) -> list[str]:
        """The words with the dashes of overrides taken off; a flag stays a flag, and `runs=` becomes one."""
        from scaling.config import SECTIONS, bare

        flags = self._option_string_actions
        sections = [name for name in (*SECTIONS, "row") if f"--{name}" not in flags]
        before = [None, *words]
        return [
            f"--{word}" if word.startswith("runs=") and not self._takes_value(last) else bare(word, sections)
            for last, word in zip(before, words, strict=False)
        ]

    def _takes_value(self, word: str | None) -> bool:
        """Whether the next word is the value of this one, whatever it looks like."""
        action = None if word is None else self._option_string_actions.get(word)
        return action is not None and action.nargs != 0

    def error(self, message: str) -> None:  # type: ignore[override]
        raise ScalingError(message, fix=f"see `{self.prog} --help`")


def _help() -> str:
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items()]
    usage = "usage: scaling VERB … (`scaling VERB --help` prints more)"
    spelling = [
        "Overrides of a config are key=value, anywhere among the words.",
        "Every command takes the folder of the ledger as runs=FOLDER or --runs FOLDER; it is runs/ unless given,",
        "and --extend PATH, a Python file whose classes join the slots that they name.",
    ]
    return "\n".join([usage, "", *lines, "", *spelling])
