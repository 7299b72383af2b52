"""`scaling.module` and `scaling.data_module` in a plain `lightning.Trainer`."""

from __future__ import annotations

import csv
from collections.abc import Mapping

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
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
def test_a_trainer_of_one_s_own_trains_to_the_bit_of_scaling_train(family, tmp_path):
    words = (*WORDS, *FAMILIES[family], f"runs={tmp_path}")
    module, data = scaling.module(family, *words), scaling.data_module(family, *words)
    losses = Losses()
    own = trainer(tmp_path, losses, enable_checkpointing=False)
    own.fit(module, data)
    run = scaling.train(family, *words, "log.every=1", progress=False)
    log = run.log[run.log["kind"] == "train"]
    assert len(losses.seen) == STEPS
    assert losses.seen == list(log["loss"])
    (evaluated,) = own.validate(module, data, verbose=False)
    assert evaluated["evaluate/loss"] == pytest.approx(run.loss, rel=1e-7)
    assert own.test(module, data, verbose=False) == [evaluated]
    predicted = own.predict(module, data)
    assert predicted is not None
    assert len(predicted) == len(data.val_dataloader())
    trained = dict(run.model().module.named_parameters())
    assert all(torch.equal(trained[name], parameter) for name, parameter in module.model.named_parameters())


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


def test_an_optimizer_of_two_counts_its_steps_once(tmp_path):
    words = (*WORDS, "optimizer=Muon")
    module, losses = scaling.module("decoder", *words), Losses()
    own = trainer(tmp_path, losses, enable_checkpointing=False)
    own.fit(module, scaling.data_module("decoder", *words))
    assert own.global_step == len(losses.seen) == STEPS


def test_the_module_of_a_checkpoint_is_made_of_its_config(tmp_path):
    words = (*WORDS, f"runs={tmp_path}")
    module, save = scaling.module("decoder", *words), ModelCheckpoint(dirpath=tmp_path, filename="last")
    trainer(tmp_path, save).fit(module, scaling.data_module("decoder", *words))
    run = scaling.train("decoder", *words, progress=False)
    assert type(module).__name__ == "DecoderModule"
    assert module.hparams["config"]["size"]["width"] == module.experiment.config["size.width"]
    torch.load(tmp_path / "last.ckpt", weights_only=True)  # plain values and tensors
    (folder,) = run.path.glob(f"**/checkpoints/{STEPS:012d}")
    for path in (tmp_path / "last.ckpt", folder):
        again = type(module).load_from_checkpoint(path)
        for one, other in zip(again.model.parameters(), module.model.parameters(), strict=True):
            assert torch.equal(one, other)


def test_callbacks_and_loggers_of_one_s_own_join_scaling_train(tmp_path):
    """They see the losses and the evaluations, and change nothing of the run."""
    losses = Losses()
    save = ModelCheckpoint(dirpath=tmp_path, filename="best", monitor="evaluate/loss")
    logger = CSVLogger(tmp_path, name="own", version="", flush_logs_every_n_steps=1)
    words = (*WORDS, "log.every=1", "evaluate.points=3")
    plain = scaling.train("decoder", *words, f"runs={tmp_path / 'plain'}", progress=False)
    callbacks = [losses, save, LearningRateMonitor("step"), EarlyStopping("evaluate/loss", patience=9)]
    where = f"runs={tmp_path / 'runs'}"
    run = scaling.train("decoder", *words, where, progress=False, callbacks=callbacks, logger=[logger])
    assert run.loss == plain.loss
    assert losses.seen == list(run.log[run.log["kind"] == "train"]["loss"])
    assert save.best_model_score is not None
    assert save.best_model_score.item() == pytest.approx(min(run.log[run.log["kind"] == "evaluate"]["loss"]))
    with (tmp_path / "own" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    rates = [float(row["lr-AdamW/pg1"]) for row in rows if row.get("lr-AdamW/pg1")]
    assert rates == pytest.approx(list(run.log[run.log["kind"] == "train"]["learning_rate"]))
    evaluated = [float(row["evaluate/loss"]) for row in rows if row["evaluate/loss"]]
    assert evaluated == pytest.approx(list(run.log[run.log["kind"] == "evaluate"]["loss"]))
    again = scaling.DecoderModule.load_from_checkpoint(save.best_model_path)
    assert again.steps == STEPS


def test_a_run_that_a_callback_ends_is_stopped_and_goes_on(tmp_path):
    words = (*WORDS, "evaluate.points=12", "evaluate.spacing=even", f"runs={tmp_path}")
    end = EarlyStopping("evaluate/loss", patience=1, min_delta=100.0)
    run = scaling.train("decoder", *words, progress=False, callbacks=[end])
    assert (run.state, run.result) == ("stopped", None)
    assert str(run) == f"run {run.id}: stopped"
    assert 1 < max(run.log["step"].dropna()) < STEPS
    assert scaling.train("decoder", *words, progress=False).state == "finished"


def test_callbacks_cannot_join_other_processes(tmp_path):
    words = (*WORDS, f"runs={tmp_path}", "trainer.devices=2")
    with pytest.raises(scaling.ScalingError, match="cannot join several others"):
        scaling.train("decoder", *words, progress=False, callbacks=[Losses()])
