"""Words as vectors: which are near, a map of some, and what a text makes of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from scaling.batch import Batch
from scaling.data.codec import Codec
from scaling.errors import ScalingError, nearest
from scaling.inside.maps import TowerName
from scaling.inside.stream import stream
from scaling.model.family import Family


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


def spelled(codec: Codec, ids: Mapping[str, int], token: int) -> str:
    names = {number: f"[{name.upper()}]" for name, number in ids.items()}
    return names.get(token) or (codec.decode([token]) if token < codec.size else str(token))
