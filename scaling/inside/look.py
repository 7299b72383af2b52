"""Look: the maps of a text as a page and as a figure."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scaling.batch import IGNORE, Batch
from scaling.data.codec import Codec
from scaling.errors import ScalingError, nearest
from scaling.figures import FORMATS
from scaling.inside.heads import HeadScores, Map, TowerName, maps, repetition, scores, stream, towers
from scaling.model.family import Family, Tower
from scaling.printing import Html, join, tag
from scaling.reports.markup import shell


def table(model: Family) -> np.ndarray:
    """[v w] the vectors of all tokens, of the tower that reads the text."""
    tower = model.get_submodule("decoder" if model.family == "decoder" else "encoder")
    every = torch.arange(tower.shape.vocabulary, device=next(model.parameters()).device)  # type: ignore[union-attr, arg-type]
    embedding = tower.embedding
    rows = getattr(embedding, "table", None)
    if rows is None:
        rows = embedding.rows(every)  # type: ignore[union-attr, operator]
    return rows.detach().float().cpu().numpy()  # type: ignore[union-attr, operator]


def token_of(codec: Codec, word: str) -> int:
    """The token of a word as it is within a text, or at its beginning."""
    for text in (f" {word}", word):
        ids = [token for token in codec.encode([text])[0] if codec.decode([token]).strip()]
        if len(ids) == 1 and codec.decode(ids).strip() == word:
            return int(ids[0])
    near = nearest(word, [spelling for spelling in codec.spellings(codec.size) if spelling])
    raise ScalingError("it is not one token of the run", key="word", value=word, fix=near)


def neighbours(vectors: np.ndarray, at: int, best: int) -> list[tuple[int, float]]:
    """The rows whose angle to a row is smallest, with its cosine, the nearest first and without the row itself."""
    sizes = np.linalg.norm(vectors, axis=1).clip(min=1e-12)
    cosines = vectors @ vectors[at] / sizes / sizes[at]
    cosines[at] = -np.inf
    order = np.argsort(-cosines, kind="stable")[:best]
    return [(int(row), float(cosines[row])) for row in order]


def plane(vectors: np.ndarray) -> np.ndarray:
    """[n 2] the first two principal components; each points to where the entry of the largest size is positive."""
    centred = vectors - vectors.mean(0)
    u, sizes, axes = np.linalg.svd(centred, full_matrices=False)
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    places = u * sizes * signs
    return np.pad(places, ((0, 0), (0, max(0, 2 - places.shape[1]))))[:, :2]


@torch.no_grad()
def in_context(model: Family, batch: Batch, tokens: Sequence[int], word: Sequence[int]) -> list[Tensor]:
    """The stream [w] of each layer at the first place of a word's tokens in a text: the mean over these tokens."""
    count = len(word)
    starts = [at for at in range(len(tokens) - count + 1) if list(tokens[at : at + count]) == list(word)]
    if not starts:
        raise ScalingError(
            "a text does not have the word as a word of its own", key="text", fix="write it in lower case"
        )
    tower: TowerName = "decoder" if model.family == "decoder" else "encoder"
    return [x[0, starts[0] : starts[0] + count].float().mean(0).cpu() for x in stream(model, batch, tower)]


def cosines(vectors: Sequence[Tensor]) -> np.ndarray:
    """[n n] of vectors with one another."""
    rows = torch.stack(list(vectors)).double()
    rows = rows / rows.norm(dim=1, keepdim=True).clamp(min=1e-12)
    return (rows @ rows.T).numpy()


def spelled(codec: Codec | None, ids: Mapping[str, int], token: int) -> str:
    """The name of a special token, the text of another, or its number where there is none."""
    name = next((name for name, number in ids.items() if number == token), None)
    if name is not None:
        return f"[{name.upper()}]"
    return str(token) if codec is None or token >= codec.size else codec.decode([token])


SIDE = 0.62
"""Inches of a small map."""


