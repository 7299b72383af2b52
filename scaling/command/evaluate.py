"""Score a finetuned run on a split of a task, with 95% intervals over the examples and counts of each class.

scaling evaluate 8c21                            the validation split of the run's own task
scaling evaluate 8c21 --split test
scaling evaluate 8c21 mnli_mismatched            another task with the same labels
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from scaling.api.tasks import SPLITS, Evaluation, evaluate_finetuned
from scaling.command.document import numbered


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finetuned run: the beginning of its id, or STUDY:ROW")
    parser.add_argument("task", nargs="?", metavar="TASK", help="a task of the same labels (the run's own)")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the task, as data.files.test=FILE")
    parser.add_argument("--split", default="validation", choices=SPLITS, help="validation, unless another is named")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.training.finetune import asked

    runs = arguments.runs or RUNS
    finetuned = asked(arguments.run, arguments.task, arguments.words, runs)
    evaluation = evaluate_finetuned(finetuned, arguments.split, runs, arguments.device)
    print(json.dumps(numbered(asdict(evaluation)), indent=2) if arguments.json else _screen(evaluation))


def _screen(found: Evaluation) -> str:
    lines = [f"run {found.run}, {found.split} split, {found.examples:,} examples"]
    width = max(map(len, found.metrics))
    for name, value in found.metrics.items():
        low, high = found.intervals[name]
        lines.append(f"  {name:<{width}}  {value:8.4f}  95% interval {low:.4f} to {high:.4f}")
    if found.invalid is not None:
        lines.append(f"  {'invalid':<{width}}  {found.invalid:8.4f}  of the outputs, counted as wrong")
    if found.counts:
        widest = max(map(len, ("class", *found.counts)))
        lines += ["", f"{'class':<{widest}}  references  predictions  correct"]
        lines += [
            f"{name:<{widest}}  {row['references']:>10,}  {row['predictions']:>11,}  {row['correct']:>7,}"
            for name, row in found.counts.items()
        ]
    return "\n".join(lines)
