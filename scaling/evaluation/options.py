"""Multiple choice by likelihood, with the conventions of OLMES (Gu et al. 2024): which of the options does a model that
was not trained on the task find likeliest after the question, or in its gap?
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from string import ascii_uppercase
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from scaling.base.errors import ScalingError, plural, refuse
from scaling.data.codec import Codec
from scaling.data.task.example import Example
from scaling.data.task.source import Examples
from scaling.evaluation.generate import framing
from scaling.evaluation.likelihood import MASK, MaskedScorer, Request, Scorer, requests
from scaling.metrics.metric import Metric, ratio

Formulation = Literal["cloze", "letters"]
Frame = Literal["question", "none"]
Normalisation = Literal["raw", "character", "token", "unconditional"]
NORMALISATIONS: tuple[Normalisation, ...] = get_args(Normalisation)
UNCONDITIONAL = "Answer:"


@dataclass(frozen=True)
class Prompting:
    """The form in which an example is written.

    Under `question`, which is OLMES's way, as `Question: …`, the lettered options where the answer is a letter, and
    `Answer:`; under `none` the options continue the text, or fill its gap `[MASK]`. `shots` examples of the training
    split that `seed` chooses, the same for every question, come first with their answers.
    """

    formulation: Formulation = "cloze"
    frame: Frame = "question"
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
    def choices(self) -> dict[Normalisation, int]:
        """The option of the highest likelihood under each normalisation, the first of equals."""
        nats = np.array(self.nats)
        costs: dict[Normalisation, np.ndarray] = {
            "raw": nats,
            "character": nats / np.array(self.characters),
            "token": nats / np.array(self.tokens),
            "unconditional": nats - np.array(self.unconditional),
        }
        return {name: int(cost.argmin()) for name, cost in costs.items()}

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

    def questions(split: str) -> dict[int, Question]:
        """The examples of a split whose answer is known, by number."""
        source: Examples = data.open(split, folder)
        if source.task.answer not in ("class", "options"):
            what = f"the answers are {source.task.answer}, and options are asked for"
            fix = "take a task whose answer is class or options, or finetune the run"
            raise ScalingError(what, key="TASK", fix=fix)
        all_questions = (Question.of(example, source.task.labels) for example in source.examples)
        return {index: question for index, question in enumerate(all_questions) if question.right}

    posed, shots = questions(split), prompting.shots
    train = posed if split == "train" or not shots else questions("train")
    what = f"{plural(shots, 'example')} for the prompt, and the training split has {len(train):,}"
    refuse(shots > len(train), what, "take fewer", key="shots", value=shots)
    shot_indices = np.random.default_rng(prompting.seed).permutation(sorted(train))[:shots].tolist()
    if split == "train":
        posed = {index: question for index, question in posed.items() if index not in shot_indices}
    refuse(not posed, f"the {split} split has no example to score", "take another split", key="split", value=split)
    return prompting.head([train[index] for index in shot_indices]), dict(islice(posed.items(), limit))


def scored(
    scorer: Scorer | MaskedScorer, codec: Codec, posed: Mapping[int, Question], prompting: Prompting, head: str
) -> tuple[list[Scored], int]:
    """The options of every question behind the head of the prompt, and of how many the window cut a context."""
    written = [(*prompting.question(question), prompting.answers(question)) for question in posed.values()]
    places = [(head + before, answer, after) for before, after, answers in written for answer in answers]
    gaps = [after is not None for _, after, _ in written]
    if isinstance(scorer, MaskedScorer) and not all(gaps):
        what = "an encoder sees what comes after a token, so it has no likelihood of a continuation"
        fix = f"write {MASK} in every text and take --frame none, or finetune the run on the task"
        raise ScalingError(what, key="RUN", fix=fix)
    nats, cut = _nats(scorer, codec, places)
    alone = list(dict.fromkeys(answer for _, answer, _ in places))
    before = "" if prompting.frame == "none" else UNCONDITIONAL
    costs, _ = _nats(scorer, codec, [(before, answer, "" if any(gaps) else None) for answer in alone])
    unconditional = dict(zip(alone, (float(losses.sum()) for losses in costs), strict=True))
    each, examples, truncated = iter(zip(nats, cut, strict=True)), [], 0
    for (index, question), (_, _, answers) in zip(posed.items(), written, strict=True):
        losses, were_cut = zip(*(next(each) for _ in answers), strict=True)
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


Place = tuple[str, str, str | None]
"""The text before an answer, the answer, and the text behind a gap; None where there is no gap."""


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
    gaps = [] if joins else [ids[name] for name in ("sentinel_0", "sentinel_1") if name in ids]
    first, last = framing(scorer.model.family, ids)
    pairs = requests(codec, first or last, joins, [(before, answer + after) for before, answer, after in parts])
    for number, (*_, after) in enumerate(places):
        if len(gaps) == 2 and after is not None:
            before, answer, rest = codec.encode(parts[number])
            pairs[number] = Request((*before, gaps[0], *rest, *last), (gaps[0], *answer, gaps[1]))
    return scorer.nats(pairs), [*map(scorer.truncates, pairs)]
