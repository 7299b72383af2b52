"""`scaling.module` in a plain `lightning.Trainer`; callbacks and loggers of one's own in `scaling.train`."""

import logging
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lightning
import pandas
import pytest
import torch
import wandb
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger, WandbLogger

import scaling
from tests.command_line import refuses
from tests.training.conftest import LONG, STILL, left, losses, train, words
from tests.wandb_server.server import serving

STEPS = 12


class Seen(lightning.Callback):
    """The losses of the updates, and the tokens of each validation's batches."""

    def __init__(self):
        self.losses, self.validations, self.seeds = [], [], []

    def on_train_batch_end(self, trainer, pl_module, outputs, *_):
        self.losses.append(float(outputs["loss"]))
        self.seeds.append(torch.initial_seed())

    def on_validation_start(self, *_):
        self.validations.append([])

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, *_):
        self.validations[-1].append(batch.tokens.clone())


def trainer(folder: Path, *callbacks: lightning.Callback, **flags) -> lightning.Trainer:
    flags = {"max_steps": STEPS, "logger": False, "accelerator": "cpu", "enable_progress_bar": False, **flags}
    flags.setdefault("enable_checkpointing", any(isinstance(one, ModelCheckpoint) for one in callbacks))
    return lightning.Trainer(callbacks=list(callbacks), default_root_dir=folder, enable_model_summary=False, **flags)


def parts(line: list[str]):
    return scaling.module(*line), scaling.data_module(*line)


KINDS = {
    "encoder split": {"train.micro_batch": 1},
    "encoder_decoder Muon": {"optimizer": "Muon"},
    "decoder bf16-true": {"trainer.precision": "bf16-true"},
    "decoder bf16-mixed": {"trainer.precision": "bf16-mixed"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trainer_of_one_s_own_trains_to_the_bit_of_scaling_train(kind, tmp_path):
    """A module is made again of the config in its checkpoint, which is Lightning's file or a folder of ours."""
    line = words(tmp_path, kind.split()[0], **KINDS[kind])
    (module, data), seen = parts(line), Seen()
    own = trainer(tmp_path, seen, ModelCheckpoint(dirpath=tmp_path, filename="last"))
    own.fit(module, data)
    assert own.global_step == STEPS  # two optimizers of torch's count as one
    run = scaling.train(*line, progress=False)
    assert seen.losses == losses(tmp_path)
    (evaluated,) = own.validate(module, data, verbose=False)
    assert evaluated["evaluate/loss"] == pytest.approx(run.loss, rel=1e-7)
    assert own.test(module, data, verbose=False) == [evaluated]
    assert len(own.predict(module, data) or []) == len(data.val_dataloader())
    trained = dict(run.model().module.named_parameters())
    if "bf16" not in kind:
        assert all(torch.equal(trained[name], one) for name, one in module.model.named_parameters())
    torch.load(tmp_path / "last.ckpt", weights_only=True)  # plain values and tensors
    (folder,) = tmp_path.glob(f"store/*/checkpoints/{STEPS:012d}")
    for path in (tmp_path / "last.ckpt", folder):
        again = type(module).load_from_checkpoint(path)
        assert again.hparams["config"]["size"]["width"] == 8
        torch.testing.assert_close([*again.model.parameters()], [*module.model.parameters()], rtol=0, atol=0)


def test_validation_checkpoints_and_flags_are_lightning_s(tmp_path):
    (module, data), seen = parts(words(tmp_path, **LONG)), Seen()
    save = ModelCheckpoint(monitor="evaluate/loss", dirpath=tmp_path / "best", filename="best")
    stop = EarlyStopping("evaluate/loss", patience=1, min_delta=100.0)
    own = trainer(tmp_path, seen, save, stop, val_check_interval=2, num_sanity_val_steps=2)
    own.fit(module, data)
    assert own.global_step == 4  # the second evaluation is the first without improvement
    assert (tmp_path / "best" / "best.ckpt").is_file()
    sanity, first, second = seen.validations
    assert len(sanity) == 2 < len(first) == len(data.val_dataloader())
    assert torch.equal(first[0], next(iter(data.val_dataloader())).tokens)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for flags in ({"gradient_clip_val": 1.0}, {"precision": "bf16-mixed"}, {"precision": "64-true"}):
        with pytest.raises(Exception, match=next(iter(flags))):  # the config's counts
            trainer(tmp_path, **flags).fit(module, data)
    for flags in ({"max_steps": STEPS + 1}, {"max_steps": -1, "max_epochs": 2}):
        refuses(f"the config has {STEPS} steps", trainer(tmp_path, **flags).fit, module, data)
    trainer(tmp_path, overfits := Seen(), overfit_batches=1).fit(*parts(words(tmp_path, **STILL, schedule="Constant")))
    assert overfits.losses == sorted(overfits.losses, reverse=True), "each step has the same batch"


class Decoder(scaling.DecoderModule):
    """A module of one's own: with a further argument, and optimizers that the config does not have."""

    def __init__(self, config, rate=0.1):
        super().__init__(config)
        self.save_hyperparameters("rate")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.hparams["rate"])


def test_a_module_of_one_s_own_and_a_module_within_another(tmp_path):
    module, data = parts(words(tmp_path))
    own, held = Decoder(module.hparams["config"]), torch.nn.ModuleDict({"inner": module}).state_dict()
    assert held.keys() == {f"inner.{name}" for name in module.state_dict()}
    refuses("configure_optimizers returns others", trainer(tmp_path).fit, own, data)
    save = ModelCheckpoint(dirpath=tmp_path, filename="own")
    trainer(tmp_path, save).fit(module, data)
    assert scaling.DecoderModule.load_from_checkpoint(tmp_path / "own.ckpt").steps == STEPS
    with pytest.raises(TypeError, match="rate"):
        scaling.DecoderModule.load_from_checkpoint(tmp_path / "own.ckpt", rate=1.0)
    assert Decoder.load_from_checkpoint(tmp_path / "own.ckpt", rate=1.0).hparams["rate"] == 1.0
    torch.save({"state_dict": {}}, tmp_path / "other.ckpt")
    refuses("have no config", scaling.DecoderModule.load_from_checkpoint, tmp_path / "other.ckpt")


def test_a_run_takes_nothing_from_its_process_and_leaves_it_as_it_was(unbroken, tmp_path):
    """Two threads train one after the other: generators and warnings are the process's."""
    state, level = torch.get_rng_state(), logging.getLogger("lightning.pytorch").level
    torch.set_default_dtype(torch.float64)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            train(words(tmp_path / "0"))
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda number: train(words(tmp_path / number)), "12"))
    assert all(left(tmp_path / number) == unbroken for number in "012")
    assert torch.equal(state, torch.get_rng_state())
    assert logging.getLogger("lightning.pytorch").level == level


