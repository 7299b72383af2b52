"""Examples of tasks as batches, framed for a head or written, and the predictions that a model's outputs state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from torch import Tensor

from scaling.base.batch import IGNORE, Batch
from scaling.base.errors import refuse
from scaling.base.numbers import NonNegativeFloat, PositiveInt
from scaling.data.batches import Features
from scaling.data.source import Rows, Takes, Vocabulary
from scaling.data.task.answers import KINDS, Goal, each_row
from scaling.data.task.example import Line
from scaling.data.task.source import Examples
from scaling.objectives.causal import Family, Objective, Text, maybe, next_tokens, tensor, text_to_text

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
    def families_for(cls, answer: str | None) -> tuple[Family, ...]:
        """The families that learn such answers, the most suitable one first: no encoder writes."""
        return cls.families if answer not in KINDS or KINDS[answer].head else ("encoder_decoder", "decoder")

    def writes(self, task: Goal) -> bool:
        """Whether the model writes its answer; a task that the family cannot be trained on is refused."""
        writes = self.form == "text" or self.family == "encoder_decoder" or task.head is None
        key, value = ("data.answer", task.answer) if task.head is None else ("objective.form", self.form)
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
            return source.task.features(source.items, self)
        prompts, targets = source.items.written.T + 1  # eos
        targets = np.minimum(targets, self.width(source.task))
        lengths = prompts + targets + 1 if self.family == "decoder" else np.maximum(prompts, targets)
        return Features.of(np.minimum(lengths, self.reads))

    def __call__(self, rows: Rows, keys: np.ndarray) -> Batch:
        batch = self._written(rows) if self.writes(rows.task) else self._framed(rows)
        return replace(batch, examples=maybe(rows.examples), starts=maybe(rows.starts))

    def _framed(self, rows: Any) -> Batch:
        """For a head: texts between specials."""
        task, is_decoder = rows.task, self.family == "decoder"
        names = ("start", "delim", "extract") if is_decoder else ("cls", "sep", "sep")
        lines = [Line([self.vocabulary[name] for name in names], is_decoder) for _ in rows.items]
        labels = [task.frame(line, item, int(at), self) for line, item, at in zip(lines, rows.items, rows.starts)]

        def column(name: str, value: int, width: int = rows.width) -> np.ndarray:
            return filled([getattr(line, name) for line in lines], width, value)

        tokens, documents = column("tokens", self.vocabulary.specials.get("pad", 0)), column("documents", 0)
        common = {
            "labels": tensor(filled(labels, rows.width, IGNORE) if task.is_of_words else np.array(labels)),
            "reads": tensor(column("reads", -1, max(task.options, *(len(line.reads) for line in lines)))),
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
        task, special, answers = source.task, {-1, *self.vocabulary.specials.values()}, dict[int, Any]()
        if not self.writes(task):
            return task.predictions(outputs, source, self)
        for index, tokens, _, _ in each_row(outputs):
            text = np.array([token for token in tokens.tolist() if token not in special], np.int64)
            answers[index] = task.of_text(source.decode(text).strip(), source.examples[index])
        return answers


def filled(rows: Sequence[Any], width: int, value: int) -> np.ndarray:
    """[n width …]: rows of unequal length, filled up on the right."""
    trailing = rows[0].shape[1:] if isinstance(rows[0], np.ndarray) else ()
    table = np.full((len(rows), width, *trailing), value, np.int64)
    for line, row in zip(table, rows):
        line[: len(row)] = row
    return table
