"""What is wrong with a model is one line with its place, its value and its fix, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaling.cli import main

SIZE = "size={width: 32, layers: 2, heads: 4, vocabulary: 61, length: 24}"
# The model, what is changed, the place that the line names, and the fix.
ROWS = [row.split("|") for row in Path(__file__).with_name("wrong_models.txt").read_text().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]}{row[1]}")
def test_one_line(row, capsys):
    family, changes, place, fix = (part.strip() for part in row)
    size = [] if "size=" in changes else [SIZE]
    assert main(["inspect", family, *size, *filter(None, changes.split("; "))]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "Traceback" not in err
    assert place in err
    assert fix in err
    assert err.startswith("scaling: ")
    assert "command line" in err or ".yaml" in err or "there is no model" in err
