"""The ways to attend against softmax written out in float64, positions, and places in a tree."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._python_dispatch import TorchDispatchMode

from scaling.base.batch import Batch
from scaling.config.schema import build, kinds
from scaling.data.task.example import OUTSIDE, places
from scaling.kernels.compiled import absent
from scaling.model.context import Context
from scaling.model.mixer import attention as ways
from tests.command_line import refuses
from tests.model.test_variants import batch_for
from tests.model.test_variants import build as model_of
from tests.pieces.formulas import array, context, draw, made, shape, with_gradients

ROWS, LENGTH, HEADS, WIDTH, VALUE = 3, 9, 4, 6, 5
SHAPE = shape(HEADS * WIDTH, LENGTH, HEADS, value_width=VALUE)
PACKED = torch.tensor([[1] * 4 + [2] * 5, [1] * 9, [0] * 2 + [1] * 7])
PREFIX = torch.tensor([2, 5, 0])
POSITIONS = sorted(kinds("position"))
WAYS = dict.fromkeys(("explicit", "sdpa", "parts"), (torch.float64, 1e-12))
if absent() is None:
    WAYS["kernel"] = (torch.float32, 1e-5)


def now(pattern: Any = "Causal", position: str = "NoPosition", documents: Tensor | None = None) -> Context:
    prefix = PREFIX if "Prefix" in str(pattern) else None
    return context(SHAPE, pattern, position=position, rows=ROWS, documents=documents, prefix=prefix)


def inputs(dtype: torch.dtype, key_heads: int = HEADS) -> list[Tensor]:
    sizes = [(HEADS, WIDTH), (key_heads, WIDTH), (key_heads, VALUE)]
    return [draw(ROWS, LENGTH, *size, seed=seed).to(dtype).requires_grad_() for seed, size in enumerate(sizes)]


def written(q: Tensor, k: Tensor, v: Tensor, here: Context, scale: float) -> Tensor:
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v))
    logits = scale * torch.einsum("bthd,bshd->bhts", q, k)
    position, places = here.position, here.places.seen_by(here.position)
    if position.adds_score:
        score = position.score(q, k, places, places)
        logits = logits + (scale * score if position.reads_content else score)
    if (allowed := here.mask.allowed()) is not None:
        logits = logits.masked_fill(~allowed[:, None], torch.finfo(logits.dtype).min)
    weights = logits.softmax(-1)
    mixed = torch.einsum("bhts,bshe->bthe", weights, v)
    return mixed + position.value(weights, places, places).transpose(1, 2) if position.mixes_values else mixed


def agree(way: str, here: Context, dtype: torch.dtype, tolerance: float, key_heads: int = HEADS) -> None:
    given = inputs(dtype, key_heads)
    exact = [tensor.detach().double().requires_grad_() for tensor in given]
    own = here.position.named_parameters() if here.position.adds_score else ()
    table = [parameter for name, parameter in own if name != "depth"]  # which is read where a stack begins
    found = with_gradients(ways.WAYS[way](*given, here, 0.3, 0.0), [*given, *table], here)
    here.notes.made.clear()
    expected = with_gradients(written(*exact, here, 0.3), [*exact, *table], here)
    for ours, truth in zip(found, expected, strict=True):
        torch.testing.assert_close(ours.double(), truth.double(), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_softmax_written_out_under_every_pattern_and_position(way, monkeypatch):
    monkeypatch.setattr(ways, "PART", 2 * LENGTH)
    for pattern, documents in itertools.product(("Causal", "Bidirectional", "Prefix"), (None, PACKED)):
        agree(way, now(pattern, documents=documents), *WAYS[way])
    for position in POSITIONS:
        here = now(position=position, documents=PACKED)
        if way in ("explicit", "parts") or not here.position.mixes_values:
            agree(way, here, *WAYS[way])
    for key_heads in (2, 1):
        agree(way, now(), *WAYS[way], key_heads)


NEAR, FAR = {"keys": 256}, {"keys": 1025, "kernel": True}
CHOICES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (FAR, {}, "kernel"),
    (FAR, {"dropout": 0.1}, "sdpa"),
    (FAR, {"position": "Shaw"}, "explicit"),
    (FAR, {"shown": True}, "explicit"),
    ({**FAR, "queries": 1}, {}, "sdpa"),
    (NEAR, {}, "explicit"),
    ({"keys": 257}, {}, "sdpa"),
    ({**NEAR, "device": "meta"}, {}, "sdpa"),
    ({"keys": 4096}, {"position": "ALiBi"}, "parts"),
    ({"keys": 4096, "device": "cuda"}, {"position": "ALiBi"}, "sdpa"),
]


@pytest.mark.parametrize(("setting", "line", "way"), CHOICES)
def test_the_way_follows_the_setting(setting, line, way):
    usual = {"device": "cpu", "dtype": torch.float32, "width": 8, "value_width": 8, "kernel": False}
    here = now(position=line.get("position", "NoPosition"))
    here.weights = (lambda weights: None) if line.get("shown") else None
    setting = ways.Setting(**{**usual, "queries": setting["keys"], **setting})
    assert ways.choose(setting, here, line.get("dropout", 0.0)) == way


class Largest(TorchDispatchMode):
    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for tensor in found if isinstance(found, tuple | list) else (found,):
            if isinstance(tensor, Tensor):
                self.numbers = max(self.numbers, tensor.untyped_storage().nbytes() // tensor.element_size())
        return found


def test_no_part_is_the_square_and_dropout_draws_the_same_in_both_passes(monkeypatch):
    """Where it did not, the gradient by the values would not be that of the output, which is linear in them."""
    monkeypatch.setattr(ways, "PART", 7 * 40)
    q, k, v = (draw(1, 40, 2, 8, seed=seed).requires_grad_() for seed in range(3))
    with Largest() as seen:
        y = ways.WAYS["parts"](q, k, v, context(shape(16, 40, 2)), 0.3, 0.4)
        y.sum().backward()
    assert (v.grad * v).sum().item() == pytest.approx(y.sum().item(), rel=1e-9)
    assert seen.numbers < 2 * 40 * 40 / 2


@pytest.mark.parametrize(("position", "scale"), [("Shaw", "width"), ("TransformerXL", "sqrt")])
@torch.no_grad()
def test_relative_logits_are_the_papers_under_every_scale(position, scale):
    """softmax(s (q·k + q·a)) of Shaw et al., s (q·k + u·k + (q + v)·W R) of Dai et al., query by query."""
    here, x = context(SHAPE, position=position), draw(1, LENGTH, SHAPE.width)
    hooks, piece = here.position, made("mixer", {"kind": "Attention", "scale": scale}, SHAPE, 0.5)
    for parameter in hooks.parameters():
        parameter.normal_(0, 0.5)
    q, k, v = (part(x[0]).unflatten(-1, (HEADS, -1)) for part in (piece.query, piece.key, piece.value))
    mixed, s = torch.zeros(LENGTH, HEADS, VALUE, dtype=torch.float64), {"sqrt": WIDTH**-0.5, "width": 1 / WIDTH}[scale]

    def beside(t: int, j: int, h: int) -> Tensor:
        """What the paper adds to q·k."""
        if position == "Shaw":
            return q[t, h] @ hooks.key[max(-16, j - t) + 16]
        angle = (t - j) / 10000 ** (torch.arange(0, 24, 2, dtype=torch.float64) / 24)
        row = (hooks.relative.weight @ torch.cat([angle.sin(), angle.cos()])).unflatten(0, (HEADS, WIDTH))[h]
        return hooks.content[h] @ k[j, h] + (q[t, h] + hooks.distance[h]) @ row

    for h, t in itertools.product(range(HEADS), range(LENGTH)):
        logits = torch.stack([q[t, h] @ k[j, h] + beside(t, j, h) for j in range(t + 1)])
        weights = (s * logits).softmax(0)
        mixed[t, h] = weights @ v[: t + 1, h]
        if position == "Shaw":
            mixed[t, h] += sum(weights[j] * hooks.table[max(-16, j - t) + 16] for j in range(t + 1))
    torch.testing.assert_close(piece(x, here), piece.out(mixed.flatten(1))[None], rtol=0, atol=1e-10)


def test_rotary_tables_of_a_pass_without_gradients_serve_one_with():
    rotary, x = build("position", "Rotary", shape(16, 8, 2), build("pattern", "Causal")), draw(2, 5, 2, 8)
    here = torch.arange(5)[None]
    with torch.inference_mode():
        rotary.rotate(x, x, here, here)
    q = x.clone().requires_grad_()
    rotary.rotate(q, q, here, here)[0].sum().backward()
    assert q.grad is not None


ABOVE = (2, 3, 0, 5, 3, 5, 0)  # the words above seven words: two roots, 3 and 7
SEEN = torch.tensor([[at, *place] for at, place in enumerate(places(ABOVE))])[None]  # [1 t 4] of the words


def above(word: int) -> list[int]:
    """A word and those up to its root."""
    return [word] if ABOVE[word - 1] == 0 else [word, *above(ABOVE[word - 1])]


def distance(query: int, key: int) -> int:
    depths = len(above(query)), len(above(key))
    if query in above(key) or key in above(query):
        return depths[1] - depths[0]
    return (depths[0] + depths[1]) * (1 if key > query else -1)


@pytest.mark.parametrize("kind", ["absolute", "relative", "both"])
def test_a_place_in_a_tree_is_its_formula(kind):
    pattern, own = build("pattern", "Bidirectional"), shape(8, 16, 2)
    torch.manual_seed(0)
    line = {"kind": "Syntax", "places": kind, "depth": 2, "distance": 3}  # words of different branches are further
    position = build("position", line, own, pattern).double()
    x, q, k = draw(1, 7, 8), draw(1, 7, 2, 4), draw(1, 7, 2, 4, seed=1)
    if kind == "relative":
        assert position.embed(x, SEEN) is x
    else:
        rows = np.array([array(position.depth)[min(len(above(word)), 2)] for word in range(1, 8)])
        sines = array(build("position", "Sinusoidal", own, pattern).embed(x, torch.arange(7)[None])[0])
        np.testing.assert_allclose(array(position.embed(x, SEEN)[0]), sines + rows, atol=1e-12)
    assert position.adds_score == (kind != "absolute")
    if kind == "absolute":
        return
    before, below = array(position.before), array(position.below)
    found = array(position.score(q, k, SEEN, SEEN)[0])
    for t, s in np.ndindex(7, 7):
        row = before[np.clip(s - t, -3, 3) + 3] + below[np.clip(distance(t + 1, s + 1), -3, 3) + 3]
        np.testing.assert_allclose(found[:, t, s], array(q[0, t]) @ row, atol=1e-12)


def treed(batch: Batch) -> Batch:
    tree = torch.tensor([*places(ABOVE), *[OUTSIDE] * (batch.tokens.shape[1] - len(ABOVE))])
    return replace(batch, tree=tree.expand(batch.rows, -1, -1))


def test_a_tree_moves_what_an_encoder_computes_and_padding_does_not():
    model = model_of("encoder", "model.position=Syntax").double()
    plain = treed(batch_for(model))
    assert (model(plain).hidden - model(batch_for(model)).hidden).abs().max() > 1e-3
    documents, segments = (pad(x, (2, 0)) for x in (torch.ones_like(plain.tokens), plain.segments))
    padded = replace(plain, documents=documents, segments=segments, tree=pad(plain.tree, (0, 0, 2, 0)))
    padded = replace(padded, tokens=pad(plain.tokens, (2, 0), value=7))
    torch.testing.assert_close(model(padded).hidden[:, 2:], model(plain).hidden, rtol=0, atol=1e-10)


@pytest.mark.parametrize("change", ["model.block.mixer=MemoryCompressed", "tuning={kind: Prompt, length: 3}"])
def test_what_is_no_token_has_no_place_in_a_tree(change):
    model = model_of("encoder", f"{change}; model.position=Syntax")
    refuses("have no place in a tree", model, treed(batch_for(model)))
