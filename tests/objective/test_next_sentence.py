import numpy as np
import pytest
import torch

from scaling.batch import IGNORE
from scaling.data.source import Rows
from scaling.errors import ScalingError
from tests.objective.conftest import keys


def test_half_the_sentences_follow(run, make):
    read, batch = run("NextSentence", 67, "encoder", count=2000)
    special = make("NextSentence", 67, "encoder").vocabulary
    line = torch.where(batch.targets == IGNORE, batch.tokens, batch.targets).numpy()
    own, other = read.tokens[:2000], read.tokens[2000:]
    labels, segments = batch.labels.numpy(), batch.segments.numpy()
    assert abs(labels.mean() - 0.5) < 4 * 0.5 / np.sqrt(2000)
    assert (line[:, 0] == special["cls"]).all()
    assert (line[:, -1] == special["sep"]).all()
    assert ((line == special["sep"]).sum(1) == 2).all()
    for row in range(2000):
        between = int(np.argmax(line[row] == special["sep"]))
        a, b = line[row, 1:between], line[row, between + 1 : -1]
        assert 1 <= len(a) <= 63
        assert (a == own[row, : len(a)]).all()
        assert (b == (other if labels[row] else own)[row, len(a) :]).all()
        assert segments[row].tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert ((batch.targets != IGNORE).sum(1) == round(0.15 * 64)).all()


def test_masked_documents_are_refused(make):
    objective = make("NextSentence", 32, "encoder")
    read = Rows(np.full((4, 29), 5), np.ones((4, 29), int))
    with pytest.raises(ScalingError, match="join documents"):
        objective(read, keys(2))
