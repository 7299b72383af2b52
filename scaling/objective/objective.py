"""What every objective offers, and the checks that they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.batches import Takes
from scaling.data.source import Rows, Vocabulary
from scaling.data.task.encoded import Encoded
from scaling.data.task.example import NO_ANSWER
from scaling.data.task.source import Examples
from scaling.errors import ScalingError

Family = Literal["encoder", "decoder", "encoder_decoder"]
EVERY_TEXT_TO_TEXT: tuple[Family, ...] = ("encoder_decoder", "decoder")


class Objective(Protocol):
    """Made by `Kind(vocabulary, length, family, *, keys of its line)`."""

    families: ClassVar[tuple[Family, ...]]  # the families that can take it
    separates: ClassVar[tuple[Family, ...]] = ()  # those for which it keeps the documents of a window apart
    is_code: ClassVar[bool] = False  # whether its losses are the code length of a text, token after token
    writes_sentinels: ClassVar[bool] = False  # whether sentinels stand between the text in its targets
    labels: ClassVar[str | None] = None  # the kind of answers that it makes for a head of labels, whatever the data
    previous: ClassVar[bool] = False  # whether its labels are the token before each, for a BiLM
    vocabulary: Vocabulary  # with the specials it adds: what the model's tables must hold
    reads: int  # tokens of a window of the source, so that the model's length is filled
    others: int  # further windows, drawn at random, that a sample takes
    takes: Takes  # what a row of the source must be

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        """The batch of these rows; `keys` [n] are all there is of chance. Rows of `others` follow the samples' own."""
        ...


def meet(objective: object, family: Family, families: tuple[Family, ...]) -> Family:
    """The family, if it can take the objective."""
    if family not in families:
        raise ScalingError(
            f"it trains models of the family {' or '.join(families)}, and this is of the family {family}",
            key="kind",
            value=type(objective).__name__,
            fix="choose another objective or another model",
        )
    return family


def fitting(length: int, family: Family, widths: Callable[[int], tuple[int, int]]) -> int:
    """The most tokens whose `widths`, of source and target, fit into `length`: each side, or a decoder's one line."""

    def fits(count: int) -> bool:
        sides = widths(count)
        return (sum(sides) if family == "decoder" else max(sides)) <= length

    # Hiding shortens a text by less than half, since what is hidden must fit as a target.
    for count in range(2 * length, 1, -1):
        if fits(count):
            return count
    raise too_short(length)


def room(length: int, frame: int) -> int:
    """What a frame of that many specials leaves of the model's length."""
    if length - frame < 2:
        raise too_short(length)
    return length - frame


def too_short(length: int) -> ScalingError:
    return ScalingError(f"a length of {length} is too short for it", fix="take a larger size.length")


def tensor(array: np.ndarray) -> Tensor:
    """Contiguous, int64 (or float32): what embeddings and losses take."""
    return torch.from_numpy(np.ascontiguousarray(array, np.float32 if array.dtype.kind == "f" else np.int64))


@dataclass(frozen=True)
class Text:
    """Rows of unequal length: the first `counts` tokens of each are text, the rest is filling; None: no filling."""

    tokens: np.ndarray  # [n t] int64
    counts: np.ndarray | None = None  # [n]
    truth: np.ndarray | None = None  # [n t]

    @property
    def ends(self) -> np.ndarray:
        """[n]: where the filling of each row begins."""
        rows, width = self.tokens.shape
        return np.full(rows, width) if self.counts is None else self.counts

    @property
    def inside(self) -> np.ndarray:
        """[n t] bool."""
        return np.arange(self.tokens.shape[1]) < self.ends[:, None]

    @property
    def documents(self) -> Tensor | None:
        """[n t]: one document a row, and 0 for the filling."""
        return None if self.counts is None else tensor(self.inside)


def pack(values: np.ndarray, keep: np.ndarray, width: int, fill: int) -> Text:
    """What is kept of each row, moved to the left of `width` columns."""
    counts = keep.sum(axis=1)
    packed = np.full((len(values), width), fill, values.dtype)
    packed[np.arange(width) < counts[:, None]] = values[keep]
    return Text(packed, counts)


def kept(values: np.ndarray, keep: np.ndarray) -> Text:
    """What is kept of each row, where that is the same number in every row."""
    return Text(values[keep].reshape(len(values), -1))


def ended(text: Text, eos: int) -> Text:
    """With `eos` after each row's text."""
    tokens = np.pad(text.tokens, ((0, 0), (0, 1)), constant_values=eos)
    if text.counts is None:
        return Text(tokens)
    tokens[:, -1] = text.tokens[:, -1]  # filling, unless the row is full
    tokens[np.arange(len(tokens)), text.counts] = eos
    return Text(tokens, text.counts + 1)


