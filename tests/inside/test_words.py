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
SIZE = ["size=tiny", "size.vocabulary=null", "size.length=32", "trainer.max_steps=3", "schedule.warmup=0"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with texts about cities and foods, and vectors of them; and the words that train on the texts."""
    folder, draw = tmp_path_factory.mktemp("words"), random.Random(0)
    texts = [f"{number} we live in {draw.choice(CITIES)} and eat hot {draw.choice(FOODS)}" for number in range(200)]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = [f"data={folder / 'texts.jsonl'}", "data.tokenizer={kind: ByteBPE, vocabulary: 360}", f"runs={folder}/runs"]
    words += ["data.validation=0.1"]
    assert main(["data", "prepare", *words]) == 0
    vectors = np.random.default_rng(0).normal(0, 0.3, (8, 16))
    lines = [f"{word} {' '.join(map(str, row))}" for word, row in zip([*CITIES, *FOODS], vectors, strict=True)]
    (folder / "words.vec").write_text("\n".join(["8 16", *lines]) + "\n")
    return folder, [*SIZE, *words, "train.batch=4", f"start.vectors={folder / 'words.vec'}"]


def test_a_run_begins_with_the_vectors_and_may_keep_them(
    corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = corpus
    frozen = "train.parts=['decoder.stack.*', 'head.*']"
    assert main(["train", "decoder", *words, frozen, "log.wandb=disabled"]) == 0
    assert "tokens have a vector in" in capsys.readouterr().err
    (path,) = (folder / "runs" / "store").iterdir()
    model = scaling.load(path.name, runs=folder / "runs", device="cpu")
    vectors = read(folder / "words.vec", 16, {"soup"}.__contains__)
    (token,) = model.tokenizer.encode([" soup"])[0]  # type: ignore[union-attr]
    table = model.module.get_parameter("decoder.embedding.table").detach().numpy()  # type: ignore[union-attr]
    np.testing.assert_allclose(table[token], vectors["soup"], rtol=1e-6)


def test_a_start_that_does_not_fit_is_one_line(
    corpus: tuple[Path, list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    for change, message in {
        "size.width=32": "the vectors have 16 numbers, and the model's 32",
        "start.vectors=nowhere.vec": "there is no such file",
        "start.folder=x": "names weights by folder and by vectors",
    }.items():
        assert main(["train", "decoder", *corpus[1], change]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message in error
