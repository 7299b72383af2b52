"""Downstream columns: a table's runs finetuned on tasks, their scores next to the paper's, kept and read again."""

import csv
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import scaling
from scaling.cli import main
from scaling.config.compose import names, table_file
from scaling.studies.plan import enter, plan
from scaling.studies.tasks import unstarted
from scaling.tables.results import read_ledger
from scaling.tables.study import finetunings, question
from scaling.tables.table import Downstream, read
from tests.data.task.layouts import LAYOUTS
from tests.data.task.test_shipped import LOCAL, named
from tests.serial import work
from tests.tables.test_other_tables import PAIRS

SHORT = "trainer.max_steps: 6, data.examples: 64, data.held_out: 64, evaluate.points: 1"
TABLE = f"""
base: decoder
size: {{width: 8, heads: 1, layers: 1, head_width: 8, vocabulary: null, length: 16}}
data: {{kind: Synthetic, symbols: 16, order: 1}}
train: {{batch: 8, checkpoint_every: 1000}}
trainer: {{max_steps: 8}}
evaluate: {{points: 4, windows: 16}}
log.wandb: disabled
table:
  title: Mine
  published: own.csv
  seeds: 2
  downstream:
    GLUE: {{published: glue}}
    "Which & <language>": {{task: which_language, published: which, {SHORT}}}
    Both: {{task: [which_language, rank_tags], {SHORT}}}
rows:
  first: {{}}
  second: {{optimizer.lr: 0.01}}
"""
PUBLISHED = "row,heading,final_loss,which,glue\nfirst,,2.0,60.5,80.1\nsecond,,1.9,61.5,\n"