def text_to_text(source: Text, target: Text, vocabulary: Vocabulary, family: Family) -> Batch:
    """Source to target for an encoder-decoder, or one after the other, the source as the prefix, for a decoder.

    Either reads `bos` before the first target token. (Vaswani et al. 2017; Raffel et al. 2019, section 3.2)
    """
    if family == "decoder":
        return _joined(source, target, vocabulary)
    tokens = np.empty_like(target.tokens)
    tokens[:, 0] = vocabulary["bos"]
    tokens[:, 1:] = target.tokens[:, :-1]
    return Batch(
        tokens=tensor(tokens),
        targets=tensor(np.where(target.inside, target.tokens, IGNORE)),
        documents=target.documents,
        source=tensor(source.tokens),
        source_documents=source.documents,
        truth=None if target.truth is None else tensor(target.truth),
    )


def _joined(source: Text, target: Text, vocabulary: Vocabulary) -> Batch:
    rows = len(source.tokens)
    keep = np.concatenate([source.inside, np.ones((rows, 1), bool), target.inside], axis=1)
    bos = np.full((rows, 1), vocabulary["bos"])
    line = _packed(np.concatenate([source.tokens, bos, target.tokens], axis=1), keep, source, target, vocabulary["pad"])
    place = np.arange(1, keep.shape[1])
    bears = (place > source.ends[:, None]) & (place < line.ends[:, None])
    truth = None
    if target.truth is not None:
        before = np.zeros((rows, source.tokens.shape[1] + 1), np.float32)
        losses = np.concatenate([before, target.truth], axis=1)
        truth = tensor(_packed(losses, keep, source, target, 0).tokens[:, 1:])
    return Batch(
        tokens=tensor(line.tokens[:, :-1]),
        targets=tensor(np.where(bears, line.tokens[:, 1:], IGNORE)),
        documents=None if line.counts is None else tensor(line.inside[:, :-1]),
        prefix=tensor(source.ends + 1),
        truth=truth,
    )


def _packed(values: np.ndarray, keep: np.ndarray, source: Text, target: Text, fill: int) -> Text:
    whole = source.counts is None and target.counts is None
    return Text(values) if whole else pack(values, keep, values.shape[1], fill)


@dataclass
class Line:
    """One row: its tokens, the text (0 or 1) and the document of each, and the places that the head reads."""

    tokens: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    tree: np.ndarray | None = None  # [tokens 3], as `Batch.tree`

    def add(self, tokens: Sequence[int] | np.ndarray, segment: int, document: int) -> None:
        self.tokens.extend(tokens.tolist() if isinstance(tokens, np.ndarray) else tokens)
        self.segments.extend([segment] * len(tokens))
        self.documents.extend([document] * len(tokens))


@dataclass(frozen=True)
class Frame:
    """What comes before, between and after texts: [CLS] a [SEP] b [SEP] of an encoder (Devlin et al. 2018), whose head
    reads the first token, or [START] a [DELIM] b [EXTRACT] of a decoder (Radford et al. 2018, figure 1), whose head
    reads the last.
    """

    first: int
    between: int
    last: int
    reads_last: bool

    @classmethod
    def of(cls, vocabulary: Vocabulary, decoder: bool) -> Frame:
        names = ("start", "delim", "extract") if decoder else ("cls", "sep", "sep")
        return cls(*(vocabulary[name] for name in names), reads_last=decoder)

    def add(self, line: Line, texts: Sequence[np.ndarray], document: int = 1) -> int:
        """Put a framed text or pair on the line; returns where the tokens of its last text begin."""
        begin = len(line.tokens)
        line.add([self.first], 0, document)
        place = len(line.tokens)
        line.add(texts[0], 0, document)
        for text in texts[1:]:
            line.add([self.between], 0, document)
            place = len(line.tokens)
            line.add(text, 1, document)
        line.add([self.last], len(texts) - 1, document)
        line.reads.append(len(line.tokens) - 1 if self.reads_last else begin)
        return place


def cut(texts: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """One or two texts in `room` tokens: token after token is taken from the end of the longer one, of equals from the
    second. (Devlin et al. 2018)
    """
    if len(texts) == 1:
        return [texts[0][:room]]
    first, second = shared_room(len(texts[0]), len(texts[1]), room)
    return [texts[0][:first], texts[1][:second]]


def shared_room(first: int, second: int, room: int) -> tuple[int, int]:
    """How much of two texts stays."""
    if first + second <= room:
        return first, second
    first = min(first, max((room + 1) // 2, room - second))
    return first, room - first


def starts(length: int, room: int, stride: int) -> list[int]:
    """Where windows of `room` tokens begin that together cover a text."""
    places = [0]
    while places[-1] + room < length:
        places.append(places[-1] + min(stride, room))
    return places


def filled(rows: Sequence[Sequence[int]], width: int, value: int, left: bool) -> np.ndarray:
    """[n width]: rows of unequal length, filled up on the right or on the left."""
    table = np.full((len(rows), width), value, np.int64)
    for number, row in enumerate(rows):
        start = width - len(row) if left else 0
        table[number, start : start + len(row)] = row
    return table


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
