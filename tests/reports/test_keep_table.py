"""A table kept: its page, its points, the reading written by hand; and the table printed from what was kept."""

from __future__ import annotations

import csv
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.tables.study import question
from scaling.tables.table import Seeds, read
from tests.serial import work

ROWS = ("Vanilla Transformer", "GeLU")
ONLY = [word for row in ROWS for word in ("--row", row)]
QUICK = ["size=tiny", "data.symbols=32", "data.validation=512", "train.batch=4", "trainer.max_steps=8"]
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
    kept = tmp_path / "narang2021" / "points.csv"
    points = kept.read_bytes()
    assert main(["table", "narang2021", *ONLY, "--from", str(kept), "--keep", str(page)]) == 0
    assert capsys.readouterr().out == whole
    assert page.read_text() == told
    assert kept.read_bytes() == points


def test_what_kept_points_lack_is_trained_and_kept_with_them(ledger, tmp_path, capsys):
    def train(kept: Path, runs: str, page: str) -> str:
        words = ["--train", "--workers", "1", "--from", str(kept), "seeds=3", *QUICK, f"runs={tmp_path / runs}"]
        assert main(["table", "narang2021", *ONLY, *words, "--keep", str(tmp_path / page)]) == 0
        return capsys.readouterr().out

    kept = tmp_path / "two" / "points.csv"
    assert main(["table", "narang2021", *ONLY, "--from", str(ledger), "--keep", str(tmp_path / "two.md")]) == 0
    capsys.readouterr()
    whole = train(kept, "runs", "three.md")
    assert len(list((tmp_path / "runs" / "store").iterdir())) == len(ROWS)
    assert "6 of 6 runs done" in (tmp_path / "three.md").read_text()
    lines = (tmp_path / "three" / "points.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == [row for row in ROWS for _ in range(3)]
    assert set(kept.read_text().splitlines()[2].split(",")[:10]) <= set(lines[2].split(","))
    assert train(tmp_path / "three" / "points.csv", "none", "again.md") == whole
    assert not (tmp_path / "none").exists()


@contextmanager
def edited(kept: Path):
    with kept.open() as file:
        lines = list(csv.DictReader(file))
    yield lines
    with kept.open("w") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)


def test_a_time_that_is_not_known_is_said(ledger, tmp_path):
    assert main(["table", "narang2021", *ONLY, "--from", str(ledger), "--keep", str(tmp_path / "page.md")]) == 0
    kept = tmp_path / "page" / "points.csv"
    with kept.open() as file:
        lines = list(csv.DictReader(file))
    lines[0]["worker_seconds"] = lines[0]["day"] = ""
    with kept.open("w") as file:
        writer = csv.DictWriter(file, lines[0])
        writer.writeheader()
        writer.writerows(lines)
    assert main(["table", "narang2021", *ONLY, "--from", str(kept), "--keep", str(tmp_path / "page.md")]) == 0
    assert "of worker time in 3 of them, the others' is not known, on " in (tmp_path / "page.md").read_text()


REFUSED = {
    "counts of runs": (["--counts", "--keep", "page.md"], "--keep: counts are of no runs"),
    "counts of a source": (["--counts", "--from", "runs"], "--from: counts are of no runs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_words_that_contradict_are_refused(name, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, said = REFUSED[name]
    assert main(["table", "narang2021", *ONLY, *words]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_points_of_other_runs_are_refused(ledger, tmp_path, capsys):
    kept = tmp_path / "page" / "points.csv"
    assert main(["table", "narang2021", *ONLY, "--from", str(ledger), "--keep", str(tmp_path / "page.md")]) == 0
    words = [*QUICK, "optimizer.lr=0.5", f"runs={tmp_path / 'runs'}"]
    assert main(["table", "narang2021", *ONLY, "--train", "--from", str(kept), *words]) == 2
    assert "its run of Vanilla Transformer, seed 0, is another than the one asked for here" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_points_that_share_no_run_with_what_is_asked_are_refused(ledger, tmp_path, capsys):
    kept = tmp_path / "page" / "points.csv"
    assert main(["table", "narang2021", *ONLY, "--from", str(ledger), "--keep", str(tmp_path / "page.md")]) == 0
    with edited(kept) as lines:
        for line in lines:
            line["seed"] = str(int(line["seed"]) + 7)
    words = [*QUICK, f"runs={tmp_path / 'runs'}"]
    assert main(["table", "narang2021", *ONLY, "--train", "--from", str(kept), *words]) == 2
    assert f"{kept}: it holds no run that is requested here" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_where_nothing_was_trained_nothing_is_kept(tmp_path, capsys):
    Ledger.create(tmp_path / "runs")
    words = [f"runs={tmp_path / 'runs'}", "--keep", str(tmp_path / "page.md")]
    assert main(["table", "narang2021", *ONLY, *words]) == 2
    assert "nothing of this table was trained" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()
