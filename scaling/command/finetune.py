"""Train a run further on a task: a run of the ledger like any other, whose weights begin with those of another run.

scaling finetune 3fa9 cola                                    RUN is the beginning of a run's id, a folder, or STUDY:ROW
scaling finetune 3fa9 sst2 data.files='{train: a.csv, validation: b.csv}' train.epochs=5
scaling finetune my_model my_task.yaml optimizer.lr=2e-5 seed=1

TASK is a name of `scaling tasks`, or a file with a section `data` of the kind Task. What is filled in (the head, the
tokenizer, the objective, the epochs, the schedule) is printed; key=value takes its place.
"""

from __future__ import annotations

import argparse
import json

from scaling.command.document import numbered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the beginning of a run's id, a folder, or STUDY:ROW")
    parser.add_argument("task", metavar="TASK", help="a name of `scaling tasks`, or a file")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the config")
    parser.add_argument("--overlay", action="append", default=[], metavar="FILE", help="a file to lay over it; repeats")
    parser.add_argument("--extend", metavar="PATH", help="a .py file whose classes join the slots they name")
    parser.add_argument("--again", action="store_true", help="train a finished run again and compare the results")
    parser.add_argument("--json", action="store_true", help="the result as one JSON document")


def run(arguments: argparse.Namespace) -> int:
    from scaling.api.runs import RUNS, train_config
    from scaling.command.train import summary
    from scaling.training.finetune import compose

    config = compose(
        arguments.run,
        arguments.task,
        arguments.words,
        runs=arguments.runs or RUNS,
        overlays=arguments.overlay,
        extend=arguments.extend,
    )
    trained = train_config(config, again=arguments.again)

    from scaling.training.ranks import first

    if not first():
        return 0
    again = {} if trained.differences is None else {"differences": trained.differences}
    result = {**(trained.result or {}), "already": trained.already, **again}
    print(json.dumps(numbered(result), indent=2) if arguments.json else summary(result))
    return 0
