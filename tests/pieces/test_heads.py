"""Heads and embeddings against their formulas in float64: losses, gradients, ties, and what a head of a task reads."""

# pyright: reportAttributeAccessIssue=false, reportCallIssue=false, reportArgumentType=false
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.model import heads as module
from scaling.model.heads import cross_entropy
from scaling.training.parametrization import T5, initialise
from tests.model.test_variants import TASK_HEADS, batch_for, flow
from tests.model.test_variants import build as built
from tests.pieces.formulas import affine, array, draw, made, shape, softmax

V, W = 61, 32
SHAPE = shape(W, 24, 4, vocabulary=V)
SIZE = f"size={{width: {W}, layers: 1, heads: 4, vocabulary: {V}, length: 24}}"
HIDDEN = draw(4, 9, W)
TARGETS = torch.randint(0, V, (4, 9), generator=torch.Generator().manual_seed(1))
TARGETS[1, :3] = IGNORE


def check_losses(head: Any, log_chances: np.ndarray) -> None:
    """The losses of a head with and without smoothing, from the logarithms of its chances."""
    chosen = np.take_along_axis(log_chances, TARGETS.clamp(min=0).numpy()[..., None], -1)[..., 0]
    for smoothing in (0.0, 0.1):
        each = -(1 - smoothing) * chosen - smoothing * log_chances.mean(-1)
        found = array(head.loss(HIDDEN, TARGETS, smoothing))
        np.testing.assert_allclose(found, np.where(TARGETS == IGNORE, 0, each), atol=1e-11)


def plain(parts: Any, bias: Tensor | None, targets: Tensor, smoothing: float) -> Tensor:
    logits = F.linear(*parts[0], bias)
    return F.cross_entropy(logits, targets, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)


def case(dtype: torch.dtype) -> tuple[list[Tensor], Tensor]:
    targets = torch.randint(11, (37,), generator=torch.Generator().manual_seed(0))
    targets[::5] = IGNORE
    sizes = enumerate([(37, 8), (11, 8), (11,)])
    return [draw(*size, seed=i).to(dtype).requires_grad_() for i, size in sizes], targets


TOLERANCES = [(torch.float64, 1e-13), (torch.float32, 1e-5), (torch.bfloat16, 3e-2)]


@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES)
def test_the_cross_entropy_equals_the_plain_formula_in_float64(dtype, tolerance, monkeypatch):
    monkeypatch.setattr(module, "CPU_CHUNK", 10 * 11)  # chunks of ten rows, so that the last one is short
    inputs, targets = case(dtype)
    upstream = torch.linspace(-1, 1, 37, dtype=torch.float64)  # every row weighs something else
    for count, smoothing in itertools.product((2, 3), (0.0, 0.1)):  # with and without a bias

        def run(function: Any, given: list[Tensor], smoothing: float = smoothing) -> list[Tensor]:
            hidden, weight, bias = [*given, None][:3]
            losses = function([(hidden, weight)], bias, targets, smoothing)
            return [losses, *torch.autograd.grad(losses, given, upstream.to(losses.dtype))]

        exact = [tensor.detach().double().requires_grad_() for tensor in inputs[:count]]
        found = run(cross_entropy, inputs[:count])
        assert found[0].dtype == torch.promote_types(dtype, torch.float32)
        for ours, truth in zip(found, run(plain, exact), strict=True):
            torch.testing.assert_close(ours.double(), truth, atol=tolerance, rtol=tolerance)


