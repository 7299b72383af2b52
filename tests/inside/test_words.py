"""A run or a task that begins with the vectors of a file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

import scaling
from scaling.cli import main
from scaling.data.vectors import read

CITIES, FOODS = ["rome", "oslo", "lima", "bern"], ["rice", "soup", "cake", "corn"]
SIZE = [
    "size=tiny",
    "size.vocabulary=null",
    "size.length=32",
    "trainer.max_steps=3",
    "schedule.warmup=0",
    "train.batch=4",
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Cities and foods, each in sentences of their own kind; and vectors of them."""
    folder, draw = tmp_path_factory.mktemp("words"), random.Random(0)
    texts = []
    for _ in range(1500):
        city, food = draw.choice(CITIES), draw.choice(FOODS)
        number = draw.randrange(1000)  # texts differ, so that each word is in the training split
        texts.append(f"{number} " + draw.choice([f"we live in {city} near the sea", f"we eat hot {food} with a spoon"]))
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = [f"data={folder / 'texts.jsonl'}", "data.tokenizer={kind: ByteBPE, vocabulary: 360}", f"runs={folder}/runs"]
    words += ["data.validation=0.1"]
    assert main(["data", "prepare", *words]) == 0
    noise = np.random.default_rng(0).normal(0, 0.3, (8, 16))
    noise[:, 0] += [3.0] * 4 + [-3.0] * 4  # words of one kind lie together
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip([*CITIES, *FOODS], noise, strict=True)]
    (folder / "words.vec").write_text("\n".join(["8 16", *lines]) + "\n")
    return folder, words


def test_a_run_begins_with_the_vectors_and_may_keep_them(
    corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = corpus
    start = f"start.vectors={folder / 'words.vec'}"
    frozen = "train.parts=['decoder.stack.*', 'head.*']"
    assert main(["train", "decoder", *SIZE, *words, start, frozen, "log.wandb=disabled"]) == 0
    assert "tokens have a vector in" in capsys.readouterr().err
    (path,) = (folder / "runs" / "store").iterdir()
    model = scaling.load(path.name, runs=folder / "runs", device="cpu")
    vectors = read(folder / "words.vec", 16, {"soup"}.__contains__)
    assert model.tokenizer is not None
    (token,) = model.tokenizer.encode([" soup"])[0]
    table = model.module.get_parameter("decoder.embedding.table").detach().numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(table[token], vectors["soup"], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (["size.width=32"], "the vectors have 16 numbers, and the model's 32"),
        (["start.vectors=nowhere.vec"], "there is no such file"),
        (["start.step=3"], "a file has one set of weights"),
        (["start.folder=x"], "names weights by folder and by vectors"),
        (["data=synthetic"], "the data have no words"),
    ],
)
def test_a_start_that_does_not_fit_is_one_line(
    changes: list[str], what: str, corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = corpus
    words = [word for word in words if "data" not in word.partition("=")[0]] if "data=synthetic" in changes else words
    assert main(["train", "decoder", *SIZE, *words, f"start.vectors={folder / 'words.vec'}", *changes]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert what in error
