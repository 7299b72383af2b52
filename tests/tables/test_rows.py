"""Rows of Narang et al. 2021, tiny: they train, resume to the bit, keep rows and padding apart, and decode."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, Trainer

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import Config
from scaling.data.module import DataModule
from scaling.model.two_towers import EncoderDecoder
from scaling.tables.table import read
from scaling.training.checkpoints import FolderIO
from scaling.training.experiment import Experiment, assemble
from scaling.training.module import FamilyModule

TABLE = read("narang2021")
ROWS = [row.name for row in TABLE.rows[::3]]  # every third, which has some of each kind; all are counted elsewhere
# Six layers, so that each row has all its parts, in numbers of their own; 251 symbols, so that the last sentinel is the
# last of 256 tokens, which is all that the last cluster of an adaptive softmax holds.
SIZE = "size={width: 24, layers: 6, heads: 6, head_width: 4, hidden: 48, vocabulary: 256, length: 40}"
WORDS = (SIZE, "data=synthetic", "data.symbols=251", "data.validation=1024", "train.batch=4", "evaluate.windows=1")
OWN = {"Product key memory": ("model.decoder.blocks.-2.channel={keys: 8, key_width: 8, nearest: 4}",)}
STEPS, HALF = 4, 2


def configured(row: str, runs: Path) -> Config:
    return TABLE.load(row, [*WORDS, *OWN.get(row, ()), f"trainer.max_steps={STEPS}", f"runs={runs}"])


@dataclass(frozen=True)
class Trained:
    """A row after its steps; `half` holds its state in their middle, `still` what none of them has moved."""

    experiment: Experiment
    model: EncoderDecoder
    still: set[str]
    half: Path
    losses: list[float]

    @property
    def precise(self) -> EncoderDecoder:
        """The model in float64, so that what must be equal is, to 1e-10."""
        return copy.deepcopy(self.model).double()

    @property
    def batch(self) -> Batch:
        return self.experiment.batches.batch(STEPS)


class Watch(Callback):
    """The losses, the parameters that no step has moved, and the state after half of the steps."""

    def __init__(self, folder: Path):
        self.folder, self.losses = folder, []

    def on_train_start(self, trainer, module):
        self.start = {name: parameter.detach().clone() for name, parameter in module.model.named_parameters()}
        self.still = set(self.start)

    def on_train_batch_end(self, trainer, module, outputs, *_):
        self.losses.append(float(outputs["loss"]))
        # Each step is looked at: a number that moves by its rate's whole length may be back at the end.
        self.still -= {n for n, one in module.model.named_parameters() if not torch.equal(one, self.start[n])}
        if trainer.global_step == HALF:
            trainer.save_checkpoint(self.folder)


def fitted(experiment: Experiment, watch: Watch, checkpoint: Path | None = None) -> FamilyModule:
    trainer = Trainer(
        max_steps=STEPS,
        callbacks=[watch],
        plugins=[FolderIO()],
        accelerator="cpu",
        logger=False,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = FamilyModule(experiment)
    data = DataModule(experiment.batches, experiment.evaluation, STEPS + 1)
    trainer.fit(module, data, ckpt_path=checkpoint)
    return module


@pytest.fixture(scope="module", params=ROWS)
def trained(request, tmp_path_factory) -> Trained:
    folder = tmp_path_factory.mktemp("row")
    experiment = assemble(configured(request.param, folder))
    watch = Watch(folder)
    module = fitted(experiment, watch)
    assert isinstance(module.model, EncoderDecoder)
    return Trained(experiment, module.model, watch.still, folder, watch.losses)


def hidden(model: EncoderDecoder, batch: Batch) -> torch.Tensor:
    return model(batch).hidden


def test_every_part_learns_and_a_resumed_run_is_the_whole_to_the_bit(trained, tmp_path):
    """Not in the first step already: the branches of ReZero and Fixup are shut until their gates have moved."""
    assert all(torch.tensor(trained.losses).isfinite())
    assert trained.still == set()
    watch = Watch(tmp_path)
    resumed = fitted(trained.experiment, watch, trained.half)
    assert watch.losses == trained.losses[HALF:]
    found = dict(resumed.model.named_parameters())
    assert all(torch.equal(found[name], tensor) for name, tensor in trained.model.named_parameters())


def test_rows_of_a_batch_do_not_meet_and_the_decoder_looks_back_only(trained):
    """In training, where capacities drop positions: each row has its own."""
    model, batch = trained.precise, trained.batch
    order = torch.tensor([2, 0, 3, 1])
    other, states = batch.map(lambda tensor: tensor[order]), hidden(model, batch)
    torch.testing.assert_close(hidden(model, other), states[order], rtol=0, atol=1e-10)
    torch.testing.assert_close(model.losses(other), model.losses(batch)[order], rtol=0, atol=1e-10)
    place = batch.tokens.shape[1] // 2
    tokens = batch.tokens.clone()
    tokens[:, place] = (tokens[:, place] + 1) % 251
    difference = (states - hidden(model, replace(batch, tokens=tokens))).abs().amax((0, 2))
    assert difference[:place].max() == 0
    assert difference[place] > 0


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(trained, side):
    """In evaluation: in training a longer row has more seats at its experts."""
    model, plain = trained.precise.eval(), trained.batch

    def pad(tensor: torch.Tensor | None, width: int, fill: int) -> torch.Tensor:
        assert tensor is not None
        return F.pad(tensor, (width, 0) if side == "left" else (0, width), value=fill)

    padded = Batch(
        pad(plain.tokens, 3, 7),
        pad(plain.targets, 3, IGNORE),
        documents=pad(torch.ones_like(plain.tokens), 3, 0),
        source=pad(plain.source, 4, 7),
        source_documents=pad(torch.ones_like(plain.tokens[:, :1]).expand_as(plain.source), 4, 0),
    )
    kept = slice(3, None) if side == "left" else slice(plain.tokens.shape[1])
    torch.testing.assert_close(hidden(model, padded)[:, kept], hidden(model, plain), rtol=0, atol=1e-10)
    torch.testing.assert_close(model.loss(padded).tokens, model.loss(plain).tokens, rtol=0, atol=1e-10)