def written(folder: Path, table: str = TABLE, published: str = PUBLISHED) -> str:
    (folder / "own.csv").write_text(published)
    (folder / "own.yaml").write_text(table)
    return str(folder / "own.yaml")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A table of two rows and two seeds, finetuned on its two tasks."""
    folder = tmp_path_factory.mktemp("own")
    name, words = written(folder), [f"runs={folder / 'runs'}"]
    table = read(name)
    planned = plan(question(table, words), words)
    ledger = planned.ledger()
    enter(ledger, planned.question.name, planned)
    work(ledger, planned)
    finetuned = finetunings(ledger, planned, table.downstream)
    assert finetuned is not None
    enter(ledger, finetuned.question.name, finetuned)
    work(ledger, finetuned)
    return name, ledger, finetuned


def test_each_run_is_finetuned_on_each_task_with_its_own_seed(trained):
    name, ledger, finetuned = trained
    assert len(finetuned.runs) == 8
    specs = [ledger.spec(run.run) for run in finetuned.runs]
    assert sorted(spec["seed"] for spec in specs) == [0] * 4 + [1] * 4
    assert {ledger.spec(run.start)["seed"] == spec["seed"] for run, spec in zip(finetuned.runs, specs)} == {True}
    held = read_ledger(ledger, read(name))
    assert {column.name for column in held.downstream} == {"which_language", "both"}  # of GLUE nothing was measured
    of_run = {(run.start, run.task): ledger.result(run.run)["score"] for run in finetuned.runs}
    for run in held.runs:
        which, ranks = (of_run[run["run"], task] for task in ("which_language", "rank_tags"))
        assert run["which_language_score"] == which
        assert run["both_score"] == pytest.approx((which + ranks) / 2)
    assert [(column.title, column.published) for column in held.downstream] == [
        ("Which & <language> (accuracy)", "which"),
        ("Both (accuracy, mean of 2 tasks)", None),
    ]


def test_the_table_prints_ours_next_to_the_papers_and_what_was_not_measured(trained, capsys):
    name, ledger, _ = trained
    assert main(["table", name, "--from", str(ledger.root), "--format", "csv"]) == 0
    first, second = csv.DictReader(capsys.readouterr().out.splitlines())
    assert first["published_which"] == "60.5"
    assert second["downstream_both_verdict"] in ("better", "worse", "no difference shown")
    assert float(second["downstream_which_language_mean_low"]) <= float(second["downstream_which_language_mean_value"])
    assert main(["table", name, "--from", str(ledger.root), "--format", "html"]) == 0
    text = capsys.readouterr().out
    titles = [html.unescape(title) for title in re.findall(r'<th scope="col"[^>]*>(.*?)</th>', text)]
    assert titles[titles.index("Runs") + 1 :] == [
        "GLUE, paper",
        "GLUE, ours",
        "Which & <language>, paper",
        "Which & <language> (accuracy), ours",
        "Which & <language>, verdict",
        "Both (accuracy, mean of 2 tasks), ours",
        "Both, verdict",
    ]
    assert text.count("<td>not measured</td>") == 2
    assert "<language>" not in text
    assert main(["table", name, "--from", str(ledger.root), "--format", "latex"]) == 0
    assert r"Which \& \textless{}language\textgreater{}, paper" in capsys.readouterr().out


def test_kept_points_print_the_whole_table_again(trained, tmp_path, capsys):
    name, ledger, _ = trained
    page, kept = tmp_path / "own.md", tmp_path / "own" / "points.csv"
    assert main(["table", name, "--from", str(ledger.root), "--keep", str(page)]) == 0
    whole, pages, lines = capsys.readouterr().out, page.read_bytes(), kept.read_bytes()
    assert "--downstream all`" in page.read_text()
    assert "4 of them finetuned in" in page.read_text()
    assert "not measured" in whole
    assert main(["table", name, "--from", str(kept), "--keep", str(page)]) == 0
    assert capsys.readouterr().out == whole
    assert (page.read_bytes(), kept.read_bytes()) == (pages, lines)
    document = scaling.table(name, source=kept).to_json()
    assert document == scaling.table(name, source=ledger.root).to_json()
    assert [(column["heading"], column["metric"]) for column in document["downstream"]] == [
        ("GLUE", None),
        ("Which & <language>", "accuracy"),
        ("Both", "accuracy"),
    ]
    assert set(document["rows"][0]["downstream"]) == {"which_language", "both"}
    assert list(scaling.table(name, source=kept).runs.columns)[-2:] == ["which_language_score", "both_score"]
    sides = [each["large"] for each in scaling.decide(name, source=kept).to_json()["decisions"]]
    assert "our Which & <language> (accuracy)" in sides


ROWS = ("one", "two", "three", "four", "five", "six")


def large(column: str, family: str = "decoder") -> str:
    head = f"base: {family}\nsize: tiny\ntable: {{published: own.csv, downstream: [{column}]}}\nrows:\n"
    return head + "".join(f"  {row}: {{optimizer.lr: {place + 1}e-3}}\n" for place, row in enumerate(ROWS))


def test_words_choose_headings_and_tasks_which_keep_their_keys(tmp_path):
    own = (table := read(written(tmp_path))).downstream
    settings = {"trainer.max_steps": 6, "data.examples": 64, "data.held_out": 64, "evaluate.points": 1}
    assert own[1].tasks == {"which_language": settings}
    assert own[2].tasks == dict.fromkeys(("which_language", "rank_tags"), settings)
    assert table.chosen(["Both", "which_language"]) == (own[2], own[1])
    assert table.chosen(["rank_tags"]) == (Downstream("rank_tags", {"rank_tags": settings}),)
    assert table.chosen(["cola"]) == (Downstream("cola", {"cola": {}}),)


TRAIN = ["--train", "--downstream", "all"]
SHORTLY = [*TRAIN, "trainer.max_steps=8"]


@pytest.mark.parametrize(
    ("column", "words", "what"),
    [
        ("rank_tags", ["--train", "--downstream", "col"], "did you mean 'cola'"),
        ("{Ranks: {task: rank_tags}}", ["--train", "--downstream", "ranx"], "did you mean 'Ranks'"),
        ("{Ranks: {task: rank_tags, published: tags}}", [], "nothing of that name was published"),
        ("{Ranks: {trainer.max_steps: 3}}", [], "it names neither a task nor a published column"),
        ("{A-B: cola}, {a_b: cola}", [], "it is too like the heading 'A-B'"),
        ("cola, {C: {task: cola, trainer.max_steps: 3}}", [], "cola has other keys under another heading"),
        ("", TRAIN, "names no tasks"),
        ("{R: {task: rank_tags, train.epoch: 3}}", SHORTLY, "'epochs'"),
        ("python", SHORTLY, "it is no task"),
        ("text.yaml", SHORTLY, "text, one seed=0: "),
    ],
)  # fmt: skip
def test_what_cannot_be_finetuned_is_one_line_before_anything_is_trained(column, words, what, tmp_path, capsys):
    (tmp_path / "text.jsonl").write_text("".join(f'{{"q": "{i} or so", "a": "{i % 3}"}}\n' for i in range(40)))
    text = 'data: {kind: Task, answer: text, text: "{q}", label: "{a}", prompt: "{q}", metric: ExactMatch, '
    text += f"files: {{train: {tmp_path}/text.jsonl}}, tokenizer: {{kind: ByteBPE, vocabulary: 260}}}}\n"
    (tmp_path / "text.yaml").write_text(text + "objective: Answer\n")
    table = large(column, "encoder")
    name = written(tmp_path, table, "row,heading,final_loss\n")
    assert main(["table", name, *words, f"runs={tmp_path / 'runs'}"]) == 2
    out, error = capsys.readouterr()
    assert (out, error.count("\n")) == ("", 1)
    assert what in error
    assert not (tmp_path / "runs" / "store").exists()


@pytest.mark.slow
def test_the_whole_command_is_killed_and_goes_on(tmp_path):
    """Killed while it finetunes, the same command ends in the scores of one that was not killed."""
    name = written(tmp_path)
    words = [sys.executable, "-m", "scaling", "table", name, "--train", "--workers", "1", "--downstream", "all"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    killed = subprocess.Popen([*words, f"runs={tmp_path / 'runs'}"], env=env, stderr=subprocess.DEVNULL)
    finetuned = 0
    while not finetuned and killed.poll() is None:
        time.sleep(0.2)
        finetuned = sum('"score"' in path.read_text() for path in (tmp_path / "runs").glob("store/*/result.json"))
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    assert 0 < finetuned < 8
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("store/*/result.json")}
    again = [*words, f"runs={tmp_path / 'runs'}", "--keep", str(tmp_path / "a.md")]
    subprocess.run(again, env=env, check=True, capture_output=True)
    assert {path: path.stat().st_mtime_ns for path in done} == done
    whole = [*words, f"runs={tmp_path / 'whole'}", "--keep", str(tmp_path / "b.md")]
    subprocess.run(whole, env=env, check=True, capture_output=True)
    scores = [
        [(line["run"], line["which_language_score"], line["both_score"]) for line in csv.DictReader(file.open())]
        for file in (tmp_path / "a" / "points.csv", tmp_path / "b" / "points.csv")
    ]
    assert scores[0] == scores[1]
    assert all(all(cells) for cells in scores[0])


def small(task: str, folder: Path) -> dict[str, Any]:
    """Settings of a shipped task under which it has few examples."""
    if task == "list_ops":
        return {"data.examples": 8, "data.held_out": 8, "data.shortest": 20, "data.longest": 60, "data.depth": 4}
    lines, special, _ = LAYOUTS[task]
    file = folder / f"{task}.jsonl"
    file.write_text("".join(f"{json.dumps(one)}\n" for one in named(lines, special)))
    tests = {"data.files.test": str(file)} if task in LOCAL else {}
    return {
        "data.files.train": str(file),
        "data.files.validation": str(file),  # examples of one group do not part
        **tests,
        "data.layout": "table",
        "data.tokenizer": "Byte",
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names("table") if "downstream" in table_file(name).config.tree])
def test_every_task_of_a_shipped_table_suits_a_row_of_each_family(name, tmp_path):
    table = read(name)
    rows = {table.load(row.name)["model.kind"]: row.name for row in table.rows}
    size = "size={width: 16, layers: 6, heads: 2, head_width: 8, hidden: 32, vocabulary: 300, length: 256}"
    short = ["train.batch=4", "trainer.max_steps=2", "evaluate.windows=1", "schedule={kind: Constant, warmup: 0}"]
    for row in rows.values():
        pairs = table.load(row)["objective.kind"] == "Sequence"
        data = PAIRS if pairs else ["data={kind: Synthetic, symbols: 200, validation: 1024}"]
        words = [size, *short, *data, f"runs={tmp_path}"]
        planned = plan(question(table.only([row]), words), words)
        for column in table.downstream:
            for task, settings in column.tasks.items():
                experiment = unstarted(planned.runs[0], task, {**settings, **small(task, tmp_path), "size.length": 256})
                assert experiment.steps >= 1
