"""Strategies: which of the tokens that may come is written. Each has `write(reader, steps, stop)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.config.schema import NonNegativeFloat, PositiveFloat, PositiveFraction, PositiveInt, Seed, SmallInt
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
    stops = torch.tensor(sorted(stop), device=reader.next.device, dtype=torch.long)
    going = torch.ones(len(reader.next), dtype=torch.bool, device=reader.next.device)
    score = torch.zeros(len(reader.next), dtype=torch.float64, device=reader.next.device)
    chosen = []
    for step in range(steps):
        token = choose(reader.next, step)
        score += reader.next.double().log_softmax(-1).gather(-1, token[:, None])[:, 0].where(going, 0.0)
        chosen.append(token.where(going, -1))
        going &= ~torch.isin(token, stops)
        if step + 1 == steps or not going.any():
            break
        reader.read(token)
    rows = zip(torch.stack(chosen, 1).tolist(), score.tolist(), strict=True)
    return [[_cut([token for token in row if token >= 0], likelihood, stop)] for row, likelihood in rows]


def _cut(tokens: list[int], score: float, stop: frozenset[int]) -> Written:
    stopped = tokens[-1] in stop
    return Written(tokens[:-1] if stopped else tokens, score, stopped)


BLOCK = 64  # tokens of a vocabulary whose likeliest is looked up first


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
        rows = len(reader.next)
        device = reader.next.device
        ended: list[list[Written]] = [[] for _ in range(rows)]
        here = torch.arange(rows, device=device)  # the rows that are not done
        texts = torch.empty(rows, 1, 0, dtype=torch.long, device=device)
        scores = torch.zeros(rows, 1, dtype=torch.float64, device=device)
        for length in range(1, steps + 1):
            token, likelihood = _likeliest(reader.next, self.beams * (1 + len(stop)))
            width, count = scores.shape[1], token.shape[1]
            total = (scores[..., None] + likelihood.view(len(here), width, count)).flatten(1)
            # Of that many continuations at least `beams` go on, if any more do.
            ranked, place = total.topk(min(self.beams * (1 + len(stop)), total.shape[1]))
            beam, token = place // count, token.view(len(here), -1).gather(1, place)
            lists = [ended[row] for row in here.tolist()]
            going = self._settle(lists, texts, ranked, beam, token, stop, length)
            texts = torch.cat([_pick(texts, beam.gather(1, going)), token.gather(1, going)[..., None]], -1)
            scores = ranked.gather(1, going)
            if length == steps or not scores.numel():
                break
            open_rows = [place for place, one in enumerate(self._done(lists, scores, steps)) if not one]
            if not open_rows:
                texts, scores, here = texts[:0], scores[:0], here[:0]
                break
            parent = beam.gather(1, going) + torch.arange(len(here), device=device)[:, None] * width
            within = width > 1 and len(open_rows) == len(here)
            if len(open_rows) < len(here):  # what is done is not read any further
                kept = torch.tensor(open_rows, device=device)
                parent, texts, scores, here = parent[kept], texts[kept], scores[kept], here[kept]
            reader.select(parent.flatten(), within=within and parent.shape[1] == width)
            reader.read(texts[..., -1].flatten())
        for row, kept_texts, values in zip(here.tolist(), texts.tolist(), scores.tolist(), strict=True):
            pairs = zip(kept_texts, values, strict=True)
            ended[row] += [Written(x, s / self._length(len(x)), False) for x, s in pairs]
        return [self._best(row) for row in ended]

    def _settle(
        self,
        ended: list[list[Written]],
        texts: Tensor,
        ranked: Tensor,
        beam: Tensor,
        token: Tensor,
        stop: frozenset[int],
        length: int,
    ) -> Tensor:
        """Put the continuations that end with `ended`, and return the places [rows beams] of those that go on."""
        going = []
        candidates = zip(ranked.tolist(), beam.tolist(), token.tolist(), strict=True)
        for row, (scores, beams, tokens) in enumerate(candidates):
            on: list[int] = []
            for place, (score, origin, new) in enumerate(zip(scores, beams, tokens, strict=True)):
                if len(on) == self.beams:
                    break
                if new in stop:
                    ended[row].append(Written(texts[row, origin].tolist(), score / self._length(length), True))
                else:
                    on.append(place)
            going.append(on)
        return torch.tensor(going, device=token.device, dtype=torch.long)

    def _done(self, ended: list[list[Written]], scores: Tensor, steps: int) -> list[bool]:
        """Whether each row can improve no more: log p only falls, and a penalty forgives most at the full length."""
        hopes = (scores[:, 0] / self._length(steps)).tolist()
        return [
            len(row) >= self.beams and self._best(row)[-1].score >= hope for row, hope in zip(ended, hopes, strict=True)
        ]

    def _best(self, row: list[Written]) -> list[Written]:
        return sorted(row, key=lambda written: -written.score)[: self.beams]

    def _length(self, tokens: int) -> float:
        return ((5 + tokens) / 6) ** self.penalty


def _pick(texts: Tensor, beam: Tensor) -> Tensor:
    return texts.gather(1, beam[..., None].expand(-1, -1, texts.shape[-1]))


def _likeliest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest tokens of each row and their log p in float64."""
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
