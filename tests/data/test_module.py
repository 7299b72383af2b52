"""The batches as a trainer takes them."""

import itertools
from pathlib import Path

import pytest
import torch

from scaling.data.batches import evaluation, training
from scaling.data.plan import BatchSize
from scaling.data.source import Vocabulary
from scaling.data.synthetic import Synthetic
from scaling.objective import Causal


@pytest.fixture
def parts():
    law = Synthetic(symbols=8, order=1, tokens=900, validation=200)
    train, validation = (law.open(split, Path("nowhere")) for split in ("train", "validation"))
    objective = Causal(Vocabulary.of(train), 8, "decoder")
    return training(train, objective, BatchSize.of(6), 0), *evaluation(validation, objective, 5)


def test_every_epoch_reads_all_batches_although_its_end_is_not_asked_for(parts):
    from scaling.data.module import TrainingLoader

    loader = TrainingLoader(parts[0], 3)
    for _ in range(2):
        epoch = itertools.islice(loader, len(loader))
        assert all(torch.equal(batch.tokens, parts[0].batch(step).tokens) for step, batch in enumerate(epoch))
        assert loader.state_dict() == {"next": 3}


def test_a_training_loader_goes_on_where_it_stopped(parts):
    from scaling.data.module import TrainingLoader

    loader, other = TrainingLoader(parts[0], 5), TrainingLoader(parts[0], 5)
    list(itertools.islice(loader, 3))
    other.load_state_dict(loader.state_dict())
    for each in (loader, other):
        assert [batch.tokens.tolist() for batch in each] == [parts[0].batch(step).tokens.tolist() for step in (3, 4)]
