"""One agent of a W&B sweep, for a whole node: it starts the ranks itself, and loses no run to a kill or a requeue.

scaling agent me/scaling/abcd1234
scaling agent me/scaling/abcd1234 runs=/shared/runs     the folder that all agents of the sweep see
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from scaling.config import split
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.sweeps.assignment import Assignment


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="SWEEP|key=value", help="ENTITY/PROJECT/ID; overrides for this node"
    )
    parser.add_argument("--count", type=int, metavar="N", help="runs to take at most")


def run(arguments: argparse.Namespace) -> int:
    names, words = split(arguments.words)
    if len(names) != 1:
        raise ScalingError("name one sweep", key="SWEEP", fix="as in scaling agent me/scaling/abcd1234")
    environment = dict(os.environ)
    # The agent looks at configs and never at a device: those are its runs' alone.
    os.environ["CUDA_VISIBLE_DEVICES"] = ""

    from scaling.sweeps.agent import Agent
    from scaling.sweeps.server import Path, Server

    agent = Agent.of(Server.needed(), Path.of(names[0]), words, environment, _report, arguments.count)
    agent.serve()
    if agent.failed:
        runs = "\n".join(f"  {run}: {why}" for run, why in agent.failed.items())
        print(f"scaling: {len(agent.failed)} of this agent's runs have no result\n{runs}", file=sys.stderr)
    return 1 if agent.failed else 0


def _report(assignment: Assignment, outcome: str, reason: str | None) -> None:
    line = f"{assignment.name}: run {assignment.run or '-'} {outcome}" + (f": {reason}" if reason else "")
    print(line, file=sys.stderr, flush=True)
