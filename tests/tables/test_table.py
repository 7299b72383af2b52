"""A table trained, finetuned, printed in each form, kept and read again; what is wrong or missing is stated."""

import csv
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pandas
import pytest

import scaling
from scaling.base.errors import ScalingError
from scaling.config.compose import table_file
from scaling.config.files import names
from scaling.ledger import Ledger
from scaling.studies.plan import enter, plan
from scaling.studies.tasks import unstarted
from scaling.tables.count import counts
from scaling.tables.document import document
from scaling.tables.results import COLUMNS, FINISHED, Results, read_ledger, read_points, record
from scaling.tables.study import finetunings, question
from scaling.tables.table import Downstream, read
from tests.command_line import printed, refused
from tests.data.task.layouts import LAYOUTS
from tests.serial import work
from tests.tables.test_counts import PAIRS, TEXT

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
    work(ledger := planned.ledger(), planned)
    finetuned: Any = finetunings(ledger, planned, read(name).downstream)
    work(ledger, finetuned)
    (ledger.folder(planned.runs[-1].run) / "result.json").unlink()
    return name, Ledger.open(ledger.root), finetuned


def test_each_run_is_finetuned_on_each_task_with_its_own_seed(trained):
    name, ledger, finetuned = trained
    seeds = {run.run: ledger.spec(run.run)["seed"] for run in finetuned.runs}
    assert all(ledger.spec(run.start)["seed"] == seeds[run.run] for run in finetuned.runs)
    assert sorted(seeds.values()) == [0] * 6 + [1] * 6
    of_run = {(run.start, run.task): ledger.result(run.run)["score"] for run in finetuned.runs}
    for run in (run for run in read_ledger(ledger, read(name)).runs if run["status"] == FINISHED):
        which, ranks = (of_run[run["run"], task] for task in ("which_language", "rank_tags"))
        assert run["which_language_score"] == which
        assert run["both_score"] == pytest.approx((which + ranks) / 2)


def test_a_table_states_what_is_missing_and_prints_in_each_form(trained):
    name, ledger, _ = trained
    shown = scaling.table(name, source=ledger.root)
    assert (list(shown.data["row"]), shown.baseline) == (["first", "=sec & <b>", "third"], "first")
    assert pandas.isna(shown.data["verdict"]).tolist() == [True, False, False]
    notes = " ".join(shown.notes)
    assert "third (2 planned, 1 finished, 1 missing)" in notes
    assert "pooled over all rows (2 degrees of freedom)" in notes
    assert "after Holm's correction over 2 rows" in notes
    first, second, _ = csv.DictReader(shown.format("csv").splitlines())
    assert second["row"] == "'=sec & <b>"  # no formula of a spreadsheet
    assert (first["published_which"], first["published_final_loss"]) == ("60.5", "2.0")
    assert float(second["downstream_which_language_mean_low"]) <= float(second["downstream_which_language_mean_value"])
    page = shown.format("html")
    assert (page.count("<td>not measured</td>"), page.count("<b>")) == (3, 0)
    assert "Both (accuracy, mean of 2 tasks), ours" in page
    assert shown.format("markdown").count("\n| **") == 2  # the paper's headings
    assert r"Which \& \textless{}language\textgreater{}, paper" in shown.format("latex")
    assert [row["row"] for row in scaling.table(name, source=ledger.root, rows=["third"]).document["rows"]] == ["third"]


def test_kept_points_print_the_whole_table_again(trained, tmp_path, capsys):
    name, ledger, _ = trained
    page, kept = tmp_path / "own.md", tmp_path / "own" / "points.csv"
    kept.parent.mkdir()
    (kept.parent / "reading.md").write_text("What it shows, written by hand.\n")
    words = ["table", name, "--keep", page, "--from"]
    whole, text, lines = printed(capsys, *words, ledger.root), page.read_text(), kept.read_bytes()
    parts = ("What it shows, written by hand.", "5 of 6 runs done", "--downstream all`", "5 of them finetuned in")
    assert all(part in text for part in (*parts, "base: decoder"))
    assert str(ledger.root) not in text
    assert (printed(capsys, *words, kept), page.read_text(), kept.read_bytes()) == (whole, text, lines)
    shown = scaling.table(name, source=kept)
    assert shown.to_json() == scaling.table(name, source=ledger.root).to_json()
    assert list(shown.runs.columns)[-2:] == ["which_language_score", "both_score"]
    decisions = scaling.decide(name, source=kept).to_json()["decisions"]
    assert "our Which & <language> (accuracy)" in {each["large"] for each in decisions}


