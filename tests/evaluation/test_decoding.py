"""Decoding and likelihoods, cached and padded, against their definitions: a row at a time, read again at each step."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from scaling.config.compose import load
from scaling.config.schema import build, overlay
from scaling.evaluation.generate import Written, aligned, generate, prompt
from scaling.evaluation.likelihood import Request, Scorer
from scaling.evaluation.strategy import Beam, Greedy, Sample
from scaling.model.patterns import Prefix
from tests.command_line import refuses

SIZE = {"width": 16, "layers": 2, "heads": 2, "vocabulary": 11, "length": 24}
STOP, STOPS, STEPS = frozenset({3}), frozenset({3, 5}), 5
TEXTS = ([5, 7, 9, 4, 8], [6, 4], [10, 5, 7])

# What a search chooses rows of: keys, states, a memory, a prefix. tests/model reads each piece from a cache.
MODELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "rotary": ("decoder", {}, {}),
    "learned": ("gpt2", {}, {}),
    "bias": ("decoder", {"position": "RelativeBias"}, {"key_heads": 1}),
    "prefix": ("decoder", {"pattern": "Prefix"}, {}),
    "window": ("decoder", {"pattern": {"kind": "Window", "size": 4, "pattern": "Causal"}}, {}),
    "LSTM": ("decoder", {"block": {"mixer": "LSTM"}}, {}),
    "experts": ("decoder", {"block": {"channel": {"kind": "Switch", "experts": 4, "activation": "ReLU"}}}, {}),
    "adaptive softmax": ("decoder", {"head": {"kind": "AdaptiveSoftmax", "cutoffs": [0.5]}, "tie": []}, {}),
    "t5": ("t5", {}, {}),
    "transparent": ("encoder_decoder", {"memory": "Transparent"}, {}),
    "funnel": ("encoder_decoder", {"encoder": {"stack": {"kind": "Funnel", "norm": "RMSNorm"}}}, {}),
    "universal": ("decoder", {"stack": {"kind": "Universal", "norm": "RMSNorm", "halting": "ACT"}}, {}),
    "large vocabulary": ("decoder", {}, {"vocabulary": 1663}),  # is searched block by block
}
# Beams and penalties; with one beam a longer text overtakes one that ended.
BEAMS = {"learned": [(4, 0.0)], "prefix": [(3, 1.0)], "t5": [(3, 2.0), (1, 4.0)], "transparent": [(2, 2.0)]}
BEAMS |= {"funnel": [(2, 1.0)], "large vocabulary": [(4, 1.0)], "LSTM": [(3, 1.0)]}


def model(name):
    base, lines, sizes = MODELS[name]
    torch.manual_seed(1)
    made = build("model", overlay(load(base)["model"], lines), {**SIZE, **sizes}).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.5)
    return made.eval()


def prompted(made, texts):
    """A batch of texts, padded to the longest."""
    tokens, documents = aligned(texts)
    if made.family == "encoder_decoder":
        return prompt(torch.ones(len(texts), 1, dtype=torch.long), source=tokens, source_documents=documents)
    ahead = isinstance(made.decoder.pattern, Prefix)
    return prompt(tokens, documents, prefix=torch.tensor([*map(len, texts)]) if ahead else None)


def prompts(made):
    """One padded batch, and its rows by themselves."""
    return prompted(made, TEXTS), [prompted(made, [text]) for text in TEXTS]


@torch.no_grad()
def next_likelihoods(made, row, written):
    """[v]: log p of what may follow a row's prompt and what was written so far."""
    tokens = torch.cat([row.tokens, torch.tensor([list(written)], dtype=torch.long)], 1)
    return made.logits(replace(row, tokens=tokens, targets=tokens))[0, -1].double().log_softmax(-1)


def one_by_one(made, row, choose, steps):
    tokens, score = [], 0.0
    for step in range(steps):
        likelihood = next_likelihoods(made, row, tokens)
        token = choose(likelihood, step)
        score += float(likelihood[token])
        if token in STOP:
            return Written(tokens, score, True)
        tokens.append(token)
    return Written(tokens, score, False)


def beam_search(made, row, beams, penalty):
    """Beam search that never stops early."""
    live, ended = [([], 0.0)], []
    for length in range(1, STEPS + 1):
        norm, ranked = ((5 + length) / 6) ** penalty, []
        for tokens, score in live:
            likelihoods = next_likelihoods(made, row, tokens).tolist()
            ranked += [(score + likelihood, tokens, token) for token, likelihood in enumerate(likelihoods)]
        live = []
        for score, tokens, token in sorted(ranked, key=lambda each: -each[0]):
            if token in STOPS:
                ended.append(Written(tokens, score / norm, True))
            else:
                live.append(([*tokens, token], score))
            if len(live) == beams:
                break
    ended += [Written(tokens, score / ((5 + STEPS) / 6) ** penalty, False) for tokens, score in live]
    return sorted(ended, key=lambda written: -written.score)[:beams]


