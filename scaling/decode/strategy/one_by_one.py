"""Strategies that settle on one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from scaling.data import hashing
from scaling.decode.generate import Reader, Written
from scaling.schema import PositiveFloat, PositiveFraction, PositiveInt, Seed


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
