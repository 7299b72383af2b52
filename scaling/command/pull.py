"""Bring runs back from W&B, whole, into points.csv and a folder that tables, fits and reports read like any ledger.

scaling pull me/scaling                       a project, into runs/pulled/me-scaling
scaling pull me/scaling/abcd1234              one sweep of it
scaling pull wandb/                           runs that W&B's client wrote offline and that were never synced
scaling pull me/scaling --study quickstart    held to a study's plan: names, held-out runs, what is missing
scaling pull me/scaling --table narang2021 size=tiny seeds=2

The same command continues where it stopped, and fetches what is new. WANDB_BASE_URL names the server.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scaling.api.pull import bring
from scaling.api.runs import RUNS
from scaling.command.document import numbered
from scaling.config import split
from scaling.errors import ScalingError
from scaling.number import plural

if TYPE_CHECKING:
    from scaling.studies.plan import Plan
    from scaling.sweeps.pull.copy import Copy
    from scaling.sweeps.pull.pull import Pulled

SOME = 5  # sentences of a kind on a terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="PROJECT|SWEEP|FOLDER|key=value", help="whence; overrides of the study or table"
    )
    parser.add_argument("--to", metavar="FOLDER", help="where to; default runs/pulled/ENTITY-PROJECT")
    plan_options = parser.add_mutually_exclusive_group()
    plan_options.add_argument("--study", metavar="NAME", help="enter this study's plan too")
    plan_options.add_argument("--table", metavar="NAME", help="enter this table's runs as a study too")
    parser.add_argument("--json", action="store_true", help="what was found as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    names, words = split(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one project, sweep or folder", key="PROJECT", fix="as in scaling pull me/scaling")
    overrides = [word for word in words if not word.startswith("runs=")]
    if overrides and not (arguments.study or arguments.table):
        raise ScalingError("overrides are a study's or a table's", key=overrides[0], fix="name it: --study or --table")
    copy, pulled, path = bring(names[0], arguments.to, lambda: _planned(arguments, words), runs=arguments.runs or RUNS)
    if arguments.json:
        print(json.dumps(numbered(_document(copy, pulled, path)), indent=1))
    else:
        print(_report(pulled, path))
    return 0 if pulled.complete else 1


def _planned(arguments: argparse.Namespace, words: Sequence[str]) -> tuple[str, Plan] | None:
    """The plan to hold the runs to, under its name; it is checked before any request to W&B."""
    from scaling.config import override
    from scaling.studies.plan import plan
    from scaling.studies.question import read as read_study
    from scaling.tables.study import question as question_of
    from scaling.tables.table import Seeds
    from scaling.tables.table import read as read_table

    if arguments.study:
        study_question = read_study(arguments.study, None, words)
    elif arguments.table:
        from dataclasses import replace

        table = read_table(arguments.table)
        seeds = [override(word)[1] for word in words if word.startswith("seeds=")]
        words = [word for word in words if not word.startswith("seeds=")]
        study_question = question_of(replace(table, seeds=Seeds.of(seeds[-1])) if seeds else table, words)
    else:
        return None
    return study_question.name, plan(study_question, words)


def _document(copy: Copy, pulled: Pulled, path: Path) -> dict[str, Any]:
    return {
        "folder": str(copy.ledger.root),
        "points": str(path),
        "complete": pulled.complete,
        "wandb_runs": pulled.shown,
        "fetched": pulled.fetched,
        "known": pulled.unchanged,
        "running": pulled.running,
        "foreign": pulled.foreign,
        "runs": dict(pulled.outcomes()),
        "missing": {name: list(reasons) for name, reasons in pulled.missing.items()},
        "differing": list(pulled.differing),
    }


def _report(pulled: Pulled, path: Path) -> str:
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in pulled.outcomes().items())
    lines = [f"{pulled.shown} W&B runs: {pulled.fetched} fetched, {pulled.unchanged} unchanged"]
    if pulled.running:
        lines.append(f"{pulled.running} still running: the same command brings them when they have ended")
    if pulled.foreign:
        lines.append(f"{pulled.foreign} not ours, left out")
    lines.append(f"{plural(sum(pulled.outcomes().values()), 'run')}: {outcomes}")
    lines += _some([f"not complete: {name}: {'; '.join(reasons)}" for name, reasons in pulled.missing.items()])
    lines += _some([f"another result: {reasons}" for reasons in pulled.differing])
    return "\n".join([*lines, f"points: {path}"])


def _some(lines: Sequence[str]) -> list[str]:
    more = len(lines) - SOME
    return [*lines[:SOME], *([f"and {more} more (--json lists all)"] if more > 0 else [])]
