"""A table trained, finetuned on its tasks, printed in each form, kept, and read again; what is missing is stated."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas
import pytest

import scaling
from scaling.base.printing import csv_rows, csv_text
from scaling.cli import main
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.tables.count import counts
from scaling.tables.document import document
from scaling.tables.results import FINISHED, Results, read_ledger, record
from scaling.tables.study import finetunings, question
from scaling.tables.table import Downstream, read
from tests.serial import work

SHORT = "trainer.max_steps: 6, data.examples: 64, data.held_out: 64, evaluate.points: 1"
TABLE = f"""
base: decoder
size: {{width: 8, heads: 1, layers: 1, head_width: 8, vocabulary: null, length: 16}}
data: {{kind: Synthetic, symbols: 16, order: 1}}
train: {{batch: 8, checkpoint_every: 1000}}
trainer: {{max_steps: 16}}
evaluate: {{points: 5, windows: 16}}
log.wandb: disabled
table:
  title: Mine, Table 1
  published: own.csv
  seeds: {{baseline: 2, others: 2}}
  downstream:
    GLUE: {{published: glue}}
    "Which & <language>": {{task: which_language, published: which, {SHORT}}}
    Both: {{task: [which_language, rank_tags], {SHORT}}}
rows:
  first: {{}}
  "=sec & <b>": {{optimizer.lr: 0.01}}
  third: {{optimizer.lr: 0.02}}
"""
PUBLISHED = "row,heading,final_loss,which,glue\nfirst,One,2.0,60.5,80.1\n=sec & <b>,Two,1.9,61.5,\nthird,Two,1.8,,\n"


def written(folder: Path, table: str = TABLE, published: str = PUBLISHED) -> str:
    (folder / "own.csv").write_text(published)
    (folder / "own.yaml").write_text(table)
    return str(folder / "own.yaml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table of three rows and two seeds, finetuned on its two tasks; the last run has no result."""
    folder = tmp_path_factory.mktemp("own")
    name, words = written(folder), [f"runs={folder / 'runs'}"]
    planned = plan(question(read(name), words), words)
    ledger = planned.ledger()
    enter(ledger, planned)
    work(ledger, planned)
    finetuned = finetunings(ledger, planned, read(name).downstream)
    assert finetuned is not None
    enter(ledger, finetuned)
    work(ledger, finetuned)
    (ledger.folder(planned.runs[-1].run) / "result.json").unlink()
    return name, Ledger.open(ledger.root), finetuned


def test_each_run_is_finetuned_on_each_task_with_its_own_seed(trained):
    name, ledger, finetuned = trained
    assert len(finetuned.runs) == 12
    seeds = {run.run: ledger.spec(run.run)["seed"] for run in finetuned.runs}
    assert all(ledger.spec(run.start)["seed"] == seeds[run.run] for run in finetuned.runs)
    assert sorted(seeds.values()) == [0] * 6 + [1] * 6
    held = read_ledger(ledger, read(name))
    of_run = {(run.start, run.task): ledger.result(run.run)["score"] for run in finetuned.runs}
    for run in (run for run in held.runs if run["status"] == FINISHED):
        which, ranks = (of_run[run["run"], task] for task in ("which_language", "rank_tags"))
        assert run["which_language_score"] == which
        assert run["both_score"] == pytest.approx((which + ranks) / 2)


