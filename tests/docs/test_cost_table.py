"""The table of attention's share in docs/cost.md is what is counted."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(("size", "lengths"), [("small", [512, 131072]), ("xl", [2048]), ("175b", [2048])])
def test_cells_are_counts(size, lengths):
    spec = importlib.util.spec_from_file_location("build_cost", DOCS / "build_cost.py")
    assert spec is not None
    assert spec.loader is not None
    build_cost = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build_cost)
    table = (DOCS / "cost.md").read_text().split(build_cost.BEGIN)[1].split(build_cost.END)[0]
    written = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in table.splitlines()}
    (counted,) = build_cost.rows([size], lengths)
    cells = counted.strip("| ").split(" | ")[1:]
    assert cells == [written[size][build_cost.LENGTHS.index(length)] for length in lengths]
    assert [name for name in written if name in build_cost.SIZES] == build_cost.SIZES
