"""Score a run on a split of a task, with 95% intervals over the examples: a finetuned run as it was trained, with
counts of each class, and any other by the likelihood of the options.

scaling evaluate 8c21                            the validation split of a finetuned run's own task
scaling evaluate 8c21 --split test
scaling evaluate 8c21 mnli_mismatched            another task with the same labels
scaling evaluate 8c21 --paired-bootstrap 5d07    is it better than another run on the same examples?
scaling evaluate 8c21 --average 5                the mean of the weights of the last five checkpoints
scaling evaluate 8c21 --ensemble 5d07,e91a       three runs that write together
scaling evaluate 3f2a copa --shots 0             a run that was not finetuned: which option is the likeliest?
scaling evaluate 3f2a cloze                      a run of any family: which word belongs into the gap of a prompt?
scaling evaluate 3f2a --corpus wikitext103       bits per byte and perplexity; without a name, of what it was trained on
scaling evaluate 3f2a --harness arc_easy,own.yaml   tasks of lm-evaluation-harness
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from scaling.api.tasks import SPLITS, Evaluation, evaluate_finetuned
from scaling.command.document import numbered
from scaling.errors import ScalingError, plural

CLOZE = "cloze"
OPTIONS = ("shots", "formulation", "frame", "normalisation", "limit", "to")
CORPUS = ("stride", "masking", "limit", "to")
HARNESS = ("shots", "limit", "to")
"""Flags of the options of a task, of a corpus, and of the harness."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="the beginning of a run's id, a folder, or STUDY:ROW")
    parser.add_argument(
        "task", nargs="?", metavar="TASK", help="a task; of a finetuned run one of its labels (its own)"
    )
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the task, as data.files.test=FILE")
    parser.add_argument("--split", choices=SPLITS, help="validation, unless another is named")
    parser.add_argument(
        "--shots", type=int, metavar="N", help="training examples before each question (5; of the harness, the task's)"
    )
    parser.add_argument("--formulation", metavar="NAME", help="cloze: the options' texts; letters: A, B, … (cloze)")
    parser.add_argument(
        "--frame", metavar="NAME", help="question: Question: … Answer:; none: the text alone (question)"
    )
    parser.add_argument("--normalisation", metavar="NAME", help="raw, character, token or unconditional (character)")
    parser.add_argument("--corpus", nargs="?", const="", metavar="NAME", help="prepared data (what it was trained on)")
    parser.add_argument(
        "--stride", type=int, metavar="N", help="tokens between windows of a long document (half of one)"
    )
    parser.add_argument(
        "--masking", metavar="NAME", help="of an encoder: token, or word to mask the rest of a word too"
    )
    parser.add_argument(
        "--harness", metavar="TASKS", help="names of lm-evaluation-harness, YAML files or folders, by commas"
    )
    parser.add_argument("--average", type=int, metavar="K", help="score the mean weights of the last K checkpoints")
    parser.add_argument("--ensemble", metavar="RUNS", help="runs that write together with this one, by commas")
    parser.add_argument("--paired-bootstrap", metavar="RUN", help="compare with a run on the same examples")
    parser.add_argument("--limit", type=int, metavar="N", help="the first N examples or documents alone")
    parser.add_argument("--to", metavar="FILE", help="write a line for each example or document: .jsonl, or .csv")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="the scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.training.finetune import named_run, pretrained

    runs = arguments.runs or RUNS
    together = arguments.ensemble.split(",") if arguments.ensemble else []
    if arguments.harness is not None or arguments.corpus is not None:
        _refuse_written(arguments, "it is for the task of a finetuned run")
    if arguments.harness is not None:
        return _harness(arguments, runs, _given(arguments, HARNESS, "it does not apply to tasks of the harness"))
    arguments.split = arguments.split or "validation"
    if arguments.corpus is not None:
        return _corpus(arguments, runs, _given(arguments, CORPUS, "it does not apply to a corpus"))
    if arguments.task == CLOZE:
        return _cloze(arguments, runs, _given(arguments, ("to",), "it does not apply to the prompts"))
    if arguments.task and "=" not in arguments.task and not pretrained(arguments.run, runs).is_finetuned:
        _refuse_written(arguments, "the run was not trained on a task")
        return _options(arguments, runs, _given(arguments, OPTIONS, "it does not apply to the options of a task"))
    _given(arguments, (), "a finetuned run answers as it was trained")
    finetuned = named_run(arguments.run, arguments.task, arguments.words, runs)
    others = [named_run(name, arguments.task, arguments.words, runs) for name in together]
    against = arguments.paired_bootstrap
    against = None if against is None else named_run(against, arguments.task, arguments.words, runs)
    evaluation = evaluate_finetuned(
        finetuned, arguments.split, runs, arguments.device, arguments.average, others, against
    )
    print(json.dumps(numbered(asdict(evaluation)), indent=2) if arguments.json else _screen(evaluation))


