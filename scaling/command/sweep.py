"""Check a W&B sweep's file, print its cost, and register it; or run it on this machine, with no server.

scaling sweep sweeps/learning_rate.yaml             checked, then registered where a W&B key is there
scaling sweep sweeps/learning_rate.yaml --local     the same runs on this machine; no account, no network
scaling sweep --study quickstart                    a planned study as a sweep over the ids of its runs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.api.sweeps import MISSING
from scaling.command.document import numbered
from scaling.config import split
from scaling.errors import ScalingError
from scaling.number import plural

if TYPE_CHECKING:
    from scaling.api.sweeps import Sweep
    from scaling.sweeps.check import Outlook
    from scaling.sweeps.file import Sweep as SweepFile
    from scaling.sweeps.trial import Trial


SOME = 20  # runs that are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="FILE|key=value", help="the sweep; overrides for every run")
    parser.add_argument("--study", metavar="NAME", help="a planned study of the ledger instead of a file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="run it on this machine, with no server")
    where.add_argument("--dry-run", action="store_true", help="check it and print its cost, nothing more")
    parser.add_argument("--count", type=int, metavar="N", help="runs at most")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="with --local: processes; default: one per GPU or core"
    )
    parser.add_argument("--json", action="store_true", help="what was found as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.api.sweeps import sweep

    names, words = split(arguments.words)
    if arguments.study is not None:
        return _study(arguments, names, words)
    if len(names) != 1:
        raise ScalingError("name one sweep's file", key="FILE", fix="as in scaling sweep sweeps/learning_rate.yaml")
    result = sweep(
        names[0],
        *words,
        local=arguments.local,
        dry_run=arguments.dry_run,
        count=arguments.count,
        workers=arguments.workers,
        checked=lambda result: print(_estimate(result.file, result.outlook), file=sys.stderr),
        ended=_ended,
    )
    return _local(result, arguments) if arguments.local else _registered(result, words, arguments)


def _registered(registered: Sweep, words: list[str], arguments: argparse.Namespace) -> int:
    if arguments.json:
        print(json.dumps(numbered({**vars(registered.outlook), "sweep": registered.path}), indent=1))
        return 0
    print(_estimate(registered.file, registered.outlook))
    if registered.path is not None:
        print(f"registered as {registered.path}; on each node: {_agents(registered.path, words)}")
    elif not arguments.dry_run:
        print("no W&B key: nothing was sent; `wandb login`, or run it here with --local")
    return 0


def _agents(path: str, ledger: list[str]) -> str:
    """The commands that train a registered sweep; the ledger's folder reaches our agent alone."""
    ours = " ".join(["scaling agent", path, *ledger])
    return ours if ledger else f"{ours} (or: wandb agent {path})"


def _local(result: Sweep, arguments: argparse.Namespace) -> int:
    assert result.folder is not None
    print(json.dumps(result.rows, indent=1) if arguments.json else _summary(result))
    if result.missing:
        print(_missing(result.missing, len(result.trials), result.folder / "workers.log"), file=sys.stderr)
    return 1 if result.missing else 0


def _missing(missing: list[Trial], trials: int, log: Path) -> str:
    """The runs that came to nothing, with their reasons."""
    lines = [f"scaling: the sweep is not done: {len(missing)} of {trials} runs have no result"]
    for trial in missing[:SOME]:
        what = "not trained" if trial.report is None else f"{trial.report.outcome}: {trial.report.reason}"
        lines.append(f"  {_cell(trial)}: {what}")
    if len(missing) > SOME:
        lines.append(f"  and {len(missing) - SOME} more")
    return "\n".join([*lines, f"  the same command tries them again; workers' output is in {log}"])


def _cell(trial: Trial) -> str:
    return " ".join(f"{key}={value}" for key, value in trial.cell.items())


def _estimate(sweep: SweepFile, outlook: Outlook) -> str:
    """What will run, and what it will take."""
    runs = "runs without end" if outlook.runs is None else plural(outlook.runs, "run")
    each = ", each" if outlook.runs is None else ""
    about = "" if outlook.exact else "about "
    sizes = f"{outlook.smallest:,}" + ("" if outlook.smallest == outlook.largest else f" to {outlook.largest:,}")
    lines = [
        f"{sweep.name}: {sweep.method}, {runs} over {', '.join(sweep.parameters)}",
        f"{sizes} parameters without embeddings; {about}{outlook.tokens:.3g} tokens, {outlook.flops:.3g} FLOPs{each}",
    ]
    if sweep.hyperband is not None:
        shown = ", ".join(str(bracket) for bracket in sweep.hyperband.brackets[:4])
        lines.append(f"hyperband: after evaluation {shown}, …, the best 1/{sweep.hyperband.eta:g} go on")
    return "\n".join(lines)


def _ended(result: Sweep, trial: Trial, done: int) -> None:
    report = trial.report
    assert report is not None
    loss = "" if report.loss is None else f", loss {report.loss:.4f}"
    why = f": {report.reason}" if report.reason and report.outcome in MISSING else ""
    print(f"{done} of {result.file.size}  {_cell(trial)}  {report.outcome}{loss}{why}", file=sys.stderr, flush=True)


def _summary(result: Sweep) -> str:
    reports = [trial.report for trial in result.trials if trial.report is not None]
    counted = ", ".join(
        f"{count} {outcome}" for outcome, count in Counter(report.outcome for report in reports).items()
    )
    lines = [counted]
    if result.best is not None and result.file.metric is not None:
        value = result.file.metric.sign * result.best.values[-1]
        lines.append(f"best {result.file.metric.name} {value:.4f}: {_cell(result.best)}")
    return "\n".join([*lines, f"points: {result.folder}/points.csv"])


def _study(arguments: argparse.Namespace, names: list[str], words: list[str]) -> int:
    from scaling.api.sweeps import register
    from scaling.command.runs import opened
    from scaling.sweeps.file import capped, of
    from scaling.sweeps.study import tree

    study = arguments.study
    if names:
        raise ScalingError("a study takes the place of a file", key="FILE", value=names[0])
    if arguments.local:
        raise ScalingError("a study has workers of its own", key="--local", fix=f"scaling work {study}")
    ledger, _ = opened(words)
    file = capped(of(study, tree(ledger, study)), arguments.count)
    return _registered(register(file, [], arguments.dry_run), [], arguments)