def same(found, expected):
    assert (found.tokens, found.stopped) == (expected.tokens, expected.stopped)
    assert found.score == pytest.approx(expected.score, abs=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_greedy_and_beam_search_are_their_definitions(name):
    made = model(name)
    whole, alone = prompts(made)
    for (found,), row in zip(generate(made, whole, Greedy(), steps=STEPS, stop=STOP), alone, strict=True):
        same(found, one_by_one(made, row, lambda likelihood, step: int(likelihood.argmax()), STEPS))
    for beams, penalty in BEAMS.get(name, []):
        several = generate(made, whole, Beam(beams=beams, penalty=penalty), steps=STEPS, stop=STOPS)
        for found, row in zip(several, alone, strict=True):
            for one, other in zip(found, beam_search(made, row, beams, penalty), strict=True):
                same(one, other)


def test_sampling_is_its_definition_and_follows_the_model():
    made = model("rotary")
    whole, alone = prompts(made)
    strategy = Sample(temperature=0.7, top_k=6, top_p=0.9, seed=3)
    for index, ((found,), row) in enumerate(zip(generate(made, whole, strategy, steps=8, stop=STOP), alone)):

        def choose(logits, step, index=index):
            padded = logits.expand(len(TEXTS), -1)  # a draw belongs to its row's number
            return int(strategy.draw(padded, step)[index])

        same(found, one_by_one(made, row, choose, 8))
    wanted = torch.tensor([0.4, 0.3, 0.2, 0.1])
    logits = wanted.log().expand(40_000, -1)
    drawn = Sample(seed=5).draw(logits, step=2)
    for token, share in enumerate(wanted.tolist()):
        assert abs(int((drawn == token).sum()) - 40_000 * share) < 5 * math.sqrt(40_000 * share * (1 - share))
    assert not torch.equal(drawn, Sample(seed=6).draw(logits, step=2))
    assert not torch.equal(drawn, Sample(seed=5).draw(logits, step=3))
    chances = [0.5, 0.2, 0.15, 0.1, 0.05]
    squares = [chance**2 / sum(chance**2 for chance in chances) for chance in chances]
    for strategy, expected in (
        (Sample(top_k=3), [0.5 / 0.85, 0.2 / 0.85, 0.15 / 0.85, 0, 0]),
        (Sample(top_p=0.7), [0.5, 0.2, 0, 0, 0]),
        (Sample(top_p=0.71), [0.5, 0.2, 0.15, 0, 0]),
        (Sample(temperature=0.5), squares),
    ):
        probability, token = strategy.kept(torch.tensor([chances]).log())
        assert token[0].tolist() == [0, 1, 2, 3, 4]
        assert probability[0].tolist() == pytest.approx(expected)


def test_a_text_ends_before_a_stop_token_and_within_learned_positions():
    made = model("learned").train()
    whole, _ = prompts(made)
    first = generate(made, whole, Greedy(), steps=6)[0][0].tokens
    assert made.training  # as it was
    again = generate(made, whole, Greedy(), steps=6, stop={first[2]})[0][0]
    assert (again.tokens, again.stopped) == (first[: first.index(first[2])], True)
    batch = prompt(torch.full((1, 20), 4))
    assert len(generate(made, batch, Greedy(), steps=5)[0][0].tokens) == 5
    refuses("at most 5", generate, made, batch, Greedy(), steps=6)
    refuses("cannot write", generate, build("model", load("bert")["model"], SIZE), batch, Greedy(), steps=1)


IDS = {"start": 1, "bos": 1, "pad": 0, "eos": 3}


def requests(made):
    """Contexts with one continuation and with several, of unequal lengths; the first ones are written greedily."""
    several = [
        (context, own) for context in ((5,), (7, 8, 4), (9, 4, 6, 5, 10, 7, 8)) for own in ((6,), (4, 9, 10, 5, 5))
    ]
    asked = [Request(*pair) for pair in (((8, 4), (5, 9, 10)), *several[::2], ((4,) * 8, (6, 7)), *several[1::2])]
    for context, _ in asked[:2]:
        first = int(definition(made, Request(context, (4,))).argmax())
        second = int(definition(made, Request(context, (first, 4)))[-1].argmax())
        asked += [Request(context, (first, second)), Request(context, (first, (second + 1) % 11))]
    # Padding stays within learned positions.
    asked += [Request((*range(4, 11), *range(4, 11), *[4] * 6), (5, 6, 7, 8, token)) for token in (4, 5)]
    return asked + [Request((4, 5, 6, 7, 8), (token,) * 12) for token in (9, 10)]


def definition(made, request):
    """log p [t v] at each token, from passes of their own without padding or cache."""
    row, written = prompted(made, [request.context]), request.continuation
    return torch.stack([next_likelihoods(made, row, written[:count]) for count in range(len(written))])


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("universal", "large vocabulary")])
def test_likelihoods_are_their_definition_and_greedy_where_each_token_is_the_likeliest(name):
    made = model(name)
    asked, scorer = requests(made), Scorer(made, IDS, 24, tokens=40)
    greedy = []
    for request, nats, (again, likeliest) in zip(asked, scorer.nats(asked), scorer.nats_and_greedy(asked), strict=True):
        expected, wanted = definition(made, request), torch.tensor(request.continuation)
        np.testing.assert_allclose(nats, -expected.gather(-1, wanted[:, None])[:, 0], atol=1e-9)
        np.testing.assert_allclose(again, nats, atol=1e-5)
        assert likeliest == bool((expected.argmax(-1) == wanted).all())
        greedy.append(likeliest)
    assert 2 <= sum(greedy) < len(asked) - 2


def test_a_context_is_read_once_and_loses_its_first_tokens_where_it_is_too_long():
    made = model("rotary")
    scorer = Scorer(made, IDS, 6)
    long, short = Request((4, 5, 6, 7, 8, 9), (5, 4, 6)), Request((6, 7, 8, 9), (5, 4, 6))
    assert [scorer.truncates(request) for request in (long, short)] == [True, False]
    np.testing.assert_array_equal(scorer.nats([long])[0], scorer.nats([short])[0])
    refuses("7 tokens is longer than the window of 6", scorer.nats, [Request((4,), (5,) * 7)])
    seen = []
    made.decoder.register_forward_pre_hook(lambda decoder, inputs: seen.append(inputs[0].tokens.numel()))
    Scorer(made, IDS, 24).nats([Request(tuple(range(4, 11)) * 2, (token, 5)) for token in range(4, 11)])
    assert seen == [14, 7]