def _refuse_written(arguments: argparse.Namespace, wrong: str) -> None:
    """Refuse what is for runs that were trained on a task."""
    for name in ("average", "ensemble", "paired_bootstrap"):
        if (value := getattr(arguments, name)) is not None:
            raise ScalingError(wrong, key=f"--{name.replace('_', '-')}", value=value, fix="leave it out")


def _given(arguments: argparse.Namespace, flags: Sequence[str], wrong: str) -> dict[str, Any]:
    """The values of some flags; the others are refused."""
    every = {name: getattr(arguments, name) for name in dict.fromkeys((*OPTIONS, *CORPUS))}
    given = {name: value for name, value in every.items() if value is not None}
    for name, value in given.items():
        if name not in flags:
            raise ScalingError(wrong, key=f"--{name}", value=value, fix="leave it out")
    return given


def _cloze(arguments: argparse.Namespace, runs: str, given: dict[str, Any]) -> None:
    """The prompts with a gap."""
    from scaling.api.scores import evaluate_cloze

    for word in _overrides(arguments):
        raise ScalingError("the prompts have no settings", key=word, fix="leave it out")
    evaluation = evaluate_cloze(arguments.run, runs=runs, device=arguments.device)
    if "to" in given:
        evaluation.save(given["to"])
    if arguments.json:
        kept = {key: value for key, value in _document(evaluation).items() if key != "prompts"}
        prompts = [{**asdict(one), "chosen": one.choice} for one in evaluation.scored]
        print(json.dumps({**kept, "prompts": prompts}, indent=2, ensure_ascii=False))
        return
    lines = [f"run {evaluation.run}, {evaluation.prompts} prompts"]
    lines += _values(evaluation.metrics, evaluation.intervals, {"chance": evaluation.chance})
    for one in evaluation.scored:
        nats = ", ".join(f"{option} {value:.2f}" for option, value in zip(one.options, one.nats))
        lines += ["", f"{one.knowledge}: {one.text}", f"  chosen: {one.options[one.choice]}; nats: {nats}"]
    print("\n".join(lines))


def _corpus(arguments: argparse.Namespace, runs: str, given: dict[str, Any]) -> None:
    from scaling.api.scores import evaluate_corpus

    named = [word for word in (arguments.corpus, arguments.task) if word]
    words = [word for word in (*named, *_overrides(arguments)) if "=" in word]
    names = [word for word in named if "=" not in word]
    if len(names) > 1:
        raise ScalingError("a corpus has no task", key="TASK", value=arguments.task, fix="leave one of both out")
    to = given.pop("to", None)
    given |= {"split": arguments.split, "device": arguments.device, "runs": runs}
    evaluation = evaluate_corpus(arguments.run, names[0] if names else None, *words, **given)
    if to is not None:
        evaluation.save(to)
    if arguments.json:
        print(json.dumps(_document(evaluation), indent=2))
        return
    counts = f"{evaluation.documents:,} documents, {evaluation.tokens:,} tokens, {evaluation.bytes:,} bytes"
    head = f"run {evaluation.run}, {evaluation.corpus}, {evaluation.split} split, {counts}"
    print("\n".join([head, *_values(evaluation.metrics, evaluation.intervals, {})]))


