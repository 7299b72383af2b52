"""Predict the answers of examples in a file with a finetuned run. The file has the task's columns, without labels.

scaling predict 8c21 --input new.jsonl                        writes new.predictions.jsonl
scaling predict 8c21 --input new.csv --to answers.csv         CSV of index and prediction
scaling predict 8c21 --input sentences.de                     of a translator: the source alone, a line each
scaling predict 8c21 cola --input test.tsv --submission       writes CoLA.tsv, as GLUE's server takes it
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from scaling.command.document import numbered
from scaling.errors import ScalingError, plural


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a finetuned run: the beginning of its id, or STUDY:ROW")
    parser.add_argument("task", nargs="?", metavar="TASK", help="a task of the same labels (the run's own)")
    parser.add_argument("words", nargs="*", metavar="key=value", help="overrides of the task, as data.files.test=FILE")
    parser.add_argument("--input", required=True, metavar="FILE", help="examples: the task's columns without labels")
    parser.add_argument("--to", metavar="FILE", help="where to: .jsonl, or .csv (the input's name, .predictions.jsonl)")
    parser.add_argument("--submission", action="store_true", help="the file of a GLUE submission: TASK names which")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="what was written, as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling.api.runs import RUNS
    from scaling.api.tasks import SUBMISSIONS, predict_finetuned
    from scaling.training.finetune import named_run

    task = arguments.task
    if arguments.submission and task not in SUBMISSIONS:
        fix = f"write the task after the run: {', '.join(SUBMISSIONS)}"
        raise ScalingError("a submission is of a task of GLUE", key="TASK", value=task, fix=fix)
    runs = arguments.runs or RUNS
    finetuned = named_run(arguments.run, task, arguments.words, runs)
    predictions = predict_finetuned(finetuned, arguments.input, runs, arguments.device)
    if arguments.submission:
        path = Path(arguments.to or f"{SUBMISSIONS[str(task)]}.tsv")
        predictions.save_submission(path, str(task))
    else:
        path = Path(arguments.to or Path(arguments.input).with_suffix(".predictions.jsonl").name)
        predictions.save(path)
    invalid = sum(value is None for value in predictions.values)
    if arguments.json:
        written = {"file": str(path), "predictions": len(predictions), "invalid": invalid}
        print(json.dumps(numbered(written), indent=2))
        return
    summary = f"{path}: {plural(len(predictions), 'prediction')}"
    print(summary + (f", {invalid:,} of invalid outputs" if invalid else ""))
