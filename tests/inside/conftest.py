"""Models drawn at random, as folders, and a run that has learned a synthetic language."""

import pytest

from scaling.config import compose as config
from scaling.data.codec import Codec
from scaling.data.tokenizer import Byte
from scaling.training.experiment import assemble
from scaling.training.run import train
from tests.evaluation.conftest import untrained

SIZE = {"width": 16, "layers": 3, "heads": 2, "vocabulary": 260, "length": 48}
IDS = {"gpt2": {"eos": 2}, "bert": {"cls": 256, "sep": 257, "mask": 258}, "t5": {"eos": 2, "start": 0, "pad": 0}}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A folder with a model of each family, which reads bytes."""
    top = tmp_path_factory.mktemp("models")
    Codec(Byte().fit(iter(()))).save(top / "tokenizer.json")
    for name, ids in IDS.items():
        untrained(top / name, name, ids, top / "tokenizer.json", **SIZE)
    return top


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """The ledger and the id of a run on a language of four symbols."""
    folder = tmp_path_factory.mktemp("learned")
    words = ["size=tiny", "size.length=32", "size.vocabulary=null", "data=synthetic", "data.symbols=4"]
    words += ["trainer.max_steps=200", "train.batch=32", "optimizer.lr=0.02", "schedule.warmup=10", "evaluate.points=1"]
    words += ["data.validation=1024", "log.wandb=disabled", f"runs={folder}"]
    return folder, train(assemble(config.load("decoder", words)))["run"]
