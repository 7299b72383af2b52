"""Adaptive softmax against torch's own and Grave et al. 2017's formula; what it computes, and what it does not."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from scaling.batch import IGNORE
from scaling.nn.heads import AdaptiveSoftmax
from scaling.shape import Shape

V, W = 61, 32
SHAPE = Shape.of({"width": W, "layers": 1, "heads": 4, "vocabulary": V, "length": 24})
SIZE = f"size={{width: {W}, layers: 1, heads: 4, vocabulary: {V}, length: 24}}"
CUTOFFS, WIDTHS = [20.0, 40.0], [32.0, 16.0, 8.0]
EMBEDDING = "model.embedding={kind: Adaptive, cutoffs: [20, 40], widths: [32, 16, 8]}"
HEAD = "model.head={kind: AdaptiveSoftmax, cutoffs: [20, 40]}"


def drawn(head: Any) -> Any:
    draw = torch.Generator().manual_seed(0)
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=draw)
    return head.double()


def sample(rows: int = 4, length: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(1)
    hidden = torch.randn(rows, length, W, generator=draw, dtype=torch.float64)
    return hidden, torch.randint(0, V, (rows, length), generator=draw)


def theirs(head: AdaptiveSoftmax) -> Any:
    """Torch's with the same weights: its tails' widths are w/2 and w/4, as ours are here."""
    other = cast(Any, torch.nn.AdaptiveLogSoftmaxWithLoss(W, V, [20, 40], div_value=2.0).double())
    other.head.weight.data = torch.cat([head.rows.tables[0], head.gates.weight]).detach()
    for c, (up, table) in enumerate(other.tail, 1):
        up.weight.data = head.rows.ups[str(c)].weight.T.detach().clone()
        table.weight.data = head.rows.tables[c].detach().clone()
    return other


def test_equals_torchs():
    head, (hidden, targets) = drawn(AdaptiveSoftmax(SHAPE, cutoffs=CUTOFFS, widths=WIDTHS)), sample()
    other = theirs(head)
    flat = hidden.flatten(0, 1)
    torch.testing.assert_close(head(hidden).flatten(0, 1), other.log_prob(flat))
    found = head.loss(hidden, targets).flatten()
    expected = -other(flat, targets.flatten()).output
    torch.testing.assert_close(found, expected)
    weights = torch.linspace(-1, 1, len(found), dtype=torch.float64)
    ours = torch.autograd.grad(found, [head.gates.weight, *head.rows.tables], weights)
    truth = torch.autograd.grad(expected, [other.head.weight, *(table.weight for _, table in other.tail)], weights)
    torch.testing.assert_close(torch.cat([ours[1], ours[0]]), truth[0])
    torch.testing.assert_close(ours[2:], truth[1:])


@pytest.mark.parametrize("widths", [None, WIDTHS])
@pytest.mark.parametrize("scale", ["none", "inverse_sqrt_width"])
def test_equals_the_formula(widths, scale):
    head = drawn(AdaptiveSoftmax(SHAPE, cutoffs=CUTOFFS, widths=widths, scale=scale))
    hidden, targets = sample()
    h = hidden.numpy() * (W**-0.5 if scale != "none" else 1)
    if widths is None:
        tables = np.split(head.weight.detach().numpy(), [20, 40])
    else:
        ups = [np.eye(W), *(head.rows.ups[c].weight.detach().numpy() for c in "12")]
        tables = [table.detach().numpy() @ up.T for table, up in zip(head.rows.tables, ups, strict=True)]

    def chances(logits):
        return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)

    first = chances(h @ np.concatenate([tables[0], head.gates.weight.detach().numpy()]).T)
    tails = [first[..., 20 + c, None] * chances(h @ tables[1 + c].T) for c in (0, 1)]
    p = np.concatenate([first[..., :20], *tails], -1)
    np.testing.assert_allclose(p.sum(-1), 1, atol=1e-12)
    np.testing.assert_allclose(head(hidden).detach().numpy(), np.log(p), atol=1e-11)
    targets[1, :3] = IGNORE
    chosen = np.log(np.take_along_axis(p, targets.clamp(min=0).numpy()[..., None], -1)[..., 0])
    for smoothing in (0.0, 0.1):
        expected = np.where(targets == IGNORE, 0, -(1 - smoothing) * chosen - smoothing * np.log(p).mean(-1))
        np.testing.assert_allclose(head.loss(hidden, targets, smoothing).detach().numpy(), expected, atol=1e-11)


def test_a_cluster_without_targets_costs_nothing_and_keeps_its_gradients():
    head, (hidden, targets) = drawn(AdaptiveSoftmax(SHAPE, cutoffs=CUTOFFS, widths=WIDTHS)), sample()
    with FlopCounterMode(display=False) as counter:
        losses = head.loss(hidden, targets % 20)
    positions = targets.numel()
    assert counter.get_total_flops() == 2 * positions * W * (20 + 2)
    losses.sum().backward()
    assert all(p.grad is not None for p in head.parameters())
    assert not head.rows.tables[2].grad.any()
