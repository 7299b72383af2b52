"""Examples of tasks: how each kind of answer is framed for a head, learned, predicted, and read where it is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, cast

import numpy as np
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.base.numbers import NonNegativeFloat, PositiveInt
from scaling.data.batches import Features
from scaling.data.source import Rows, Takes, Vocabulary
from scaling.data.task.example import NO_ANSWER, OUTSIDE
from scaling.data.task.example import Answer as Answers
from scaling.data.task.source import Encoded, Examples, Goal
from scaling.objectives.causal import Family, Objective, Text, maybe, next_tokens, refuse_short, tensor, text_to_text

SPECIALS: dict[Family, tuple[str, ...]] = {
    "encoder": ("cls", "sep", "mask"),  # as Masked adds them, so that its models have the same tables
    "decoder": ("bos", "eos", "pad", "start", "delim", "extract"),
    "encoder_decoder": ("bos", "eos", "pad"),
}


class Answer(Objective):
    """−ln p(label | text): the examples of a task, framed as the family reads them.

    Encoders read [CLS] a [SEP] b [SEP] (Devlin et al. 2018); decoders [START] a [DELIM] b [EXTRACT], options one
    sequence each, pairs without an order in both (Radford et al. 2018, section 3.3). With `form: text`, the only one of
    encoder-decoders, the model writes the label, given the task's prompt (Raffel et al. 2019, section 2.4); `auto`
    takes it where the answer is a text. `language` is the weight of GPT's loss of next tokens, for a decoder with the
    head `model.language`. Long documents of spans are read in windows, one every `stride` tokens, behind `question`
    tokens of the question at most; an answer has at most `longest` tokens.
    """

    families = ("encoder", "decoder", "encoder_decoder")
    takes: Takes = "examples"

    def __init__(
        self,
        vocabulary: Vocabulary,
        length: int,
        family: Family,
        *,
        form: Literal["auto", "head", "text"] = "auto",
        language: NonNegativeFloat = 0.5,
        stride: PositiveInt = 128,
        question: PositiveInt = 64,
        longest: PositiveInt = 30,
    ):
        super().__init__(vocabulary, length, family, length - 4, *SPECIALS[family])
        self.reads, self.form, self.language = length, form, language
        self.stride, self.question, self.longest = stride, min(question, (length - 3) // 2), longest

    @classmethod
    def families_for(cls, answer: Answers) -> tuple[Family, ...]:
        """The families that learn such answers, the most suitable one first: no encoder writes a text."""
        return ("encoder_decoder", "decoder") if answer == "text" else cls.families

    def writes(self, task: Goal) -> bool:
        """Whether the model writes its answer; a task that the family cannot be trained on is refused."""
        writes = self.form == "text" or self.family == "encoder_decoder" or task.answer == "text"
        key, value = ("data.answer", "text") if task.answer == "text" else ("objective.form", self.form)
        what = "an encoder cannot write its answers"
        fix = "take a Decoder or an EncoderDecoder"
        refuse(writes and self.family == "encoder", what, fix, key=key, value=value)
        what = "the model has to write these answers, since no head predicts them"
        refuse(writes and self.form == "head", what, "take form=auto", key="objective.form", value="head")
        return writes

    def width(self, task: Goal) -> int:
        """The most tokens that the model writes, with `eos`: those of the longest target, in steps of eight."""
        return min(-(-(task.target + 1) // 8) * 8, self.reads // 2)

    def features(self, source: Any) -> Features:
        """The rows of a split: one per example, or one per window of its document."""
        if not self.writes(source.task):
            return self._kind(source).features(source)
        prompts, targets = source.items.written.T + 1  # eos
        targets = np.minimum(targets, self.width(source.task))
        lengths = prompts + targets + 1 if self.family == "decoder" else np.maximum(prompts, targets)
        return _one_each(np.minimum(lengths, self.reads))

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        batch = self._written(rows) if self.writes(rows.task) else self._framed(rows)
        return replace(batch, examples=maybe(rows.examples), starts=maybe(rows.starts))

    def _kind(self, rows: Any) -> Kind:
        """The kind of the answers of rows or of a split."""
        return KINDS[rows.task.answer](self, rows.task)

    def _framed(self, rows: Any) -> Batch:
        """For a head: texts between specials."""
        kind, is_decoder = self._kind(rows), self.family == "decoder"
        names = ("start", "delim", "extract") if is_decoder else ("cls", "sep", "sep")
        lines = [Line([self.vocabulary[name] for name in names], is_decoder) for _ in rows.items]
        labels = [kind.frame(line, item, int(at)) for line, item, at in zip(lines, rows.items, rows.starts)]

        def column(name: str, value: int, width: int | None = rows.width) -> np.ndarray:
            return filled([getattr(line, name) for line in lines], width, value)

        tokens, documents = column("tokens", self.vocabulary.specials.get("pad", 0)), column("documents", 0)
        common = {
            "labels": tensor(filled(labels, rows.width, IGNORE) if kind.is_of_tokens else np.array(labels)),
            "reads": tensor(column("reads", -1, kind.places)),
        }
        if is_decoder:
            behind = ((0, 0), (0, 1))
            read = next_tokens(Rows(np.pad(tokens, behind), np.pad(documents, behind)))
            return replace(read, language=tensor(np.full(len(lines), self.language)), **common)
        return Batch(
            tokens=tensor(tokens),
            targets=tensor(np.full_like(tokens, IGNORE)),
            documents=tensor(documents),
            segments=tensor(column("segments", 0)),
            tree=None if lines[0].tree is None else tensor(column("tree", 0)),
            **common,
        )

    def _written(self, rows: Any) -> Batch:
        """The prompt, and the label as text."""
        eos, pad, width = self.vocabulary["eos"], self.vocabulary["pad"], rows.width
        joins, longest = self.family == "decoder", self.width(rows.task)
        space, room = (min(longest, width - 3), width - 1) if joins else (longest, width)
        targets = [item.target[: space - 1] for item in rows.items]
        rooms = [room - 1 - joins * (len(target) + 1) for target in targets]
        sources = [item.prompt[: max(1, left)] for item, left in zip(rows.items, rooms)]
        source, target = (
            Text(filled(side, wide, pad), np.array([len(row) for row in side])).ended(eos)
            for side, wide in ((sources, room - 1), (targets, space - 1))
        )
        return text_to_text(source, target, self.vocabulary, self.family, width)

    def predictions(self, outputs: Iterable[tuple[Tensor, Batch]], source: Examples) -> dict[int, Any]:
        """The prediction for each example, as the task's metric takes it. `outputs` are a head's logits of batches of
        `source`, or the tokens that the model wrote, −1 behind the last of a row.
        """
        if not self.writes(source.task):
            return self._kind(source).predictions(outputs, source)
        kind, special, answers = self._kind(source), {-1, *self.vocabulary.specials.values()}, {}
        for index, tokens, _, _ in each_row(outputs):
            text = np.array([token for token in tokens.tolist() if token not in special], np.int64)
            answers[index] = kind.of_text(source.decode(text).strip(), source, index)
        return answers


@dataclass
class Line:
    """One row: its tokens, the text (0 or 1) and the document of each, and the places that the head reads.

    `specials` come before, between and after texts: [CLS] a [SEP] b [SEP] of an encoder (Devlin et al. 2018), whose
    head reads the first token, or [START] a [DELIM] b [EXTRACT] of a decoder (Radford et al. 2018, figure 1), whose
    head reads the last.
    """

    specials: Sequence[int]
    is_decoder: bool
    tokens: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    reads: list[int] = field(default_factory=list)
    tree: np.ndarray | None = None  # [tokens 3], as `Batch.tree`

    def add(self, texts: Sequence[np.ndarray], document: int = 1) -> int:
        """Put a framed text or pair on the line; returns where the tokens of its last text begin."""
        first, between, last = self.specials
        begin = place = len(self.tokens)
        self.tokens.append(first)
        self.segments.append(0)
        for number, (text, end) in enumerate(zip(texts, (between, last)[-len(texts) :])):
            place = len(self.tokens)
            self.tokens += [*text.tolist(), end]
            self.segments += [number] * (len(text) + 1)
        self.documents += [document] * (len(self.tokens) - begin)
        self.reads.append(len(self.tokens) - 1 if self.is_decoder else begin)
        return place


def cut(texts: Sequence[np.ndarray], room: int) -> list[np.ndarray]:
    """One or two texts in `room` tokens: the longer one, of equals the second, loses its last. (Devlin et al. 2018)"""
    if len(texts) == 1:
        return [texts[0][:room]]
    first, second = map(len, texts)
    if first + second > room:
        first = min(first, max((room + 1) // 2, room - second))
        second = room - first
    return [texts[0][:first], texts[1][:second]]


def starts(length: int, room: int, stride: int) -> list[int]:
    """The starts of windows of `room` tokens that together cover a text."""
    step = min(stride, room)
    return [*range(0, max(1, length - room + step), step)]


def filled(rows: Sequence[Any], width: int | None, value: int) -> np.ndarray:
    """[n width …]: rows of unequal length, filled up on the right; without a width to that of the longest."""
    width = max(map(len, rows)) if width is None else width
    trailing = rows[0].shape[1:] if isinstance(rows[0], np.ndarray) else ()
    table = np.full((len(rows), width, *trailing), value, np.int64)
    for line, row in zip(table, rows):
        line[: len(row)] = row
    return table


def _one_each(lengths: np.ndarray) -> Features:
    indices = np.arange(len(lengths))
    return Features(indices, np.zeros_like(indices), lengths)


class Kind:
    """A kind of answer: a further one is a further class of `KINDS`. This one reads one or two texts."""

    places: int | None = None  # that a head reads of a row, where these are not all of the batch's longest
    is_of_tokens = False  # whether a row has a label for each of its tokens

    def __init__(self, objective: Answer, task: Goal):
        self.objective, self.task, self.reads = objective, task, objective.reads
        self.both = objective.family == "decoder" and task.order == "either"  # a pair without an order, in both

    def features(self, source: Examples) -> Features:
        """The rows of a split, with the tokens of each, frame and all."""
        frame = 1 + int(source.items.counts.max())
        lengths = np.add.reduceat(source.items.lengths, source.items.arrays["parts"][:-1]) + frame
        return _one_each(np.minimum(lengths, self.reads) * (2 if frame == 3 and self.both else 1))

    def frame(self, line: Line, item: Encoded, start: int) -> Any:
        """Put an example on a line; returns its label."""
        texts = cut(item.parts, self.reads - 1 - len(item.parts))
        line.add(texts)
        if len(texts) == 2 and self.both:
            line.add(texts[::-1], 2)
        return item.label

    def predictions(self, outputs: Iterable[tuple[Tensor, Batch]], source: Examples) -> dict[int, Any]:
        """The prediction of each example that the logits of all batches make."""
        return {index: self.of_logits(logits, source, index) for index, logits, _, _ in each_row(outputs)}

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        """The prediction of a row."""
        raise NotImplementedError

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        """The prediction that a text states, None where it states none."""
        return text


def each_row(outputs: Iterable[tuple[Tensor, Batch]]) -> Iterator[tuple[int, np.ndarray, Batch, int]]:
    """The example of each row of batches that has one, its output, its batch, and its number in that."""
    for values, batch in outputs:
        for row, index in enumerate(cast(Tensor, batch.examples).tolist()):
            if index >= 0:
                yield index, values[row].numpy(), batch, row


class Class(Kind):
    """The class of a text or of a pair."""

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        return int(logits.argmax())

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        return self.task.labels.index(text) if text in self.task.labels else None


class Classes(Kind):
    """All classes of a text, or none."""

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        return np.flatnonzero(logits > 0).tolist()

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        names, labels = [] if text == "none" else [name.strip() for name in text.split(",")], self.task.labels
        return None if set(names) - set(labels) else sorted(labels.index(name) for name in names)


class Number(Kind):
    """A number."""

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        return float(logits)

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        try:
            number = float(text)
        except ValueError:
            return None
        return number if np.isfinite(number) else None


class Options(Kind):
    """One of an example's own options, each a document of its own behind the text."""

    def __init__(self, objective: Answer, task: Goal):
        super().__init__(objective, task)
        self.places = task.options

    def features(self, source: Examples) -> Features:
        lengths, firsts = source.items.lengths, source.items.arrays["parts"][:-1]
        framed_lengths = np.minimum(np.repeat(lengths[firsts], source.items.counts) + lengths + 3, self.reads)
        framed_lengths[firsts] = 0
        return _one_each(np.add.reduceat(framed_lengths, firsts))

    def frame(self, line: Line, item: Encoded, start: int) -> Any:
        for number, option in enumerate(item.parts[1:], 1):
            line.add(cut([item.parts[0], option], self.reads - 3), number)
        return item.label

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        return self._chosen(int(logits.argmax()), source, index)

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        options = [option.strip() for option in source.examples[index].texts[1:]]
        return self._chosen(options.index(text), source, index) if text in options else None

    def _chosen(self, number: int, source: Examples, index: int) -> int | str:
        return source.examples[index].texts[1 + number] if self.task.scores_texts else number


