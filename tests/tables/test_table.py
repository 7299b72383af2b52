"""The command: counts, a table trained and read back, its forms, what is said of what is missing, bad input."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from typing import Any

import pandas
import pytest

from scaling.base.printing import csv_rows, csv_text
from scaling.cli import main
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.tables.count import counts
from scaling.tables.document import document
from scaling.tables.results import FINISHED, Results, read_ledger, record
from scaling.tables.study import question
from scaling.tables.table import Downstream, read
from tests.serial import work

ROWS = ["Vanilla Transformer", "GeLU", "Switch Transformer"]
QUICK = ["size=tiny", "data={kind: Synthetic, symbols: 64, order: 1}", "train.batch=4", "trainer.max_steps=8"]
QUICK += ["evaluate={points: 4, windows: 16}", "log.wandb=disabled"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table of three rows, the last with a run too few."""
    runs = tmp_path_factory.mktemp("runs")
    table = replace(read("narang2021").only(ROWS), seeds={"baseline": 3, "others": 2})
    words = [*QUICK, f"runs={runs}"]
    asked = question(table, words)
    found = plan(asked, words)
    ledger = found.ledger()
    enter(ledger, asked.name, found)
    work(ledger, found)
    (ledger.folder(found.runs[-1].run) / "result.json").unlink()
    return ledger, table


def counted(capsys, *words: str) -> dict:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_is_missing_is_said(trained):
    ledger, table = trained
    shown = document(table, counts(table, QUICK), read_ledger(ledger, table))
    assert shown["early_at"] == 2 / 8  # an eighth is the first step, after which nothing is learned
    said = " ".join(shown["said"])
    assert "Switch Transformer (2 planned, 1 finished, 1 missing)" in said
    assert "pooled over all rows (3 degrees of freedom)" in said
    assert "after Holm's correction over 2 rows" in said


LINES = {"terminal": ROWS[1], "markdown": "| GeLU |", "latex": "GeLU & ", "html": '<tr><th scope="row">GeLU</th>'}


@pytest.mark.parametrize("form", [*LINES, "csv"])
def test_forms(form, trained, capsys):
    ledger, _ = trained
    words = [word for row in ROWS for word in ("--row", row)]
    assert main(["table", "narang2021", *words, "--from", str(ledger.root), "--format", form]) == 0
    text = capsys.readouterr().out
    assert all(row in text for row in ROWS)
    if form == "csv":
        lines = list(csv.DictReader(io.StringIO(text)))
        assert [line["row"] for line in lines] == ROWS
        assert float(lines[0]["published_final_loss"]) == 1.838
        assert lines[1]["verdict"] in ("better", "worse", "no difference shown")
        return
    headings = {"markdown": r"\n\| \*\*", "html": '<tr><th scope="row" colspan', "latex": r"\\multicolumn"}
    assert LINES[form] in text
    assert form == "terminal" or len(re.findall(headings[form], text)) == 2
    if form == "latex":
        assert r"\caption{Narang et al. 2021, Table 1}" in text
        assert r"\label{tab:narang-et-al-2021-table-1}" in text


def test_what_is_kept_prints_the_table_again(trained, tmp_path, capsys):
    ledger, _ = trained
    page, kept = tmp_path / "narang2021.md", tmp_path / "narang2021" / "points.csv"
    kept.parent.mkdir()
    (kept.parent / "reading.md").write_text("What it shows, written by hand.\n")
    words = ["table", "narang2021", *(word for row in ROWS for word in ("--row", row)), "--keep", str(page), "--from"]
    assert main([*words, str(ledger.root)]) == 0
    whole, told, points = capsys.readouterr().out, page.read_text(), kept.read_bytes()
    said = ("What it shows, written by hand.", "6 of 7 runs done", "| GeLU |", "base: encoder_decoder")
    assert all(words in told for words in said)
    assert str(ledger.root) not in told
    assert main([*words, str(kept)]) == 0
    assert (capsys.readouterr().out, page.read_text(), kept.read_bytes()) == (whole, told, points)
    lines = csv_rows(kept.read_text())
    lines[0]["worker_seconds"] = lines[0]["day"] = ""
    kept.write_text(csv_text(lines))
    assert main([*words, str(kept)]) == 0
    assert "of worker time in 5 of them, the others' is not known, on " in page.read_text()


def test_a_table_in_two_settings_wants_one_chosen(trained, tmp_path, capsys):
    ledger, table = trained
    shutil.copytree(ledger.root, tmp_path / "runs")
    words = [
        *(word for word in QUICK if not word.startswith("trainer.max_steps")),
        "trainer.max_steps=16",
        f"runs={tmp_path}/runs",
    ]
    other = plan(question(table, words), words)
    enter(Ledger.open(tmp_path / "runs"), other.question.name, other)
    assert main(["table", "narang2021", "--from", f"{tmp_path}/runs"]) == 2
    assert "several settings; choose one: --study narang2021-" in capsys.readouterr().err
    assert (
        main(["table", "narang2021", "--row", "GeLU", "--from", f"{tmp_path}/runs", "--study", other.question.name])
        == 0
    )
    assert "fewer finished runs than planned: GeLU (2 planned, 2 missing)" in capsys.readouterr().out