def test_a_table_in_two_settings_wants_one_chosen(trained, tmp_path, capsys):
    name, ledger, _ = trained
    runs = str(shutil.copytree(ledger.root, tmp_path / "runs"))
    words = ["trainer.max_steps=8", f"runs={runs}"]
    other = plan(question(read(name), words), words)
    enter(Ledger.open(runs), other)
    assert "several settings; name a study of one setting: --study own-" in refused(
        capsys, "table", name, "--from", runs
    )
    with pytest.raises(ScalingError, match=r"max_steps=9: the runs were trained without it.* trainer.max_steps=8$"):
        scaling.table(name, "trainer.max_steps=9", source=runs, study=other.question.name)
    shown = scaling.table(name, source=runs, study=other.question.name)
    assert "fewer finished runs than planned: first (2 planned, 2 missing)" in str(shown)


TASKS = """
base: encoder
size: {width: 8, heads: 1, layers: 1, head_width: 8, vocabulary: null}
model.head: {kind: Sequence, classes: 2}
train: {batch: 8}
trainer: {max_steps: 6}
evaluate: {points: 1, windows: 64}
log.wandb: disabled
objective: Answer
data: {kind: WhichLanguage, examples: 64, held_out: 64}
table:
  headings: {Order: [second, first], Length: [longest, long]}
  baseline: {Order: first, Length: long}
  judged_by: score
  published: own.csv
  columns: {bleu: "BLEU, paper"}
  compares: {loss: ppl, score: bleu}
  seeds: {baseline: 3, others: 2}
rows:
  first: {data.length: 5, optimizer.lr: 1.0e-3}
  second: {data.length: 6, optimizer.lr: 1.0e-2}
  long: {data.length: 4, optimizer.lr: 1.0e-3}
  longest: {data.length: 7, optimizer.lr: 1.0e-2}
"""
PAPER = "row,heading,bleu,ppl\nfirst,,20,5.5\nsecond,,21,5\nlong,,22,6\nlongest,,23,4\n"


def test_a_table_judged_by_score_is_trained_with_a_baseline_under_each_heading(tmp_path, capsys):
    name, points = written(tmp_path, TASKS, PAPER), tmp_path / "page/points.csv"
    words = ["table", name, "--train", "--workers", "1", f"runs={tmp_path}/runs", "--json"]
    found = printed(capsys, *words, "--keep", tmp_path / "page.md")
    rows = {line["row"]: line for line in found["rows"]}
    planned = [(row, rows[row]["runs"]["planned"]) for row in rows]
    assert planned == [("second", 2), ("first", 3), ("longest", 2), ("long", 3)]
    assert [row for row in rows if rows[row]["difference"]] == ["second", "longest"]
    assert set(found["pools"]) == {"first", "long"}
    runs, paper = pandas.read_csv(points), pandas.read_csv(tmp_path / "own.csv").set_index("row")
    assert rows["long"]["final_losses"] == runs[runs["row"] == "long"]["score"].tolist()
    assert runs["score"].between(0, 1).all()
    means: Any = runs.groupby("row")[["loss", "score"]].mean()
    for ours, theirs in (("loss", "ppl"), ("score", "bleu")):
        expected = means[ours].corr(paper[theirs], method="spearman")
        assert found["agreement"][theirs]["value"] == pytest.approx(expected)
    assert scaling.table(name, source=points).to_json() == {key: found[key] for key in found if key != "schema"}


def test_losses_of_two_objectives_are_not_compared():
    rows = ["Encoder-decoder, Denoising", "Language model, Denoising", "Language model, LM", "Prefix LM, LM"]
    table = read("raffel2019_table2").only(rows)
    runs = tuple(
        record(row, seed, f"{row} {seed}", FINISHED, loss=level + 0.01 * seed, task_score=level - 0.02 * seed)
        for row, level in zip(rows, (3.0, 3.5, 5.0, 5.5))
        for seed in (0, 1)
    )
    column = Downstream("task", {"task": {}}, None, metric="accuracy")
    results = Results(table, ("study",), (), runs, (column,))
    shown = document(table, counts(table, ["size=tiny"]), results)
    differences = [row["difference"] and row["difference"]["value"] for row in shown["rows"]]
    # Causal prediction is of all tokens and a prefix's of those behind it: neither loss is another's.
    assert differences == [None, pytest.approx(0.5), None, None]
    assert "(Language model, LM; Encoder-decoder, LM)" in " ".join(shown["said"])
    assert [row["downstream"]["task"]["difference"] is None for row in shown["rows"]] == [True, False, False, False]


