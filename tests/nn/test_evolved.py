"""The Evolved Transformer's blocks against So et al.'s figure 3, written out document by document in float64 numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scaling.nn.context import Context, Mask, Places, render
from scaling.nn.embeddings import NoPosition
from scaling.nn.patterns import Bidirectional, Causal
from scaling.schema import build
from scaling.shape import Shape

ROWS, LENGTH, WIDTH, HEADS, SOURCE = 2, 13, 8, 2, 5
SHAPE = Shape.of(
    {"width": WIDTH, "layers": 1, "heads": HEADS, "head_width": 3, "hidden": 10, "vocabulary": 8, "length": LENGTH}
)
PACKED = torch.tensor([[1] * 5 + [2] * 8, [0] * 2 + [1] * 9 + [0] * 2])
LINE = {
    "norm": {"kind": "LayerNorm", "eps": 1e-6},
    "residual": "Pre",
    "mixer": "Attention",
    "channel": {"kind": "Dense", "activation": "Swish"},
}


def made(kind: str, **keys) -> torch.nn.Module:
    torch.manual_seed(0)
    block = build("block", {"kind": kind, **LINE, **keys}, SHAPE).double()
    for parameter in block.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return block


def context(pattern, documents=None, memory=None) -> Context:
    places = Places.of(torch.zeros(ROWS, LENGTH), documents=documents)
    mask = render(pattern, places, places)
    memories = () if memory is None else (memory,)
    return Context(places, places, mask, NoPosition(SHAPE, pattern), memories=memories, memory_mask=Mask())


def inputs(length: int = LENGTH) -> torch.Tensor:
    return torch.randn(ROWS, length, WIDTH, generator=torch.Generator().manual_seed(length), dtype=torch.float64)


class Written:
    """The block on one document, by the names of its parameters."""

    def __init__(self, block: torch.nn.Module, causal: bool):
        self.weights = {name: p.detach().numpy() for name, p in block.named_parameters()}
        self.causal = causal

    def linear(self, x, name):
        return x @ self.weights[f"{name}.weight"].T + self.weights.get(f"{name}.bias", 0)

    def norm(self, x, name):
        centred = x - x.mean(-1, keepdims=True)
        unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return unit * self.weights[f"{name}.gain"] + self.weights[f"{name}.bias"]

    def windows(self, x, kernel):
        ahead = 0 if self.causal else kernel // 2
        padded = np.pad(x, ((kernel - 1 - ahead, ahead), (0, 0)))
        return np.stack([padded[j : j + len(x)] for j in range(kernel)], 1)

    def separable(self, x, depthwise, pointwise):
        taps = self.weights[f"{depthwise}.taps"]
        mixed = np.einsum("tkw,kw->tw", self.windows(x, len(taps)), taps) + self.weights[f"{depthwise}.shift"]
        return self.linear(mixed, pointwise)

    def attention(self, x, m, name, causal):
        q, k, v = (self.linear(a, f"{name}.{b}") for a, b in ((x, "query"), (m, "key"), (m, "value")))
        said = []
        for h in range(HEADS):
            part = slice(3 * h, 3 * h + 3)
            logits = q[:, part] @ k[:, part].T / np.sqrt(3)
            if causal:
                logits = np.where(np.tri(len(x)) > 0, logits, -np.inf)
            e = np.exp(logits - logits.max(-1, keepdims=True))
            said.append(e / e.sum(-1, keepdims=True) @ v[:, part])
        return self.linear(np.concatenate(said, -1), f"{name}.out")

    def channel(self, x):
        hidden = self.linear(x, "branches.channel.piece.hidden")
        return self.linear(hidden / (1 + np.exp(-hidden)), "branches.channel.piece.out")

    def branch(self, x, name, piece):
        return x + piece(self.norm(x, f"branches.{name}.norm"))

    def encoder(self, x):
        gate, wide = "branches.channel_gate.piece", "branches.mixer_convolution.piece"

        def convolution(x):
            left = np.maximum(self.linear(x, f"{wide}.left"), 0)
            taps = self.weights[f"{wide}.right.taps.weight"].reshape(WIDTH // 2, 3, WIDTH)
            right = np.maximum(np.einsum("tkw,okw->to", self.windows(x, 3), taps), 0)
            left[:, : WIDTH // 2] += right
            out = self.separable(self.norm(left, f"{wide}.norm"), f"{wide}.depthwise", f"{wide}.out")
            return np.pad(out, ((0, 0), (0, WIDTH // 2)))

        x = self.branch(
            x, "channel_gate", lambda x: self.linear(x, f"{gate}.out") / (1 + np.exp(-self.linear(x, f"{gate}.gate")))
        )
        x = self.branch(x, "mixer_convolution", convolution)
        x = self.branch(x, "mixer", lambda x: self.attention(x, x, "branches.mixer.piece", self.causal))
        return self.branch(x, "channel", self.channel)

    def decoder(self, x, memory):
        sides, wide = "branches.mixer_wide.piece.sides", "branches.mixer_convolution.piece"

        def attentions(x):
            own = sum(self.attention(x, x, f"{sides}.{i}", self.causal) for i in (0, 1))
            return own + (0 if memory is None else self.attention(x, memory, f"{sides}.2", False))

        def convolution(x):
            left = np.maximum(self.separable(x, f"{wide}.left_depthwise", f"{wide}.left"), 0)
            left[:, : WIDTH // 2] += self.separable(x, f"{wide}.right_depthwise", f"{wide}.right")
            return self.separable(self.norm(left, f"{wide}.norm"), f"{wide}.depthwise", f"{wide}.out")

        x = self.branch(x, "mixer_wide", attentions)
        x = self.branch(x, "mixer_convolution", convolution)
        x = self.branch(x, "mixer", lambda x: self.attention(x, x, "branches.mixer.piece", self.causal))
        if memory is not None:
            x = self.branch(x, "cross", lambda x: self.attention(x, memory, "branches.cross.piece", False))
        return self.branch(x, "channel", self.channel)


@pytest.mark.parametrize("pattern", [Causal(), Bidirectional()], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("documents", [None, PACKED], ids=["plain", "packed"])
@pytest.mark.parametrize("kind", ["EvolvedEncoder", "EvolvedDecoder"])
def test_a_block_is_the_figures(kind, pattern, documents):
    block, x = made(kind), inputs()
    written = Written(block, not pattern.ahead)
    found = block(x, context(pattern, documents)).detach().numpy()
    labels = torch.ones(ROWS, LENGTH) if documents is None else documents
    for row, name in ((row, name) for row in range(ROWS) for name in (1, 2)):
        here = (labels[row] == name).numpy()
        if here.any():
            own = x[row].numpy()[here]
            expected = written.encoder(own) if kind == "EvolvedEncoder" else written.decoder(own, None)
            np.testing.assert_allclose(found[row, here], expected, atol=1e-10, rtol=1e-10)


def test_a_decoder_reads_the_encoder_twice():
    block, x, memory = made("EvolvedDecoder", cross="CrossAttention"), inputs(), inputs(SOURCE)
    found = block(x, context(Causal(), memory=memory)).detach().numpy()
    written = Written(block, causal=True)
    for row in range(ROWS):
        expected = written.decoder(x[row].numpy(), memory[row].numpy())
        np.testing.assert_allclose(found[row], expected, atol=1e-10, rtol=1e-10)
