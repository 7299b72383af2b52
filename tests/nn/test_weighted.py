"""The Weighted Transformer's branches against the paper's formula in float64, and what they weigh."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from scaling.nn.context import Context, Mask, Places
from scaling.nn.embeddings import NoPosition
from scaling.schema import build
from scaling.shape import Shape

SHAPE = Shape.of({"width": 6, "layers": 1, "heads": 3, "vocabulary": 5, "length": 4, "hidden": 7})
CHANNEL = {"kind": "Dense", "activation": "ReLU"}
LINE = {"kind": "Weighted", "mixer": {"kind": "Attention"}, "channel": CHANNEL}


def softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_each_head_is_a_branch():
    piece: Any = build("mixer", LINE, SHAPE).double()
    for parameter in piece.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    places = Places.of(torch.zeros(2, 4, dtype=torch.long))
    found = piece(x, Context(places, places, Mask(), NoPosition(SHAPE, build("pattern", "Bidirectional"))))
    p = {name: parameter.detach().numpy() for name, parameter in piece.named_parameters()}
    q, k, v = (x.numpy() @ p[f"mixer.{name}.weight"].T for name in ("query", "key", "value"))
    kappa, alpha, expected = softmax(p["kappa"]), softmax(p["alpha"]), 0.0
    for i in range(3):
        own = slice(2 * i, 2 * i + 2)
        head = softmax(q[..., own] @ k[..., own].swapaxes(-1, -2) / np.sqrt(2)) @ v[..., own]
        barred = kappa[i] * (head @ p["out.weight"][:, own].T)
        hidden = np.maximum(barred @ p["channel.hidden.weight"].T + p["channel.hidden.bias"], 0)
        expected = expected + alpha[i] * (hidden @ p["channel.out.weight"].T + p["channel.out.bias"])
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-10)
