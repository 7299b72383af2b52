"""The Funnel Transformer's pooling and stages against the paper's formulas in float64, and what it saves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scaling.batch import Batch
from scaling.config import load
from scaling.nn.context import Places
from scaling.nn.stacks import _Pooling, _shared_out
from scaling.training.parametrization import Standard, initialise


def built(family: str, *changes: str, layers: int = 6) -> Any:
    size = f"size={{width: 16, layers: {layers}, heads: 2, vocabulary: 31, length: 24}}"
    config = load(family, [size, *changes])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    return initialise(model, Standard(head="normal"), 0).double().eval()


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=3))
def test_windows_are_each_documents_own(rows):
    """Lengths of padding and documents in turn, packed into rows: every document is pooled as if it were alone."""
    length = max(1, *(sum(row) for row in rows))
    documents = torch.zeros(len(rows), length, dtype=torch.long)
    expected = []
    x = torch.arange(1.0, 1 + documents.numel(), dtype=torch.float64).view(len(rows), length, 1)
    for number, row in enumerate(rows):
        start, means = 0, []
        for index, size in enumerate(row):
            if index % 2:
                documents[number, start : start + size] = index
                for window in range(start, start + size, 2):
                    inside = x[number, window : min(window + 2, start + size), 0]
                    means.append((index, window, inside.mean().item()))
            start += size
        expected.append(means)
    pooling = _Pooling.of(Places.of(documents, torch.arange(length)[None], documents), length)
    pooled, told = pooling(x), pooling.after.documents
    assert told is not None
    for number, means in enumerate(expected):
        count = len(means)
        assert told[number].tolist() == [index for index, *_ in means] + [0] * (told.shape[1] - count)
        assert pooling.among.positions[number, :count].tolist() == [window for _, window, _ in means]
        assert pooling.after.positions[number, :count].tolist() == [window // 2 for _, window, _ in means]
        assert pooled[number, :count, 0].tolist() == [mean for *_, mean in means]
        back = pooling.undo(pooled)[number, :, 0]
        for index, window, mean in means:
            assert back[window].item() == mean
            if window + 1 < length and documents[number, window + 1] == index:
                assert back[window + 1].item() == mean


def test_a_stage_begins_with_pooled_queries_and_keys_at_full_length():
    """h ← pool(h) + softmax(q(pool(norm h)) k(norm h)ᵀ + B) v(norm h) W, B at the positions of both."""
    model = built("encoder_decoder", "model.encoder.stack={kind: Funnel, norm: NoNorm, stages: 2}", layers=2).double()
    stack = model.encoder.stack
    given: list[torch.Tensor] = []
    made: list[torch.Tensor] = []
    branch = stack.blocks[1].branches["mixer"]
    branch.register_forward_pre_hook(lambda module, inputs: given.append(inputs[0].detach()))
    branch.register_forward_hook(lambda module, inputs, output: made.append(output.detach()))
    source = torch.randint(0, 31, (2, 7))
    model.encoder(source)
    h = given[0].numpy()
    p = {name: parameter.detach().numpy() for name, parameter in branch.named_parameters()}
    mean = h.mean(-1, keepdims=True)
    normed = (h - mean) / np.sqrt(h.var(-1, keepdims=True) + 1e-6) * p["norm.gain"] + p["norm.bias"]

    def pool(x):
        return np.stack([x[:, i : i + 2].mean(1) for i in range(0, 7, 2)], 1)

    q = pool(normed) @ p["piece.query.weight"].T
    k, v = (normed @ p[f"piece.{name}.weight"].T for name in ("key", "value"))
    at = torch.arange(0, 7, 2)[None], torch.arange(7)[None]
    bias = stack.positions[0].score(torch.zeros(1, 4, 2, 8), torch.zeros(1, 7, 2, 8), *at).detach().numpy()
    heads = []
    for i in range(2):
        own = slice(8 * i, 8 * i + 8)
        logits = q[..., own] @ k[..., own].swapaxes(-1, -2) + bias[0, i]
        weights = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        heads.append(weights @ v[..., own])
    expected = pool(h) + np.concatenate(heads, -1) @ p["piece.out.weight"].T
    np.testing.assert_allclose(made[0].numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "change",
    [
        *(f"model.position={kind}" for kind in ("RelativeBias", "Rotary", "Shaw", "ALiBi", "TransformerXL")),
        "model.encoder.pattern={kind: Window, size: 5, pattern: Bidirectional}",
        "model.block.residual=ReZero",
        "model.encoder.block.branches=[channel, mixer, channel, mixer]",
        "model.encoder.block.mixer={kind: Weighted, mixer: Attention, channel: {kind: Dense, activation: GeLU}}",
    ],
)
def test_a_packed_batch_is_read_as_its_documents_alone(change):
    model = built("encoder_decoder", change, "model.encoder.stack={kind: Funnel, norm: RMSNorm}").double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    documents = torch.tensor([[0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 0], [1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2]])
    source = torch.randint(0, 31, documents.shape)
    found = model.encoder(source, documents=documents)
    for row in range(2):
        for document in range(1, int(documents[row].max()) + 1):
            alone = model.encoder(source[row][documents[row] == document][None]).hidden[0]
            there = found.hidden[row][found.documents[row] == document]
            torch.testing.assert_close(there, alone, rtol=0, atol=1e-12)


def test_upsampling_repeats_and_adds_the_first_stage():
    model = built("encoder", "model.stack={kind: UpsampledFunnel, norm: NoNorm, decoder: 0}", "model.tie=[]", layers=3)
    made: list[torch.Tensor] = []
    for block in model.encoder.stack.blocks:
        block.register_forward_hook(lambda module, inputs, output: made.append(output))
    tokens = torch.randint(0, 31, (2, 7))
    found = model(Batch(tokens, tokens)).hidden
    first, _, last = made
    assert [x.shape[1] for x in made] == [7, 4, 2]
    torch.testing.assert_close(found, first + last.repeat_interleave(4, 1)[:, :7], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("layers", "stages", "expected"), [(12, 3, [4, 4, 4]), (5, 3, [2, 2, 1]), (2, 3, [1, 1]), (1, 1, [1])]
)
def test_layers_are_shared_out(layers, stages, expected):
    assert [len(stage) for stage in _shared_out(layers, stages)] == expected
