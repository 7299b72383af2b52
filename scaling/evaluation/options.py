"""Multiple choice by likelihood, with the conventions of OLMES (Gu et al. 2024): which of the options does a model that
was not trained on the task find likeliest after the question, or in its gap?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, Literal

import numpy as np

from scaling.base.errors import plural, refuse
from scaling.data.codec import Codec
from scaling.data.task.example import Example
from scaling.data.task.source import Examples
from scaling.evaluation.generate import framing
from scaling.evaluation.likelihood import MASK, MaskedScorer, Request, Scorer, requests
from scaling.metrics.metric import Metric, ratio

NORMALISATIONS = ("raw", "character", "token", "unconditional")
UNCONDITIONAL = "Answer:"


@dataclass(frozen=True)
class Prompting:
    """The form in which an example is written.

    Under `question`, which is OLMES's way, as `Question: …`, the lettered options where the answer is a letter, and
    `Answer:`; under `none` the options continue the text, or fill its gap `[MASK]`. `shots` examples of the training
    split that `seed` chooses, the same for every question, come first with their answers.
    """

    formulation: Literal["cloze", "letters"] = "cloze"
    frame: Literal["question", "none"] = "question"
    shots: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        what, fix = "letters answer a question", "take --frame question"
        refuse(self.formulation == "letters" and self.frame == "none", what, fix, key="frame", value=self.frame)

    def question(self, question: Question) -> tuple[str, str | None]:
        """The text before an answer and the text behind it; None where the text has no gap."""
        if self.frame == "none":
            before, gap, after = question.text.partition(MASK)
            return before.rstrip(), after if gap else None
        lines = [f"Question: {question.text}"]
        if self.formulation == "letters":
            lines += [f" {letter}. {option}" for letter, option in zip(ascii_uppercase, question.options)]
        return "\n".join([*lines, UNCONDITIONAL]), None

    def answers(self, question: Question) -> list[str]:
        """The possible answers, each with the space before it."""
        if self.formulation == "letters":
            what = f"there are {len(question.options)} options, and {len(ascii_uppercase)} letters"
            refuse(len(question.options) > len(ascii_uppercase), what, "take cloze", key="formulation", value="letters")
            return [f" {letter}" for letter in ascii_uppercase[: len(question.options)]]
        return [f" {option.strip()}" for option in question.options]

    def head(self, shots: Sequence[Question]) -> str:
        """The examples that come before every question."""
        sides = ((self.question(shot), self.answers(shot)[shot.right[0]]) for shot in shots)
        return "".join(f"{before}{answer}{after or ''}\n\n" for (before, after), answer in sides)


@dataclass(frozen=True)
class Question:
    """An example as it is asked: its text, the options, and the numbers of those that are right."""

    text: str
    options: tuple[str, ...]
    right: tuple[int, ...]

    @staticmethod
    def of(example: Example, labels: Sequence[str]) -> Question:
        """Options are those of the example, or the names of labels; none is right where the answer is kept back."""
        text, *options = (example.prompt, *labels) if labels else example.texts
        if isinstance(example.answer, list):
            right = tuple(number for number, option in enumerate(options) if option in example.answer)
        else:
            right = () if example.answer is None else (example.answer,)
        return Question(text, tuple(options), right)


@dataclass(frozen=True)
class Scored:
    """An example's options: −ln p of each after the question and alone, its tokens, characters and bytes with space."""

    index: int
    right: tuple[int, ...]
    nats: tuple[float, ...]
    unconditional: tuple[float, ...]
    tokens: tuple[int, ...]
    characters: tuple[int, ...]
    bytes: tuple[int, ...]

    @property
    def choices(self) -> dict[str, int]:
        """The option of the highest likelihood under each normalisation, the first of equals."""
        nats = np.array(self.nats)
        costs = nats, nats / self.characters, nats / self.tokens, nats - self.unconditional
        return {name: int(cost.argmin()) for name, cost in zip(NORMALISATIONS, costs, strict=True)}

    @property
    def gold(self) -> int:
        """The right option; the likeliest of several."""
        return min(self.right, key=lambda option: self.nats[option])


@dataclass(frozen=True, kw_only=True)
class Choosing(Metric):
    """The accuracy under each normalisation, and the bits per byte of the right answers."""

    main = "accuracy_character"
    ratios: ClassVar = {f"accuracy_{name}": (column, 4) for column, name in enumerate(NORMALISATIONS)}

    def row(self, prediction: Scored, reference: Scored) -> Sequence[float]:
        right = (choice in prediction.right for choice in prediction.choices.values())
        return *right, 1, prediction.nats[prediction.gold], prediction.bytes[prediction.gold]

    def values(self, sums: np.ndarray) -> dict[str, np.ndarray]:
        return {**super().values(sums), "bits_per_byte": ratio(sums[:, 5] / np.log(2), sums[:, 6])}


