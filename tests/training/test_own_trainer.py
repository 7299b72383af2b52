"""`scaling.module` and `scaling.data_module` in a plain `lightning.Trainer`."""

from __future__ import annotations

from collections.abc import Mapping

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

import scaling

STEPS = 12
WORDS = (
    "size=tiny",
    "size.length=16",
    "train.batch=8",
    "schedule.warmup=3",
    f"trainer.max_steps={STEPS}",
    "log.wandb=disabled",
)
FAMILIES = {
    "encoder": (),
    "decoder": (),
    "encoder_decoder": (),
}


class Losses(lightning.Callback):
    """A callback of one's own."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        assert isinstance(outputs, Mapping)
        self.seen.append(float(outputs["loss"]))


class Validated(lightning.Callback):
    """The numbers of the tokens of each validation's batches."""

    def __init__(self):
        self.seen = []

    def on_validation_start(self, trainer, pl_module):
        self.seen.append([])

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
        self.seen[-1].append(batch.tokens.clone())


def trainer(folder, *callbacks, **flags):
    given = {"max_steps": STEPS, "logger": False, "accelerator": "cpu", "enable_progress_bar": False, **flags}
    return lightning.Trainer(callbacks=list(callbacks), default_root_dir=folder, enable_model_summary=False, **given)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_trainer_of_one_s_own_trains_to_the_losses_of_scaling_train(family, tmp_path):
    words = (*WORDS, *FAMILIES[family], f"runs={tmp_path}")
    module, data = scaling.module(family, *words), scaling.data_module(family, *words)
    losses = Losses()
    own = trainer(tmp_path, losses, enable_checkpointing=False)
    own.fit(module, data)
    run = scaling.train(family, *words, "log.every=1", progress=False)
    log = run.log[run.log["kind"] == "train"]
    assert len(losses.seen) == STEPS
    torch.testing.assert_close(losses.seen, list(log["loss"]), atol=1e-5, rtol=0)
    (evaluated,) = own.validate(module, data, verbose=False)
    assert evaluated["evaluate/loss"] == pytest.approx(run.loss, abs=1e-5)


def test_validation_checkpoints_loggers_and_flags_are_lightning_s(tmp_path):
    module, data = scaling.module("decoder", *WORDS), scaling.data_module("decoder", *WORDS)
    best = ModelCheckpoint(monitor="evaluate/loss", dirpath=tmp_path / "best", filename="best")
    logger = CSVLogger(tmp_path, name="log", version="")
    own = trainer(
        tmp_path,
        best,
        logger=logger,
        val_check_interval=4,
        log_every_n_steps=1,
        gradient_clip_val=0.5,
        accumulate_grad_batches=2,
        max_steps=6,
        limit_val_batches=2,
    )
    own.fit(module, data)
    assert own.global_step == 6
    assert (tmp_path / "best" / "best.ckpt").is_file()
    header = (tmp_path / "log" / "metrics.csv").read_text().splitlines()[0]
    assert {"train/loss", "evaluate/loss"} <= set(header.split(","))


@pytest.mark.parametrize("sanity", [0, 2])
@pytest.mark.parametrize("limit", [1, 1.0])
def test_each_validation_reads_the_same_batches(limit, sanity, tmp_path):
    words = (*WORDS, "evaluate.windows=40")
    module, data, validated = scaling.module("decoder", *words), scaling.data_module("decoder", *words), Validated()
    flags = {"val_check_interval": 2, "limit_val_batches": limit, "num_sanity_val_steps": sanity, "max_steps": 10}
    trainer(tmp_path, validated, enable_checkpointing=False, **flags).fit(module, data)
    first, *more = validated.seen[sanity > 0 :]
    assert len(first) == (1 if limit == 1 else len(data.val_dataloader()))
    assert len(more) == 4
    for batches in more:
        assert len(batches) == len(first)
        assert all(torch.equal(one, other) for one, other in zip(batches, first))


@pytest.mark.parametrize("flags", [{}, {"val_check_interval": 2}, {"limit_train_batches": 4, "max_epochs": 3}])
def test_lightning_s_own_checkpoint_goes_on_where_it_stopped(flags, tmp_path):
    words = (*WORDS, "model.embedding.dropout=0.1")
    whole, parts = Losses(), Losses()
    data = scaling.data_module("decoder", *words)
    trainer(tmp_path, whole, enable_checkpointing=False, **flags).fit(scaling.module("decoder", *words), data)
    save = ModelCheckpoint(dirpath=tmp_path, filename="half", every_n_train_steps=5, save_top_k=1)
    first = trainer(tmp_path, parts, save, **flags, max_steps=5)
    first.fit(scaling.module("decoder", *words), scaling.data_module("decoder", *words))
    second = trainer(tmp_path, parts, enable_checkpointing=False, **flags)
    second.fit(
        scaling.module("decoder", *words),
        scaling.data_module("decoder", *words),
        ckpt_path=str(tmp_path / "half.ckpt"),
    )
    assert parts.seen == whole.seen


def test_an_optimizer_that_lightning_cannot_step_is_refused(tmp_path):
    module = scaling.module("decoder", *WORDS, "optimizer=Muon")
    with pytest.raises(scaling.ScalingError, match="Muon is 2 optimizers"):
        trainer(tmp_path, enable_checkpointing=False).fit(module, scaling.data_module("decoder", *WORDS))


def test_callbacks_and_loggers_of_one_s_own_join_scaling_train(tmp_path):
    losses, logger = Losses(), CSVLogger(tmp_path, name="own", version="", flush_logs_every_n_steps=1)
    words = (*WORDS, f"runs={tmp_path / 'runs'}", "log.every=1")
    run = scaling.train("decoder", *words, progress=False, callbacks=[losses], logger=[logger])
    log = run.log[run.log["kind"] == "train"]
    assert losses.seen == pytest.approx(list(log["loss"]))
    lines = (tmp_path / "own" / "metrics.csv").read_text().splitlines()
    assert {"train/loss", "evaluate/loss"} <= set(lines[0].split(","))


def test_callbacks_cannot_join_other_processes(tmp_path):
    words = (*WORDS, f"runs={tmp_path}", "trainer.devices=2")
    with pytest.raises(scaling.ScalingError, match="cannot join several others"):
        scaling.train("decoder", *words, progress=False, callbacks=[Losses()])
