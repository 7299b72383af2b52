"""Weights shared out over two real ranks: the losses of DDP, and checkpoints that any other strategy takes up."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from scaling import schema
from scaling.errors import ScalingError
from scaling.ledger import Ledger
from scaling.training.experiment import assemble
from scaling.training.ranks import RankFailed
from scaling.training.run import train
from tests.training.conftest import load, words
from tests.training.test_step import logged

STILL = {"model.block.mixer.dropout": 0}


def ranks(runs: Path, strategy: str, name: str = "decoder", **changes) -> list[float]:
    """The losses of a run on two ranks."""
    told = {"trainer.devices": 2, "trainer.max_steps": 10, "trainer.strategy": strategy, **STILL, **changes}
    train(load(words(runs, name, **told)))
    return logged(runs)


def last(runs: Path) -> dict[str, dict[str, torch.Tensor]]:
    """The tensors of the last checkpoint, by file."""
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    found = list((ledger.folder(run) / "checkpoints").glob("[0-9]*"))
    folder = max(found, key=lambda path: int(path.name))
    return {path.name: load_file(path) for path in folder.glob("*.safetensors")}


def ended(runs: Path) -> float:
    ledger = Ledger.open(runs)
    (run,) = ledger.runs()
    result = ledger.result(run)
    assert result is not None
    return result["loss"]


def alike(one: Path, other: Path) -> None:
    for file, tensors in last(one).items():
        found = last(other)[file]
        assert found.keys() == tensors.keys()
        for name, tensor in tensors.items():
            torch.testing.assert_close(found[name], tensor, rtol=1e-4, atol=1e-6, msg=name)


SWITCH = "{kind: Switch, activation: ReLU, experts: 4}"
CASES = [
    (  # losses that blocks add; what every block keeps of the memory; three batches for two ranks
        "encoder_decoder",
        {
            "size.layers": 2,
            "optimizer": "AdamW",
            "model.encoder.block.channel": SWITCH,
            "model.decoder.block.channel": SWITCH,
            "objective": "SpanCorruption",
            "data.validation": 140_000,
            "evaluate.windows": "null",
        },
    ),
    ("decoder", {"data.validation": 140_000, "evaluate.windows": "null"}),  # three batches for two ranks
    (  # three tables tied; accumulation
        "encoder_decoder",
        {"optimizer": "AdamW", "train.micro_batch": 1, "objective": "SpanCorruption"},
    ),
    ("decoder", {"size.layers": 3, "model.stack.distinct": 1, "model.tie": "[decoder, head]"}),  # a unit run thrice
    (  # blocks that two stacks have
        "encoder_decoder",
        {"optimizer": "AdamW", "model.share": "stacks", "objective": "SpanCorruption"},
    ),
    ("decoder", {"trainer.precision": "bf16-true", "evaluate.points": 6}),
    ("decoder", {"evaluate.precision": "bf16-true", "evaluate.points": 6}),
    ("decoder", {"optimizer.kind": "Muon", "size.layers": 2}),
]


@pytest.mark.parametrize(
    ("name", "changes"), [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])]
)
def test_sharded_ranks_learn_as_ddp(name, changes, tmp_path):
    sharded = ranks(tmp_path / "fsdp", "fsdp", name, **changes)
    assert sharded == pytest.approx(ranks(tmp_path / "ddp", "ddp", name, **changes), rel=1e-5)
    assert ended(tmp_path / "fsdp") == pytest.approx(ended(tmp_path / "ddp"), rel=1e-5)
    if "optimizer.kind" not in changes:  # Muon makes its steps orthogonal in bfloat16
        alike(tmp_path / "ddp", tmp_path / "fsdp")


# An end without warning at step 8, when the last checkpoint is that of step 6.
BROKEN = """
from scaling.training.module import FamilyModule

before = FamilyModule.training_step

def broken(self, batch, number):
    if number == 7:
        raise ValueError("an end")
    return before(self, batch, number)

FamilyModule.training_step = broken

class Unused:
    slot = "channel"
"""


@pytest.mark.slow
@pytest.mark.parametrize("then", ["fsdp", "ddp", "one"])
def test_others_take_up_a_sharded_checkpoint(then, tmp_path, run, monkeypatch):
    (tmp_path / "broken.py").write_text(BROKEN)
    told = {"trainer.max_steps": 10, "train.checkpoint_every": 3, **STILL}
    run(runs=tmp_path / "whole", **told)
    sharded = load(words(tmp_path / "runs", **told, trainer__devices=2, trainer__strategy="fsdp"))
    with monkeypatch.context() as patch:
        patch.setitem(schema._extensions, str(tmp_path / "broken.py"), None)  # which the ranks read
        with pytest.raises(RankFailed, match="an end"):
            train(sharded)
    assert len(logged(tmp_path / "runs")) == 7
    if then == "one":
        run(runs=tmp_path / "runs", **told)
    else:
        train(load(words(tmp_path / "runs", **told, trainer__devices=2, trainer__strategy=then)))
    assert logged(tmp_path / "runs") == pytest.approx(logged(tmp_path / "whole"), rel=1e-5)
    alike(tmp_path / "whole", tmp_path / "runs")


def test_one_device_shares_nothing():
    with pytest.raises(ScalingError, match="there is one device"):
        assemble(load(words(Path("unused"), trainer__strategy="fsdp")))


def test_an_optimizer_that_torch_cannot_shard():
    told = words(Path("unused"), trainer__strategy="fsdp", trainer__devices=2, optimizer__kind="Adafactor")
    with pytest.raises(ScalingError, match="Adafactor does not work on shards; take ddp"):
        assemble(load(told))