def posed(
    data: Any, split: str, folder: Path, prompting: Prompting, limit: int | None
) -> tuple[str, dict[int, Question]]:
    """The head of the prompt, and the questions of a split of a task behind it; shots of that split are not asked."""

    def questions(part: str) -> dict[int, Question]:
        source: Examples = data.open(part, folder)
        what = f"its answer is {source.task.answer}, and options are asked for"
        fix = "take a task whose answer is class or options, or finetune the run"
        refuse(not source.task.is_choice, what, fix, key="TASK")
        asked = (Question.of(example, source.task.labels) for example in source.examples)
        return {index: question for index, question in enumerate(asked) if question.right}

    asked, shots = questions(split), prompting.shots
    train = asked if split == "train" or not shots else questions("train")
    what = f"{plural(shots, 'example')} for the prompt, and the training split has {len(train):,}"
    refuse(shots > len(train), what, "take fewer", key="shots", value=shots)
    shown = np.random.default_rng(prompting.seed).permutation(sorted(train))[:shots].tolist()
    left = {index: asked[index] for index in asked if split != "train" or index not in shown}
    refuse(not left, f"the {split} split has no example to score", "take another split", key="split", value=split)
    return prompting.head([train[index] for index in shown]), dict(islice(left.items(), limit))


def scored(
    scorer: Scorer | MaskedScorer, codec: Codec, posed: Mapping[int, Question], prompting: Prompting, head: str
) -> tuple[list[Scored], int]:
    """The options of every question behind the head of the prompt, and of how many the window cut a context."""
    sides = [prompting.question(question) for question in posed.values()]
    has_gaps = [after is not None for _, after in sides]
    what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
    fix = f"write {MASK} in every text and take --frame none, or finetune the run on the task"
    refuse(isinstance(scorer, MaskedScorer) and not all(has_gaps), what, fix, key="RUN")
    each = [prompting.answers(question) for question in posed.values()]
    places = [(head + before, answer, after) for (before, after), answers in zip(sides, each) for answer in answers]
    scores = zip(*_nats(scorer, codec, places), strict=True)
    alone = list(dict.fromkeys(answer for _, answer, _ in places))
    before = "" if prompting.frame == "none" else UNCONDITIONAL
    costs, _ = _nats(scorer, codec, [(before, answer, "" if any(has_gaps) else None) for answer in alone])
    unconditional = dict(zip(alone, (float(losses.sum()) for losses in costs), strict=True))
    examples, truncated = [], 0
    for (index, question), answers in zip(posed.items(), each, strict=True):
        losses, were_cut = zip(*islice(scores, len(answers)), strict=True)
        truncated += any(were_cut)
        examples.append(
            Scored(
                index=index,
                right=question.right,
                nats=tuple(float(loss.sum()) for loss in losses),
                unconditional=tuple(unconditional[answer] for answer in answers),
                tokens=tuple(map(len, losses)),
                characters=tuple(map(len, answers)),
                bytes=tuple(len(answer.encode()) for answer in answers),
            )
        )
    return examples, truncated


# The text before an answer, the answer, and the text behind a gap; None where there is no gap.
Place = tuple[str, str, str | None]


def _nats(scorer: Scorer | MaskedScorer, codec: Codec, places: Sequence[Place]) -> tuple[list[np.ndarray], list[bool]]:
    """−ln p of each token of answers in their places, and whether the context of each lost tokens to the window.

    An encoder reads a mask for each token of an answer. An encoder-decoder with sentinels reads one in the gap and
    writes the answer between it and the next one (Raffel et al. 2019). Others read the text before, and what follows is
    scored with the answer (Trinh and Le 2018).
    """
    parts = [[before, answer, after or ""] for before, answer, after in places]
    if isinstance(scorer, MaskedScorer):
        return [scorer.gap(*codec.encode(three)) for three in parts], [False] * len(parts)
    ids, joins = scorer.ids, scorer.model.family == "decoder"
    first, last = framing(scorer.model.family, ids)
    pairs = requests(codec, first or last, joins, [(before, answer + after) for before, answer, after in parts])
    for number, (*_, after) in enumerate(places):
        if not joins and "sentinel_1" in ids and after is not None:
            before, answer, rest = codec.encode(parts[number])
            gap = ids["sentinel_0"]
            pairs[number] = Request((*before, gap, *rest, *last), (gap, *answer, ids["sentinel_1"]))
    return scorer.nats(pairs), [*map(scorer.truncates, pairs)]
