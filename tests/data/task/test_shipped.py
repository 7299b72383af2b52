"""Every shipped task reads files of the layout that its set has, local ones and through `datasets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest

from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import load, shipped
from scaling.config.schema import build
from scaling.data.sets import Published
from tests.data.task.layouts import ENTAILED, LAYOUTS, LOCAL, PAIR, Rows, classes, named

SYNTHETIC = {"which_language", "language_switch", "rank_tags", "list_ops", "copy", "recall"}
TASKS = sorted({file.stem for file in (shipped() / "task").glob("*.yaml")} - SYNTHETIC)
OF_HUB = [name for name in TASKS if name not in LOCAL | {"parse_treebank", "dialogue"}]
ONE_UNIT = {"multirc", "squad1", "squad2"}
"""Whose rows have one group or context in common, so that none of them can be held out alone."""


def line(name: str) -> dict[str, Any]:
    return {**load("decoder", [f"data={name}"])["data"], "tokenizer": "Byte", "validation": 0.5}


def jsonl(file: Path, rows: Rows) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_read_from_local_files(name, tmp_path):
    rows, special, (texts, answer, target) = LAYOUTS[name]
    file = jsonl(tmp_path / "train.jsonl", named(rows, special))
    files = dict.fromkeys(("train", "test", "validation") if name in ONE_UNIT else ("train", "test"), file)
    data = build("data", {**line(name), "files": files, "layout": "table"})
    source = data.open("test", tmp_path / "data")  # which is whole
    assert 0 < len(data.open("train", tmp_path / "data").examples) <= len(source.examples) == len(source.items)
    first = source.examples[0]
    assert (first.texts, first.answer, first.target) == (texts, answer, target)
    assert source.decode(source.items[0].target) == target
    perfect = [one.answer for one in source.examples]
    if source.task.scores_texts or source.task.answer in ("span", "text"):
        perfect = [(one.answer or [""])[0] for one in source.examples]
    score = source.task.score(perfect, source.examples)
    assert next(iter(score.values())) == pytest.approx(100 if source.task.metric.main == "bleu" else 1)


def tables(home: Path, sets: dict[str | None, dict[str, datasets.Dataset]]) -> None:
    """Tables with a card that says which of them are a config's splits, as sets of the hub have one."""
    home.mkdir()
    configs = []
    for config, splits in sets.items():
        for split, own in splits.items():
            own.to_parquet(home / f"{config}-{split}.parquet")
        files = [{"split": split, "path": f"{config}-{split}.parquet"} for split in splits]
        configs.append({"config_name": config or "default", "data_files": files})
    (home / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")


def table(rows: Rows, special: dict[str, Any]) -> datasets.Dataset:
    plain = datasets.Dataset.from_list(rows).features
    return datasets.Dataset.from_list(rows, features=datasets.Features({**plain, **special}))


@pytest.mark.parametrize(("name", "how"), [("squad2", "saved"), *((name, "tables") for name in OF_HUB)])
def test_a_task_is_read_through_datasets(name, how, tmp_path):
    """From a folder with a copy of its set: as `save_to_disk` writes it, or tables by split."""
    rows, special, (texts, answer, _) = LAYOUTS[name]
    hub, home = {**load("decoder", [f"data={name}"])["data.hub"], "path": str(tmp_path / "set")}, tmp_path / "set"
    sets: dict[str | None, dict[str, datasets.Dataset]] = {}
    for asked in (hub[split] for split in ("train", "validation", "test") if hub.get(split) is not None):
        named = {"config": hub.get("config"), **({"split": asked} if isinstance(asked, str) else asked)}
        own = classes(PAIR, ENTAILED, 1)[:2] if named["config"] == "axb" else (rows, special)
        sets.setdefault(named["config"], {})[named["split"]] = table(*own)
    if how == "saved":
        datasets.DatasetDict({split: one for own in sets.values() for split, one in own.items()}).save_to_disk(home)
    else:
        tables(home, sets)
    data = build("data", {**line(name), "hub": hub})
    splits = ("train",) if "validation" in hub else ("train", "validation")
    found = {one.texts: one.answer for split in splits for one in data.open(split, tmp_path / "data").examples}
    assert found[texts] == answer
    if name == "axb":
        assert data.open("test", tmp_path / "data").examples[0].texts == ("It rains. (0)", "It is wet. (0)")


def test_what_was_prepared_of_the_hub_is_opened_without_it(tmp_path, monkeypatch):
    """`prepare` asks the hub which commit its revision names and reads that; opening the task later does not."""
    asked, data = [], build("data", line("cola"))
    with pytest.raises(ScalingError, match=r"has not been prepared.*scaling data prepare"):
        data.open("train", tmp_path)

    def load_dataset(path: str, config: str | None, *, split: str, revision: str, **options: Any) -> datasets.Dataset:
        asked.append((split, revision))
        return table(*LAYOUTS["cola"][:2])

    with monkeypatch.context() as patched:
        patched.setattr(Published, "commit", "c" * 40)
        patched.setattr(datasets, "load_dataset", load_dataset)
        home = data.prepare(tmp_path)
    assert asked == [(split, "c" * 40) for split in ("train", "validation", "test")]
    assert [build("data", line("cola")).open(split, tmp_path).home for split in ("train", "test")] == [home, home]
    with pytest.raises(ScalingError, match="has not been prepared"):
        build("data", {**line("cola"), "text": "a {sentence}"}).open("train", tmp_path)


def test_columns_of_published_files_without_a_header_are_named(tmp_path):
    (tmp_path / "train.tsv").write_text('gj04\t1\t\tShe said "no.\ngj04\t0\t*\tHe go.\n')
    files = dict.fromkeys(("train", "validation"), str(tmp_path / "train.tsv"))
    first = build("data", {**line("cola"), "files": files}).open("train", tmp_path / "data").examples[0]
    assert (first.texts, first.answer) == (('She said "no.',), 1)


GOOD = [{"sentence": "a", "label": "0"}, {"sentence": "b", "label": "1"}]
PREMISE, SPAN = {"premise": "p", "hypothesis": "h"}, {"question": "q", "context": "Ann met Bob"}
UNLABELLED = [*GOOD, {"sentence": "c", "label": None}]
REFUSED = {
    "an unknown label in the test split": (
        *("cola", "test", [GOOD[0], {"sentence": "c", "label": "2"}], GOOD),
        r"data.label: test split, test.jsonl, example 2: .* no such label '2'",
    ),
    "a missing column": (
        *("cola", "validation", [{"text": "c", "label": "1"}], GOOD),
        r"validation split.*no field 'sentence'",
    ),
    "a missing label": ("cola", "train", UNLABELLED, GOOD, r"train split, train.jsonl, example 3: it has no label"),
    "an empty split": (
        *("snli", "validation", [{**PREMISE, "label": None}], [{**PREMISE, "label": "0"}]),
        r"the validation split is empty",
    ),
    "a span that is not in its context": (
        *("squad1", "train", [{**SPAN, "answers": {"text": ["Bob"], "answer_start": [7]}}], []),
        r"train split, train.jsonl, example 1: the span 'Bob' is not in its context at 7",
    ),
    "a question without an answer where all have one": (
        *("squad1", "train", [{**SPAN, "answers": {"text": [], "answer_start": []}}], []),
        r"it has no answer; set data.none=allowed",
    ),
}


def with_splits(folder: Path, name: str, split: str, rows: Rows, others: Rows) -> Any:
    files = {
        one: jsonl(folder / f"{one}.jsonl", rows if one == split else others) for one in ("train", "validation", "test")
    }
    return build("data", {**line(name), "files": files, "layout": "table"})


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what, tmp_path):
    name, split, rows, others, message = REFUSED[what]
    with pytest.raises(ScalingError, match=message):
        with_splits(tmp_path, name, split, rows, others or rows).open("train", tmp_path / "data")


def test_a_label_may_be_missing_in_the_test_split(tmp_path):
    data = with_splits(tmp_path, "cola", "test", UNLABELLED, GOOD)
    assert data.open("test", tmp_path / "data").examples[2].answer is None


def test_a_row_is_shown_with_its_answer(tmp_path, capsys):
    file = jsonl(tmp_path / "train.jsonl", named(*LAYOUTS["trec"][:2]))
    words = ["data", "show", "trec", f"data.files={{train: {file}}}", "data.tokenizer=Byte", "data.validation=0.5"]
    assert main([*words, f"runs={tmp_path / 'runs'}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["train"]["examples"] + shown["validation"]["examples"] == 20
    assert all(row["answer"][0]["text"] in line("trec")["labels"].values() for row in shown["windows"])
