"""The angles of rotary positions: the formula, and a table that is made once for the layers of a pass."""

from __future__ import annotations

import torch

from scaling.nn.embeddings import Rotary
from scaling.nn.patterns import Causal
from scaling.shape import Shape

SHAPE = Shape.of({"width": 16, "layers": 1, "heads": 2, "vocabulary": 8, "length": 8})


def turned(x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    angle = positions[..., None].double() / 10000 ** (torch.arange(4).double() / 4)
    pairs = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)[:, :, None]
    return torch.cat([pairs.real, pairs.imag], -1)


def test_pairs_turn_by_their_own_positions_each_time():
    rotary, x = Rotary(SHAPE, Causal()), torch.randn(2, 5, 2, 8, dtype=torch.float64)
    here, there = torch.arange(5)[None], torch.tensor([[0, 1, 0, 1, 2], [3, 4, 5, 6, 7]])
    for q_pos, k_pos in ((here, here), (there, here), (there, there), (here, there)):
        for found, positions in zip(rotary.rotate(x, x, q_pos, k_pos), (q_pos, k_pos), strict=True):
            torch.testing.assert_close(found, turned(x, positions), rtol=0, atol=1e-12)
    assert not rotary.state_dict()


def test_layers_of_a_pass_share_a_table_and_so_may_a_pass_with_gradients(monkeypatch):
    rotary, made = Rotary(SHAPE, Causal()), []
    angles = rotary._angles
    monkeypatch.setattr(rotary, "_angles", lambda positions: made.append(positions) or angles(positions))
    positions = torch.arange(5)[None]
    with torch.inference_mode():
        rotary.rotate(torch.randn(1, 5, 2, 8), torch.randn(1, 5, 2, 8), positions, positions)
    q = torch.randn(1, 5, 2, 8, requires_grad=True)
    rotary.rotate(q, q, positions, positions)[0].sum().backward()
    assert q.grad is not None
    assert len(made) == 1
