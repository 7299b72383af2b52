"""A whole study: plan it, train what is not done, fit the law, test it on the runs that were held out.

scaling study quickstart                the shipped first study, offline, in minutes on two cores
scaling study quickstart data=python    the same on real text
scaling study my_study.yaml --workers 8
scaling study quickstart --adaptive 'E ± 0.02'   chooses its runs until the interval is so narrow
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from scaling.command.document import numbered
from scaling.command.report import show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STUDY", help="a shipped study or a path")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides that hold for every run")
    parser.add_argument("--at", metavar="SCALE", help="a scale that the study names, as `paper`")
    parser.add_argument("--workers", type=int, metavar="N", help="processes; default: what suits the machine")
    parser.add_argument("--launcher", choices=("local", "slurm"), default="local", help="who starts the workers")
    parser.add_argument(
        "--slurm", action="append", default=[], metavar="key=value", help="of sbatch, as submitit names it; repeats"
    )
    parser.add_argument(
        "--tasks", nargs="+", action="extend", default=[], metavar="TASK", help="finetune each run on these too"
    )
    parser.add_argument(
        "--adaptive", metavar="GOAL", help="choose the runs one after another, until the goal is reached: 'E ± 0.01'"
    )
    parser.add_argument("--budget", type=float, metavar="FLOPS", help="of --adaptive; default: what the grid takes")
    parser.add_argument("--retry-failed", action="store_true", help="try runs again that failed too often")
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.api.studies import Incomplete, study

    try:
        done = study(
            arguments.name,
            *arguments.words,
            at=arguments.at,
            workers=arguments.workers,
            launcher=arguments.launcher,
            slurm=_parameters(arguments.slurm),
            retry_failed=arguments.retry_failed,
            tasks=arguments.tasks,
            adaptive=arguments.adaptive,
            budget=arguments.budget,
        )
    except Incomplete as incomplete:
        print(f"scaling: {incomplete.what}", file=sys.stderr)
        if incomplete.why is not None:
            print(f"scaling: no report: {incomplete.why}", file=sys.stderr)
        return incomplete.code
    if done.missing is not None:
        print(f"scaling: the study {done.name} is not done: {done.missing}", file=sys.stderr)
    if arguments.json:
        print(json.dumps(numbered(done.to_json()), indent=1))
    else:
        show(done.findings, done.page)
    return 0 if done.missing is None else done.missing.code


def _parameters(words: Sequence[str]) -> dict[str, Any]:
    from scaling.config import scalar

    pairs = (word.partition("=") for word in words)
    return {key: scalar(value) for key, _, value in pairs}
