"""Encoders: pseudo-likelihoods against their definition, and what they fill in."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.evaluation.generate import prompt
from scaling.evaluation.likelihood import MaskedScorer, masked
from tests.evaluation.conftest import FOLLOWS, WORDS, Ledger

SIZE = {"width": 16, "layers": 1, "heads": 2, "vocabulary": 11, "length": 8}
IDS = {"cls": 1, "sep": 2, "mask": 3, "pad": 0}


def definition(model: Any, text: list[int], words: list[bool], masking: str) -> float:
    """A pass for each token, in the window around it."""
    total = 0.0
    for at, token in enumerate(text):
        first = max(0, min(at - 3, len(text) - 6))
        end = at + 1
        while masking == "word" and end < len(text) and not words[text[end]]:
            end += 1
        seen = [3 if at <= place < end else one for place, one in enumerate(text)][first : first + 6]
        with torch.no_grad():
            logits = model.logits(prompt(torch.tensor([[1, *seen, 2]])))[0, 1 + at - first]
        total -= float(logits.log_softmax(-1)[token])
    return total


@pytest.mark.parametrize("masking", ["token", "word"])
def test_pseudo_likelihoods_are_their_definition(masking: Any) -> None:
    torch.manual_seed(1)
    model: Any = build("model", load("encoder")["model"], SIZE).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    model.eval()
    words = [True] * 8 + [False] * 3
    texts = [[4, 8, 9, 5], [6], [5, 9, 10, 8, 4, 7, 8, 6, 10, 4], [7, 7, 9]]
    found = MaskedScorer(model, IDS, 8, masking, np.array(words), tokens=24).nats(texts)
    np.testing.assert_allclose(found, [definition(model, text, words, masking) for text in texts], atol=1e-9)


def test_a_corpus_has_a_pseudo_perplexity(language: Ledger, capsys: Any) -> None:
    found = scaling.evaluate_corpus(language.ids["encoder"], runs=language.runs, limit=5, masking="word")
    assert set(found.metrics) == {"nats_per_token", "perplexity"}
    assert found.metrics["perplexity"] == pytest.approx(math.exp(found.nats / found.tokens))
    assert (found.masking, found.stride) == ("word", None)
    with pytest.raises(ScalingError, match="does not apply to a run of the family encoder"):
        scaling.evaluate_corpus(language.ids["encoder"], runs=language.runs, stride=4)


def test_masks_are_filled(language: Ledger, capsys: Any) -> None:
    run, runs = language.ids["encoder"], f"runs={language.runs}"
    model = scaling.load(run, runs=language.runs)
    word = WORDS[3]
    ((best, *_), others) = model.fill(f"{word} [MASK] {FOLLOWS[word][0]} [MASK]", best=3)
    assert best.text.strip() in WORDS
    assert len(others) == 3
    assert [one.probability for one in others] == sorted((one.probability for one in others), reverse=True)
    capsys.readouterr()
    assert main(["generate", run, "--prompt", f"{word} [MASK]", runs]) == 0
    assert "mask 1: " in capsys.readouterr().out
    for prompt_, message in ((word, "it has no mask"), (f"{word} [MASK]" * 60, "more than the window of 34")):
        assert main(["generate", run, "--prompt", prompt_, runs]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(ScalingError, match="fills no mask"):
        scaling.load(language.ids["decoder"], runs=language.runs).fill("[MASK]")


def test_gaps_are_sentinels_of_a_model_that_has_them() -> None:
    codec, ids = Codec(Byte().fit(iter(()))), {"sentinel_0": 260, "sentinel_1": 261}
    a, b = (list(tokens) for tokens in codec.encode(["the", " law"]))
    assert masked(codec, ids, "the [MASK] law [MASK]") == [*a, 260, *b, 261]
    with pytest.raises(ScalingError, match="has 2 sentinels, and the text has more gaps"):
        masked(codec, ids, "[MASK] [MASK] [MASK]")
    assert masked(codec, {}, "the [MASK]") == list(codec.encode(["the [MASK]"])[0])
