from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.batches import Features, Takes
from scaling.data.source import Rows, Vocabulary
from scaling.data.task.encoded import Encoded
from scaling.data.task.example import Answer as Answers
from scaling.data.task.source import Examples, Goal
from scaling.data.tree import OUTSIDE
from scaling.errors import ScalingError
from scaling.objective import objective as predicting
from scaling.objective.objective import (
    Family,
    Frame,
    Line,
    Text,
    cut,
    ended,
    filled,
    meet,
    room,
    starts,
    tensor,
    text_to_text,
    too_short,
)
from scaling.schema import NonNegativeFloat, PositiveInt


class Answer:
    """−ln p(label | text): the examples of a task, framed as the family reads them.

    Encoders read [CLS] a [SEP] b [SEP] (Devlin et al. 2018); decoders [START] a [DELIM] b [EXTRACT], options one
    sequence each, pairs without an order in both (Radford et al. 2018, section 3.3). With `form: text`, the only one of
    encoder-decoders, the model writes the label, given the task's prompt (Raffel et al. 2019, section 2.3); `auto`
    takes it where the answer is a text. `language` is the weight of GPT's loss of next tokens, for a decoder with the
    head `model.language`. Long documents of spans are read in windows, one every `stride` tokens, behind `question`
    tokens of the question at most; an answer has at most `longest` tokens.
    """

    families: tuple[Family, ...] = ("encoder", "decoder", "encoder_decoder")
    separates: tuple[Family, ...] = ()
    is_code = False
    others = 0
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
        padding: Literal["right", "left"] = "right",
    ):
        self.family: Family = meet(self, family, self.families)
        self.reads = room(length, 4) + 4
        self.form, self.language = form, language
        self.stride, self.question, self.longest = stride, min(question, (length - 3) // 2), longest
        self.left = padding == "left"
        names = {
            "encoder": ["cls", "sep", "mask"],  # as Masked adds them, so that its models have the same tables
            "decoder": ["bos", "eos", "pad", "start", "delim", "extract"],
            "encoder_decoder": ["bos", "eos", "pad"],
        }
        self.vocabulary = vocabulary.extended(names[family])
        self.filling = self.vocabulary.specials.get("pad", 0)
        self.writes = False  # whether the model writes its answer; known with the task
        self.width = 0  # of what it writes
        self.options = 0  # the most that an example has
        self._features: dict[tuple[str, str], Features] = {}

    @classmethod
    def families_for(cls, answer: Answers) -> tuple[Family, ...]:
        """Those that learn such answers, the one that is made for them first: no encoder writes a text."""
        return ("encoder_decoder", "decoder") if answer == "text" else cls.families

    def check(self, task: Goal) -> None:
        """Refuse a task that the family cannot be trained on."""
        self.writes = self.form == "text" or self.family == "encoder_decoder" or task.answer == "text"
        if (self.form == "text" and self.family == "encoder") or self.family not in self.families_for(task.answer):
            raise ScalingError(
                "an encoder cannot write the answer of a task whose answers are texts",
                key="data.answer" if task.answer == "text" else "form",
                value=task.answer if task.answer == "text" else self.form,
                fix="take a Decoder or an EncoderDecoder",
            )
        if self.form == "head" and self.writes:
            raise ScalingError(
                "the model has to write these answers, since no head predicts them",
                key="form",
                value="head",
                fix="take form=auto",
            )

    def features(self, source: Any) -> Features:
        """The rows of a split: one per example, or one per window of its document."""
        self.check(source.task)
        name = source.fingerprint, source.split
        if name not in self._features:
            self._features[name] = self._rows(source)
        return self._features[name]

    def _rows(self, source: Examples) -> Features:
        every = np.arange(len(source.items))
        self.options = max(self.options, int(source.items.counts.max()) - 1)
        if self.writes:
            prompts, targets = source.items.written.T + 1  # eos
            self.width = max(self.width, min(-(-int(targets.max()) // 8) * 8, self.reads // 2))
            targets = np.minimum(targets, self.width)
            decoder = self.family == "decoder"
            lengths = prompts + targets + 1 if decoder else np.maximum(prompts, targets)
            return Features(every, np.zeros_like(every), np.minimum(lengths, self.reads))
        if source.task.answer == "span":
            return self._windows(source)
        return Features(every, np.zeros_like(every), self._lengths(source))

    def _lengths(self, source: Examples) -> np.ndarray:
        """[n], tokens of each row, frame and all."""
        lengths, firsts = source.items.lengths, source.items.arrays["parts"][:-1]
        if source.task.answer == "options":
            framed = np.minimum(np.repeat(lengths[firsts], source.items.counts) + lengths + 3, self.reads)
            framed[firsts] = 0
            return np.add.reduceat(framed, firsts)
        frame = 1 + int(source.items.counts.max())
        once = np.minimum(np.add.reduceat(lengths, firsts) + frame, self.reads)
        return 2 * once if frame == 3 and self._in_both_orders(source.task) else once

    def _windows(self, source: Examples) -> Features:
        lengths = source.items.lengths.reshape(-1, 2)
        rows = []
        for index, (question, document) in enumerate(lengths.tolist()):
            question = min(question, self.question)
            space = self.reads - 3 - question
            if space < 1:
                raise too_short(self.reads)
            rows += [
                (index, start, 3 + question + min(space, document - start))
                for start in starts(document, space, self.stride)
            ]
        table = np.array(rows, np.int64)
        return Features(table[:, 0], table[:, 1], table[:, 2])

    def _in_both_orders(self, task: Goal) -> bool:
        return self.family == "decoder" and task.order == "either"

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        assert rows.starts is not None
        assert rows.examples is not None
        assert rows.width is not None
        self.check(rows.task)
        if self.writes:
            batch = self._written(rows)
        else:
            frame = Frame.of(self.vocabulary, self.family == "decoder")
            framed = [self._framed(frame, rows.task, item, int(at)) for item, at in zip(rows.items, rows.starts)]
            batch = self._batch([line for line, _ in framed], [label for _, label in framed], rows)
        return replace(batch, examples=tensor(rows.examples), starts=tensor(rows.starts))

    def _framed(self, frame: Frame, task: Goal, item: Encoded, start: int) -> tuple[Line, Any]:
        """A row and its label; places of tokens are counted from the row's first."""
        line, parts = Line(), item.parts
        if task.answer == "options":
            for number, option in enumerate(parts[1:], 1):
                frame.add(line, cut([parts[0], option], self.reads - 3), number)
            return line, item.label
        if task.answer == "span":
            question = parts[0][: self.question]
            space = self.reads - 3 - len(question)
            place = frame.add(line, [question, parts[1][start : start + space]])
            return line, self._span(item.label, start, space, place, line.reads[0])
        if task.answer == "tags":
            place = frame.add(line, [parts[0][: self.reads - 2]])
            line.tree = None if item.tree is None else self._tree(item, place, len(line.tokens))
            return line, self._tags(item, place, len(line.tokens))
        texts = cut(parts, self.reads - 1 - len(parts))
        frame.add(line, texts)
        if len(parts) == 2 and self._in_both_orders(task):
            frame.add(line, texts[::-1], 2)
        return line, item.label

    def _span(self, label: np.ndarray, start: int, space: int, place: int, none: int) -> list[int]:
        """Where the answer is in a window, or that there is none in it: where the head of a whole text reads."""
        first, last = int(label[0]), int(label[1])
        if first == IGNORE:
            return [IGNORE, IGNORE]
        if first < start or last >= start + space:
            return [none, none]
        return [place + first - start, place + last - start]

    def _tags(self, item: Encoded, place: int, width: int) -> np.ndarray:
        """The class of each word at its first token; at its last where no token sees those after it."""
        labels = np.full(width, IGNORE, np.int64)
        for at, label in zip(self.piece_of(item), item.label):
            if 0 <= at < width - 2:
                labels[place + at] = label
        return labels

    def _tree(self, item: Encoded, place: int, width: int) -> np.ndarray:
        """The place of each token in the tree of its words: that of its word, or above all words."""
        assert item.pieces is not None
        assert item.tree is not None
        tree = np.tile(OUTSIDE, (width, 1))
        for (start, stop), node in zip(item.pieces, item.tree):
            if 0 <= start < width - 2:
                tree[place + start : min(place + stop + 1, width - 1)] = node
        return tree

    def piece_of(self, item: Encoded) -> np.ndarray:
        """[words], the token at which each word is tagged; −1 where it has none."""
        assert item.pieces is not None
        return item.pieces[:, 1 if self.family == "decoder" else 0]

    def _batch(self, lines: list[Line], labels: list[Any], rows: Rows) -> Batch:
        width = int(rows.width or 0)
        shift = np.array([width - len(line.tokens) if self.left else 0 for line in lines])
        tokens = filled([line.tokens for line in lines], width, self.filling, self.left)
        documents = filled([line.documents for line in lines], width, 0, self.left)
        widest = self.options if rows.task.answer == "options" else max(len(line.reads) for line in lines)
        reads = filled([line.reads for line in lines], widest, -1, False)
        reads = np.where(reads < 0, -1, reads + shift[:, None])
        match rows.task.answer:
            case "tags":
                answers = filled(labels, width, IGNORE, self.left)
            case "span":
                answers = np.array(labels, np.int64)
                answers = np.where(answers == IGNORE, IGNORE, answers + shift[:, None])
            case _:
                answers = np.array(labels)
        targets = np.full_like(tokens, IGNORE)
        if self.family == "decoder":
            same = (documents[:, 1:] == documents[:, :-1]) & (documents[:, 1:] > 0)
            targets[:, :-1] = np.where(same, tokens[:, 1:], IGNORE)
        tree = None
        if self.family == "encoder" and lines[0].tree is not None:
            tree = np.zeros((*tokens.shape, 3), np.int64)
            for row, line in enumerate(lines):
                assert line.tree is not None
                tree[row, shift[row] : shift[row] + len(line.tokens)] = line.tree
        segments = filled([line.segments for line in lines], width, 0, self.left)
        return Batch(
            tokens=tensor(tokens),
            targets=tensor(targets),
            documents=tensor(documents),
            segments=tensor(segments) if self.family == "encoder" else None,
            labels=tensor(answers),
            reads=tensor(reads),
            language=tensor(np.full(len(lines), self.language)) if self.family == "decoder" else None,
            tree=None if tree is None else tensor(tree),
        )

    def _written(self, rows: Rows) -> Batch:
        """The prompt, and the label as text."""
        eos, pad = self.vocabulary["eos"], self.vocabulary["pad"]
        width = int(rows.width or 0)
        space = min(self.width, width if self.family == "encoder_decoder" else width - 3)
        most = width if self.family == "encoder_decoder" else width - 1
        sources, targets = [], []
        for item in rows.items:
            target = item.target[: space - 1]
            taken = 0 if self.family == "encoder_decoder" else len(target) + 1
            sources.append(item.prompt[: max(1, most - 1 - taken)])
            targets.append(target)
        sides = []
        for side, wide in ((sources, most - 1), (targets, space - 1)):
            counts = np.array([len(row) for row in side])
            sides.append(ended(Text(filled(side, wide, pad, False), counts), eos))
        batch = text_to_text(sides[0], sides[1], self.vocabulary, self.family)
        if self.family == "encoder_decoder":
            return batch
        cuts = {"tokens", "targets", "documents"}  # what is joined has room for both sides, and no row needs it
        return replace(batch, **{k: v[:, :width].contiguous() for k, v in vars(batch).items() if k in cuts})

    def predictions(self, outputs: Iterable[tuple[Tensor, Batch]], source: Examples) -> dict[int, Any]:
        """What the logits of a head predict of each example, as the task's metric takes it: the best over all windows
        of a document. `outputs` are the logits of batches of `source`.
        """
        return predicting.predictions(self, outputs, source)

    def parsed(self, text: str, source: Examples, index: int) -> Any:
        """What a model has written of an example, as the metric takes it; None where it is no valid answer."""
        return predicting.parsed(text, source, index)
