"""Heads: what each of them does, in a few numbers of its map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from scaling.batch import IGNORE, Batch
from scaling.errors import ScalingError
from scaling.inside.maps import Map, maps
from scaling.model.family import Family

REPEATED = 32  # the most tokens of the sequence whose repetition shows induction


@dataclass(frozen=True)
class HeadScores:
    """The means over queries of one head's weights.

    `entropy` is in nats; `distance` is the mean distance in tokens from a query to what it weighs; `previous` the
    weight of the token before; `positional` the weight at the distance where it is highest on average, `offset` that
    distance (−1: the token before); `induction` the weight of the token that followed the last occurrence of the
    query's, over a random sequence that is given twice (Olsson et al. 2022). Distances mean nothing across towers. Of
    a cross-attention, `coverage` is how much of the source is read, the mean over its tokens of the weight that all
    queries give it, at most 1 (1: each is read once; after Tu et al. 2016), and `copied` the weight of the source
    tokens that equal the one that the query writes, over the queries that write a token of the source.
    """

    tower: str
    layer: int
    slot: str
    head: int
    entropy: float
    distance: float | None = None
    previous: float | None = None
    positional: float | None = None
    offset: int | None = None
    induction: float | None = None
    coverage: float | None = None
    copied: float | None = None


def scores(
    seen: Sequence[Map], repeated: Sequence[Map] = (), tokens: Mapping[str, Sequence[int]] | None = None
) -> list[HeadScores]:
    """The scores of every head; `repeated` are the maps of `repetition`, `tokens` those that each tower reads."""
    induction = {
        (each.name, each.layer, head): value
        for each in repeated
        if each.slot == "mixer"
        for head, value in enumerate(_induction(each))
    }
    return [
        _crossing(each, head, tokens or {})
        if each.slot == "cross"
        else replace(_scores(each, head), induction=induction.get((each.name, each.layer, head)))
        for each in seen
        for head in range(each.heads)
    ]


def repetition(model: Family, vocabulary: Sequence[int], length: int, seed: int = 0) -> list[Map]:
    """The maps over a random sequence given twice; none of a model that reads a source."""
    count = min(REPEATED, length // 2, len(vocabulary))
    if model.family == "encoder_decoder" or count < 2:
        return []
    drawn = np.random.default_rng(seed).choice(np.asarray(vocabulary), count, replace=False)
    tokens = torch.from_numpy(np.tile(drawn, 2))[None].to(next(model.parameters()).device)
    return maps(model, Batch(tokens, torch.full_like(tokens, IGNORE)))


def alignment(seen: Sequence[Map], read: int, source: int) -> np.ndarray:
    """[written, source], what each token was written by: the mean weights of the cross-attentions' heads.

    A row is of the token that is written, the one behind the query's; nothing is known of what the last query writes.
    Maps of other numbers of places, which a stack has made, are left out.
    """
    crossing = [each.of_tokens.mean(0) for each in seen if each.slot == "cross"]
    crossing = [weights for weights in crossing if weights.shape == (read, source)]
    if not crossing:
        raise ScalingError("the run has no cross-attention of tokens", key="RUN", fix="take an encoder-decoder")
    return np.mean(crossing, axis=0)[:-1]


def _crossing(each: Map, head: int, tokens: Mapping[str, Sequence[int]]) -> HeadScores:
    plain, weights = _plain(each, head), each.of_tokens[head]
    source, read = (np.array(tokens.get(tower, ())) for tower in ("encoder", each.tower))
    covered = replace(plain, coverage=float(np.minimum(weights.sum(0), 1.0).mean()))
    if weights.shape != (len(read), len(source)):
        return covered  # a stack has made another number of places of them
    equal = read[1:, None] == source
    copying = equal.any(1)
    if not copying.any():
        return covered
    return replace(covered, copied=float((weights[:-1] * equal).sum(1)[copying].mean()))


def _plain(each: Map, head: int) -> HeadScores:
    whole = each.weights[head]
    entropy = float(-(whole * np.log(np.maximum(whole, np.finfo(whole.dtype).tiny))).sum(-1).mean())
    return HeadScores(each.tower, each.layer, each.slot, head, entropy)


def _scores(each: Map, head: int) -> HeadScores:
    plain, weights = _plain(each, head), each.of_tokens[head]
    t, s = weights.shape
    if t != s:
        return plain
    far = np.abs(np.subtract.outer(np.arange(t), np.arange(t)))
    at = {offset: float(np.diagonal(weights, offset).mean()) for offset in range(1 - t, t) if t - abs(offset) >= t / 2}
    offset = max(at, key=lambda offset: at[offset])
    return replace(
        plain,
        distance=float((weights * far).sum(-1).mean()),
        previous=at.get(-1, 0.0),
        positional=at[offset],
        offset=offset,
    )


def _induction(each: Map) -> list[float]:
    half = each.of_tokens.shape[1] // 2
    return [float(np.diagonal(weights[half:], 1).mean()) for weights in each.of_tokens]
