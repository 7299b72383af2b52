"""Cloze prompts: which of a few words does a model find the likeliest in a gap? One question for each kind of knowledge
that pretraining may teach.

Every family answers in its own way. An encoder reads a mask for each token of an option; a model with sentinels reads
one in the gap and writes the option behind it; others read the text before the gap and are scored on the option with
all that follows, so that what follows counts too (Trinh and Le 2018).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from scaling.data.codec import Codec
from scaling.metric.metric import Metric
from scaling.scoring.likelihood import Request, requests

if TYPE_CHECKING:
    from scaling.scoring.likelihood import Scorer
    from scaling.scoring.masked import MaskedScorer

GAP = "[MASK]"


@dataclass(frozen=True)
class Prompt:
    """A text with a gap, and what may fill it, the right one first."""

    knowledge: str
    text: str
    options: tuple[str, ...]

    def halves(self) -> tuple[str, str]:
        """The text before the gap without the space, and behind it."""
        before, after = self.text.split(GAP)
        return before.rstrip(" "), after


PROMPTS = (
    Prompt("facts", "Stanford University is located in [MASK], California.", ("Stanford", "Boston", "London", "Paris")),
    Prompt("syntax", "I put [MASK] fork down on the table.", ("the", "they", "goes", "of")),
    Prompt(
        "coreference",
        "The woman walked across the street, checking for traffic over [MASK] shoulder.",
        ("her", "his", "its", "their"),
    ),
    Prompt(
        "lexical semantics",
        "I went to the ocean to see the fish, turtles, seals, and [MASK].",
        ("whales", "chairs", "trains", "cows"),
    ),
    Prompt(
        "sentiment",
        "Overall, the value I got from the two hours watching it was the sum total of the popcorn and the drink. "
        "The movie was [MASK].",
        ("bad", "great", "good", "wonderful"),
    ),
    Prompt(
        "reasoning",
        "Iroh went into the kitchen to make some tea. Standing next to Iroh, Zuko pondered his destiny. "
        "Zuko left the [MASK].",
        ("kitchen", "garden", "school", "ship"),
    ),
    Prompt(
        "arithmetic",
        "I was thinking about the sequence that goes 1, 1, 2, 3, 5, 8, 13, 21, [MASK]",
        ("34", "22", "29", "42"),
    ),
)
"""The prompts of a lecture on pretraining (Stanford CS224N), with options of ours."""


@dataclass(frozen=True)
class Filled:
    """A prompt with −ln p of each option, the right one first, and the one that is chosen."""

    knowledge: str
    text: str
    options: tuple[str, ...]
    nats: tuple[float, ...]

    @property
    def choice(self) -> int:
        """The likeliest option, the first of equals."""
        return int(np.argmin(self.nats))

    @property
    def chance(self) -> float:
        """The probability of the right option among these."""
        odds = np.exp(np.min(self.nats) - np.array(self.nats))
        return float(odds[0] / odds.sum())


@dataclass(frozen=True, kw_only=True)
class Chosen(Metric):
    """How often the right option is chosen, and the mean probability of the right option among the options."""

    main = "accuracy"
    ratios: ClassVar = {"accuracy": (0, 2), "probability": (1, 2)}

    def row(self, prediction: Filled, reference: Filled) -> Sequence[float]:
        return prediction.choice == 0, prediction.chance, 1


def masked(scorer: MaskedScorer, codec: Codec, prompts: Sequence[Prompt]) -> list[Filled]:
    """The options by an encoder: −Σ ln p of an option's tokens, all of them masked together."""

    def nats(prompt: Prompt, option: str) -> float:
        before, after = prompt.halves()
        head, own, tail = codec.encode([before, f" {option}" if before else option, after])
        return scorer.gap(list(head), list(own), list(tail))

    return [_filled(prompt, [nats(prompt, option) for option in prompt.options]) for prompt in prompts]


def written(scorer: Scorer, codec: Codec, ids: Mapping[str, int], prompts: Sequence[Prompt]) -> list[Filled]:
    """The options by a model that writes."""
    sentinels = [ids[name] for name in ("sentinel_0", "sentinel_1") if name in ids]
    if scorer.model.family == "encoder_decoder" and len(sentinels) == 2:
        every = [_in_gap(codec, ids, sentinels, prompt, option) for prompt in prompts for option in prompt.options]
    else:
        joins = scorer.model.family == "decoder"
        frame = [ids[name] for name in (("start", "bos") if joins else ("eos",)) if name in ids][:1]
        pairs = [(before, f" {option}{after}") for prompt, option, before, after in _each(prompts)]
        every = requests(codec, frame, joins, pairs)
    losses = iter(scorer.nats(every))
    return [_filled(prompt, [float(next(losses).sum()) for _ in prompt.options]) for prompt in prompts]


def _in_gap(codec: Codec, ids: Mapping[str, int], sentinels: Sequence[int], prompt: Prompt, option: str) -> Request:
    """A source with a sentinel in the gap, and the option between it and the next one. (Raffel et al. 2019)"""
    before, after = prompt.halves()
    head, own, tail = codec.encode([before, f" {option}", after])
    end = [ids["eos"]] if "eos" in ids else []
    first, second = sentinels
    return Request((*head, first, *tail, *end), (first, *own, second))


def _each(prompts: Sequence[Prompt]) -> list[tuple[Prompt, str, str, str]]:
    return [(prompt, option, *prompt.halves()) for prompt in prompts for option in prompt.options]


def _filled(prompt: Prompt, nats: Sequence[float]) -> Filled:
    return Filled(prompt.knowledge, prompt.text, prompt.options, tuple(nats))