def test_runs_are_those_of_a_table_however_its_path_is_spelled(tmp_path, capsys, monkeypatch):
    (tmp_path / "inner").mkdir()
    written(tmp_path)
    written(tmp_path / "inner")  # another table, with rows of the same names
    (tmp_path / "link.yaml").symlink_to("own.yaml")
    monkeypatch.chdir(tmp_path / "inner")
    planned = plan(question(read("../link.yaml"), ["runs=../runs"]), ["runs=../runs"])
    enter(planned.ledger(), planned)
    for spelling in ("../own.yaml", str(tmp_path / "own.yaml")):
        shown = scaling.table(spelling, source="../runs")
        assert [line["runs"]["planned"] for line in shown.document["rows"]] == [2, 2, 2]
    error = refused(capsys, "table", "own.yaml", "--from", "../runs")
    assert "it holds no run of own.yaml; its studies are of " in error


def test_a_table_that_was_not_trained_says_so_and_keeps_nothing(tmp_path, capsys):
    Ledger.create(tmp_path / "runs")
    damaged = tmp_path / "runs" / "studies" / "other" / "plan.json"  # which stops only its own study
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    words = ["table", written(tmp_path), f"runs={tmp_path / 'runs'}"]
    assert "No study of own is here" in printed(capsys, *words)
    assert "nothing of this table was trained" in refused(capsys, *words, "--keep", str(tmp_path / "page.md"))
    assert not (tmp_path / "page.md").exists()


