"""From logits, or from what a model has written, to predictions as a task's metric takes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from scaling.batch import Batch
from scaling.data.task.encoded import Encoded
from scaling.data.task.example import NO_ANSWER
from scaling.data.task.source import Examples


class Frames(Protocol):
    """What is read of the objective that framed the examples."""

    reads: int
    question: int
    longest: int

    def piece_of(self, item: Encoded) -> np.ndarray: ...


def predictions(answer: Frames, outputs: Iterable[tuple[Tensor, Batch]], source: Examples) -> dict[int, Any]:
    answers: dict[int, Any] = {}
    spans: dict[int, tuple[float, str, float]] = {}
    for tensor, batch in outputs:
        assert batch.examples is not None
        logits = tensor.detach().float().cpu().numpy()
        for row, index in enumerate(batch.examples.tolist()):
            if index < 0:
                continue
            match source.task.answer:
                case "class":
                    answers[index] = int(logits[row].argmax())
                case "options":
                    answers[index] = _option(int(logits[row].argmax()), source, index)
                case "classes":
                    answers[index] = np.flatnonzero(logits[row] > 0).tolist()
                case "number":
                    answers[index] = float(logits[row])
                case "tags":
                    answers[index] = _tags(answer, logits[row], batch, row, source, index)
                case "span":
                    _best(answer, spans, logits[row], batch, row, source, index)
    for index, (score, text, none) in spans.items():
        answers[index] = "" if source.task.unanswerable and none > score else text
    return answers


def _begin(batch: Batch, row: int) -> int:
    """Where a row's first token is: behind the filling on the left."""
    if batch.documents is None:
        return 0
    return int((batch.documents[row] > 0).int().argmax())


def _option(number: int, source: Examples, index: int) -> int | str:
    return source.examples[index].texts[1 + number] if source.task.scores_texts else number


def _tags(answer: Frames, logits: np.ndarray, batch: Batch, row: int, source: Examples, index: int) -> list[str]:
    """A tag for each word; words that were cut off, or have no token, have the first of the labels."""
    item, labels = source.items[index], source.task.labels
    begin, most = _begin(batch, row) + 1, min(len(item.parts[0]), answer.reads - 2)
    outside = "O" if "O" in labels else labels[0]
    best = logits.argmax(-1)
    return [labels[best[begin + at]] if 0 <= at < most else outside for at in answer.piece_of(item).tolist()]


def _best(
    answer: Frames,
    spans: dict[int, tuple[float, str, float]],
    logits: np.ndarray,
    batch: Batch,
    row: int,
    source: Examples,
    index: int,
) -> None:
    """Keep the best span of all windows, s·h_i + e·h_j, and the least score of none. (Devlin et al. 2018)"""
    assert batch.reads is not None
    item = source.items[index]
    assert item.pieces is not None
    assert batch.starts is not None
    start, question = int(batch.starts[row]), min(len(item.parts[0]), answer.question)
    count = min(answer.reads - 3 - question, len(item.parts[1]) - start)
    if count < 1:
        spans.setdefault(index, (-np.inf, "", np.inf))
        return
    first = _begin(batch, row) + 2 + question
    scores = logits[0, first : first + count, None] + logits[1, None, first : first + count]
    allowed = np.triu(np.ones_like(scores, bool)) & ~np.triu(np.ones_like(scores, bool), answer.longest)
    scores = np.where(allowed, scores, -np.inf)
    i, j = np.unravel_index(scores.argmax(), scores.shape)
    read = int(batch.reads[row, 0])
    none = float(logits[0, read] + logits[1, read])
    characters = item.pieces[start + i][0], item.pieces[start + j][1]
    text = source.examples[index].texts[1][characters[0] : characters[1]].strip()
    score = float(scores[i, j])
    before = spans.get(index)
    if before is not None:
        none = min(none, before[2])
        score, text = max((score, text), (before[0], before[1]), key=lambda pair: pair[0])
    spans[index] = score, text, none


def parsed(text: str, source: Examples, index: int) -> Any:
    task, text = source.task, text.strip()
    match task.answer:
        case "class":
            return task.labels.index(text) if text in task.labels else None
        case "classes":
            names = [] if text == "none" else [name.strip() for name in text.split(",")]
            return None if set(names) - set(task.labels) else sorted(task.labels.index(name) for name in names)
        case "number":
            try:
                return float(text)
            except ValueError:
                return None
        case "options":
            options = [option.strip() for option in source.examples[index].texts[1:]]
            return _option(options.index(text), source, index) if text in options else None
        case "tags":
            tags = text.split()
            whole = len(tags) == len(source.examples[index].texts) and not set(tags) - set(task.labels)
            return tags if whole else None
        case "span":
            return "" if text == NO_ANSWER else text
    return text
