"""Functions and their docstrings: no function is both trained on and held out."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from scaling.data.text import Text
from scaling.schema import build

# Of a data line of text with this corpus, and with `Python`, before the functions that files share were left out.
DOCSTRINGS, PYTHON = "f4b83bf76bb94d89", "de653ce6475b9fd0"
FUNCTION = '''
def {name}(number):
    """Return {name} of a number."""
    total = number + number * number - number ** number
    return total
'''


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Forty files with a function of their own each and one that all have."""
    library = tmp_path / "lib"
    library.mkdir()
    for number in range(40):
        text = FUNCTION.format(name=f"own{number}") + FUNCTION.format(name="shared")
        (library / f"file{number}.py").write_text(text)
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(library)})
    return build("corpus", {"kind": "Docstrings", "reach": "standard", "held_out": 0.3})


def test_no_function_is_trained_on_and_held_out(corpus, tmp_path: Path) -> None:
    documents = list(corpus.snapshot(tmp_path).documents())
    train, validation = ({one.source for one in documents if one.split == split} for split in ("train", "validation"))
    assert not train & validation
    assert len(train) + len(validation) == 41
    assert 4 < len(validation) < 25


def test_data_of_the_earlier_split_are_not_taken(tmp_path: Path) -> None:
    lines = [
        {"kind": "Text", "corpus": corpus, "tokenizer": "Byte"}
        for corpus in ({"kind": "Docstrings", "limit": 1000}, {"kind": "Python", "limit": 1000})
    ]
    docstrings, python = (build("data", line) for line in lines)
    assert isinstance(docstrings, Text)
    assert isinstance(python, Text)
    assert (docstrings.key == DOCSTRINGS, python.key == PYTHON) == (False, True)
