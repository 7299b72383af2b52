"""Several models that write together: the mean of their probabilities, whatever the strategy."""

from __future__ import annotations

import pytest
import torch

from scaling.batch import Batch
from scaling.config import load
from scaling.decode import Beam, Greedy, generate, prompts
from scaling.model.family import Family
from scaling.training.parametrization import Standard, initialise


def model(seed: int, family: str) -> Family:
    config = load(family, ["size={width: 16, layers: 1, heads: 2, vocabulary: 11, length: 32}"])
    with torch.device("meta"):
        made = config.build("model", config["size"])
    return initialise(made, Standard(head="normal"), seed).double()


ROWS = [[3, 4, 5, 6], [7, 3]]
IDS = {"pad": 0, "bos": 1, "start": 1}


def best(models: list[Family], family: str, row: list[int], steps: int) -> list[int]:
    """The likeliest of all texts of so many tokens, by trying each of them."""
    batch = prompts([row], family, IDS)
    texts, scores = torch.zeros(1, 0, dtype=torch.long), torch.zeros(1, dtype=torch.float64)
    for _ in range(steps):
        rows = len(texts)
        source = None if batch.source is None else batch.source.expand(rows, -1)
        read = Batch(torch.cat([batch.tokens.expand(rows, -1), texts], 1), torch.zeros(rows, 0), source=source)
        each = [one.head(one(read).hidden[:, -1:])[:, 0].softmax(-1) for one in models]
        chances = torch.stack(each).mean(0)
        scores = (scores[:, None] + chances.log()).flatten()
        following = torch.arange(chances.shape[1]).repeat(rows)[:, None]
        texts = torch.cat([texts.repeat_interleave(chances.shape[1], 0), following], 1)
    return texts[scores.argmax()].tolist()


@pytest.mark.parametrize("family", ["encoder_decoder", "decoder"])
def test_a_wide_beam_of_several_models_finds_the_best_text(family):
    models = [model(seed, family) for seed in (0, 1)]
    written = generate(models, prompts(ROWS, family, IDS), Beam(beams=121), steps=3)
    with torch.no_grad():
        assert [row[0].tokens for row in written] == [best(models, family, row, 3) for row in ROWS]


def test_a_model_with_itself_writes_what_it_writes_alone():
    one = model(0, "encoder_decoder")
    alone, twice = (
        generate(models, prompts(ROWS, "encoder_decoder", IDS), Greedy(), steps=6) for models in (one, [one] * 2)
    )
    assert [[own.tokens for own in row] for row in alone] == [[own.tokens for own in row] for row in twice]
    for a, b in zip(alone, twice, strict=True):
        assert a[0].score == pytest.approx(b[0].score, abs=1e-4)
