"""Strategies: which of the tokens that may come is written. Each has `write(reader, steps, stop)`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.base.numbers import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt, Seed, SmallInt
from scaling.data import hashing
from scaling.evaluation.generate import Reader, Written


@dataclass(frozen=True, kw_only=True)
class Greedy:
    """x_t = argmax p(x | x_<t), the first of equals. Its score is log p of what it wrote."""

    def write(self, reader: Reader, steps: int, stop: frozenset[int]) -> list[list[Written]]:
        return _write(reader, lambda logits, step: logits.argmax(-1), steps, stop)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """x_t ∼ p(x | x_<t)^(1/temperature) within the `top_k` likeliest tokens (Fan et al. 2018) and the fewest of those
    that hold `top_p` of their probability (Holtzman et al. 2019).

    Row r's draw at step t is a function of (seed, r, t) alone. Its score is log p of what it wrote, under p itself.
    """

    temperature: PositiveFloat = 1.0
    top_k: PositiveInt | None = None
    top_p: PositiveFraction | None = None
    seed: Seed = 0

    def write(self, reader: Reader, steps: int, stop: frozenset[int]) -> list[list[Written]]:
        return _write(reader, self.draw, steps, stop)

    def draw(self, logits: Float[Tensor, "b v"], step: int) -> Int[Tensor, " b"]:
        """One token a row."""
        probability, token = self.kept(logits)
        cumulated = probability.cumsum(-1)
        keys = hashing.keys(self.seed, "decode", np.arange(len(logits)))
        uniform = (hashing.bits_at(keys, np.full(len(logits), step)) >> np.uint64(11)) * 2.0**-53
        level = torch.from_numpy(uniform).to(logits.device)[:, None] * cumulated[:, -1:]
        rank = torch.searchsorted(cumulated, level, right=True).clamp(max=logits.shape[-1] - 1)
        return token.gather(-1, rank)[:, 0]

    def kept(self, logits: Float[Tensor, "b v"]) -> tuple[Float[Tensor, "b v"], Int[Tensor, "b v"]]:
        """The probabilities to draw from, falling, 0 for what was cut off; and whose they are."""
        ranked, token = (logits.double() / self.temperature).sort(dim=-1, descending=True, stable=True)
        if self.top_k is not None:
            ranked[:, self.top_k :] = -torch.inf
        probability = ranked.softmax(-1)
        if self.top_p is not None:
            before = probability.cumsum(-1) - probability
            probability = probability.where(before < self.top_p, 0.0)
        return probability, token


def _write(
    reader: Reader, choose: Callable[[Tensor, int], Tensor], steps: int, stop: frozenset[int]
) -> list[list[Written]]:
    device = reader.next.device
    texts: list[list[int]] = [[] for _ in reader.next]
    going, score = [True] * len(texts), torch.zeros(len(texts), dtype=torch.float64, device=device)
    for step in range(steps):
        token = choose(reader.next, step)
        likelihood = reader.next.double().log_softmax(-1).gather(-1, token[:, None])[:, 0]
        score += likelihood.where(torch.tensor(going, device=device), 0.0)
        for row, new in enumerate(token.tolist()):
            if going[row]:
                texts[row].append(new)
                going[row] = new not in stop and not reader.ended(texts[row])
        if step + 1 == steps or not any(going):
            break
        reader.read(token)
    return [
        [Written(text[:-1] if text[-1] in stop else text, likelihood, not goes_on)]
        for text, likelihood, goes_on in zip(texts, score.tolist(), going, strict=True)
    ]


# A text of a beam, its log p, and the number of the text that it continues among those of the last step.
_Text = tuple[list[int], float, int]


@dataclass(frozen=True, kw_only=True)
class Beam:
    """The likeliest of what `beams` parallel texts lead to, by log p(x) / ((5 + |x|) / 6)^penalty. (Wu et al. 2016,
    formula 14; Vaswani et al. 2017: 4 beams, penalty 0.6)

    At each step the continuations of all beams are ranked by log p; those that end and rank before the `beams`-th that
    goes on are kept as ended. A row is done once none that goes on can overtake its `beams` best. |x| counts the token
    that ends x.
    """

    beams: SmallInt = 4
    penalty: NonNegativeFloat = 0.6

    def write(self, reader: Reader, steps: int, stop: frozenset[int]) -> list[list[Written]]:
        ended: list[list[Written]] = [[] for _ in reader.next]
        live: dict[int, list[_Text]] = {row: [([], 0.0, row)] for row in range(len(ended))}
        for length in range(1, steps + 1):
            # Of that many continuations at least `beams` go on, if any more do.
            tokens, likelihoods = map(Tensor.tolist, _likeliest(reader.next, self.beams * (1 + len(stop))))
            numbers, going = itertools.count(), dict[int, list[_Text]]()
            for row, texts in live.items():
                places = {next(numbers): text for text in texts}
                ranked = [
                    (score + likelihood, place, token)
                    for place, (_, score, _) in places.items()
                    for token, likelihood in zip(tokens[place], likelihoods[place])
                ]
                on: list[_Text] = []
                for score, place, token in sorted(ranked, key=itemgetter(0), reverse=True):
                    if len(on) == self.beams:
                        break
                    text = places[place][0]
                    if token in stop:
                        ended[row].append(Written(text, self._normed(score, length), True))
                    else:
                        on.append(([*text, token], score, place))
                best = self._best(ended[row])
                # log p only falls, and a penalty forgives most at the full length
                if on and not (len(best) == self.beams and best[-1].score >= self._normed(on[0][1], steps)):
                    going[row] = on
            within = length > 1 and [*map(len, going.values())] == [*map(len, live.values())]
            live = going
            if length == steps or not live:
                break
            device, all_texts = reader.next.device, [text for texts in live.values() for text in texts]
            reader.select(torch.tensor([parent for *_, parent in all_texts], device=device), within=within)
            reader.read(torch.tensor([text[-1] for text, *_ in all_texts], device=device))
        for row, texts in live.items():
            ended[row] += [Written(text, self._normed(score, len(text)), False) for text, score, _ in texts]
        return [self._best(row) for row in ended]

    def _best(self, row: list[Written]) -> list[Written]:
        return sorted(row, key=lambda written: -written.score)[: self.beams]

    def _normed(self, score: float, tokens: int) -> float:
        return score / ((5 + tokens) / 6) ** self.penalty


BLOCK = 64  # tokens of a vocabulary whose likeliest is looked up first


def _likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest tokens of each row and their log p in float64, the likeliest first."""
    logits = logits if logits.dtype == torch.float64 else logits.float()
    likelihood = logits.log_softmax(-1)
    vocabulary = logits.shape[-1]
    blocks = vocabulary // BLOCK
    if blocks <= 2 * count:
        top, token = likelihood.topk(min(count, vocabulary))
        return token, top.double()
    # The likeliest tokens are in the blocks that have the likeliest ones: a pass over all of them finds the blocks.
    even = blocks * BLOCK
    block = likelihood[:, :even].unflatten(-1, (blocks, BLOCK)).amax(-1).topk(count).indices
    token = (block[..., None] * BLOCK + torch.arange(BLOCK, device=block.device)).flatten(1)
    rest = torch.arange(even, vocabulary, device=block.device).expand(len(token), -1)
    token = torch.cat([token, rest], -1)
    top, place = likelihood.gather(-1, token).topk(count)
    return token.gather(-1, place), top.double()