class Tags(Kind):
    """A class of each word, at its first token; at its last where no token sees those after it."""

    is_of_tokens = True

    def _at(self, item: Encoded) -> np.ndarray:
        """[words], the token at which each word is tagged; −1 where it has none."""
        return item.pieces[:, 1 if self.objective.family == "decoder" else 0]

    def frame(self, line: Line, item: Encoded, start: int) -> Any:
        place = line.add([item.parts[0][: self.reads - 2]])
        width = len(line.tokens)
        labels = np.full(width, IGNORE, np.int64)
        for at, label in zip(self._at(item), item.label):
            if 0 <= at < width - 2:
                labels[place + at] = label
        if item.tree is not None:  # the place of a token in the tree is that of its word, or above all words
            line.tree = np.tile(OUTSIDE, (width, 1))
            for (first, last), node in zip(item.pieces, item.tree):
                if 0 <= first < width - 2:
                    line.tree[place + first : min(place + last + 1, width - 1)] = node
        return labels

    def of_logits(self, logits: Any, source: Examples, index: int) -> Any:
        """A tag for each word; words that were cut off, or have no token, have the first of the labels."""
        item, labels = source.items[index], self.task.labels
        visible, best = min(len(item.parts[0]), self.reads - 2), logits.argmax(-1)
        outside = "O" if "O" in labels else labels[0]
        return [labels[best[1 + at]] if 0 <= at < visible else outside for at in self._at(item).tolist()]

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        tags = text.split()
        is_complete = len(tags) == len(source.examples[index].texts) and not set(tags) - set(self.task.labels)
        return tags if is_complete else None