def test_a_loss_is_exact_where_the_target_is_hopeless_and_float32_under_autocast():
    weight = torch.tensor([[200.0, 0.0], [0.0, 0.0], [-100.0, 0.0]])  # its chance, e⁻³⁰⁰, is 0 in float32
    assert cross_entropy([(torch.tensor([[1.0, 0.0]]), weight)], None, torch.tensor([2])).item() == 300
    (hidden, weight, bias), targets = case(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        losses = cross_entropy([(hidden, weight)], bias, targets)
    losses.sum().backward()
    assert losses.dtype == hidden.grad.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(losses, plain([(hidden, weight)], bias, targets, 0.0), atol=5e-2, rtol=5e-2)


@pytest.mark.parametrize(("widths", "scale"), [(None, "none"), ([32.0, 16.0, 8.0], "inverse_sqrt_width")])
def test_the_adaptive_softmax_equals_the_formula_and_a_cluster_without_targets_costs_nothing(widths, scale):
    line = {"kind": "AdaptiveSoftmax", "cutoffs": [20.0, 40.0], "widths": widths, "scale": scale}
    head, h = made("head", line, SHAPE, 0.3), array(HIDDEN) * (W**-0.5 if scale != "none" else 1)
    if widths is None:
        tables = np.split(array(head.weight), [20, 40])
    else:
        ups = [np.eye(W), *(array(head.rows.ups[c].weight) for c in "12")]
        tables = [array(table) @ up.T for table, up in zip(head.rows.tables, ups, strict=True)]
    first = softmax(h @ np.concatenate([tables[0], array(head.gates.weight)]).T)
    tails = [first[..., 20 + c, None] * softmax(h @ tables[1 + c].T) for c in (0, 1)]
    log = np.log(np.concatenate([first[..., :20], *tails], -1))
    np.testing.assert_allclose(array(head(HIDDEN)), log, atol=1e-11)
    check_losses(head, log)
    with FlopCounterMode(display=False) as counter:
        losses = head.loss(HIDDEN, TARGETS.clamp(min=0) % 20)
    assert counter.get_total_flops() == 2 * TARGETS.numel() * W * (20 + 2)
    losses.sum().backward()
    assert all(p.grad is not None for p in head.parameters())


def test_a_mixture_of_softmaxes_equals_the_formula():
    line = {"kind": "MixtureOfSoftmaxes", "softmaxes": 3, "scale": "inverse_sqrt_width"}
    head, h = made("head", line, SHAPE, 0.3), array(HIDDEN) * W**-0.5
    prior, maps = softmax(affine(head.prior, h)), array(head.latent.weight).reshape(3, W, W)
    log = np.log(sum(prior[..., k, None] * softmax(np.tanh(h @ maps[k].T) @ array(head.weight).T) for k in range(3)))
    np.testing.assert_allclose(array(head(HIDDEN)), log, atol=1e-12)
    check_losses(head, log)


def test_the_boundary_head_equals_its_formula_token_by_token_and_does_not_look_at_what_is_hidden():
    targets = torch.full((2, 12), IGNORE)
    targets[0, 3:6], targets[0, 8], targets[1, 1:3] = torch.tensor([4, 5, 6]), 7, torch.tensor([2, 9])
    line = {"kind": "Boundary", "activation": "GeLU", "norm": "LayerNorm", "longest": 4}
    head, hidden = made("boundary", line, shape(8, 12, vocabulary=11), None), draw(2, 12, 8)
    losses = head.loss(hidden, targets)
    for row, place, before, after in ((0, 3, 2, 6), (0, 4, 2, 6), (0, 5, 2, 6), (0, 8, 7, 9), (1, 2, 0, 3)):
        x = torch.cat([hidden[row, before], hidden[row, after], head.places[place - before - 1]])
        for layer, norm in zip((head.first, head.second), head.norms, strict=True):
            x = norm(F.gelu(layer(x)))
        expected = -torch.log_softmax(head.weight @ x, -1)[targets[row, place]]
        torch.testing.assert_close(losses[row, place], expected)
    assert torch.equal(losses == 0, targets == IGNORE)
    assert torch.equal(head.loss(hidden.masked_fill((targets != IGNORE)[..., None], 0), targets), losses)


CLUSTERS = ["{kind: Factorized, rank: 8}", "{kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}"]


@pytest.mark.parametrize("line", CLUSTERS)
def test_clusters_are_looked_up_and_predict_as_one_table(line):
    config = load("encoder_decoder", [SIZE, f"model.embedding={line}", "model.embedding.scale=sqrt_width"])
    model: Any = initialise(config.build("model", config["size"]), T5(), 0).double()
    found: list[Tensor] = []
    with model.encoder.embedding.register_forward_hook(lambda *call: found.append(call[-1])):
        model.encoder(Batch(torch.arange(V)[None], torch.arange(V)[None]))
    rows = model.encoder.embedding.rows
    ups = [array(rows.ups[str(c)].weight).T if str(c) in rows.ups else np.eye(W) for c in range(len(rows.tables))]
    whole = np.concatenate([array(own) @ up for own, up in zip(rows.tables, ups, strict=True)])
    np.testing.assert_allclose(array(found[0][0]), whole * W**0.5, atol=1e-12)
    logits = array(HIDDEN) @ whole.T * W**-0.5
    np.testing.assert_allclose(array(model.head(HIDDEN)), logits, atol=1e-12)
    check_losses(model.head, np.log(softmax(logits)))


def head(kind: str, **keys: Any) -> Any:
    return made("head", {"kind": kind, **keys}, shape(8, 16, vocabulary=11), None)


def test_losses_of_tasks_are_their_formulas():
    weights, labels, smoothing = [0.5, 1.0, 4.0], torch.tensor([0, 2, IGNORE, 1]), 0.1
    for keys in ({"weights": weights}, {"added": True}):
        piece, hidden = head("Sequence", classes=3, **keys), draw(4, 2 if "added" in keys else 1, 8)
        logits = torch.tensor(affine(piece.out, array(hidden.sum(1))))
        own = torch.tensor(weights).double() if "weights" in keys else None
        expected = F.cross_entropy(logits, labels, own, reduction="none", label_smoothing=smoothing)
        torch.testing.assert_close(piece.loss(hidden, labels, smoothing), expected)
    piece, hidden, labels = head("Options", activation="Tanh"), draw(2, 3, 8), torch.tensor([2, 0])
    absent = torch.tensor([[False] * 3, [False, False, True]])
    assert piece(hidden, absent)[1, 2] == -float("inf")
    assert piece(0 * hidden, absent)[0].isfinite().all()  # a vector of zeros that is there is no absent one
    for row, count in ((0, 3), (1, 2)):
        expected = F.cross_entropy(piece(hidden)[row, :count], labels[row], label_smoothing=smoothing)
        torch.testing.assert_close(piece.loss(hidden, labels, smoothing, absent=absent)[row], expected)
    classes, labels = head("Classes", classes=3), torch.tensor([[1, 0, 1], [0, IGNORE, IGNORE]])
    hidden = draw(2, 1, 8)
    expected = F.binary_cross_entropy_with_logits(classes(hidden), labels.clamp(min=0).double(), reduction="none")
    torch.testing.assert_close(classes.loss(hidden, labels), expected.masked_fill(labels == IGNORE, 0))
    number, values = head("Number"), torch.tensor([2.5, IGNORE])
    expected = (number(hidden) - values).square()
    torch.testing.assert_close(number.loss(hidden, values), expected.masked_fill(values == IGNORE, 0))


@pytest.mark.parametrize("kind", [kind for kind in TASK_HEADS if kind != "Tokens"])
@pytest.mark.parametrize("left", [False, True])
def test_padding_changes_no_loss_of_a_task(kind, left):
    model = built("encoder", f"model.head={flow('head', kind)}").double()
    batch = batch_for(model)
    reads = torch.tensor([[11], [5], [7]]) if batch.reads is None else batch.reads
    whole, pad, shift = replace(batch, reads=reads, segments=None), (4, 0) if left else (0, 4), 4 if left else 0
    tokens, targets = F.pad(batch.tokens, pad, value=3), F.pad(batch.targets, pad, value=IGNORE)
    own: Any = {"labels": batch.labels + shift if kind == "Span" else batch.labels}  # pyright: ignore
    own |= {"documents": F.pad(torch.ones_like(batch.tokens), pad), "reads": torch.where(reads < 0, -1, reads + shift)}
    padded = Batch(tokens, targets, **own)
    torch.testing.assert_close(model.losses(padded), model.losses(whole), rtol=0, atol=1e-9)
