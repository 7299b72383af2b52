"""The examples of one file as a task: `my.csv text={review} label={verdict}`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scaling.base.errors import ScalingError
from scaling.config import schema
from scaling.data import rows
from scaling.data.documents import value_of
from scaling.data.task.layout import table
from scaling.data.task.task import Task

METRICS = {
    "class": "Accuracy",
    "classes": {"kind": "F1", "average": "micro"},
    "number": "Correlation",
    "options": "Accuracy",
    "tags": "TagAccuracy",
    "span": "SQuAD",
    "text": "ExactMatch",
}
"""The metric of each kind of answer, where no word names another."""


def is_file(task: str) -> bool:
    """Whether a word names a file of examples and not a task."""
    return rows.format_of(Path(task)) != "text"


def task_of_file(file: str, words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The line `data` of a file's examples, and the words with the keys of a task in full: `text` is `data.text`.

    The answer is a class unless `answer` states another kind; the labels are those of the file.
    """
    keys = schema.keys(Task)
    full = [f"data.{word}" if word.partition("=")[0].partition(".")[0] in keys else word for word in words]
    stated = dict(word.removeprefix("data.").split("=", 1) for word in full if word.startswith("data."))
    answer = stated.get("answer", "class")
    line = {"kind": "Task", "answer": answer, "text": "{text}", "metric": METRICS.get(answer, "Accuracy")}
    line["files"] = {"train": file}
    if answer in ("class", "classes", "tags") and "labels" not in stated:
        (path,) = rows.find(file, "TASK")
        labels = set(_labels(path, stated.get("label", "{label}"), answer))
        if len(labels) > 1000:
            what = f"the label has {len(labels):,} values"
            raise ScalingError(what, file=path, key="label", fix="name another column, or set answer=text or number")
        line["labels"] = sorted(labels)
    return line, full


def _labels(file: Path, template: str, answer: str) -> Iterator[str]:
    for _, row in table().rows([file], None, "csv"):
        try:
            value = value_of(template, row, "label")
        except ScalingError as error:
            raise error.at(file=file, value=template) from None
        if answer == "classes" and isinstance(value, str):
            value = [label for label in value.split(",") if label]
        if answer == "tags" and isinstance(value, str):
            value = value.split()
        yield from map(str, value if isinstance(value, list | tuple) else [] if value in (None, "") else [value])