class Span(Kind):
    """A part of the second text, which is read in windows, or none of it."""

    def features(self, source: Examples) -> Features:
        rows = []
        for index, (question, document) in enumerate(source.items.lengths.reshape(-1, 2).tolist()):
            question = min(question, self.objective.question)
            space = self.reads - 3 - question
            refuse_short(space < 1, self.reads)
            rows += [
                (index, start, 3 + question + min(space, document - start))
                for start in starts(document, space, self.objective.stride)
            ]
        return Features(*np.array(rows, np.int64).T)

    def frame(self, line: Line, item: Encoded, start: int) -> Any:
        """The label is the place of the answer in the window, or, for none, the place that the head of a text reads."""
        question = item.parts[0][: self.objective.question]
        stop = start + self.reads - 3 - len(question)
        place = line.add([question, item.parts[1][start:stop]])
        first, last = map(int, item.label)
        if first == IGNORE:
            return [IGNORE, IGNORE]
        if first < start or last >= stop:
            return [line.reads[0], line.reads[0]]
        return [place + first - start, place + last - start]

    def predictions(self, outputs: Iterable[tuple[Tensor, Batch]], source: Examples) -> dict[int, Any]:
        """The best span of all windows of a document; none where the least score of none is higher."""
        best: dict[int, tuple[float, str]] = {}
        none: dict[int, float] = {}
        for index, logits, batch, row in each_row(outputs):
            score, text, absent = self._best(logits, batch, row, source.items[index], source.examples[index].texts[1])
            if index not in best or score >= best[index][0]:
                best[index] = score, text
            none[index] = min(absent, none.get(index, np.inf))
        return {
            index: "" if self.task.unanswerable and none[index] > score else text
            for index, (score, text) in best.items()
        }

    def _best(self, logits: np.ndarray, batch: Batch, row: int, item: Encoded, text: str) -> tuple[float, str, float]:
        """The score s·h_i + e·h_j and text of a window's best span, and the score of none. (Devlin et al. 2018)"""
        reads, windows = cast(Tensor, batch.reads), cast(Tensor, batch.starts)
        start, question = int(windows[row]), min(len(item.parts[0]), self.objective.question)
        count = min(self.reads - 3 - question, len(item.parts[1]) - start)
        if count < 1:
            return -np.inf, "", np.inf
        first = 2 + question
        scores = logits[0, first : first + count, None] + logits[1, None, first : first + count]
        allowed = np.triu(np.ones_like(scores, bool)) & ~np.triu(np.ones_like(scores, bool), self.objective.longest)
        scores = np.where(allowed, scores, -np.inf)
        i, j = np.unravel_index(scores.argmax(), scores.shape)
        none = float(logits[:, int(reads[row, 0])].sum())
        return float(scores[i, j]), text[item.pieces[start + i][0] : item.pieces[start + j][1]].strip(), none

    def of_text(self, text: str, source: Examples, index: int) -> Any:
        return "" if text == NO_ANSWER else text


KINDS: dict[str, type[Kind]] = {
    "class": Class,
    "classes": Classes,
    "number": Number,
    "options": Options,
    "tags": Tags,
    "span": Span,
    "text": Kind,
}
