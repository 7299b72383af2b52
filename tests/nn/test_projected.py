"""Embeddings and heads at a width of their own."""

from __future__ import annotations

import numpy as np
import torch

from scaling.batch import Batch
from scaling.config import load

SIZE = "size={width: 16, layers: 1, heads: 2, vocabulary: 31, length: 9}"
NARROW = "model.embedding={kind: Projected, width: 6, segments: 2, norm: LayerNorm, scale: sqrt_width}"
HEAD = "model.head={kind: Transform, activation: ReLU, norm: LayerNorm, width: 6}"


def model(*words: str):
    config = load("encoder", [SIZE, *words])
    return config.build("model", config["size"])


def normed(x: np.ndarray) -> np.ndarray:
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)


def test_the_embedding_and_the_tied_head_are_their_formulas() -> None:
    torch.manual_seed(0)
    made = model(
        NARROW, HEAD, "model.position=Learned", "model.tie=[encoder, head]", "model.stack.norm=NoNorm"
    ).double()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    values = {name: p.detach().numpy() for name, p in made.named_parameters()}
    assert values["encoder.stack.positions.0.table"].shape == (9, 6)
    assert made.head.weight is made.encoder.embedding.table
    tokens, segments = torch.randint(31, (2, 9)), torch.randint(2, (2, 9))
    read: list[torch.Tensor] = []
    made.encoder.embedding.register_forward_hook(lambda piece, given, x: read.append(x))
    hidden = made(Batch(tokens, tokens, segments=segments)).hidden

    name = "encoder.embedding."
    x = values[f"{name}table"][tokens] * 6**0.5 + values["encoder.stack.positions.0.table"]
    x = normed(x + values[f"{name}segments"][segments]) * values[f"{name}norm.gain"] + values[f"{name}norm.bias"]
    x = x @ values[f"{name}projection.weight"].T + values[f"{name}projection.bias"]
    np.testing.assert_allclose(read[0].detach().numpy(), x, atol=1e-12)

    y = np.maximum(hidden.detach().numpy() @ values["head.dense.weight"].T + values["head.dense.bias"], 0)
    y = normed(y) * values["head.norm.gain"] + values["head.norm.bias"]
    y = y @ values[f"{name}table"].T + values["head.bias"]
    np.testing.assert_allclose(made.head(hidden).detach().numpy(), y, atol=1e-12)
