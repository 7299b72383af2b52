"""Score a run on a split of a task, with 95% intervals over the examples: a finetuned run as it was trained, with
counts of each class, and any other by the likelihood of the options.

scaling evaluate 8c21                            the validation split of a finetuned run's own task
scaling evaluate 8c21 --split test
scaling evaluate 8c21 mnli_mismatched            another task with the same labels
scaling evaluate 3f2a copa --shots 0             a run that was not finetuned: which option is the likeliest?
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from scaling.api.tasks import SPLITS, Evaluation, evaluate_finetuned
from scaling.command.document import numbered
from scaling.errors import ScalingError

OPTIONS = ("shots", "formulation", "frame", "normalisation", "limit", "to")
"""Flags of a run that was not finetuned."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the beginning of a run's id, a folder, or STUDY:ROW")
    parser.add_argument(
        "task", nargs="?", metavar="TASK", help="a task; of a finetuned run one of its labels (its own)"
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the task, as data.files.test=FILE")
    parser.add_argument("--split", default="validation", choices=SPLITS, help="validation, unless another is named")
    parser.add_argument("--shots", type=int, metavar="N", help="training examples before each question (5)")
    parser.add_argument("--formulation", metavar="NAME", help="cloze: the options' texts; letters: A, B, … (cloze)")
    parser.add_argument(
        "--frame", metavar="NAME", help="question: Question: … Answer:; none: the text alone (question)"
    )
    parser.add_argument("--normalisation", metavar="NAME", help="raw, character, token or unconditional (character)")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N examples alone")
    parser.add_argument("--to", metavar="FILE", help="write a line for each example: .jsonl, or .csv")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.training.finetune import named_run, pretrained

    runs = arguments.runs or RUNS
    given = {name: getattr(arguments, name) for name in OPTIONS if getattr(arguments, name) is not None}
    if not pretrained(arguments.run, runs).is_finetuned and arguments.task and "=" not in arguments.task:
        return _options(arguments, runs, given)
    for name, value in given.items():
        what = "a finetuned run answers as it was trained"
        raise ScalingError(what, key=f"--{name}", value=value, fix="leave it out, or name a pretrained run")
    finetuned = named_run(arguments.run, arguments.task, arguments.words, runs)
    evaluation = evaluate_finetuned(finetuned, arguments.split, runs, arguments.device)
    print(json.dumps(numbered(asdict(evaluation)), indent=2) if arguments.json else _screen(evaluation))


def _options(arguments: argparse.Namespace, runs: str, given: dict[str, Any]) -> None:
    """The options of a task by their likelihood."""
    from scaling.api.scores import evaluate_options

    to, words = given.pop("to", None), [word for word in arguments.words if not word.startswith("runs=")]
    given |= {"split": arguments.split, "device": arguments.device, "runs": runs}
    evaluation = evaluate_options(arguments.run, arguments.task, *words, **given)
    if to is not None:
        evaluation.save(to)
    if arguments.json:
        kept = {item.name: getattr(evaluation, item.name) for item in fields(evaluation) if item.name != "scored"}
        print(json.dumps(numbered(kept), indent=2))
        return
    lines = [evaluation.prompt] if evaluation.prompt else []
    lines.append(f"run {evaluation.run}, {evaluation.task}, {evaluation.split} split, {evaluation.examples:,} examples")
    lines += _values(evaluation.metrics, evaluation.intervals, {"chance": evaluation.chance})
    if evaluation.truncated:
        lines.append(f"{evaluation.truncated:,} contexts lost their first tokens to the window")
    print("\n".join(lines))


def _values(
    metrics: Mapping[str, float], intervals: Mapping[str, Sequence[float]], others: Mapping[str, float]
) -> list[str]:
    width = max(map(len, [*metrics, *others]))
    lines = []
    for name, value in metrics.items():
        low, high = intervals[name]
        lines.append(f"  {name:<{width}}  {value:8.4f}  95% interval {low:.4f} to {high:.4f}")
    return lines + [f"  {name:<{width}}  {value:8.4f}" for name, value in others.items()]


def _screen(evaluation: Evaluation) -> str:
    lines = [f"run {evaluation.run}, {evaluation.split} split, {evaluation.examples:,} examples"]
    lines += _values(evaluation.metrics, evaluation.intervals, {})
    if evaluation.invalid is not None:
        width = max(map(len, evaluation.metrics))
        lines.append(f"  {'invalid':<{width}}  {evaluation.invalid:8.4f}  of the outputs, counted as wrong")
    if evaluation.counts:
        widest = max(map(len, ("class", *evaluation.counts)))
        lines += ["", f"{'class':<{widest}}  references  predictions  correct"]
        lines += [
            f"{name:<{widest}}  {row['references']:>10,}  {row['predictions']:>11,}  {row['correct']:>7,}"
            for name, row in evaluation.counts.items()
        ]
    return "\n".join(lines)
