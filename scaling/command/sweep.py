"""Check a W&B sweep's file, say what it takes, and register it; or run it here, with no server.

scaling sweep sweeps/learning_rate.yaml             checked, then registered where a W&B key is there
scaling sweep sweeps/learning_rate.yaml --local     the same runs on this machine; no account, no network
scaling sweep --study quickstart                    a planned study as a sweep over the ids of its runs
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from scaling.errors import ScalingError
from scaling.number import plural

if TYPE_CHECKING:
    from scaling.sweeps.check import Outlook
    from scaling.sweeps.file import Sweep
    from scaling.sweeps.trial import Trial


MISSING = ("failed", "refused")  # ends of a cell that are no result
SOME = 20  # runs that are named


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="FILE|key=value", help="the sweep; overrides for every run")
    parser.add_argument("--study", metavar="NAME", help="a planned study of the ledger instead of a file")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="run it on this machine, with no server")
    where.add_argument("--dry-run", action="store_true", help="check it and say what it takes, nothing more")
    parser.add_argument("--count", type=int, metavar="N", help="runs at most")
    parser.add_argument(
        "--workers", type=int, metavar="N", help="with --local: processes; one a GPU or core unless said"
    )
    parser.add_argument("--json", action="store_true", help="what was found as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.sweeps.file import capped, read

    names = [word for word in arguments.words if "=" not in word]
    words = [word for word in arguments.words if "=" in word]
    for flag in ("count", "workers"):
        value = getattr(arguments, flag)
        if value is not None and value < 1:
            raise ScalingError("expected a number from 1", key=f"--{flag}", value=value)
    if arguments.workers is not None and not arguments.local:
        raise ScalingError("workers are those of --local", key="--workers", mend="elsewhere, start an agent a node")
    if arguments.study is not None:
        return _study(arguments, names, words)
    if len(names) != 1:
        raise ScalingError("name one sweep's file", key="FILE", mend="as in scaling sweep sweeps/learning_rate.yaml")
    sweep = capped(read(names[0]), arguments.count)
    return _local(sweep, words, arguments) if arguments.local else _registered(sweep, words, arguments)


def _registered(sweep: Sweep, words: list[str], arguments: argparse.Namespace) -> int:
    from scaling.sweeps import check
    from scaling.sweeps.register import register

    ledger = [word for word in words if word.startswith("runs=")]
    others = [word for word in words if word not in ledger]
    if others:
        raise ScalingError(
            "a registered sweep's agents read the file alone", key=others[0], mend="write it into command"
        )
    outlook = check.check(sweep, check.read(sweep, ledger))
    path = None if arguments.dry_run else register(sweep)
    if arguments.json:
        print(json.dumps({**vars(outlook), "sweep": path}, indent=1))
        return 0
    print(_told(sweep, outlook))
    if path is not None:
        print(f"registered as {path}; on each node: {_agents(path, ledger)}")
    elif not arguments.dry_run:
        print("no W&B key: nothing was sent; `wandb login`, or run it here with --local")
    return 0


def _agents(path: str, ledger: list[str]) -> str:
    """The commands that train a registered sweep; the ledger's folder reaches our agent alone."""
    ours = " ".join(["scaling agent", path, *ledger])
    return ours if ledger else f"{ours} (or: wandb agent {path})"


def _local(sweep: Sweep, words: list[str], arguments: argparse.Namespace) -> int:
    from scaling.sweeps import check
    from scaling.sweeps.search import needs_end, searched

    needs_end(sweep)
    # With no server there is nobody to show the runs to, unless one asks for it.
    words = ["log.wandb=disabled", *words]
    looks = check.read(sweep, words)
    # Only now what takes seconds to import.
    from scaling.studies.findings import write_points
    from scaling.sweeps.local import places, train, workers
    from scaling.sweeps.table import rows
    from scaling.sweeps.trial import Trials

    at = places()
    if arguments.workers is not None:
        at = [at[number % len(at)] for number in range(arguments.workers)]
    size = sweep.size or len(at)
    folder = _folder(sweep, words, looks.first["runs"])
    with workers(sweep, at[:size], folder / "workers.log") as crew:
        outlook = check.check(sweep, looks)
        check.alone(sweep, looks.first)
        print(_told(sweep, outlook), file=sys.stderr)
        found = Trials(sweep, searched(sweep, folder), _teller(sweep.size))
        trials = train(found, words, crew, folder / "workers.log")
    table = rows(trials)
    if table:
        write_points(table, folder / "points.csv")
    print(json.dumps(table, indent=1) if arguments.json else _summary(sweep, trials, str(folder)))
    missing = [trial for trial in trials if trial.report is None or trial.report.outcome in MISSING]
    if missing:
        print(_missing(missing, len(trials), folder / "workers.log"), file=sys.stderr)
    return 1 if missing else 0


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


def _folder(sweep: Sweep, words: list[str], runs: str) -> Path:
    """Where the sweep with these overrides keeps what is its own, next to the runs."""
    return Path(runs) / "sweeps" / f"{sweep.name}-{sweep.identity(words)[:8]}"


def _told(sweep: Sweep, outlook: Outlook) -> str:
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


def _teller(size: int | None) -> Callable[[Trial], None]:
    done = 0

    def tell(trial: Trial) -> None:
        nonlocal done
        done += 1
        report = trial.report
        assert report is not None
        loss = "" if report.loss is None else f", loss {report.loss:.4f}"
        why = f": {report.reason}" if report.reason and report.outcome in MISSING else ""
        cell = _cell(trial)
        print(f"{done} of {size}  {cell}  {report.outcome}{loss}{why}", file=sys.stderr, flush=True)

    return tell


def _summary(sweep: Sweep, trials: list[Trial], folder: str) -> str:
    reports = [trial.report for trial in trials if trial.report is not None]
    counted = ", ".join(f"{count} {outcome}" for outcome, count in Counter(one.outcome for one in reports).items())
    lines = [counted]
    best = [one for one in trials if one.report is not None and one.report.values and one.report.outcome == "finished"]
    if best and sweep.metric is not None:
        winner = min(best, key=lambda one: one.report.values[-1])  # type: ignore[union-attr]
        value = sweep.metric.sign * winner.report.values[-1]  # type: ignore[union-attr]
        cell = _cell(winner)
        lines.append(f"best {sweep.metric.name} {value:.4f}: {cell}")
    return "\n".join([*lines, f"points: {folder}/points.csv"])


def _study(arguments: argparse.Namespace, names: list[str], words: list[str]) -> int:
    from scaling.command.runs import opened
    from scaling.sweeps.file import capped, of
    from scaling.sweeps.study import tree

    study = arguments.study
    if names:
        raise ScalingError("a study takes the place of a file", key="FILE", value=names[0])
    if arguments.local:
        raise ScalingError("a study has workers of its own", key="--local", mend=f"scaling work {study}")
    ledger, _ = opened(words)
    sweep = capped(of(study, tree(ledger, study)), arguments.count)
    return _registered(sweep, [], arguments)
