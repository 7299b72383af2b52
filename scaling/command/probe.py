"""What a linear classifier reads from each layer of a run, next to a control task that only memory can solve.

scaling probe 3f2a ranks                     of a run on a synthetic language: the hidden rank of each symbol
scaling probe 3f2a successor                 of the same: which symbol is the likeliest next
scaling probe 3f2a python_tree               of a run on Python: the depth of each word in the syntax tree
scaling probe 3f2a conll2003 data.files.train=eng.train data.files.validation=eng.testa
scaling probe 3f2a conll2003_pos --step 2000 --json

TASK is ranks, successor, python_tree, or a task whose answer is tags. key=value are overrides of the task.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from scaling.command.document import numbered

if TYPE_CHECKING:
    from scaling.api.probe import Probe
    from scaling.metric.interval import Interval


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the beginning of a run's id, a folder, or STUDY:ROW")
    parser.add_argument("task", metavar="TASK", help="ranks, successor, python_tree, or a task whose answer is tags")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the task, as data.files.train=FILE")
    parser.add_argument("--step", type=int, metavar="N", help="the weights of a checkpoint (those of the result)")
    parser.add_argument("--tokens", type=int, metavar="N", help="labelled tokens of each split (20,000)")
    parser.add_argument("--penalty", type=float, metavar="NUMBER", help="of the classifier's squared weights (0.001)")
    parser.add_argument("--seed", type=int, metavar="N", help="draws the control task (0)")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.probe import probe
    from scaling.api.runs import RUNS

    given = {name: getattr(arguments, name) for name in ("step", "tokens", "penalty", "seed", "device")}
    probed = probe(
        arguments.run,
        arguments.task,
        *(word for word in arguments.words if not word.startswith("runs=")),
        runs=arguments.runs or RUNS,
        **{name: value for name, value in given.items() if value is not None},
    )
    print(json.dumps(numbered(probed.to_json()), indent=2) if arguments.json else _screen(probed))


def _screen(probed: Probe) -> str:
    at = "" if probed.step is None else f" at step {probed.step:,}"
    lines = [
        f"run {probed.run}{at}, {probed.task}: {len(probed.classes)} classes, "
        f"{probed.train:,} tokens to learn from, {probed.test:,} held out",
        f"commonest class {probed.majority:.3f}, of each word or symbol {probed.type:.3f}",
        "",
        "layer                 accuracy                  control              selectivity",
    ]
    lines += [
        f"{score.layer:>5}  {_cell(score.accuracy)}  {_cell(score.control)}  {_cell(score.selectivity)}"
        for score in probed.scores
    ]
    return "\n".join(lines)


def _cell(value: Interval) -> str:
    return f"{value.value:.3f} [{value.low:.3f}, {value.high:.3f}]".rjust(23)
