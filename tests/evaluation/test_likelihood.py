"""Likelihoods in batches, from shared contexts and caches, against their definition: one token after another."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build, overlay
from scaling.evaluation.generate import prompt
from scaling.evaluation.likelihood import Request, Scorer
from scaling.model.family import Family
from tests.evaluation import test_generate

MIXERS = {
    "LSTM": {"block": {"mixer": "LSTM"}},
    "a convolution": {"block": {"mixer": {"kind": "LightweightConvolution", "kernel": 3}}},
    "a window": {"pattern": {"kind": "Window", "size": 4, "pattern": "Causal"}},
    "experts": {"block": {"channel": {"kind": "Switch", "experts": 4, "activation": "ReLU"}}},
    "adaptive softmax": {"head": {"kind": "AdaptiveSoftmax", "cutoffs": [0.5]}, "tie": []},
}
IDS = {"start": 1, "bos": 1, "pad": 0, "eos": 3}


def model(name: str) -> Family:
    if name in test_generate.MODELS:
        return test_generate.model(name)
    torch.manual_seed(1)
    made = build("model", overlay(load("decoder")["model"], MIXERS[name]), test_generate.SIZE).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.eval()


def requests() -> list[Request]:
    """Contexts with one continuation and with several, of unequal lengths."""
    draw = random.Random(3)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(4, 11) for _ in range(count))

    found = [Request(tokens(draw.randrange(1, 9)), tokens(draw.randrange(1, 6))) for _ in range(4)]
    for length in (1, 3, 3, 7):
        context = tokens(length)
        found += [Request(context, tokens(draw.randrange(1, 6))) for _ in range(3)]
    draw.shuffle(found)
    return found


def definition(made: Family, request: Request) -> Tensor:
    """−ln p of each token, from a pass of its own without padding or cache."""
    context, continuation = torch.tensor([request.context]), torch.tensor([request.continuation])
    if made.family == "encoder_decoder":
        batch = prompt(torch.cat([torch.tensor([[1]]), continuation[:, :-1]], 1), source=context)
    else:
        batch = prompt(torch.cat([context, continuation[:, :-1]], 1), prefix=torch.tensor([context.shape[1]]))
    with torch.no_grad():
        logits = made.logits(batch)[:, -continuation.shape[1] :]
    return -logits.log_softmax(-1).gather(-1, continuation[..., None])[0, :, 0]


SHARED = ("position Learned", "position Rotary", "position RelativeBias", "prefix", "t5", "transparent", "funnel")


@pytest.mark.parametrize("name", [*SHARED, *MIXERS])
def test_likelihoods_are_their_definition(name: str) -> None:
    made, asked = model(name), requests()
    found = Scorer(made, IDS, 24, tokens=40).nats(asked)
    for request, nats in zip(asked, found, strict=True):
        np.testing.assert_allclose(nats, definition(made, request), atol=1e-9)


def test_a_context_that_is_too_long_loses_its_first_tokens() -> None:
    made = model("position Rotary")
    scorer = Scorer(made, IDS, 6)
    long, short = Request((4, 5, 6, 7, 8, 9), (5, 4, 6)), Request((6, 7, 8, 9), (5, 4, 6))
    assert [scorer.truncates(request) for request in (long, short)] == [True, False]
    np.testing.assert_array_equal(scorer.nats([long])[0], scorer.nats([short])[0])
    with pytest.raises(ScalingError, match="7 tokens is longer than the window of 6"):
        scorer.nats([Request((4,), (5,) * 7)])


def test_padding_stays_within_learned_positions() -> None:
    made = model("position Learned")
    asked = [Request((*range(4, 11), *range(4, 11), *[4] * 6), (5, 6, 7, 8, token)) for token in (4, 5)]
    asked += [Request((4, 5, 6, 7, 8), (token,) * 12) for token in (9, 10)]
    for request, nats in zip(asked, Scorer(made, IDS, 24).nats(asked), strict=True):
        np.testing.assert_allclose(nats, definition(made, request), atol=1e-9)


def test_the_context_of_several_continuations_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = model("position Rotary")
    seen = []
    forward = type(made.decoder).forward  # type: ignore[attr-defined]
    monkeypatch.setattr(
        type(made.decoder),
        "forward",
        lambda self, batch, **rest: (seen.append(batch.tokens.numel()), forward(self, batch, **rest))[1],
    )
    context = tuple(range(4, 11)) * 2
    Scorer(made, IDS, 24).nats([Request(context, (token, 5)) for token in range(4, 11)])
    assert seen == [14, 7]


@pytest.mark.parametrize("name", ["t5", "adaptive softmax"])
def test_a_continuation_is_greedy_where_each_of_its_tokens_is_the_likeliest(name: str) -> None:
    made, asked = model(name), requests()
    scorer = Scorer(made, IDS, 24, tokens=40)
    likeliest = []
    for context, _ in asked[:4]:  # what greedy decoding writes, found by scoring every token
        written: list[int] = []
        for _ in range(3):
            each = [Request(context, (*written, token)) for token in range(11)]
            nats = [one[-1] for one in scorer.nats(each)]
            written.append(int(np.argmin(nats)))
        other = (*written[:-1], (written[-1] + 1) % 11)
        likeliest += [Request(context, tuple(written)), Request(context, other)]
    found = scorer.nats_and_greedy([*likeliest, *asked])
    assert [greedy for _, greedy in found[: len(likeliest)]] == [True, False] * 4
    for (nats, _), expected in zip(found, scorer.nats([*likeliest, *asked]), strict=True):
        np.testing.assert_allclose(nats, expected, atol=1e-5)
