"""A whole study: plan it, train what is not done, fit the law, test it on the runs that were held out.

scaling study quickstart                the shipped first study, offline, in minutes on two cores
scaling study quickstart data=python    the same on real text
scaling study my_study.yaml --workers 8
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from scaling.command.report import document, show, step
from scaling.errors import DISK, ScalingError
from scaling.number import plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STUDY", help="a shipped study or a path")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides that hold for every run")
    parser.add_argument("--at", metavar="SCALE", help="a scale that the study names, as `paper`")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; what suits the machine unless said")
    parser.add_argument("--launcher", choices=("local", "slurm"), default="local", help="who starts the workers")
    parser.add_argument(
        "--slurm", action="append", default=[], metavar="key=value", help="of sbatch, as submitit names it; repeats"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try runs again that failed too often")
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.report.summary import mirror
    from scaling.report.write import write
    from scaling.studies.identified import shortfall
    from scaling.studies.launch import train
    from scaling.studies.record import enter
    from scaling.studies.suited import suited
    from scaling.studies.view import view

    found, why = suited(arguments.name, arguments.at, arguments.words, arguments.workers)
    name, ledger = found.question.name, found.ledger()
    added = enter(ledger, name, found)
    grown = f"the study {name} is extended by {plural(len(added), 'run')}" if added else None
    for remark in (why, grown, shortfall(found.question, found.fitted)):
        if remark is not None:
            print(f"scaling: {remark}", file=sys.stderr)
    with view() as tell:
        missing = train(
            ledger,
            name,
            found,
            tell,
            workers=arguments.workers,
            launcher=arguments.launcher,
            parameters=_parameters(arguments.slurm),
            retry_failed=arguments.retry_failed,
        )
    if missing is not None:
        print(f"scaling: the study {name} is not done: {missing}", file=sys.stderr)
        if missing.code == DISK:
            return DISK
    try:
        findings, page = write(ledger, found, step)
    except ScalingError as error:
        if missing is None:
            raise
        print(f"scaling: no report: {error}", file=sys.stderr)  # too few runs are left to fit
        return missing.code
    mirror(findings, page, ledger, found)
    if arguments.json:
        print(json.dumps(document(findings, page), indent=1))
    else:
        show(findings, page)
    return 0 if missing is None else missing.code


def _parameters(words: Sequence[str]) -> dict[str, Any]:
    from scaling.config.scalar import scalar

    pairs = (word.partition("=") for word in words)
    return {key: scalar(value) for key, _, value in pairs}
