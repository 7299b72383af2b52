"""Heads of attention: their maps, what each attends to, and their temperature."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import Batch
from scaling.evaluation.generate import prompt
from scaling.model.contract import Block, Mixer
from scaling.model.family import Family, Tower
from scaling.model.watch import INPUT


def stream(model: Family, batch: Batch, tower: TowerName | None = None) -> list[Tensor]:
    """[b t w] before the first block and after each, in the order in which they run; of the tower that is named, else
    of the one that the head reads.
    """
    every = dict(towers(model))
    tower = tower or list(every)[-1]
    kept: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        kept.append(x)
        return x

    blocks = [name for name, module in every[tower].named_modules() if isinstance(module, Block)]
    with model.watch(change={f"{tower}.{name}": keep for name in (f"stack{INPUT}", *blocks)}):
        model(batch)
    return kept


TowerName = Literal["encoder", "decoder"]


@dataclass(frozen=True)
class Map:
    """The weights [heads, queries, keys] of one mixer, each row summing to 1. `before` keys at the front are learned
    ones (a prefix, a prompt) and no tokens.
    """

    name: str  # of the mixer in the model
    tower: TowerName
    layer: int
    slot: str  # mixer or cross
    weights: np.ndarray
    before: int = 0

    @property
    def heads(self) -> int:
        return len(self.weights)

    @property
    def of_tokens(self) -> np.ndarray:
        """The weights of tokens alone."""
        return self.weights[:, :, self.before :]


def maps(model: Family, batch: Batch) -> list[Map]:
    """The maps of a pass over a batch of one row, in the order in which the mixers run; a mixer without a softmax, or
    with several, has none.
    """
    seen: list[Map] = []
    shown: list[Tensor] = []  # by the mixer that runs

    def leave(tower: TowerName, path: str, mixer: Any, inputs: Sequence[Any], _: Any) -> None:
        if len(shown) == 1:
            x, context = inputs[:2]
            tokens = context.memory.shape[1] if mixer.reads_memory else x.shape[1]
            weights = shown[0][0].float().cpu().numpy()
            before = max(0, weights.shape[-1] - tokens)
            seen.append(Map(f"{tower}.{path}", tower, context.execution, mixer.slot, weights, before))
        shown.clear()

    model.eval()
    with ExitStack() as hooks, torch.no_grad():
        for name, tower in towers(model):
            hooks.callback(setattr, tower, "weights", tower.weights)
            tower.weights = shown.append
            for path in [path for path, module in tower.named_modules() if isinstance(module, Mixer)]:
                hooks.callback(tower.get_submodule(path).register_forward_hook(partial(leave, name, path)).remove)
        model(batch)
    return seen


def towers(model: Family) -> Iterator[tuple[TowerName, Tower]]:
    for name in ("encoder", "decoder"):
        tower = getattr(model, name, None)
        if isinstance(tower, Tower):
            yield name, tower


REPEATED = 32  # the most tokens of the sequence whose repetition shows induction


def scores(seen: Sequence[Map], repeated: Sequence[Map] = ()) -> list[dict[str, Any]]:
    """The `tower`, `layer`, `slot` and number of every `head`, and the means over queries of its weights.

    `entropy` is in nats; `distance` is the mean distance in tokens from a query to what it weighs; `previous` the
    weight of the token before; `positional` the weight at the distance where it is highest on average, `offset` that
    distance (−1: the token before); `induction` the weight of the token that followed the last occurrence of the
    query's, over a random sequence that is given twice, `repeated` (Olsson et al. 2022). A cross-attention has no
    distances.
    """
    repetitions = {(each.name, each.layer): each.of_tokens for each in repeated if each.slot == "mixer"}
    rows = []
    for each in seen:
        again = repetitions.get((each.name, each.layer))
        for head in range(each.heads):
            place = {"tower": each.tower, "layer": each.layer, "slot": each.slot, "head": head}
            half = 0 if again is None else again.shape[1] // 2
            induction = None if again is None else float(np.diagonal(again[head, half:], 1).mean())
            rows.append({**place, **_scores(each, head), "induction": induction})
    return rows


def repetition(model: Family, vocabulary: Sequence[int], length: int, seed: int = 0) -> list[Map]:
    """The maps over a random sequence given twice; none of a model that reads a source."""
    count = min(REPEATED, length // 2, len(vocabulary))
    if model.family == "encoder_decoder" or count < 2:
        return []
    drawn = np.random.default_rng(seed).choice(np.asarray(vocabulary), count, replace=False)
    tokens = torch.from_numpy(np.tile(drawn, 2))[None].to(next(model.parameters()).device)
    return maps(model, prompt(tokens))


def _scores(each: Map, head: int) -> dict[str, Any]:
    every, weights = each.weights[head], each.of_tokens[head]
    entropy = float(-(every * np.log(np.maximum(every, np.finfo(every.dtype).tiny))).sum(-1).mean())
    t, s = weights.shape
    if t != s or each.slot == "cross":
        return {"entropy": entropy, **dict.fromkeys(("distance", "previous", "positional", "offset"))}
    far = np.abs(np.subtract.outer(np.arange(t), np.arange(t)))
    at = {offset: float(np.diagonal(weights, offset).mean()) for offset in range(1 - t, t) if t - abs(offset) >= t / 2}
    offset = max(at, key=lambda offset: at[offset])
    near = {"previous": at.get(-1, 0.0), "positional": at[offset], "offset": offset}
    return {"entropy": entropy, "distance": float((weights * far).sum(-1).mean()), **near}
