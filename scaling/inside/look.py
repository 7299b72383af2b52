"""Heads of attention: their maps, what each attends to, and a page that shows them over a text."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from scaling.base.batch import Batch
from scaling.base.errors import refuse
from scaling.base.markup import shell
from scaling.base.printing import Html, join, tag
from scaling.data.codec import Codec
from scaling.evaluation.generate import prompt
from scaling.model.contract import Block, Mixer
from scaling.model.family import Family, Tower
from scaling.model.watch import INPUT

TowerName = Literal["encoder", "decoder"]


def towers(model: Family) -> dict[TowerName, Tower]:
    """The towers whose maps are shown, the one that predicts last: of a BiLM the one that looks back."""
    return {name: model.towers[name] for name in get_args(TowerName) if name in model.towers}


def stream(model: Family, batch: Batch, tower: TowerName | None = None) -> list[Tensor]:
    """[b t w] before the first block and after each as they run, of a tower, by default the one that the head reads."""
    stacks = towers(model)
    tower = tower or list(stacks)[-1]
    states: list[Tensor] = []

    def keep(x: Tensor) -> Tensor:
        states.append(x)
        return x

    blocks = [name for name, module in stacks[tower].named_modules() if isinstance(module, Block)]
    with model.watch(change={f"{tower}.{name}": keep for name in (f"stack{INPUT}", *blocks)}):
        model(batch)
    return states


# Maps and their scores


@dataclass(frozen=True)
class Map:
    """The weights [heads, queries, keys] of one mixer, each row summing to 1; its first `before` keys are learned."""

    name: str  # of the mixer in the model
    tower: TowerName
    layer: int
    slot: str  # mixer or cross
    weights: np.ndarray
    before: int = 0

    @property
    def of_tokens(self) -> np.ndarray:
        """The weights of tokens alone."""
        return self.weights[:, :, self.before :]


def maps(model: Family, batch: Batch) -> list[Map]:
    """The maps of a pass over a batch of one row, as the mixers run; one without a single softmax has none."""
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
        for name, tower in towers(model).items():
            hooks.callback(setattr, tower, "weights", tower.weights)
            tower.weights = shown.append
            for path in [path for path, module in tower.named_modules() if isinstance(module, Mixer)]:
                hooks.callback(tower.get_submodule(path).register_forward_hook(partial(leave, name, path)).remove)
        model(batch)
    return seen


REPEATED = 32  # the most tokens of the sequence whose repetition shows induction


def repetition(model: Family, vocabulary: Sequence[int], length: int, seed: int = 0) -> list[Map]:
    """The maps over a random sequence given twice; none of a model that reads a source."""
    count = min(REPEATED, length // 2, len(vocabulary))
    if model.family == "encoder_decoder" or count < 2:
        return []
    first = np.random.default_rng(seed).choice(np.asarray(vocabulary), count, replace=False)
    tokens = torch.from_numpy(np.tile(first, 2))[None].to(next(model.parameters()).device)
    return maps(model, prompt(tokens))


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
        twice = repetitions.get((each.name, each.layer))
        for head, weights in enumerate(each.weights):
            logs = np.log(np.maximum(weights, np.finfo(weights.dtype).tiny))
            row = {"tower": each.tower, "layer": each.layer, "slot": each.slot, "head": head}
            row |= {"entropy": float(-(weights * logs).sum(-1).mean()), **_distances(each, head)}
            second = None if twice is None else twice[head, twice.shape[1] // 2 :]
            rows.append({**row, "induction": None if second is None else float(np.diagonal(second, 1).mean())})
    return rows


def _distances(each: Map, head: int) -> dict[str, Any]:
    """The scores of a head that depend on how far its keys are; None where they are not the queries' tokens."""
    weights = each.of_tokens[head]
    t, s = weights.shape
    if t != s or each.slot == "cross":
        return dict.fromkeys(("distance", "previous", "positional", "offset"))
    far = np.abs(np.subtract.outer(np.arange(t), np.arange(t)))
    at = {offset: float(np.diagonal(weights, offset).mean()) for offset in range(1 - t, t) if t - abs(offset) >= t / 2}
    offset = max(at, key=lambda offset: at[offset])
    near = {"previous": at.get(-1, 0.0), "positional": at[offset], "offset": offset}
    return {"distance": float((weights * far).sum(-1).mean()), **near}


# A text


