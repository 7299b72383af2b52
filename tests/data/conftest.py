"""A small corpus, what a `data:` line makes of it, and `scaling data prepare`."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import BAD_INPUT
from scaling.cli import main
from scaling.config.schema import build
from scaling.data import rows
from scaling.data.text import Text

WORDS = ["the", "of", "model", "loss", "grows", "with", "data", "size", "while", "compute", "is", "spent", "on", "it"]


def paragraph(number: int) -> str:
    """Distinct, repeatable, of two to six lines; no two numbers give the same text."""
    draw = random.Random(number)
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(draw.randint(2, 6)))
    return f"{number} " + "\n".join(lines)


def write(folder: Path) -> Path:
    """A text of 400 paragraphs in two files."""
    folder.mkdir()
    for part in range(2):
        texts = [paragraph(number) for number in range(200 * part, 200 * (part + 1))]
        (folder / f"{part}.txt").write_text("\n\n".join(texts))
    return folder


def line(home: Path, **changes: object) -> Text:
    """A data line over that corpus."""
    corpus, tokenizer = {"kind": "Files", "files": str(home / "*.txt")}, {"kind": "ByteBPE", "vocabulary": 300}
    return build("data", {"kind": "Text", "corpus": corpus, "tokenizer": tokenizer, "validation": 0.1, **changes})


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(rows, "PART", 8000)  # nine parts
    return write(tmp_path / "corpus")


@pytest.fixture
def text(corpus: Path) -> Callable[..., Text]:
    return partial(line, corpus)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where prepared data lie."""
    return tmp_path / "data"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a person works, for `prepared` and `refused`."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What `scaling data prepare` prints of these words."""
    code = main(["data", "prepare", *words, "--json"])
    out, error = capsys.readouterr()
    assert code == 0, error
    return json.loads(out)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which it refuses them."""
    assert main(["data", "prepare", *words]) == BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("scaling: ")
    assert error.count("\n") == 1
    return error
