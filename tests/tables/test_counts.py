"""Every row of every shipped table: what it weighs and computes, against what was printed and against golden files."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from scaling.config.compose import document, find, names
from scaling.tables.count import Counts, counts
from scaling.tables.table import read

TESTS = Path(__file__).parents[1]


@cache
def counted(name: str) -> dict[str, Counts]:
    """The rows of a table, which takes some twenty seconds of the longest, and is asked for by several tests."""
    return {one["row"]: one for one in counts(read(name))}


@pytest.fixture
def narang() -> dict[str, Counts]:
    return counted("narang2021")


NARANG = [row.name for row in read("narang2021").rows]


def assumed() -> dict[str, dict[str, str]]:
    with open(TESTS / "published" / "narang2021_row_assumptions.csv", newline="") as file:
        return {line["row"]: line for line in csv.DictReader(file)}


def graph_of(row: str) -> dict[str, str]:
    """The line of a row in the counts of the original graph, where families of rows share one."""
    lines = assumed()
    if row.endswith("GLU"):
        return lines["GLU family"]
    first = row.split(",")[0]
    families = ("Rezero", "Fixup")
    return lines.get(first) or next(
        (lines[one] for one in families if row.startswith(one)), lines["Vanilla Transformer"]
    )


@pytest.mark.parametrize("row", NARANG)
def test_parameters_as_printed(narang, row):
    assert narang[row]["parameters"] / 1e6 == pytest.approx(narang[row]["published"]["params_millions"], abs=1.3)


@pytest.mark.parametrize("row", NARANG)
def test_parameters_of_the_original_graph(narang, row):
    assert narang[row]["parameters"] == pytest.approx(int(graph_of(row)["graph_params_relative"]), rel=1e-3)


@pytest.mark.parametrize("row", NARANG)
def test_operations_as_printed(narang, row):
    printed = narang[row]["published"]["ops_tera"]
    if row == "Funnel Transformer":
        printed *= 4  # 1.9T cannot be: the three quarters of it that are decoder and embeddings alone are more
    assert narang[row]["ops"] / 1e12 == pytest.approx(printed, rel=0.01 if row != "Funnel Transformer" else 0.03)


# A recipe for a table's training has its rows.
TABLES = [name for name in names("table") if not document(find("table", name)).tree["base"].startswith("table/")]


SLOW = ("layer_types", "vaswani2017_table2")  # whose recurrent rows are read token by token
EACH = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in TABLES]


@pytest.mark.parametrize("name", EACH)
def test_golden(name, request):
    """A table's truth as a text to review, a line a row; `pytest --golden` writes it anew."""
    found = {
        row: {
            "parameters": one["parameters"],
            "ops": one["ops"],
            "flops": one["flops_forward"],
            "by_slot": {slot: number for slot, number in sorted(one["by_slot"].items()) if number},
        }
        for row, one in counted(name).items()
    }
    path = TESTS / "golden" / "table" / f"{name}.json"
    if request.config.getoption("--golden"):
        lines = (f" {json.dumps(row)}: {json.dumps(line)}" for row, line in found.items())
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    assert json.loads(path.read_text()) == found
