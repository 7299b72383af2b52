"""A law on a terminal of eighty columns: no number is cut."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from scaling.fit_report.terminal import show

KEPT = Path(__file__).parents[2] / "docs" / "results"


@pytest.mark.parametrize("fit", sorted(KEPT.glob("*/fit.json")), ids=lambda path: path.parent.name)
def test_numbers_are_whole_on_eighty_columns(fit):
    console = Console(width=80, record=True, highlight=False)
    document = json.loads(fit.read_text())
    show(document, console)
    said = console.export_text()
    assert "…" not in said
    for interval in document["intervals"].values():
        assert f"{interval['estimate']:.5g}" in said
