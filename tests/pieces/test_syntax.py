"""Places in a tree against the formula, written from the heads of the words in plain Python and numpy."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import pad

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import build as piece
from scaling.data.task.example import OUTSIDE, places
from scaling.model.embeddings import distances
from tests.model.test_variants import batch_for, build, hidden
from tests.pieces.formulas import array, draw, shape

HEADS = (2, 3, 0, 5, 3, 5, 0)  # two roots: words 3 and 7
SHAPE = shape(8, 16, 2)
SEEN = torch.tensor([[at, *place] for at, place in enumerate(places(HEADS))])[None]  # [1 t 4] of the words


def above(word: int) -> list[int]:
    """A word and those up to its root."""
    return [word] if HEADS[word - 1] == 0 else [word, *above(HEADS[word - 1])]


def distance(query: int, key: int) -> int:
    depths = len(above(query)), len(above(key))
    if query in above(key) or key in above(query):
        return depths[1] - depths[0]
    return (depths[0] + depths[1]) * (1 if key > query else -1)


def test_distances_are_those_of_the_words_and_without_a_tree_those_of_the_sequence():
    words, found = range(1, len(HEADS) + 1), distances(SEEN, SEEN)[0]
    assert found.tolist() == [[distance(query, key) for key in words] for query in words]
    assert found.min() < -2  # words of different branches
    at = torch.arange(5)
    chain = torch.stack([at, at, at, torch.full_like(at, OUTSIDE[2])], -1)[None]
    assert torch.equal(distances(chain, chain)[0], at[None, :] - at[:, None])


@pytest.mark.parametrize("kind", ["absolute", "relative", "both"])
def test_it_is_the_formula(kind):
    pattern = piece("pattern", "Bidirectional")
    torch.manual_seed(0)
    line = {"kind": "Syntax", "places": kind, "depth": 2, "distance": 3}
    position = piece("position", line, SHAPE, pattern).double()
    x, q, k = draw(1, 7, 8), draw(1, 7, 2, 4), draw(1, 7, 2, 4, seed=1)
    if kind == "relative":
        assert position.embed(x, SEEN) is x
    else:
        rows = np.array([array(position.depth)[min(len(above(word)), 2)] for word in range(1, 8)])
        sines = array(piece("position", "Sinusoidal", SHAPE, pattern).embed(x, torch.arange(7)[None])[0])
        np.testing.assert_allclose(array(position.embed(x, SEEN)[0]), sines + rows, atol=1e-12)
    assert position.adds_score == (kind != "absolute")
    if not position.adds_score:
        return
    before, below = array(position.before), array(position.below)
    found = array(position.score(q, k, SEEN, SEEN)[0])
    for t, s in np.ndindex(7, 7):
        row = before[np.clip(s - t, -3, 3) + 3] + below[np.clip(distance(t + 1, s + 1), -3, 3) + 3]
        np.testing.assert_allclose(found[:, t, s], array(q[0, t]) @ row, atol=1e-12)


def treed(batch: Batch) -> Batch:
    tree = torch.tensor([*places(HEADS), *[OUTSIDE] * (batch.tokens.shape[1] - len(HEADS))])
    return replace(batch, tree=tree.expand(batch.rows, -1, -1))


def test_a_tree_moves_what_an_encoder_computes_and_padding_does_not():
    model = build("encoder", "model.position=Syntax").double()
    plain = treed(batch_for(model))
    assert (hidden(model, plain) - hidden(model, batch_for(model))).abs().max() > 1e-3
    padded = replace(
        plain,
        tokens=pad(plain.tokens, (2, 0), value=7),
        documents=pad(torch.ones_like(plain.tokens), (2, 0)),
        segments=pad(plain.segments, (2, 0)),
        tree=pad(plain.tree, (0, 0, 2, 0)),
    )
    torch.testing.assert_close(hidden(model, padded)[:, 2:], hidden(model, plain), rtol=0, atol=1e-10)


@pytest.mark.parametrize("change", ["model.block.mixer=MemoryCompressed", "tuning={kind: Prompt, length: 3}"])
def test_what_is_no_token_has_no_place_in_a_tree(change):
    model = build("encoder", f"{change}; model.position=Syntax")
    with pytest.raises(ScalingError, match="have no place in a tree"):
        hidden(model, treed(batch_for(model)))
