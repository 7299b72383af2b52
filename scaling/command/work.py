"""One worker of a study: trains what is not done until nothing is left. Start it on any machine that sees the folder.

scaling work quickstart runs=/shared/runs
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="STUDY", help="a shipped study or a path")
    parser.add_argument("words", nargs="*", metavar="key=value", help="the overrides that the study was started with")


def run(arguments: argparse.Namespace) -> int:
    from scaling.study.plan import enter, plan
    from scaling.study.question import read
    from scaling.study.work import work
    from scaling.train.recorder import Stopped

    question = read(arguments.name)
    found = plan(question, arguments.words)
    ledger = found.ledger()
    enter(ledger, question.name, found)
    try:
        work(ledger, found)
    except Stopped as stopped:
        return 128 + stopped.signal
    return 0
