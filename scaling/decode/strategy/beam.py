"""Beam search."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scaling.decode.reader import Reader
from scaling.decode.written import Written
from scaling.number import NonNegativeFloat, SmallInt


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
        rows, vocabulary = reader.next.shape
        device = reader.next.device
        ended: list[list[Written]] = [[] for _ in range(rows)]
        texts = torch.empty(rows, 1, 0, dtype=torch.long, device=device)
        scores = torch.zeros(rows, 1, dtype=torch.float64, device=device)
        for length in range(1, steps + 1):
            likelihood = reader.next.double().log_softmax(-1).view(rows, -1, vocabulary)
            total = (scores[..., None] + likelihood).flatten(1)
            # Of that many continuations at least `beams` go on, if any more do.
            ranked, place = total.topk(min(self.beams * (1 + len(stop)), total.shape[1]))
            beam, token = place // vocabulary, place % vocabulary
            going = self._settle(ended, texts, ranked, beam, token, stop, length)
            texts = torch.cat([_pick(texts, beam.gather(1, going)), token.gather(1, going)[..., None]], -1)
            scores = ranked.gather(1, going)
            if length == steps or not scores.numel() or self._done(ended, scores, steps):
                break
            parent = beam.gather(1, going) + torch.arange(rows, device=device)[:, None] * likelihood.shape[1]
            reader.select(parent.flatten())
            reader.read(texts[..., -1].flatten())
        for row, (kept, values) in enumerate(zip(texts.tolist(), scores.tolist(), strict=True)):
            ended[row] += [Written(x, s / self._length(len(x)), False) for x, s in zip(kept, values, strict=True)]
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

    def _done(self, ended: list[list[Written]], scores: Tensor, steps: int) -> bool:
        """Whether no row can still improve: log p only falls, and a penalty forgives most at the full length."""
        hopes = (scores[:, 0] / self._length(steps)).tolist()
        return all(
            len(row) >= self.beams and self._best(row)[-1].score >= hope for row, hope in zip(ended, hopes, strict=True)
        )

    def _best(self, row: list[Written]) -> list[Written]:
        return sorted(row, key=lambda written: -written.score)[: self.beams]

    def _length(self, tokens: int) -> float:
        return ((5 + tokens) / 6) ** self.penalty


def _pick(texts: Tensor, beam: Tensor) -> Tensor:
    return texts.gather(1, beam[..., None].expand(-1, -1, texts.shape[-1]))
