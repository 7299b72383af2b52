"""SpanBERT's boundary objective: a hidden token is predicted from the tokens beside its span alone."""

from __future__ import annotations

import torch

from scaling.batch import IGNORE
from scaling.nn.blocks import LayerNorm
from scaling.nn.channels import GeLU
from scaling.nn.heads import Boundary, edges
from scaling.shape import Shape

SHAPE = Shape.of({"width": 8, "layers": 1, "heads": 1, "vocabulary": 11, "length": 12})
TARGETS = torch.full((2, 12), IGNORE)
TARGETS[0, 3:6] = torch.tensor([4, 5, 6])
TARGETS[0, 8] = 7
TARGETS[1, 1:3] = torch.tensor([2, 9])


def head() -> Boundary:
    torch.manual_seed(0)
    return Boundary(SHAPE, activation=GeLU, norm=LayerNorm, longest=4).double()


def test_edges_of_spans():
    left, right = edges(TARGETS != IGNORE)
    assert left[0].tolist() == [0, 1, 2, 2, 2, 2, 6, 7, 7, 9, 10, 11]
    assert right[0].tolist() == [0, 1, 2, 6, 6, 6, 6, 7, 9, 9, 10, 11]
    assert left[1, 1:3].tolist() == [0, 0]
    assert right[1, 1:3].tolist() == [3, 3]


def test_it_equals_its_formula_token_by_token():
    made, hidden = head(), torch.randn(2, 12, 8, dtype=torch.float64)
    losses = made.loss(hidden, TARGETS)
    for row, place, before, after in ((0, 3, 2, 6), (0, 4, 2, 6), (0, 5, 2, 6), (0, 8, 7, 9), (1, 2, 0, 3)):
        x = torch.cat([hidden[row, before], hidden[row, after], made.places[place - before - 1]])
        for layer, norm in zip((made.first, made.second), made.norms, strict=True):
            x = norm(torch.nn.functional.gelu(layer(x)))
        expected = -torch.log_softmax(made.weight @ x, -1)[TARGETS[row, place]]
        torch.testing.assert_close(losses[row, place], expected)
    assert torch.equal(losses == 0, TARGETS == IGNORE)


def test_what_is_hidden_is_not_looked_at():
    made, hidden = head(), torch.randn(2, 12, 8, dtype=torch.float64)
    changed = hidden.clone()
    changed[TARGETS != IGNORE] = 0
    assert torch.equal(made.loss(hidden, TARGETS), made.loss(changed, TARGETS))
