"""Multiple choice by likelihood, with the conventions of OLMES (Gu et al. 2024): which of the options does a model that
was not trained on the task find likeliest after the question?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import numpy as np

from scaling.data.codec import Codec
from scaling.data.task.example import Example
from scaling.data.task.source import Examples
from scaling.errors import ScalingError, plural
from scaling.metric.metric import Metric, ratio
from scaling.scoring.likelihood import requests

if TYPE_CHECKING:
    from scaling.scoring.likelihood import Scorer

Formulation = Literal["cloze", "letters"]
Frame = Literal["question", "none"]
Normalisation = Literal["raw", "character", "token", "unconditional"]
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
UNCONDITIONAL = "Answer:"


@dataclass(frozen=True)
class Prompting:
    """How an example is written.

    Under `question`, which is OLMES's way, as `Question: …`, the lettered options where the answer is a letter, and
    `Answer:`; under `none` the options continue the text. `shots` examples of the training split that `seed` chooses,
    the same for every question, come first with their answers.
    """

    formulation: Formulation = "cloze"
    frame: Frame = "question"
    shots: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if self.formulation == "letters" and self.frame == "none":
            fix = "take --frame question"
            raise ScalingError("letters answer a question", key="frame", value=self.frame, fix=fix)

    def question(self, question: Question) -> str:
        """What the model reads, up to where an answer begins."""
        if self.frame == "none":
            return question.text.rstrip()
        lines = [f"Question: {question.text}"]
        if self.formulation == "letters":
            lines += [f" {letter}. {option}" for letter, option in zip(ascii_uppercase, question.options)]
        return "\n".join([*lines, UNCONDITIONAL])

    def answers(self, question: Question) -> list[str]:
        """What may follow, each with the space before it."""
        if self.formulation == "letters":
            if len(question.options) > len(ascii_uppercase):
                what = f"there are {len(question.options)} options, and {len(ascii_uppercase)} letters"
                raise ScalingError(what, key="formulation", value="letters", fix="take cloze")
            return [f" {letter}" for letter in ascii_uppercase[: len(question.options)]]
        return [f" {option.strip()}" for option in question.options]

    @property
    def unconditional(self) -> str:
        """What an option follows where nothing is asked."""
        return "" if self.frame == "none" else UNCONDITIONAL

    def head(self, shots: Sequence[Question]) -> str:
        """The examples that come before every question."""
        return "".join(f"{self.question(shot)}{self.answers(shot)[shot.right[0]]}\n\n" for shot in shots)


@dataclass(frozen=True)
class Question:
    """An example as it is asked: its text, the options, and the numbers of those that are right."""

    text: str
    options: tuple[str, ...]
    right: tuple[int, ...]

    @staticmethod
    def of(example: Example, labels: Sequence[str]) -> Question | None:
        """Options are those of the example, or else the names of the labels; None where the answer is kept back."""
        if example.answer is None:
            return None
        if labels:
            return Question(example.prompt, tuple(labels), (example.answer,))
        text, *options = example.texts
        if isinstance(example.answer, list):
            right = tuple(number for number, option in enumerate(options) if option in example.answer)
        else:
            right = (example.answer,)
        return Question(text, tuple(options), right)


@dataclass(frozen=True)
class Scored:
    """The options of one example: −ln p of each after the question and after nothing, and its tokens, characters and
    bytes, all with the space before it.
    """

    index: int
    right: tuple[int, ...]
    nats: tuple[float, ...]
    unconditional: tuple[float, ...]
    tokens: tuple[int, ...]
    characters: tuple[int, ...]
    bytes: tuple[int, ...]

    def choice(self, normalisation: Normalisation) -> int:
        """The option of the highest normalised likelihood, the first of equals."""
        nats = np.array(self.nats)
        match normalisation:
            case "character":
                nats = nats / np.array(self.characters)
            case "token":
                nats = nats / np.array(self.tokens)
            case "unconditional":
                nats = nats - np.array(self.unconditional)
        return int(nats.argmin())

    @property
    def choices(self) -> dict[Normalisation, int]:
        return {name: self.choice(name) for name in NORMALISATIONS}

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
    asked = questions(data.open(split, folder))
    head = ""
    if prompting.shots:
        train = asked if split == "train" else questions(data.open("train", folder))
        shots = drawn(train, prompting.shots, prompting.seed)
        head = prompting.head([train[index] for index in shots])
        asked = {index: question for index, question in asked.items() if split != "train" or index not in shots}
    if not asked:
        fix = "take another split"
        raise ScalingError(f"the {split} split has no example to score", key="split", value=split, fix=fix)
    return head, dict(islice(asked.items(), limit))


def questions(source: Examples) -> dict[int, Question]:
    """The examples of a split whose answer is known, by number."""
    if source.task.answer not in ("class", "options"):
        what = f"the answers are {source.task.answer}, and options are asked for"
        raise ScalingError(what, key="TASK", fix="take a task whose answer is class or options, or finetune the run")
    posed = {index: Question.of(example, source.task.labels) for index, example in enumerate(source.examples)}
    return {index: question for index, question in posed.items() if question is not None and question.right}


def drawn(examples: Mapping[int, Question], shots: int, seed: int) -> list[int]:
    """The numbers of the examples of a prompt: `shots` of the split, by the seed alone."""
    if shots > len(examples):
        what = f"{plural(shots, 'example')} for the prompt, and the training split has {len(examples):,}"
        raise ScalingError(what, key="shots", value=shots, fix="take fewer")
    numbers = np.array(sorted(examples))
    return np.random.default_rng(seed).permutation(numbers)[:shots].tolist()


def scored(scorer: Scorer, codec: Codec, posed: Mapping[int, Question], prompting: Prompting, head: str) -> Answers:
    """Score the options of every question behind the head of the prompt."""
    joins = scorer.model.family == "decoder"
    # What a decoder reads first, and how the source of an encoder-decoder ends.
    frame = [scorer.ids[name] for name in (("start", "bos") if joins else ("eos",)) if name in scorer.ids][:1]
    listed = [(index, question, prompting.answers(question)) for index, question in posed.items()]
    pairs = [(head + prompting.question(question), answer) for _, question, answers in listed for answer in answers]
    plain = list(dict.fromkeys(answer for _, _, answers in listed for answer in answers))
    # One text each, so that what a token is does not depend on which options there are.
    alone = requests(codec, frame, joins, [(prompting.unconditional, answer) for answer in plain])
    every = requests(codec, frame, joins, pairs)
    nats = scorer.nats([*every, *alone])
    unconditional = dict(zip(plain, (float(losses.sum()) for losses in nats[len(every) :])))
    answered, place = [], 0
    for index, question, answers in listed:
        own = nats[place : place + len(answers)]
        place += len(answers)
        answered.append(
            Scored(
                index=index,
                right=question.right,
                nats=tuple(float(losses.sum()) for losses in own),
                unconditional=tuple(unconditional[answer] for answer in answers),
                tokens=tuple(map(len, own)),
                characters=tuple(map(len, answers)),
                bytes=tuple(len(answer.encode()) for answer in answers),
            )
        )
    chance = float(np.mean([len(question.right) / len(question.options) for question in posed.values()]))
    return Answers(answered, chance, sum(map(scorer.truncates, every)))


@dataclass(frozen=True)
class Answers:
    """Every example scored, the accuracy of guessing, and how many contexts were cut to fit the window."""

    examples: Sequence[Scored]
    chance: float
    truncated: int
