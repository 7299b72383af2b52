"""A small corpus, what a `data:` line makes of it, and `scaling data prepare`."""

import json
from functools import partial

import pytest

from scaling.config.schema import build
from scaling.data import rows
from tests import command_line

SENTENCE = "the model of the data grows with size while compute is spent on it and its loss falls"


def line(home, **changes):
    """A data line over the texts of a folder."""
    corpus, tokenizer = {"kind": "Files", "files": str(home / "*.txt")}, {"kind": "ByteBPE", "vocabulary": 300}
    return build("data", {"kind": "Text", "corpus": corpus, "tokenizer": tokenizer, "validation": 0.1, **changes})


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    """A text of 400 paragraphs in two files and nine parts."""
    monkeypatch.setattr(rows, "PART", 8000)
    (tmp_path / "corpus").mkdir()
    texts = [f"{number} " + "\n".join([SENTENCE] * (1 + number % 3)) for number in range(400)]
    for part in range(2):
        (tmp_path / "corpus" / f"{part}.txt").write_text("\n\n".join(texts[200 * part :][:200]))
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


def jsonl(file, rows):
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


def hub_copy(home, sets):
    """A copy of a set of the hub: the table of each split of each config, and the card that lists them."""
    card = []
    for config, splits in sets.items():
        for split, table in splits.items():
            table.to_parquet(home / f"{config}-{split}.parquet")
        files = [{"split": split, "path": f"{config}-{split}.parquet"} for split in splits]
        card.append({"config_name": config or "default", "data_files": files})
    (home / "README.md").write_text(f"---\nconfigs: {json.dumps(card)}\n---\n")


def prepared(capsys, *words):
    return command_line.printed(capsys, "data", "prepare", *words, "--json")


def refused(capsys, *words):
    return command_line.refused(capsys, "data", "prepare", *words)
