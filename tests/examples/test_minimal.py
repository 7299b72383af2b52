"""examples/minimal.py trains to the losses of `scaling train decoder`, from the same weights on the same batches."""

import pytest
import torch

import scaling
from examples import minimal
from scaling.config.compose import load
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise

STEPS, WARMUP = 16, 4
NAMES = {
    "decoder.embedding.table": "table",
    "decoder.stack.": "",
    "branches.mixer.norm": "attention_norm",
    "branches.mixer.piece": "attention",
    "branches.channel.norm": "channel_norm",
    "branches.channel.piece": "channel",
}


def plain(name):
    """The name of a parameter in the one file."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def test_the_losses_are_those_of_scaling_train(tmp_path):
    words = [f"trainer.max_steps={STEPS}", f"schedule.warmup={WARMUP}", "size=tiny", "size.length=32", "train.batch=8"]
    words += ["log.every=1", f"runs={tmp_path}", "log.wandb=disabled"]
    experiment = assemble(load("decoder", words))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    one_file = minimal.Decoder(minimal.Size())
    one_file.load_state_dict({plain(name): value for name, value in model.state_dict().items()})
    batches = (experiment.batches.batch(step) for step in range(STEPS))
    pairs = ((batch.tokens, batch.targets) for batch in batches)
    losses = list(minimal.train(one_file, pairs, steps=STEPS, warmup=WARMUP))
    log = scaling.train("decoder", *words, progress=False).log
    trained = log[log["kind"] == "train"]
    assert list(trained["step"]) == list(range(1, STEPS + 1))
    assert losses[-1] < losses[0] - 0.05
    torch.testing.assert_close(losses, list(trained["loss"]), atol=1e-5, rtol=0)


def test_the_one_file_runs():
    model = minimal.Decoder(minimal.Size(vocabulary=64)).initialise(0)
    losses = list(minimal.train(model, minimal.walks(0, 64), steps=40, warmup=6))
    assert losses[0] == pytest.approx(torch.log(torch.tensor(64.0)).item(), abs=1e-4)  # the head is zero
    assert losses[-1] < 3.5
