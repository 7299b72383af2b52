"""Whatever a user can get wrong in a run is told in one line that says where, before anything starts."""

from __future__ import annotations

import os

import pytest

from scaling import cli
from tests.training.conftest import words

# Overrides, and what the one line has to hold.
BAD = {
    "optimizer.lr=0": "optimizer.lr=0",
    "optimizer.lr=-1e-3": "optimizer.lr",
    "optimizer.lr=nan": "optimizer.lr",
    "optimizer.lr=.inf": "optimizer.lr",
    "optimizer.lr=fast": "optimizer.lr",
    "optimizer.kind=AdamX": "did you mean 'Adam",
    "optimizer.beta=0.9": "did you mean 'betas'",
    "optimizer.betas=[0.9]": "betas",
    "optimizer.betas=[0.9,1.5]": "betas",
    "optimizer.eps=0": "eps",
    "optimizer.weight_decay=-1": "weight_decay",
    "schedule.kind=Cosin": "did you mean 'Cosine'",
    "schedule.warmup=12": "warmup",
    "schedule.warmup=1000": "warmup",
    "schedule.warmup=-1": "warmup",
    "schedule.floor=2": "floor",
    "schedule={kind: WSD, decay: 0}": "decay",
    "schedule={kind: WSD, decay: 1.5}": "decay",
    "schedule={kind: WSD, shape: round}": "shape",
    "parametrization=MuPP": "did you mean 'MuP'",
    "parametrization={kind: GPT2, std: -1}": "std",
    "trainer.max_step=3": "did you mean 'max_steps",
    "trainer.max_steps=0": "trainer.max_steps",
    "trainer.max_steps=-3": "trainer.max_steps",
    "train.tokens=0 trainer.max_steps=null": "train.tokens",
    "train.tokens=null trainer.max_steps=null": "train.tokens",
    "train.tokens=10 trainer.max_steps=null": "less than one batch",
    "train.batch=0": "train.batch",
    "train.batch=-4": "train.batch",
    "train.batch={5: 4}": "train.batch",
    f"train.batch={10**30}": "more than 4,194,304 rows a step",
    f"train.batch={2**22 + 1}": "more than 4,194,304 rows a step",
    f"train.batch={{0: 4, 5: {2**40}}}": "more than 4,194,304 rows a step",
    f"train.batch={{from: 1, to: {2**62}, over: {2**62}}}": "more than 4,194,304 rows a step",
    "train.batch={from: 3, to: 4, over: 10}": "train.batch",
    "train.micro_batch=3": "do not divide",
    "train.micro_batch=0": "train.micro_batch",
    "trainer.devices=0": "trainer.devices",
    "trainer.devices=4096": "trainer.devices",
    "trainer.devices=gpu": "trainer.devices",
    "trainer.strategy=ddp": "trainer.strategy",
    "trainer.strategy=dpp": "did you mean 'ddp'",
    "trainer.precision=fp64": "trainer.precision",
    "trainer.precision=bf16": "did you mean 'bf16-true'",
    "trainer.gradient_clip_val=0": "trainer.gradient_clip_val",
    "trainer.gradient_clip_val=-1": "trainer.gradient_clip_val",
    "train.checkpoint_every=0": "train.checkpoint_every",
    "train.compile=maybe": "train.compile",
    "log.every=0": "log.every",
    "log.wandb=maybe": "log.wandb",
    "evaluate.points=0": "evaluate.points",
    "evaluate.windows=0": "evaluate.windows",
    "evaluate.windows=-1": "evaluate.windows",
    "model.block.mixer.dropout=1.5": "dropout",
    "model.block.mixer.dropout=-0.1": "dropout",
    "model.block.mixer.kind=Atention": "did you mean 'Attention'",
    "size.vocabulary=4": "size.vocabulary",
    "size.length=100000": "data",
    "size.width=7 size.heads=2": "size",
    "size.layers=0": "size",
    "size=tinny": "tiny",
    "data=synthetik": "synthetic",
    "data.validation=3": "shorter than one window",
    "data.tokens=3": "shorter than one window",
    "objective=Masked": "objective.kind",
    "objective=Sequence": "objective.kind",
    "seed=many": "seed",
    "seed=-1": "seed",
}


@pytest.mark.parametrize("told", BAD)
def test_it_is_one_line(told, tmp_path, capsys):
    overrides = told.split(" ") if "{" not in told else [told]
    assert cli.main(["train", *words(tmp_path / "runs"), *overrides]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert line.startswith("scaling: ")
    assert BAD[told] in line
    assert not list(tmp_path.glob("runs/store/*/log.jsonl")), "nothing was begun"


def test_an_output_that_is_a_file(tmp_path, capsys):
    (tmp_path / "runs").write_text("")
    assert cli.main(["train", *words(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_an_output_that_cannot_be_written(tmp_path, capsys):
    tmp_path.chmod(0o500)
    assert cli.main(["train", *words(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_two_runs_at_once(tmp_path, capsys):
    assert cli.main(["train", "decoder", "encoder", f"runs={tmp_path}"]) == 2
    assert "found one more" in capsys.readouterr().err
