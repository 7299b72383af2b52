"""One worker of a study: trains what is not done until nothing is left. Start it on any machine that sees the folder.

scaling work quickstart
scaling work quickstart runs=/shared/runs
"""

from __future__ import annotations

import argparse

from scaling.errors import ScalingError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="+", metavar="STUDY|runs=FOLDER", help="a study that was started, and where")


def run(arguments: argparse.Namespace) -> int:
    from scaling.command.runs import opened
    from scaling.studies.decisions import plans
    from scaling.studies.work import work

    ledger, names = opened(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one study", fix="as in scaling work quickstart")
    for plan, outdated in plans(ledger, names[0], [f"runs={ledger.root}"]):
        work(ledger, plan, outdated=outdated)
    return 0
