"""A small corpus, and what a `data:` line makes of it."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

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
    """A data line over that corpus, with what is given laid over it."""
    plain = {
        "kind": "Text",
        "corpus": {"kind": "Files", "files": str(home / "*.txt")},
        "tokenizer": {"kind": "ByteBPE", "vocabulary": 300},
        "validation": 0.1,
    }
    return build("data", {**plain, **changes})


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