def test_a_page_that_cannot_be_kept_is_refused_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "page").write_text("mine")
    (tmp_path / "folder.md").mkdir()
    words = ["table", written(tmp_path), f"runs={tmp_path / 'runs'}", "--train", "--keep"]
    assert "page': is a file" in refused(capsys, *words, tmp_path / "page.md")
    assert "is a folder" in refused(capsys, *words, tmp_path / "folder.md")
    assert "page': is a file" in refused(capsys, *words, tmp_path / "page" / "below.md")
    assert "take .md" in refused(capsys, *words, tmp_path / "page.txt")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_whole_command_is_killed_and_goes_on(tmp_path):
    def results() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/store/*/result.json")}

    def command(runs: str) -> list[str]:
        words = ["table", written(tmp_path), "--train", "--workers", "1", "--downstream", "all"]
        keep = ["--keep", str(tmp_path / f"{runs}.md"), f"runs={tmp_path / runs}"]
        return [sys.executable, "-m", "scaling", *words, *keep]

    killed = subprocess.Popen(command("runs"), stderr=subprocess.DEVNULL)
    while not any('"score"' in path.read_text() for path in results()) and killed.poll() is None:
        time.sleep(0.2)
    killed.kill()
    killed.wait()
    done = results()
    assert 6 < len(done) < 18
    for runs in ("runs", "whole"):
        subprocess.run(command(runs), check=True, capture_output=True)
    assert done.items() <= results().items()
    columns = ["run", "which_language_score", "both_score"]
    first, second = (pandas.read_csv(tmp_path / runs / "points.csv")[columns] for runs in ("runs", "whole"))
    assert not first.isna().to_numpy().any()
    assert first.equals(second)


def test_a_bad_table_and_bad_words_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("name,bleu\nOne,1\n")
    Path("good.csv").write_text("row,heading,bleu\nOne,,1\n")
    for row, section, line in (
        ("Two", {"published": "bad.csv"}, "row"),
        ("Two", {"published": "good.csv", "compares": {"score": "blue"}}, "'bleu'"),
        ("\x1b[2J", {}, "rows='\\x1b[2J': a row's name is printable text"),
    ):
        document = {"base": "decoder", "size": "tiny", "table": section, "rows": {"One": {}, row: {}}}
        Path("own.yaml").write_text(json.dumps(document))
        assert line in refused(capsys, "table", "own.yaml", "--counts")
    assert "'GeLU'" in refused(capsys, "table", "narang2021", "--counts", "--row", "GeLu ")
    memory = ["Product key memory", "size=tiny", "size.layers=1"]
    assert "row 'Product key memory': " in refused(capsys, "table", "narang2021", "--counts", "--row", *memory)
    assert "seeds.baseline=0: expected a positive" in refused(capsys, "table", "narang2021", "--train", "seeds=0")


HEAD = ",".join(COLUMNS)
ROW = "GeLU,a,missing,0,,,,,,,,,,,,[],[]\n"


def test_points_of_no_table_are_refused(tmp_path):
    for lines, what in (
        ("GeLU,a,finished,0,8,64,0.1,x,2,3,,,,,,[],[]\n", "2: early='x': not a number"),
        (ROW.replace("GeLU", "Maxout"), "it has no row of narang2021"),
        (f"{ROW}{ROW}", "3: run='a': the run of GeLU, seed 0, is in line 2 too"),
        (
            f'{ROW}GeLU,b,missing,1,,,,,,,,,,,,[],"[""trainer.max_steps=8""]"\n',
            "3: settings=.*: differs from the first line",
        ),
    ):
        (path := tmp_path / "points.csv").write_text(f"{HEAD}\n{lines}")
        with pytest.raises(ScalingError, match=what):
            read_points(path, read("narang2021"))


def test_words_choose_headings_and_tasks_which_keep_their_keys(tmp_path):
    _, which, both = (table := read(written(tmp_path))).downstream
    assert table.chosen(["Both,which_language"]) == (both, which)
    ranks = {"rank_tags": both.tasks["rank_tags"]}
    assert ranks["rank_tags"]["data.held_out"] == 64
    assert table.chosen(["rank_tags", "cola"]) == (Downstream("rank_tags", ranks), Downstream("cola", {"cola": {}}))


def test_what_cannot_be_finetuned_is_one_line_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "text.jsonl").write_text("".join(f'{{"q": "{i} or so", "a": "{i % 3}"}}\n' for i in range(40)))
    text = 'data: {kind: Task, answer: text, text: "{q}", label: "{a}", prompt: "{q}", metric: ExactMatch, '
    text += f"files: {{train: {tmp_path}/text.jsonl}}, tokenizer: {{kind: ByteBPE, vocabulary: 260}}}}\n"
    (tmp_path / "text.yaml").write_text(text + "objective: Answer\n")
    for column, chosen, what in (
        ("rank_tags", "col", "did you mean 'cola'"),
        ("cola, {C: {task: cola, trainer.max_steps: 3}}", "all", "cola has other keys under another heading"),
        ("{R: {task: rank_tags, train.epoch: 3}}", "all", "'epochs'"),
        ("text.yaml", "all", "text, one seed=0: "),
    ):
        table = (
            f"base: encoder\nsize: tiny\ntrainer.max_steps: 8\ntable: {{downstream: [{column}]}}\nrows: {{one: {{}}}}"
        )
        words = ["table", written(tmp_path, table), "--train", "--downstream", chosen, f"runs={tmp_path / 'runs'}"]
        assert what in refused(capsys, *words)
    assert not (tmp_path / "runs" / "store").exists()


def spelled(feature: Any, value: Any) -> Any:
    """A class of a set by its name, as a local file has it."""
    if isinstance(value, list):
        return [spelled(feature.feature, one) for one in value]
    return None if value < 0 else feature.names[value]


def small(task: str, folder: Path) -> dict[str, Any]:
    """Settings of a shipped task under which it has few examples."""
    if task == "list_ops":
        return {"data.examples": 8, "data.held_out": 8, "data.shortest": 20, "data.longest": 60, "data.depth": 4}
    file = folder / f"{task}.jsonl"
    made, special, _ = LAYOUTS[task]
    lines = [{key: spelled(special[key], one) if key in special else one for key, one in row.items()} for row in made]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    # Examples of one group do not part; movie_reviews has a test split of its own.
    files = {f"data.files.{split}": str(file) for split in ("train", "validation", "test")}
    return {**files, "data.layout": "table", "data.tokenizer": "Byte"}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in names("table") if "downstream" in table_file(name).config.tree])
def test_every_task_of_a_shipped_table_suits_a_row_of_each_family(name, tmp_path):
    table = read(name)
    rows = {table.load(row.name)["model.kind"]: row.name for row in table.rows}
    size = "size={width: 16, layers: 6, heads: 2, head_width: 8, hidden: 32, vocabulary: 300, length: 256}"
    short = ["train.batch=4", "trainer.max_steps=2", "evaluate.windows=1", "schedule={kind: Constant, warmup: 0}"]
    for row in rows.values():
        data = PAIRS if table.load(row)["objective.kind"] == "Sequence" else TEXT
        words = [size, *short, *data, f"runs={tmp_path}"]
        planned = plan(question(table.only([row]), words), words)
        for column in table.downstream:
            for task, settings in column.tasks.items():
                experiment = unstarted(planned.runs[0], task, {**settings, **small(task, tmp_path), "size.length": 256})
                assert experiment.steps >= 1
