"""Product keys against a search of every pair in float64 numpy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from scaling.nn.blocks import LayerNorm, NoNorm
from scaling.nn.channels import ProductKeys
from scaling.nn.context import NOWHERE, Context, Mask, Places
from scaling.shape import Shape

SHAPE = Shape.of({"width": 6, "layers": 1, "heads": 1, "vocabulary": 8, "length": 5})
HEADS, KEYS, KEY_WIDTH = 2, 7, 8
TOKENS = torch.zeros(2, 5, dtype=torch.long)
CONTEXT = Context(Places.of(TOKENS), Places.of(TOKENS), Mask(), NOWHERE)


def memory(**keys) -> ProductKeys:
    torch.manual_seed(0)
    given = {"norm": LayerNorm, "heads": HEADS, "keys": KEYS, "key_width": KEY_WIDTH, "nearest": 3, **keys}
    made = ProductKeys(SHAPE, **given).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    return made


@pytest.mark.parametrize("nearest", [1, 3, KEYS])
@pytest.mark.parametrize("norm", [LayerNorm, NoNorm])
def test_it_equals_a_search_of_every_pair(nearest, norm):
    made = memory(nearest=nearest, norm=norm)
    given = torch.randn(2, 5, 6, dtype=torch.float64)
    half = KEY_WIDTH // 2
    keys, values = made.keys.detach().numpy(), made.out.weight.detach().numpy()
    expected = np.zeros(given.shape)
    for place in itertools.product(range(2), range(5)):
        query = made.query.weight.detach().numpy() @ given[place].numpy() + made.query.bias.detach().numpy()
        for head, parts in enumerate(query.reshape(HEADS, 2, half)):
            if norm is LayerNorm:
                parts = (parts - parts.mean(-1, keepdims=True)) / np.sqrt(parts.var(-1, keepdims=True) + made.norm.eps)
                parts = parts * made.norm.gain.detach().numpy() + made.norm.bias.detach().numpy()
            scores = {
                (a, b): parts[0] @ keys[head, 0, a] + parts[1] @ keys[head, 1, b]
                for a, b in itertools.product(range(KEYS), range(KEYS))
            }
            best = sorted(scores, key=lambda pair: -scores[pair])[:nearest]
            weights = np.exp([scores[pair] - scores[best[0]] for pair in best])
            for pair, weight in zip(best, weights / weights.sum(), strict=True):
                expected[place] += weight * values[pair]
    np.testing.assert_allclose(made(given, CONTEXT).detach().numpy(), expected, rtol=1e-11, atol=1e-11)


def test_what_mesh_tensorflow_counts():
    """The 11th layer of a decoder of width 768, from the baseline's 11.073T: the published graph's 387.050T."""
    base = Shape.of({"width": 768, "layers": 12, "heads": 12, "vocabulary": 8, "length": 512})
    with torch.device("meta"):
        made = ProductKeys(base, norm=LayerNorm)
    tokens = 128 * 114
    more = made.mesh_operations(tokens) - tokens * 2 * 768 * 3072
    assert 11.073 + more / 1e12 == pytest.approx(387.050, abs=1e-3)
    assert sum(parameter.numel() for parameter in made.parameters()) - 2 * 768 * 3072 - 3072 - 768 == 197_260_160
