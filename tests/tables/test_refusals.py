"""What a table's file, its words, its tasks or its kept points cannot be is one line, before anything is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import names, table_file
from scaling.studies.plan import plan
from scaling.studies.tasks import unstarted
from scaling.tables.results import OF_ALL, OPTIONAL, TYPES, read_points
from scaling.tables.study import question
from scaling.tables.table import Downstream, read
from tests.data.task.layouts import LAYOUTS
from tests.tables.test_rows import PAIRS, TEXT
from tests.tables.test_table import written

FILES = {
    "published figures without rows": ({"published": "bad.csv"}, "row"),
    "a comparison with what was not published": ({"published": "good.csv", "compares": {"score": "blue"}}, "'bleu'"),
    "an unknown key": ({"publshed": "good.csv"}, "'published'"),
    "a heading without a baseline": (
        {"headings": {"A": ["One"], "B": ["Two"]}, "baseline": {"A": "One"}},
        "none for the heading 'B'",
    ),
    "a row that acts on a terminal": ({}, "rows='\\x1b[2J': a row's name is printable text"),
}


def refused(capsys, *words: str) -> str:
    assert main(list(words)) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    return err


@pytest.mark.parametrize("name", FILES)
def test_a_bad_table_is_one_line(name, tmp_path, capsys):
    section, line = FILES[name]
    rows = {"One": {}, "Two" if section else "\x1b[2J": {}}
    (tmp_path / "own.yaml").write_text(json.dumps({"base": "decoder", "size": "tiny", "table": section, "rows": rows}))
    (tmp_path / "bad.csv").write_text("name,bleu\nOne,1\n")
    (tmp_path / "good.csv").write_text("row,heading,bleu\nOne,,1\n")
    assert line in refused(capsys, "table", str(tmp_path / "own.yaml"), "--counts")


BAD = {
    "an unknown row": (["narang2021", "--counts", "--row", "GeLu "], "'GeLU'"),
    "a row that does not fit": (
        ["narang2021", "--counts", "--row", "Product key memory", "size=tiny", "size.layers=1"],
        "row 'Product key memory': ",
    ),
    "no seeds": (["narang2021", "--train", "seeds=0"], "seeds.baseline=0: expected a positive whole number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_words_are_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words, line = BAD[name]
    assert line in refused(capsys, "table", *words)


HEAD = ",".join([column for column in TYPES if column not in OPTIONAL] + list(OF_ALL))
ROW = "GeLU,a,missing,0,,,,,,,,,,,,[],[]\n"
POINTS = {
    f"{HEAD}\nGeLU,a,finished,0,8,64,0.1,x,2,3,,,,,,[],[]\n": "2: early='x': not a number",
    f"{HEAD}\nMaxout,a,missing,0,,,,,,,,,,,,[],[]\n": "it has no row of narang2021",
    f"{HEAD}\n{ROW}{ROW}": "3: run='a': the run of GeLU, seed 0, is in line 2 too",
    f'{HEAD}\n{ROW}GeLU,b,missing,1,,,,,,,,,,,,[],"[""trainer.max_steps=8""]"\n': "3: settings=.*: is another than in",
}


@pytest.mark.parametrize("text", POINTS)
def test_points_of_no_table_are_refused(text, tmp_path):
    path: Path = tmp_path / "points.csv"
    path.write_text(text)
    with pytest.raises(ScalingError, match=POINTS[text]):
        read_points(path, read("narang2021"))


# Tasks of a table


def test_words_choose_headings_and_tasks_which_keep_their_keys(tmp_path):
    own = (table := read(written(tmp_path))).downstream
    settings = {"trainer.max_steps": 6, "data.examples": 64, "data.held_out": 64, "evaluate.points": 1}
    assert own[2].tasks == dict.fromkeys(("which_language", "rank_tags"), settings)
    assert table.chosen(["Both,which_language"]) == (own[2], own[1])
    assert table.chosen(["rank_tags"]) == (Downstream("rank_tags", {"rank_tags": settings}),)
    assert table.chosen(["cola"]) == (Downstream("cola", {"cola": {}}),)


TRAIN = ["--train", "--downstream", "all"]


@pytest.mark.parametrize(
    ("column", "words", "what"),
    [
        ("rank_tags", ["--train", "--downstream", "col"], "did you mean 'cola'"),
        ("cola, {C: {task: cola, trainer.max_steps: 3}}", [], "cola has other keys under another heading"),
        ("{R: {task: rank_tags, train.epoch: 3}}", TRAIN, "'epochs'"),
        ("text.yaml", TRAIN, "text, one seed=0: "),
    ],
)
def test_what_cannot_be_finetuned_is_one_line_before_anything_is_trained(column, words, what, tmp_path, capsys):
    (tmp_path / "text.jsonl").write_text("".join(f'{{"q": "{i} or so", "a": "{i % 3}"}}\n' for i in range(40)))
    text = 'data: {kind: Task, answer: text, text: "{q}", label: "{a}", prompt: "{q}", metric: ExactMatch, '
    text += f"files: {{train: {tmp_path}/text.jsonl}}, tokenizer: {{kind: ByteBPE, vocabulary: 260}}}}\n"
    (tmp_path / "text.yaml").write_text(text + "objective: Answer\n")
    table = f"base: encoder\nsize: tiny\ntrainer.max_steps: 8\ntable: {{downstream: [{column}]}}\nrows: {{one: {{}}}}\n"
    assert what in refused(capsys, "table", written(tmp_path, table), *words, f"runs={tmp_path / 'runs'}")
    assert not (tmp_path / "runs" / "store").exists()


def small(task: str, folder: Path) -> dict[str, Any]:
    """Settings of a shipped task under which it has few examples."""
    if task == "list_ops":
        return {"data.examples": 8, "data.held_out": 8, "data.shortest": 20, "data.longest": 60, "data.depth": 4}
    lines, special, _ = LAYOUTS[task]

    def spelled(feature: Any, value: Any) -> Any:
        """A class by its name, as a local file has it."""
        if feature is None or isinstance(value, list):
            return [spelled(feature.feature, one) for one in value] if feature else value
        return None if value < 0 else feature.names[value]

    file = folder / f"{task}.jsonl"
    rows = ({key: spelled(special.get(key), value) for key, value in line.items()} for line in lines)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
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
