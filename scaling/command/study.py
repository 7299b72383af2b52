"""A whole study: plan it, train what is not done, fit the law, test it on the runs that were held out.

scaling study quickstart                the shipped first study, offline, in minutes on two cores
scaling study quickstart data=python    the same on real text
scaling study my_study.yaml --workers 8
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STUDY", help="a shipped study or a path")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides that hold for every run")
    parser.add_argument("--workers", type=int, default=None, metavar="N", help="processes; one a core unless said")
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.study.findings import fitted, rows, write_points
    from scaling.study.launch import launch
    from scaling.study.plan import enter, plan
    from scaling.study.question import read

    question = read(arguments.name)
    found = plan(question, arguments.words)
    ledger = found.ledger()
    enter(ledger, question.name, found)
    report = ledger.study_folder(question.name) / "report"
    report.mkdir(exist_ok=True)
    words = [arguments.name, *arguments.words]
    workers = arguments.workers or len(os.sched_getaffinity(0))
    try:
        launch(ledger, found, words, workers, _teller(len(found.runs)), report.parent / "workers.log")
    except KeyboardInterrupt:
        print("scaling: stopped; the same command goes on", file=sys.stderr)
        return 130
    write_points(rows(ledger, found), report / "points.csv")
    document = fitted(question, report / "points.csv", report)
    if arguments.json:
        print(json.dumps(document, indent=1))
    else:
        _show(document, str(report))
    return 0


def _teller(planned: int) -> Callable[[int, float], None]:
    """A line of progress: rewritten in place on a terminal; otherwise one for each run or twentieth of the compute."""
    begun, first, told = time.monotonic(), -1.0, (-1, -1)
    in_place = sys.stderr.isatty()

    def tell(done: int, share: float) -> None:
        nonlocal first, told
        first = share if first < 0 else first
        mark = (done, int(20 * share))
        if not in_place and mark == told:
            return
        told = mark
        gained, passed = share - first, time.monotonic() - begun
        left = f", {_clock(passed * (1 - share) / gained)} left" if gained > 0 and share < 1 else ""
        line = f"{done} of {planned} runs, {share:.0%} of the compute, {_clock(passed)}{left}"
        end = "\n" if not in_place or done == planned else "\r"
        print(f"{line:<70}" if in_place else line, file=sys.stderr, end=end, flush=True)

    return tell


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def _show(document: dict[str, Any], folder: str) -> None:
    from rich.console import Console

    from scaling.law.terminal import show

    console = Console(highlight=False, soft_wrap=True)
    console.print(document["question"], style="bold", markup=False)
    show(document, console)
    entropy = document.get("entropy")
    if entropy is not None:
        inside = {True: "inside", False: "outside", None: "not compared with"}[entropy.get("contained")]
        console.print(f"the language's entropy is {entropy['known']:.4f}: {inside} the interval of E")
        for error in entropy["excess_errors"]:
            console.print(f"held-out excess over the entropy foretold to {error:+.1%}")
    console.print(f"points, fit and figures: {folder}")
