"""Runs of each family that know a small synthetic language, written as text; and models of random weights."""

import random
from functools import partial
from types import SimpleNamespace

import pytest
import torch

from scaling.config import compose as config
from scaling.config.schema import build
from scaling.interop import run, weights
from scaling.interop.huggingface import Saved
from scaling.training.experiment import assemble
from scaling.training.run import train
from scaling.verbs.command_line import main
from tests import command_line
from tests.data.conftest import jsonl

refused = partial(command_line.refused, but="warning")
WORDS = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te"]
FOLLOWS = {word: [WORDS[(index * 5 + 1) % 12], WORDS[(index * 7 + 2) % 12]] for index, word in enumerate(WORDS)}
"""The two words, equally likely, that may follow each."""


def sentence(draw, count):
    words = [draw.choice(WORDS)]
    while len(words) < count:
        words.append(draw.choice(FOLLOWS[words[-1]]))
    return words


def untrained(folder, name, ids, tokenizer, **size):
    """A folder of ours with a model of random weights."""
    torch.manual_seed(1)
    sections = {"model": config.load(name)["model"], "size": {"heads": 2, **size}}
    model = build("model", sections["model"], sections["size"])
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    run.write(folder, Saved(sections, weights.of(model), ids, tokenizer=tokenizer), "random")


@pytest.fixture(scope="session")
def language(tmp_path_factory):
    """A folder with runs that were trained on the language, by family, and the words that name its data."""
    folder, draw = tmp_path_factory.mktemp("language"), random.Random(1)
    texts = (" ".join(sentence(draw, draw.randrange(8, 30))) for _ in range(800))
    file = jsonl(folder / "texts.jsonl", ({"text": text} for text in texts))
    data, runs = ["data.tokenizer={kind: ByteBPE, vocabulary: 300}", "data.validation=0.1"], f"runs={folder / 'runs'}"
    assert main(["data", "prepare", f"data={file}", *data, runs]) == 0
    words = ["size=tiny", "size.width=32", "size.layers=1", "size.length=64", "size.vocabulary=null", f"data={file}"]
    words += [*data, "train.batch=16", "optimizer.lr=0.01", "log.wandb=disabled", runs]
    words += ["evaluate.points=1", "evaluate.windows=16", "schedule.warmup=1"]
    own = {  # the decoder knows the language, the encoder its words
        "decoder": ["trainer.max_steps=70"],
        "encoder": ["trainer.max_steps=40", "objective={kind: Masked, rate: 0.3}", "size.length=34"],
        "encoder_decoder": ["trainer.max_steps=2", "objective=Prefix"],
    }
    ids = {family: train(assemble(config.load(family, [*words, *line])))["run"] for family, line in own.items()}
    return SimpleNamespace(runs=folder / "runs", ids=ids, data=[file, *data])