@pytest.mark.parametrize("reload", [0, 1])
def test_lightning_s_own_checkpoint_goes_on_where_it_stopped(reload, tmp_path):
    line, whole, halves, flags = words(tmp_path), Seen(), Seen(), {"limit_train_batches": 4, "max_epochs": 3}
    trainer(tmp_path, whole).fit(*parts(line))
    flags["reload_dataloaders_every_n_epochs"] = reload
    save = ModelCheckpoint(dirpath=tmp_path, filename="half", every_n_train_steps=5, save_top_k=1)
    trainer(tmp_path, halves, save, **{**flags, "max_steps": 5}).fit(*parts(line))
    trainer(tmp_path, halves, **flags).fit(*parts(line), ckpt_path=str(tmp_path / "half.ckpt"))
    assert halves.losses == whole.losses


def test_callbacks_and_loggers_of_one_s_own_join_scaling_train_beside_our_run_of_wandb(tmp_path, unbroken, monkeypatch):
    """They see the losses and the evaluations, and change nothing of the run. They cannot join other processes."""
    seen, save = Seen(), ModelCheckpoint(dirpath=tmp_path, filename="best", monitor="evaluate/loss")
    with serving() as server:
        for name, value in {**server.environment(), "WANDB_MODE": "online", "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        wandb.teardown()
        own = WandbLogger(project="mine", name="a person's", save_dir=tmp_path)
        options = {"callbacks": [seen, save, LearningRateMonitor("step")]}
        options["logger"] = [own, CSVLogger(tmp_path, name="own", version="")]
        try:
            run = scaling.train(*words(tmp_path / "runs", log__wandb="online"), progress=False, **options)
            wandb.finish()
        finally:
            wandb.teardown()  # a process forked from this one would speak to the service that was set up here
        shown = {run.given["displayName"]: [*run.rows.values()] for run in server.world.runs.values()}
    assert left(tmp_path / "runs") == unbroken
    trained, evaluated = (run.log[run.log["kind"] == kind] for kind in ("train", "evaluate"))
    assert seen.losses == list(trained["loss"])
    assert len(set(seen.seeds)) == STEPS, "dropout differs between steps"
    assert (len(shown), "a person's" in shown) == (2, True)
    for rows in shown.values():
        assert sorted(row["train/loss"] for row in rows if "train/loss" in row) == sorted(trained["loss"])
    assert float(save.best_model_score or 0) == pytest.approx(min(evaluated["loss"]))
    table = pandas.read_csv(tmp_path / "own" / "metrics.csv")
    for key, wanted in (("train/loss", trained["loss"]), ("lr-AdamW/pg1", trained["learning_rate"])):
        assert list(table[key].dropna()) == pytest.approx(list(wanted))
    assert list(table["evaluate/loss"].dropna()) == pytest.approx(list(evaluated["loss"]))
    assert scaling.DecoderModule.load_from_checkpoint(save.best_model_path).steps == STEPS
    cases = {"StochasticWeightAveraging": {"callbacks": StochasticWeightAveraging(0.01)}, "True": {"logger": True}}
    for value, options in cases.items():
        refuses(value, scaling.train, *words(tmp_path / value), progress=False, **options)
    several = words(tmp_path, trainer__devices=2)
    refuses("cannot be passed to several ranks", scaling.train, *several, progress=False, callbacks=[seen])


def test_a_run_that_a_callback_ends_is_stopped_and_goes_on(tmp_path):
    line = words(tmp_path, **{"evaluate.points": 12, "evaluate.spacing": "even"})
    end = EarlyStopping("evaluate/loss", patience=1, min_delta=100.0)
    run = scaling.train(*line, progress=False, callbacks=[end])
    assert (run.state, run.result) == ("stopped", None)
    last = max(run.log["step"].dropna())
    assert 1 < last < STEPS
    result = scaling.train(*line, progress=False).result or {}
    assert (result["outcome"], result["circumstances"]["from_step"]) == ("finished", last)