def test_a_table_states_what_is_missing_and_prints_in_each_form(trained, capsys):
    name, ledger, _ = trained
    shown = scaling.table(name, source=ledger.root)
    assert shown.document["early_at"] == 1 / 8
    notes = " ".join(shown.notes)
    assert "third (2 planned, 1 finished, 1 missing)" in notes
    assert "pooled over all rows (2 degrees of freedom)" in notes
    assert "after Holm's correction over 2 rows" in notes
    first, second, _ = csv.DictReader(shown.format("csv").splitlines())
    assert (first["published_which"], second["row"]) == ("60.5", "'=sec & <b>")  # no formula of a spreadsheet
    assert float(first["published_final_loss"]) == 2.0
    assert second["verdict"] in ("better", "worse", "no difference shown")
    assert float(second["downstream_which_language_mean_low"]) <= float(second["downstream_which_language_mean_value"])
    page = shown.format("html")
    titles = [html.unescape(title) for title in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', page)]
    assert titles[titles.index("Runs") + 1 :] == [
        "GLUE, paper",
        "GLUE, ours",
        "Which & <language>, paper",
        "Which & <language> (accuracy), ours",
        "Which & <language>, verdict",
        "Both (accuracy, mean of 2 tasks), ours",
        "Both, verdict",
    ]
    assert page.count("<td>not measured</td>") == 3
    assert "<b>" not in page
    assert len(re.findall('<tr><th scope="row" colspan', page)) == 2  # the paper's headings
    assert len(re.findall(r"\n\| \*\*", shown.format("markdown"))) == 2
    latex = shown.format("latex")
    assert r"\caption{Mine, Table 1}" in latex
    assert r"\label{tab:mine-table-1}" in latex
    assert r"Which \& \textless{}language\textgreater{}, paper" in latex
    assert main(["table", name, "--from", str(ledger.root), "--row", "third"]) == 0
    out = capsys.readouterr().out
    assert ("third" in out, "first" in out) == (True, False)


def test_kept_points_print_the_whole_table_again(trained, tmp_path, capsys):
    name, ledger, _ = trained
    page, kept = tmp_path / "own.md", tmp_path / "own" / "points.csv"
    kept.parent.mkdir()
    (kept.parent / "reading.md").write_text("What it shows, written by hand.\n")
    words = ["table", name, "--keep", str(page), "--from"]
    assert main([*words, str(ledger.root)]) == 0
    whole, text, lines = capsys.readouterr().out, page.read_text(), kept.read_bytes()
    parts = ("What it shows, written by hand.", "5 of 6 runs done", "--downstream all`", "5 of them finetuned in")
    assert all(part in text for part in (*parts, "base: decoder"))
    assert str(ledger.root) not in text
    assert main([*words, str(kept)]) == 0
    assert (capsys.readouterr().out, page.read_text(), kept.read_bytes()) == (whole, text, lines)
    shown = scaling.table(name, source=kept)
    assert shown.to_json() == scaling.table(name, source=ledger.root).to_json()
    columns = [(column["heading"], column["metric"]) for column in shown.to_json()["downstream"]]
    assert columns == [("GLUE", None), ("Which & <language>", "accuracy"), ("Both", "accuracy")]
    assert list(shown.runs.columns)[-2:] == ["which_language_score", "both_score"]
    decisions = scaling.decide(name, source=kept).to_json()["decisions"]
    assert "our Which & <language> (accuracy)" in {each["large"] for each in decisions}
    rows = csv_rows(kept.read_text())
    rows[0]["worker_seconds"] = rows[0]["day"] = ""
    kept.write_text(csv_text(rows))
    assert main([*words, str(kept)]) == 0
    assert "of worker time in 4 of them, the others' is not known, on " in page.read_text()


def test_a_table_in_two_settings_wants_one_chosen(trained, tmp_path, capsys):
    name, ledger, _ = trained
    runs = str(shutil.copytree(ledger.root, tmp_path / "runs"))
    words = ["trainer.max_steps=8", f"runs={runs}"]
    other = plan(question(read(name), words), words)
    enter(Ledger.open(runs), other)
    assert main(["table", name, "--from", runs]) == 2
    assert "several settings; choose one: --study own-" in capsys.readouterr().err
    assert main(["table", name, "--from", runs, "--study", other.question.name]) == 0
    assert "fewer finished runs than planned: first (2 planned, 2 missing)" in capsys.readouterr().out


TASKS = """
base: encoder
size: {width: 8, heads: 1, layers: 1, head_width: 8, vocabulary: null}
model.head: {kind: Sequence, classes: 2}
train: {batch: 8}
trainer: {max_steps: 6}
evaluate: {points: 1, windows: 64}
log.wandb: disabled
objective: Answer
table:
  headings: {Order: [second, first], Length: [longest, long]}
  baseline: {Order: first, Length: long}
  judged_by: score
  published: own.csv
  columns: {bleu: "BLEU, paper"}
  compares: {loss: ppl, score: bleu}
  seeds: {baseline: 3, others: 2}
rows:
"""
PAPER = "row,heading,bleu,ppl\nfirst,,20,5.5\nsecond,,21,5\nlong,,22,6\nlongest,,23,4\n"


def test_a_table_judged_by_score_is_trained_with_a_baseline_under_each_heading(tmp_path, capsys):
    row = "  {0}: {{data: {{kind: WhichLanguage, examples: 64, held_out: 64, length: {1}}}, optimizer.lr: {2}}}\n"
    rates = {"first": "1e-3", "second": "1e-2", "long": "1e-3", "longest": "1e-2"}
    lines = [row.format(name, len(name), rate) for name, rate in rates.items()]
    name, points = written(tmp_path, TASKS + "".join(lines), PAPER), tmp_path / "page/points.csv"
    words = ["table", name, "--train", "--workers", "1", f"runs={tmp_path}/runs", "--json"]
    assert main([*words, "--keep", str(tmp_path / "page.md")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["judged_by"] == "score"
    rows = {line["row"]: line for line in found["rows"]}
    assert list(rows) == ["second", "first", "longest", "long"]
    assert [row for row in rows if rows[row]["difference"]] == ["second", "longest"]
    assert set(found["pools"]) == {"first", "long"}
    scores = [float(line["score"]) for line in csv.DictReader(points.open()) if line["row"] == "long"]
    assert rows["long"]["final_losses"] == scores
    assert [line["runs"]["planned"] for line in rows.values()] == [2, 3, 2, 3]
    assert all(0 <= score <= 1 for score in scores)
    runs: Any = pandas.read_csv(points).groupby("row")[["loss", "score"]].mean()
    paper: Any = pandas.read_csv(tmp_path / "own.csv").set_index("row")
    for ours, theirs in (("loss", "ppl"), ("score", "bleu")):
        expected = runs[ours].corr(paper[theirs], method="spearman")
        assert found["agreement"][theirs]["value"] == pytest.approx(expected)
    assert any(note.startswith("Rank correlation with the paper's BLEU over 4 rows") for note in found["said"])
    assert main(["table", name, "--from", str(points), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


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
    # Causal prediction is of all tokens and a prefix's of those behind it: neither loss is another's.
    assert differences == [None, pytest.approx(0.5), None, None]
    assert "(Language model, LM; Encoder-decoder, LM)" in " ".join(shown["said"])
    assert [row["downstream"]["task"]["difference"] is None for row in shown["rows"]] == [True, False, False, False]
    (measured,) = (each for each in shown["downstream"] if each["name"] == "task")
    assert measured["agreement"]["loss"] is None  # of two rows alone


def test_runs_are_those_of_a_table_however_its_path_is_spelled(tmp_path, capsys, monkeypatch):
    (tmp_path / "inner").mkdir()
    written(tmp_path)
    written(tmp_path / "inner")  # another table, with rows of the same names
    (tmp_path / "link.yaml").symlink_to("own.yaml")
    monkeypatch.chdir(tmp_path)
    planned = plan(question(read("link.yaml"), ["runs=runs"]), ["runs=runs"])
    enter(planned.ledger(), planned)
    monkeypatch.chdir(tmp_path / "inner")
    for spelling in ("../own.yaml", "../link.yaml", str(tmp_path / "own.yaml")):
        shown = scaling.table(spelling, source="../runs")
        assert [line["runs"]["planned"] for line in shown.document["rows"]] == [2, 2, 2]
    assert main(["table", "own.yaml", "--from", "../runs"]) == 2
    assert "it holds no run of own.yaml; its studies are of " in capsys.readouterr().err


def test_a_table_that_was_not_trained_says_so_and_keeps_nothing(tmp_path, capsys):
    Ledger.create(tmp_path / "runs")
    words = ["table", written(tmp_path), f"runs={tmp_path / 'runs'}"]
    assert main(words) == 0
    assert "No study of own is here" in capsys.readouterr().out
    assert main([*words, "--keep", str(tmp_path / "page.md")]) == 2
    assert "nothing of this table was trained" in capsys.readouterr().err
    assert not (tmp_path / "page.md").exists()


@pytest.mark.slow
def test_the_whole_command_is_killed_and_goes_on(tmp_path):
    """Killed while it finetunes, the same command ends in the scores of one that was not killed."""

    def results(runs: str) -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / runs).glob("store/*/result.json")}

    def line(runs: str) -> list[str]:
        words = ["table", written(tmp_path), "--train", "--workers", "1", "--downstream", "all"]
        keep = ["--keep", str(tmp_path / f"{runs}.md")]
        return [sys.executable, "-m", "scaling", *words, f"runs={tmp_path / runs}", *keep]

    killed = subprocess.Popen(line("runs"), stderr=subprocess.DEVNULL)
    while not any('"score"' in path.read_text() for path in results("runs")) and killed.poll() is None:
        time.sleep(0.2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    done = results("runs")
    assert 6 < len(done) < 18
    for runs in ("runs", "whole"):
        subprocess.run(line(runs), check=True, capture_output=True)
    assert done.items() <= results("runs").items()
    first, second = (csv_rows((tmp_path / runs / "points.csv").read_text()) for runs in ("runs", "whole"))
    for column in ("run", "which_language_score", "both_score"):
        assert all(line[column] for line in first)
        assert [line[column] for line in first] == [line[column] for line in second]
