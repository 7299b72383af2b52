"""Runs of each family that know a small synthetic language, written as text."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config import compose as config
from scaling.training.experiment import assemble
from scaling.training.run import train

WORDS = ["ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te"]
FOLLOWS = {word: [WORDS[(index * 5 + 1) % 12], WORDS[(index * 7 + 2) % 12]] for index, word in enumerate(WORDS)}
"""The two words, equally likely, that may follow each."""


def sentence(draw: random.Random, count: int) -> list[str]:
    words = [draw.choice(WORDS)]
    while len(words) < count:
        words.append(draw.choice(FOLLOWS[words[-1]]))
    return words


@dataclass(frozen=True)
class Ledger:
    """A folder with runs that were trained on the language, by family, and the words that name its data."""

    runs: Path
    ids: dict[str, str]
    data: list[str]


@pytest.fixture(scope="session")
def language(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    folder, draw = tmp_path_factory.mktemp("language"), random.Random(1)
    texts = [" ".join(sentence(draw, draw.randrange(8, 30))) for _ in range(800)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    data = [str(folder / "texts.jsonl"), "data.tokenizer={kind: ByteBPE, vocabulary: 300}", "data.validation=0.1"]
    runs = f"runs={folder / 'runs'}"
    assert main(["data", "prepare", f"data={data[0]}", *data[1:], runs]) == 0
    size = ["size=tiny", "size.width=32", "size.layers=1", "size.length=64", "size.vocabulary=null"]
    words = [*size, f"data={data[0]}", *data[1:], "train.batch=16", "optimizer.lr=0.01", "log.wandb=disabled", runs]
    own = {  # the decoder knows the language, the encoder its words
        "decoder": ["trainer.max_steps=100"],
        "encoder": ["trainer.max_steps=60", "objective={kind: Masked, rate: 0.3}", "size.length=34"],
        "encoder_decoder": ["trainer.max_steps=2", "objective=Prefix"],
    }
    ids = {}
    for family, changes in own.items():
        line = [*words, "evaluate.points=1", "evaluate.windows=16", "schedule.warmup=1", *changes]
        ids[family] = train(assemble(config.load(family, line)))["run"]
    return Ledger(folder / "runs", ids, data)