TASKS = """
base: encoder
size: tiny
model.head: {kind: Sequence, classes: 2}
train: {batch: 8}
trainer: {max_steps: 6}
evaluate: {points: 1, windows: 64}
log.wandb: disabled
table:
  headings: {Order: [second, first], Length: [longest, long]}
  baseline: {Order: first, Length: long}
  judged_by: score
  published: paper.csv
  columns: {bleu: "BLEU, paper"}
  compares: {loss: ppl, score: bleu}
  seeds: {baseline: 2, others: 2}
rows:
"""
PAPER = "row,heading,bleu,ppl\nfirst,,20,5.5\nsecond,,21,5\nlong,,22,6\nlongest,,23,4\n"
ROW = "  {name}: {{data: {{kind: WhichLanguage, examples: 64, held_out: 64, length: {length}}}, optimizer.lr: {lr}}}\n"


def test_a_table_judged_by_score_has_a_baseline_under_each_heading(tmp_path, capsys):
    lines = [ROW.format(name=name, length=len(name), lr=rate) for name, rate in RATES.items()]
    (tmp_path / "own.yaml").write_text(TASKS + "".join(lines) + "objective: Answer\n")
    (tmp_path / "paper.csv").write_text(PAPER)
    points = tmp_path / "own/points.csv"
    words = ["table", str(tmp_path / "own.yaml")]
    assert main([*words, "--train", f"runs={tmp_path}/runs", "--keep", str(tmp_path / "own.md"), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judged_by"] == "score"
    rows = {line["row"]: line for line in document["rows"]}
    assert list(rows) == ["second", "first", "longest", "long"]
    assert [row for row in rows if rows[row]["difference"]] == ["second", "longest"]
    assert set(document["pools"]) == {"first", "long"}
    scores = [float(line["score"]) for line in csv.DictReader(points.open()) if line["row"] == "long"]
    assert rows["long"]["final_losses"] == scores
    assert all(0 <= score <= 1 for score in scores)
    runs: Any = pandas.read_csv(points).groupby("row")[["loss", "score"]].mean()
    paper: Any = pandas.read_csv(tmp_path / "paper.csv").set_index("row")
    for ours, theirs in (("loss", "ppl"), ("score", "bleu")):
        expected = runs[ours].corr(paper[theirs], method="spearman")
        assert document["agreement"][theirs]["value"] == pytest.approx(expected)
    assert any(note.startswith("Rank correlation with the paper's BLEU over 4 rows") for note in document["said"])
    assert main([*words, "--from", str(points), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == document


RATES = {"first": "1e-3", "second": "1e-2", "long": "1e-3", "longest": "1e-2"}


def test_a_table_that_was_not_trained_says_so_and_keeps_nothing(tmp_path, capsys):
    Ledger.create(tmp_path / "runs")
    words = ["table", "narang2021", "--row", "GeLU", f"runs={tmp_path / 'runs'}"]
    assert main(words) == 0
    assert "No study of narang2021 is here" in capsys.readouterr().out
    assert main([*words, "--keep", str(tmp_path / "page.md")]) == 2
    assert "nothing of this table was trained" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


def test_a_source_without_a_run_of_the_table_is_refused(tmp_path, capsys):
    ledger = Ledger.create(tmp_path)
    entry = {"run": "0" * 16, "overrides": ["row=Recurrent", "seed=0"]}
    ledger.save_plan("layers", {"study": {"base": "table/layer_types"}, "runs": [entry]})
    for words in (["table"], ["decide"]):
        assert main([*words, "narang2021", "--row", "GeLU", "--from", str(tmp_path)]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "it holds no run of table/narang2021; its studies are of table/layer_types" in err


OWN = """
base: decoder
size: {width: 8, layers: 1, heads: 1, length: 16, vocabulary: null}
data: {kind: Synthetic, symbols: 16, order: 1}
train: {batch: 4}
trainer: {max_steps: 8}
rows: {SwiGLU: {}, Late: {optimizer.lr: 1e-2}}
"""


def test_runs_are_those_of_a_table_however_its_path_is_spelled(tmp_path, capsys, monkeypatch):
    (tmp_path / "inner").mkdir()
    (tmp_path / "own.yaml").write_text(OWN)
    (tmp_path / "link.yaml").symlink_to("own.yaml")
    monkeypatch.chdir(tmp_path)
    for name, runs in (("own.yaml", "one"), ("link.yaml", "two"), ("./inner/../own.yaml", "three")):
        words = [f"runs={tmp_path / runs}"]
        planned = plan(asked := question(read(name), words), words)
        enter(planned.ledger(), asked.name, planned)
    (other := tmp_path / "inner" / "own.yaml").write_text(OWN)  # another table, with rows of the same names
    for folder, spellings in (
        (tmp_path, ["own.yaml", "./own.yaml", "link.yaml", str(tmp_path / "own.yaml")]),
        (tmp_path / "inner", ["../own.yaml", "../link.yaml", str(tmp_path / "own.yaml")]),
    ):
        monkeypatch.chdir(folder)
        for name in spellings:
            for runs in ("one", "two", "three"):
                document = counted(capsys, "table", name, "--from", str(tmp_path / runs))
                assert [line["runs"]["planned"] for line in document["rows"]] == [1, 1]
        assert main(["table", str(other), "--from", str(tmp_path / "one")]) == 2
        assert "own.yaml" in capsys.readouterr().err


FILES = {
    "published figures without rows": ({"published": "bad.csv"}, "row"),
    "a line of too few cells": ({"published": "few.csv"}, "few.csv:3"),
    "a column that was not published": ({"published": "good.csv", "columns": {"blue": "BLEU"}}, "'bleu'"),
    "a comparison with what was not published": ({"published": "good.csv", "compares": {"score": "blue"}}, "'bleu'"),
    "an unknown key": ({"publshed": "good.csv"}, "'published'"),
    "an unknown baseline": ({"baseline": "Onne"}, "'One'"),
    "a row under two headings": ({"headings": {"A": ["One", "Two"], "B": ["One"]}}, "name it once"),
    "a heading without a baseline": (
        {"headings": {"A": ["One"], "B": ["Two"]}, "baseline": {"A": "One"}},
        "none for the heading 'B'",
    ),
    "an unknown heading": ({"headings": {"A": ["One", "Two"]}, "baseline": {"a": "One"}}, "'A'"),
}


@pytest.mark.parametrize("row", ["two\nlines", "\x1b[2J"])
def test_a_row_that_no_table_can_print_is_one_line(row, tmp_path, capsys):
    (tmp_path / "own.yaml").write_text(json.dumps({"base": "decoder", "rows": {"One": {}, row: {}}}))
    assert main(["table", str(tmp_path / "own.yaml"), "--counts"]) == 2
    assert capsys.readouterr().err.endswith(f"own.yaml: rows={row!r}: a row's name is printable text on one line\n")


@pytest.mark.parametrize("name", FILES)
def test_bad_tables_are_one_line(name, tmp_path, capsys):
    told, said = FILES[name]
    tree = {"base": "decoder", "size": "tiny", "table": told, "rows": {"One": {}, "Two": {}}}
    (tmp_path / "own.yaml").write_text(json.dumps(tree))
    lines = {"bad": "name,bleu\nOne,1\n", "few": "row,heading,bleu\nOne,,1\nTwo,\n", "other": "row,heading\nTow,\n"}
    for file, text in {**lines, "good": "row,heading,bleu\nOne,,1\n"}.items():
        (tmp_path / f"{file}.csv").write_text(text)
    assert main(["table", str(tmp_path / "own.yaml"), "--counts"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


BAD = {
    "an unknown table": (["table", "narang2012", "--counts"], "'narang2021'"),
    "an unknown row": (["table", "narang2021", "--counts", "--row", "GeLu "], "'GeLU'"),
    "a row that does not fit": (
        ["table", "narang2021", "--counts", "--row", "Product key memory", "size=tiny", "size.layers=1"],
        "row 'Product key memory': ",
    ),
    "no seeds": (["table", "narang2021", "--train", "seeds=0"], "seeds.baseline=0: expected a positive whole number"),
    "an unknown key of seeds": (["table", "narang2021", "--train", "seeds={base: 1}"], "'baseline'"),
    "counts of a source": (["table", "narang2021", "--counts", "--from", "runs"], "--from: counts are of no runs"),
    "two ledgers": (["table", "narang2021", "--train", "--from", "runs"], "--from='runs': --train reads the runs of"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, said = BAD[name]
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err


def test_losses_of_two_objectives_are_not_compared():
    rows = ["Encoder-decoder, Denoising", "Language model, Denoising", "Language model, LM", "Prefix LM, LM"]
    table = read("raffel2019_table2").only(rows)
    levels = dict(zip(rows, (3.0, 3.5, 5.0, 5.5)))
    runs = tuple(
        record(row, seed, f"{row} {seed}", FINISHED, loss=level + 0.01 * seed, task_score=level - 0.02 * seed)
        for row, level in levels.items()
        for seed in (0, 1)
    )
    column = Downstream("task", {"task": {}}, None, metric="accuracy")
    shown = document(table, counts(table, ["size=tiny"]), Results(("study",), (), runs, downstream=(column,)))
    differences = [row["difference"] and row["difference"]["value"] for row in shown["rows"]]
    # causal prediction is of all tokens and a prefix's of those behind it: neither loss is another's
    assert differences == [None, pytest.approx(0.5), None, None]
    assert "(Language model, LM; Encoder-decoder, LM)" in " ".join(shown["said"])
    assert [row["downstream"]["task"]["difference"] is None for row in shown["rows"]] == [True, False, False, False]
    (measured,) = (each for each in shown["downstream"] if each["name"] == "task")
    assert measured["agreement"]["loss"] is None  # of two rows alone
