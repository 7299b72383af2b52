"""A table kept: its page, its points, the reading written by hand; and the table printed from what was kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.study.plan import plan
from scaling.study.record import enter
from scaling.study.work import work
from scaling.table.study import question
from scaling.table.table import Seeds, read

ROWS = ("Vanilla Transformer", "GeLU")
ONLY = [word for row in ROWS for word in ("--row", row)]
QUICK = ["size=tiny", "data.symbols=32", "data.validation=512", "train.batch=4", "train.steps=8"]
QUICK += ["evaluate={points: 4, windows: 4}", "log.wandb=disabled"]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory) -> Path:
    words = [*QUICK, f"runs={tmp_path_factory.mktemp('runs')}"]
    asked = question(replace(read("narang2021").only(ROWS), seeds=Seeds(2, 2)), words)
    found = plan(asked, words)
    ledger = found.ledger()
    enter(ledger, asked.name, found)
    work(ledger, found)
    return ledger.root


def test_what_is_kept_prints_the_table_again(ledger, tmp_path, capsys):
    page = tmp_path / "narang2021.md"
    (tmp_path / "narang2021").mkdir()
    (tmp_path / "narang2021" / "reading.md").write_text("What it shows, written by hand.\n")
    assert main(["table", "narang2021", *ONLY, "--from", str(ledger), "--keep", str(page)]) == 0
    whole = capsys.readouterr().out
    told = page.read_text()
    assert "What it shows, written by hand." in told
    assert "4 of 4 runs done" in told
    assert "| GeLU |" in told
    assert "base: encoder_decoder" in told
    assert str(ledger) not in told
    assert main(["table", "narang2021", *ONLY, "--from", str(tmp_path / "narang2021" / "points.csv")]) == 0
    assert capsys.readouterr().out == whole


def test_without_a_ledger_nothing_is_kept(tmp_path, capsys):
    assert main(["table", "narang2021", *ONLY, "--counts", "--keep", str(tmp_path / "page.md")]) == 2
    assert "there is no ledger to keep something of" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()