def save(seen: Look, path: Path, head: str | None = None) -> None:
    """Write a PNG, PDF or SVG, by the ending of the path."""
    from matplotlib import rc_context

    with rc_context({"font.size": 7, "pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        figure = one(seen, head) if head else every(seen)
        figure.savefig(path, dpi=160, metadata=FORMATS[path.suffix])


def every(seen: Look) -> Any:
    from matplotlib.figure import Figure

    across = max(each.heads for each in seen.maps)
    chart = Figure(figsize=(SIDE * across + 0.9, SIDE * len(seen.maps) + 0.3), layout="constrained")
    for row, (axes, name, each) in enumerate(
        zip(chart.subplots(len(seen.maps), across, squeeze=False), seen.names, seen.maps, strict=True)
    ):
        for number, ax in enumerate(axes):
            if number >= each.heads:
                ax.axis("off")
                continue
            ax.imshow(each.weights[number], cmap="Blues", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
            ax.set_xticks([])
            ax.set_yticks([])
            if row == 0:
                ax.set_title(str(number), fontsize=7)
        axes[0].set_ylabel(name, rotation=0, ha="right", va="center")
    return chart


def one(seen: Look, head: str) -> Any:
    from matplotlib.figure import Figure

    at, number = seen.at(head)
    each = seen.maps[at]
    rows, columns = (["".join(_plain(token)) for token in tokens] for tokens in (seen.rows(each), seen.columns(each)))
    chart = Figure(figsize=(1.6 + 0.16 * len(columns), 1.4 + 0.16 * len(rows)), layout="constrained")
    ax = chart.subplots()
    image = ax.imshow(each.weights[number], cmap="Blues", vmin=0, vmax=1, interpolation="nearest")
    ax.set_xticks(range(len(columns)), columns, rotation=90, parse_math=False)
    ax.set_yticks(range(len(rows)), rows, parse_math=False)
    ax.set_title(f"layer {seen.names[at]}, head {number}")
    chart.colorbar(image, ax=ax, shrink=0.6)
    return chart


def _plain(token: str) -> str:
    """A token on one line."""
    return token.replace("\n", "⏎").replace("\t", "⇥")


KEYS = "← → another head, ↑ ↓ another layer"


def page(seen: Look, title: str, head: str | None = None) -> str:
    """One HTML file; `head` is the one that is large when it opens."""
    layer, number = seen.at(head) if head else (0, 0)
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
    data = tag("script", Html(_safe(document(seen, layer, number))), type="application/json", id="data")
    body = join(header, main, data, tag("div", id="tip", role="status"))
    return shell(title, body, _resource("page.css"), _resource("page.js"))


def document(seen: Look, layer: int, head: int) -> dict[str, Any]:
    scores = iter(seen.heads)
    return {
        "at": [layer, head],
        "maps": [
            {
                "name": name,
                "kind": each.kind,
                "shape": list(each.weights.shape),
                "rows": seen.rows(each),
                "columns": seen.columns(each),
                "levels": b64encode(np.round(255 * each.weights).astype(np.uint8).tobytes()).decode(),
                "scores": [
                    {
                        key: value
                        for key, value in asdict(next(scores)).items()
                        if key not in ("tower", "layer", "slot", "head")
                    }
                    for _ in range(each.heads)
                ],
            }
            for name, each in zip(seen.names, seen.maps)
        ],
    }


def _safe(value: Any) -> str:
    """JSON that cannot end the element that it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _resource(name: str) -> str:
    return (files("scaling.inside") / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Look:
    """The maps of a pass, the names of their layers, the tokens of each tower, and the scores of each head."""

    family: str
    tokens: Mapping[str, Sequence[str]]
    maps: Sequence[Map]
    heads: Sequence[HeadScores]

    @property
    def names(self) -> list[str]:
        """A name for each map: `3`, where there are two towers `encoder.3`, `decoder.3` and `cross.3`; where a layer
        has several mixers, that of the branch too.
        """
        several = len(self.tokens) > 1

        def short(each: Map) -> str:
            group = "cross" if each.slot == "cross" else each.tower
            return f"{group}.{each.layer}" if several or each.slot == "cross" else str(each.layer)

        plain = [short(each) for each in self.maps]
        return [
            name if plain.count(name) == 1 else f"{name}.{_branch(each.name)}" for name, each in zip(plain, self.maps)
        ]

    def rows(self, each: Map) -> list[str]:
        """What the queries of a map are called."""
        return _labels(self.tokens[each.tower], each.weights.shape[1])

    def columns(self, each: Map) -> list[str]:
        """What its keys are called: tokens, behind the learned ones."""
        of = self.tokens["encoder" if each.slot == "cross" else each.tower]
        return [f"learned {number}" for number in range(each.before)] + _labels(of, each.of_tokens.shape[2])

    def at(self, head: str) -> tuple[int, int]:
        """The number of the map and of the head that a text names, as `3.5` or `cross.3.5`: layer, head, from 0."""
        every = [f"{name}.{number}" for name, each in zip(self.names, self.maps) for number in range(each.heads)]
        if head not in every:
            raise ScalingError("there is no such head", key="head", value=head, fix=nearest(head, every))
        name, _, number = head.rpartition(".")
        return self.names.index(name), int(number)


def look(model: Family, ids: Mapping[str, int], codec: Codec | None, tokens: Mapping[str, Sequence[int]]) -> Look:
    """The maps of the family's towers over these tokens."""
    seen = maps(model, batch_of(model, tokens))
    tower = _writing(model)
    special = set(ids.values()) | set(() if codec is None else codec.specials.values())
    ordinary = [
        token for token in range(tower.shape.vocabulary if codec is None else codec.size) if token not in special
    ]
    repeated = repetition(model, ordinary, tower.shape.length)
    shown = {name: [spelled(codec, ids, token) for token in row] for name, row in tokens.items()}
    return Look(model.family, shown, seen, scores(seen, repeated, tokens))


def batch_of(model: Family, tokens: Mapping[str, Sequence[int]]) -> Batch:
    """One row without targets, of the tokens of each tower."""
    device = next(model.parameters()).device
    for name, tower in towers(model):
        given, limit = len(tokens[name]), tower.shape.length
        if given > limit:
            what = f"{given:,} tokens are more than the {limit:,} that its {name} reads"
            raise ScalingError(what, key="text", fix="shorten the text")
        if not given:
            raise ScalingError("there is nothing to look at", key="text", value="", fix="write some text")
    rows = {name: torch.tensor([list(row)], device=device) for name, row in tokens.items()}
    largest, limit = max(int(row.max()) for row in rows.values()), _writing(model).shape.vocabulary
    if largest >= limit:
        raise ScalingError(f"token {largest} is beyond the vocabulary of {limit}", key="text")
    if model.family == "encoder_decoder":
        written = rows["decoder"]
        return Batch(written, torch.full_like(written, IGNORE), source=rows["encoder"])
    written = rows[model.family]
    return Batch(written, torch.full_like(written, IGNORE))


def _writing(model: Family) -> Tower:
    """The tower whose vectors the head reads."""
    return list(towers(model))[-1][1]


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


def _branch(name: str) -> str:
    parts = name.split(".")
    return parts[parts.index("branches") + 1] if "branches" in parts else parts[-1]
