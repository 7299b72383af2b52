"""A small corpus, what a `data:` line makes of it, and `scaling data prepare`."""

import json
import random
from functools import partial

import pytest

from scaling.base.errors import BAD_INPUT
from scaling.cli import main
from scaling.config.schema import build
from scaling.data import rows

WORDS = ["the", "of", "model", "loss", "grows", "with", "data", "size", "while", "compute", "is", "spent", "on", "it"]


def paragraph(number):
    """Distinct, repeatable, of two to six lines; no two numbers give the same text."""
    draw = random.Random(number)
    lines = (" ".join(draw.choices(WORDS, k=draw.randint(3, 12))) for _ in range(draw.randint(2, 6)))
    return f"{number} " + "\n".join(lines)


def line(home, **changes):
    """A data line over the texts of a folder."""
    corpus, tokenizer = {"kind": "Files", "files": str(home / "*.txt")}, {"kind": "ByteBPE", "vocabulary": 300}
    return build("data", {"kind": "Text", "corpus": corpus, "tokenizer": tokenizer, "validation": 0.1, **changes})


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A text of 400 paragraphs in two files and nine parts."""
    monkeypatch.setattr(rows, "PART", 8000)
    (tmp_path / "corpus").mkdir()
    for part in range(2):
        texts = map(paragraph, range(200 * part, 200 * (part + 1)))
        (tmp_path / "corpus" / f"{part}.txt").write_text("\n\n".join(texts))
    return tmp_path / "corpus"


@pytest.fixture
def text(corpus):
    return partial(line, corpus)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The folder in which a person works, for `prepared` and `refused`."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prepared(capsys, *words):
    """What `scaling data prepare` prints of these words."""
    code = main(["data", "prepare", *words, "--json"])
    out, error = capsys.readouterr()
    assert code == 0, error
    return json.loads(out)


def refused(capsys, *words):
    """The one line with which it refuses them."""
    assert main(["data", "prepare", *words]) == BAD_INPUT
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("scaling: ")
    assert error.count("\n") == 1
    return error
