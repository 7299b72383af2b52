"""Transparent attention against the paper's sum in float64, and what it weighs at the size of the table."""

from __future__ import annotations

import numpy as np
import torch

from scaling.config import load
from scaling.nn.stacks import Transparent

SIZE = "size={width: 16, layers: 3, heads: 2, vocabulary: 31, length: 12, decoder: {layers: 2}}"


def test_each_reader_reads_its_own_mean_of_all_layers():
    layers = [torch.randn(2, 5, 4, dtype=torch.float64) for _ in range(4)]
    memory = Transparent(3, 2).double()
    torch.nn.init.normal_(memory.weight)
    weights = memory.weight.detach().numpy().reshape(2, 4).T  # 4 layers × 2 readers
    shares = np.exp(weights) / np.exp(weights).sum(0)
    for reader, found in enumerate(memory(layers)):
        expected = sum(shares[j, reader] * layers[j].numpy() for j in range(4))
        np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-12)


def test_layers_are_the_embedding_the_stream_and_the_output():
    config = load("encoder_decoder", [SIZE, "model.memory=Transparent"])
    encoder = config.build("model", config["size"]).encoder
    streams: list[torch.Tensor] = []
    for block in encoder.stack.blocks:
        block.register_forward_hook(lambda module, given, made: streams.append(made))
    source, layers = torch.randint(0, 31, (2, 6)), []
    output = encoder(source, layers=layers)
    for found, expected in zip(layers, [encoder.embedding.table[source], *streams[:-1], output.hidden], strict=True):
        assert torch.equal(found, expected)
