"""The mixer's `scale` multiplies all that queries and keys say to one another, whatever the position adds to it."""

from __future__ import annotations

import pytest
import torch

from scaling.nn.context import Context, Places, render
from scaling.nn.mixer.attention import scale_of
from scaling.nn.patterns import Bidirectional, Causal
from scaling.schema import build, keys, kinds
from scaling.shape import Shape

ROWS, LENGTH = 2, 9
SHAPE = Shape.of({"width": 24, "layers": 1, "heads": 4, "head_width": 6, "vocabulary": 8, "length": LENGTH})
SCALES = ("sqrt", "width", "none")
PACKED = torch.tensor([[1] * 4 + [2] * 5, [0] * 2 + [1] * 7])
# Every mixer with a `scale` that some position acts on, and a line that leaves it queries and keys.
MIXERS = {
    "Attention": {},
    "DenseSynthesizer": {"mix": "plus"},
    "RandomSynthesizer": {"mix": "plus"},
    "FactorizedSynthesizer": {"mix": "plus"},
    "BigBird": {"block": 1, "seed": 0, "blocks": 1, "random": 1},
    "BlockLocal": {"size": 2, "before": 1},
    "Longformer": {"window": 3, "dilation": 2},
    "MemoryCompressed": {"stride": 2},
}


def test_no_mixer_with_a_scale_is_left_out():
    scaled = {name for name, kind in kinds("mixer").items() if "scale" in keys(kind)}
    assert scaled - {"CrossAttention"} == set(MIXERS)  # cross-attention knows no positions


def mixed(mixer: str, scale: str, position: str, pattern, documents, times: float = 1.0) -> torch.Tensor:
    """The output where q·k, and all that a position adds to it, are multiplied by `times`."""
    torch.manual_seed(0)
    piece = build("mixer", {"kind": mixer, "scale": scale, **MIXERS[mixer]}, SHAPE).double()
    hooks = build("position", position, SHAPE, pattern).double()
    with torch.no_grad():
        for parameter in [*piece.parameters(), *hooks.parameters()]:
            parameter.normal_(0, 0.5)
        if hooks.reads_content:
            own = hooks.score
            hooks.score = lambda q, k, *places: times * own(q, k / times, *places)
        piece.key.weight *= times
    places = Places.of(torch.zeros(ROWS, LENGTH, dtype=torch.long), documents=documents)
    context = Context(places, places, render(pattern, places, places), hooks)
    x = torch.randn(ROWS, LENGTH, SHAPE.width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return piece(x, context)


@pytest.mark.parametrize("documents", [None, PACKED], ids=["whole", "packed"])
@pytest.mark.parametrize("pattern", [Causal(), Bidirectional()], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("position", kinds("position"))
@pytest.mark.parametrize("mixer", MIXERS)
def test_a_scale_is_one_factor_on_products_and_on_the_scores_that_read_content(mixer, position, pattern, documents):
    for scale in SCALES:
        factor = scale_of(scale, SHAPE.head_width)
        found = mixed(mixer, scale, position, pattern, documents)
        torch.testing.assert_close(found, mixed(mixer, "none", position, pattern, documents, factor), rtol=0, atol=1e-9)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("position", ["Shaw", "TransformerXL"])
def test_relative_logits_are_the_papers_under_every_scale(position, scale):
    """softmax(s (q·k + q·a)) of Shaw et al., s (q·k + u·k + (q + v)·W R) of Dai et al., query by query."""
    torch.manual_seed(0)
    hooks = build("position", position, SHAPE, Causal()).double()
    piece = build("mixer", {"kind": "Attention", "scale": scale}, SHAPE).double()
    with torch.no_grad():
        for parameter in [*piece.parameters(), *hooks.parameters()]:
            parameter.normal_(0, 0.5)
    x = torch.randn(1, LENGTH, SHAPE.width, dtype=torch.float64)
    q, k, v = (part(x[0]).unflatten(-1, (4, 6)) for part in (piece.query, piece.key, piece.value))
    s = {"sqrt": 6**-0.5, "width": 1 / 6, "none": 1.0}[scale]
    heads = torch.zeros(LENGTH, 4, 6, dtype=torch.float64)
    for h in range(4):
        for t in range(LENGTH):
            logits = torch.stack([q[t, h] @ k[j, h] + beside(hooks, q[t, h], k[j, h], t - j, h) for j in range(t + 1)])
            weights = (s * logits).softmax(0)
            heads[t, h] = weights @ v[: t + 1, h]
            if position == "Shaw":
                heads[t, h] += sum(weights[j] * hooks.table[max(-16, j - t) + 16] for j in range(t + 1))
    places = Places.of(torch.zeros(1, LENGTH, dtype=torch.long))
    found = piece(x, Context(places, places, render(Causal(), places, places), hooks))
    torch.testing.assert_close(found, piece.out(heads.flatten(1))[None], rtol=0, atol=1e-10)


def beside(hooks, q: torch.Tensor, k: torch.Tensor, back: int, head: int) -> torch.Tensor:
    """What the paper adds to q·k for a key so many places back."""
    if hasattr(hooks, "key"):
        return q @ hooks.key[max(-16, -back) + 16]
    angle = back / 10000 ** (torch.arange(0, 24, 2, dtype=torch.float64) / 24)
    row = (hooks.relative.weight @ torch.cat([angle.sin(), angle.cos()])).unflatten(0, (4, 6))[head]
    return hooks.content[head] @ k + (q + hooks.distance[head]) @ row
