"""Decoding as its definition says it: one row at a time, no cache, no padding, the whole text read again each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from scaling.base.batch import Batch
from scaling.evaluation.generate import Written
from scaling.model.family import Family


@torch.no_grad()
def next_logits(model: Family, prompt: Batch, written: Sequence[int]) -> Tensor:
    """[v]: what may follow a row's prompt and what was written so far."""
    more = torch.tensor([list(written)], dtype=torch.long)
    tokens = torch.cat([prompt.tokens, more], 1)
    return model.logits(replace(prompt, tokens=tokens, targets=tokens))[0, -1].double()


def one_by_one(
    model: Family, prompt: Batch, choose: Callable[[Tensor, int], int], steps: int, stop: frozenset[int]
) -> Written:
    tokens: list[int] = []
    score = 0.0
    for step in range(steps):
        logits = next_logits(model, prompt, tokens)
        token = choose(logits, step)
        score += float(logits.log_softmax(-1)[token])
        if token in stop:
            return Written(tokens, score, True)
        tokens.append(token)
    return Written(tokens, score, False)


def beam(model: Family, prompt: Batch, beams: int, penalty: float, steps: int, stop: frozenset[int]) -> list[Written]:
    """Beam search that never stops early."""
    live: list[tuple[list[int], float]] = [([], 0.0)]
    ended: list[Written] = []
    for length in range(1, steps + 1):
        norm = ((5 + length) / 6) ** penalty
        continuations = []
        for tokens, score in live:
            likelihood = next_logits(model, prompt, tokens).log_softmax(-1).tolist()
            continuations += [(tokens, token, score + new) for token, new in enumerate(likelihood)]
        continuations.sort(key=lambda continuation: -continuation[2])
        live = []
        for tokens, token, score in continuations:
            if len(live) == beams:
                break
            if token in stop:
                ended.append(Written(tokens, score / norm, True))
            else:
                live.append(([*tokens, token], score))
    norm = ((5 + steps) / 6) ** penalty
    ended += [Written(tokens, score / norm, False) for tokens, score in live]
    return sorted(ended, key=lambda written: -written.score)[:beams]