def look(
    model: Family, ids: Mapping[str, int], codec: Codec | None, tokens: Mapping[str, Sequence[int]]
) -> tuple[dict[str, Any], list[Map]]:
    """The maps of the family's towers over these tokens, after their document: the `tokens` of each tower as texts, the
    `layers` of the maps, and the scores of each of their `heads`.
    """
    seen = maps(model, batch_of(model, tokens))
    refuse(not seen, "no mixer of the run has weights of attention", "take a run with Attention", key="RUN")
    shape = list(towers(model).values())[-1].shape
    special = set(ids.values()) | set(() if codec is None else codec.specials.values())
    ordinary = [token for token in range(shape.vocabulary if codec is None else codec.size) if token not in special]
    shown = {name: [spelled(codec, ids, token) for token in row] for name, row in tokens.items()}
    heads = scores(seen, repetition(model, ordinary, shape.length))
    return {"tokens": shown, "layers": _layers(seen, len(tokens)), "heads": heads}, seen


def _layers(seen: Sequence[Map], towers: int) -> list[dict[str, Any]]:
    """The `name`, `tower`, `layer` and `slot` of each map. The name is `3`, where there are two towers `encoder.3`,
    `decoder.3` and `cross.3`; where a layer has several mixers, it has that of the branch too.
    """
    groups = ["cross." if each.slot == "cross" else f"{each.tower}." * (towers > 1) for each in seen]
    plain = [f"{group}{each.layer}" for group, each in zip(groups, seen)]
    branches = [each.name.partition("branches.")[2].partition(".")[0] or each.name for each in seen]
    names = [name if plain.count(name) == 1 else f"{name}.{branch}" for name, branch in zip(plain, branches)]
    of = ({"tower": each.tower, "layer": each.layer, "slot": each.slot} for each in seen)
    return [{"name": name, **place} for name, place in zip(names, of)]


def batch_of(model: Family, tokens: Mapping[str, Sequence[int]]) -> Batch:
    """One row without targets, of the tokens of each tower."""
    device, rows = next(model.parameters()).device, []
    for name, tower in towers(model).items():
        count = len(tokens[name])
        what = f"{count:,} tokens are more than the {tower.shape.length:,} that its {name} reads"
        refuse(count > tower.shape.length, what, "shorten the text", key="text")
        refuse(not count, "there is nothing to look at", "write some text", key="text", value="")
        rows.append(torch.tensor([list(tokens[name])], device=device))
    *sources, written = rows
    return prompt(written, source=sources[0] if sources else None)


def spelled(codec: Codec | None, ids: Mapping[str, int], token: int) -> str:
    """The name of a special token, the text of another, or its number where there is none."""
    names = [f"[{name.upper()}]" for name, number in ids.items() if number == token]
    return names[0] if names else str(token) if codec is None or token >= codec.size else codec.decode([token])


# The page


def page(document: Mapping[str, Any], seen: Sequence[Map], title: str) -> str:
    """One HTML file."""
    parts = (files("scaling.inside") / name for name in ("page.html", "page.css", "page.js"))
    body, css, script = (part.read_text(encoding="utf-8") for part in parts)
    text = json.dumps({"maps": _drawn(document, seen)}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":  # so that no text can end the element
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    data = tag("script", Html(text), type="application/json", id="data")
    return shell(title, join(tag("header", tag("h1", title)), Html(body), data), css, script)


def _drawn(document: Mapping[str, Any], seen: Sequence[Map]) -> list[dict[str, Any]]:
    """The data of the page: the weights of each map in 256 levels, with labels of its queries and keys: tokens, behind
    learned keys.
    """
    heads, tokens, maps = iter(document["heads"]), document["tokens"], []
    for layer, each in zip(document["layers"], seen):
        _, queries, keys = each.of_tokens.shape
        read = tokens["encoder" if each.slot == "cross" else each.tower]
        columns = [*(f"learned {number}" for number in range(each.before)), *_labels(read, keys)]
        labels = {"rows": _labels(tokens[each.tower], queries), "columns": columns}
        levels = b64encode(np.round(255 * each.weights).astype(np.uint8).tobytes()).decode()
        scores = [dict(list(next(heads).items())[4:]) for _ in each.weights]
        maps.append(
            {"name": layer["name"], "shape": list(each.weights.shape), **labels, "levels": levels, "scores": scores}
        )
    return maps


def _labels(tokens: Sequence[str], count: int) -> Sequence[str]:
    """The tokens, or numbers where a stack has made another number of places of them."""
    return tokens if len(tokens) == count else [str(number) for number in range(count)]