def _harness(arguments: argparse.Namespace, runs: str, given: dict[str, Any]) -> None:
    """Tasks of lm-evaluation-harness; what is set by key=value is how texts are written."""
    from scaling.api.scores import evaluate_harness

    if arguments.split is not None:
        raise ScalingError("a task of the harness states its split", key="--split", fix="leave it out")
    if arguments.corpus is not None:
        raise ScalingError("tasks of the harness have no corpus", key="--corpus", fix="leave one of both out")
    others = [word for word in (arguments.task, *_overrides(arguments)) if word]
    tasks = [*arguments.harness.split(","), *(word for word in others if "=" not in word)]
    to = given.pop("to", None)
    settings = [word for word in others if "=" in word]
    evaluation = evaluate_harness(
        arguments.run, [task for task in tasks if task], *settings, runs=runs, device=arguments.device, **given
    )
    if to is not None:
        evaluation.save(to)
    if arguments.json:
        kept = {name: getattr(evaluation, name) for name in ("run", "lm_eval_version", "shots", "limit", "generation")}
        document = {key.replace("-", "_"): value for key, value in evaluation.document.items()}
        print(json.dumps(numbered({**kept, **document}), indent=2))
        return
    print(f"run {evaluation.run}, lm_eval {evaluation.lm_eval_version}\n{evaluation.table}")


def _document(evaluation: Any) -> dict[str, Any]:
    kept = {item.name: getattr(evaluation, item.name) for item in fields(evaluation) if item.name != "scored"}
    return numbered(kept)


def _overrides(arguments: argparse.Namespace) -> list[str]:
    return [word for word in arguments.words if not word.startswith("runs=")]


def _options(arguments: argparse.Namespace, runs: str, given: dict[str, Any]) -> None:
    """The options of a task by their likelihood."""
    from scaling.api.scores import evaluate_options

    to = given.pop("to", None)
    given |= {"split": arguments.split, "device": arguments.device, "runs": runs}
    evaluation = evaluate_options(arguments.run, arguments.task, *_overrides(arguments), **given)
    if to is not None:
        evaluation.save(to)
    if arguments.json:
        print(json.dumps(_document(evaluation), indent=2))
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
    name = " + ".join([evaluation.run, *evaluation.ensemble])
    mean = "" if evaluation.average is None else f", mean of {plural(evaluation.average, 'checkpoint')}"
    lines = [f"run {name}{mean}, {evaluation.split} split, {evaluation.examples:,} examples"]
    lines += _values(evaluation.metrics, evaluation.intervals, {})
    if evaluation.invalid is not None:
        width = max(map(len, evaluation.metrics))
        lines.append(f"  {'invalid':<{width}}  {evaluation.invalid:8.4f}  of the outputs, counted as wrong")
    if evaluation.signature is not None:
        lines.append(f"  {evaluation.signature}")
    if evaluation.paired is not None:
        other = evaluation.paired
        low, high = other.interval
        lines.append(f"  run {other.against}: {other.score_against:.4f} on the same examples")
        lines.append(f"  difference {other.difference:.4f}, 95% interval {low:.4f} to {high:.4f}, p = {other.p:.3f}")
    if evaluation.counts:
        widest = max(map(len, ("class", *evaluation.counts)))
        lines += ["", f"{'class':<{widest}}  references  predictions  correct"]
        lines += [
            f"{name:<{widest}}  {row['references']:>10,}  {row['predictions']:>11,}  {row['correct']:>7,}"
            for name, row in evaluation.counts.items()
        ]
    return "\n".join(lines)
