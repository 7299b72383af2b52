"""Look: the maps of a text as a page."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Any

import numpy as np
import torch

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.base.printing import Html, join, tag
from scaling.data.codec import Codec
from scaling.evaluation.generate import prompt
from scaling.inside.heads import Map, maps, repetition, scores, towers
from scaling.model.family import Family
from scaling.reports.markup import shell


def spelled(codec: Codec | None, ids: Mapping[str, int], token: int) -> str:
    """The name of a special token, the text of another, or its number where there is none."""
    name = next((name for name, number in ids.items() if number == token), None)
    if name is not None:
        return f"[{name.upper()}]"
    return str(token) if codec is None or token >= codec.size else codec.decode([token])


KEYS = "← → another head, ↑ ↓ another layer"


def page(seen: Look, title: str) -> str:
    """One HTML file."""
    header = tag(
        "header",
        tag("h1", title),
        tag("p", f"What each head weighs. {KEYS}; point at a token to follow it.", class_="quiet"),
    )
    main = tag(
        "main",
        tag("section", tag("h2", "Heads by layer"), tag("div", id="overview"), aria_label="Heads by layer"),
        tag(
            "section",
            tag("h2", id="which"),
            tag("p", id="scores", class_="quiet"),
            tag("div", tag("canvas", id="map", tabindex=0), tag("div", id="lines"), class_="pair"),
            aria_live="polite",
        ),
    )
    text = json.dumps({"maps": _drawn(seen)}, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for mark in "<>&":  # so that no text can end the element
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    data = tag("script", Html(text), type="application/json", id="data")
    body = join(header, main, data, tag("div", id="tip", role="status"))
    css, script = ((files("scaling.inside") / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return shell(title, body, css, script)


def _drawn(seen: Look) -> list[dict[str, Any]]:
    """What the page draws: the weights of each map in 256 levels."""
    heads, maps = iter(seen.heads), []
    for name, each in zip(seen.names, seen.maps):
        levels = b64encode(np.round(255 * each.weights).astype(np.uint8).tobytes()).decode()
        own = [{key: score[key] for key in list(score)[4:]} for score in islice(heads, each.heads)]
        labels = {"rows": seen.rows(each), "columns": seen.columns(each)}
        maps.append({"name": name, "shape": list(each.weights.shape), **labels, "levels": levels, "scores": own})
    return maps


@dataclass(frozen=True)
class Look:
    """The maps of a pass, the names of their layers, the tokens of each tower, and the scores of each head."""

    tokens: Mapping[str, Sequence[str]]
    maps: Sequence[Map]
    heads: Sequence[Mapping[str, Any]]

    @property
    def names(self) -> list[str]:
        """A name for each map: `3`, where there are two towers `encoder.3`, `decoder.3` and `cross.3`; where a layer
        has several mixers, that of the branch too.
        """
        groups = ["cross." if each.slot == "cross" else f"{each.tower}." * (len(self.tokens) > 1) for each in self.maps]
        plain = [f"{group}{each.layer}" for group, each in zip(groups, self.maps)]
        branches = [
            (re.search(r"branches\.(\w+)", each.name) or ["", each.name.split(".")[-1]])[1] for each in self.maps
        ]
        return [name if plain.count(name) == 1 else f"{name}.{branch}" for name, branch in zip(plain, branches)]

    def rows(self, each: Map) -> list[str]:
        """What the queries of a map are called."""
        return _labels(self.tokens[each.tower], each.weights.shape[1])

    def columns(self, each: Map) -> list[str]:
        """What its keys are called: tokens, behind the learned ones."""
        of = self.tokens["encoder" if each.slot == "cross" else each.tower]
        return [f"learned {number}" for number in range(each.before)] + _labels(of, each.of_tokens.shape[2])


def look(model: Family, ids: Mapping[str, int], codec: Codec | None, tokens: Mapping[str, Sequence[int]]) -> Look:
    """The maps of the family's towers over these tokens."""
    seen = maps(model, batch_of(model, tokens))
    if not seen:
        raise ScalingError("no mixer of the run has weights of attention", key="RUN", fix="take a run with Attention")
    shape = list(towers(model))[-1][1].shape
    special = set(ids.values()) | set(() if codec is None else codec.specials.values())
    ordinary = [token for token in range(shape.vocabulary if codec is None else codec.size) if token not in special]
    shown = {name: [spelled(codec, ids, token) for token in row] for name, row in tokens.items()}
    return Look(shown, seen, scores(seen, repetition(model, ordinary, shape.length)))


def batch_of(model: Family, tokens: Mapping[str, Sequence[int]]) -> Batch:
    """One row without targets, of the tokens of each tower."""
    device, rows = next(model.parameters()).device, []
    for name, tower in towers(model):
        count = len(tokens[name])
        if count > tower.shape.length:
            what = f"{count:,} tokens are more than the {tower.shape.length:,} that its {name} reads"
            raise ScalingError(what, key="text", fix="shorten the text")
        if not count:
            raise ScalingError("there is nothing to look at", key="text", value="", fix="write some text")
        rows.append(torch.tensor([list(tokens[name])], device=device))
    *sources, written = rows
    return prompt(written, source=sources[0] if sources else None)


def framed(family: str, ids: Mapping[str, int], encode: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """The tokens of each tower as its training frames them: `encode` has the text's and, of a model that reads a
    source, the target's.
    """

    def token(*names: str) -> list[int]:
        return [ids[name] for name in names if name in ids][:1]

    text = list(encode["text"])
    if family == "encoder":
        return {"encoder": [*token("cls"), *text, *token("sep")]}
    if family == "decoder":
        return {"decoder": [*token("start", "bos"), *text]}
    start = token("start", "bos") or [0]
    return {"encoder": [*text, *token("eos")], "decoder": [*start, *encode["target"]]}


def _labels(tokens: Sequence[str], count: int) -> list[str]:
    """The tokens, or numbers where a stack has made another number of places of them."""
    return list(tokens) if len(tokens) == count else [str(number) for number in range(count)]
