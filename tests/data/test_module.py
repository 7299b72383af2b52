"""The batches as a trainer takes them."""

import itertools
from pathlib import Path

import pytest
import torch
from torch import nn

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


def data(parts, stop):
    from scaling.data.module import DataModule

    train, *held_out = parts
    return DataModule(train, lambda step: tuple(held_out), stop)


def test_a_rank_reads_its_rows(parts):
    from scaling.data.module import TrainingLoader

    second = list(TrainingLoader(parts[0], 5, rank=1, ranks=2))
    assert [batch.rows for batch in second] == [3] * 5
    assert torch.equal(second[3].tokens, parts[0].batch(3, 1, 2).tokens)


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


def test_a_trainer_takes_every_step_once(parts, tmp_path):
    from lightning.pytorch import LightningModule, Trainer

    seen: list[torch.Tensor] = []
    validated: list[int] = []

    class Model(LightningModule):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(9, 9)

        def training_step(self, batch, _):
            seen.append(batch.tokens)
            return nn.functional.cross_entropy(self.table(batch.tokens).flatten(0, 1), batch.targets.flatten())

        def validation_step(self, batch, _):
            validated.append(batch.rows)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        default_root_dir=tmp_path,
    )
    trainer.fit(Model(), datamodule=data(parts, 5))
    assert len(seen) == 5
    assert all(torch.equal(tokens, parts[0].batch(step).tokens) for step, tokens in enumerate(seen))
    assert sum(validated) == 200 // 9
