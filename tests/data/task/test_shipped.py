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
from tests.data.task.layouts import AX_B, ENTAILED, LAYOUTS

SYNTHETIC = {"which_language", "language_switch", "rank_tags", "list_ops", "copy", "recall"}
LOCAL = {"movie_reviews", "movie_reviews_bytes", "wikisum"}  # on no hub
TASKS = sorted({file.stem for file in (shipped() / "task").glob("*.yaml")} - SYNTHETIC)
OF_FILES = {"parse_treebank", "dialogue"}  # one's own
BYTE = {"kind": "Byte"}


def line(name: str) -> dict[str, Any]:
    return {**load("decoder", [f"data={name}"])["data"], "tokenizer": BYTE, "validation": 0.5}


def features(rows: list[dict[str, Any]], special: dict[str, Any]) -> datasets.Features:
    plain = datasets.Dataset.from_list(rows).features
    return datasets.Features({**plain, **special})


def table(rows: list[dict[str, Any]], special: dict[str, Any]) -> datasets.Dataset:
    return datasets.Dataset.from_list(rows, features=features(rows, special))


def published(home: Path, sets: dict[str | None, dict[str, datasets.Dataset]]) -> None:
    """Tables with a card that says which of them are a config's splits, as sets of the hub have one."""
    home.mkdir()
    configs = []
    for config, splits in sets.items():
        files = []
        for split, own in splits.items():
            own.to_parquet(home / f"{config}-{split}.parquet")
            files.append({"split": split, "path": f"{config}-{split}.parquet"})
        configs.append({"config_name": config or "default", "data_files": files})
    (home / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")


def named(rows: list[dict[str, Any]], special: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows as a local file has them: classes by name."""

    def spelled(feature: Any, value: Any) -> Any:
        if isinstance(value, list):
            return [spelled(feature.feature, one) for one in value]
        return value if feature is None else None if value < 0 else feature.names[value]

    return [
        {key: spelled(special.get(key), value) if key in special else value for key, value in row.items()}
        for row in rows
    ]


ONE_UNIT = {"multirc", "squad1", "squad2"}
"""Whose rows have one group or context in common, so that none of them can be held out alone."""


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_read_from_local_files(name, tmp_path):
    rows, special, (texts, answer, target) = LAYOUTS[name]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in named(rows, special)))
    files = {"train": str(file), "test": str(file), **({"validation": str(file)} if name in ONE_UNIT else {})}
    data = build("data", {**line(name), "files": files, "layout": "table"})
    for split in ("train", "test"):
        source = data.open(split, tmp_path / "data")
        assert len(source.items) == len(source.examples) > 0
    first = source.examples[0]  # of the test split, which is whole
    assert (first.texts, first.answer, first.target) == (texts, answer, target)
    assert source.decode(source.items[0].target) == target
    perfect = [None if one.answer is None else one.answer for one in source.examples]
    if source.task.scores_texts or source.task.answer in ("span", "text"):
        perfect = [(one.answer or [""])[0] for one in source.examples]
    score = source.task.score(perfect, source.examples)
    assert next(iter(score.values())) == pytest.approx(100 if source.task.metric.main == "bleu" else 1)


@pytest.mark.parametrize(
    ("name", "how"), [("squad2", "saved"), *((name, "parquet") for name in TASKS if name not in LOCAL | OF_FILES)]
)
def test_a_task_is_read_through_datasets(name, how, tmp_path):
    """From a folder with a copy of its set: as `save_to_disk` writes it, or tables by split."""
    rows, special, (texts, answer, _) = LAYOUTS[name]
    config = load("decoder", [f"data={name}"])["data.hub"]
    home = tmp_path / "set"
    splits: dict[str | None, dict[str, datasets.Dataset]] = {}
    for split in ("train", "validation", "test"):
        asked = config.get(split)
        if asked is not None:
            named = {"config": config.get("config"), **({"split": asked} if isinstance(asked, str) else asked)}
            own = (AX_B, {"label": ENTAILED}) if named["config"] == "axb" else (rows, special)
            splits.setdefault(named["config"], {})[named["split"]] = table(*own)
    hub = {**config, "path": str(home)}
    if how == "saved":  # a folder that has no configs
        datasets.DatasetDict({split: one for own in splits.values() for split, one in own.items()}).save_to_disk(home)
        hub |= {
            split: hub[split]["split"] for split in ("train", "validation", "test") if isinstance(hub.get(split), dict)
        }
    else:
        published(home, splits)
    data = build("data", {**line(name), "hub": hub})
    train = data.open("train", tmp_path / "data")
    found = {one.texts: one.answer for one in train.examples}
    if "validation" not in hub:
        found |= {one.texts: one.answer for one in data.open("validation", tmp_path / "data").examples}
    assert found[texts] == answer
    if name == "cola":
        assert build("data", {**line(name), "hub": hub}).open("train", tmp_path / "data").home == train.home
    if name == "axb":
        assert data.open("test", tmp_path / "data").examples[0].texts == ("It pours. (0)", "It is wet. (0)")


@pytest.mark.parametrize("name", ["cola", "squad1"])
def test_a_set_of_the_hub_is_to_be_prepared_first(name, tmp_path):
    with pytest.raises(ScalingError, match=r"has not been prepared.*scaling data prepare"):
        build("data", line(name)).open("train", tmp_path)


def test_columns_of_published_files_without_a_header_are_named(tmp_path):
    train = tmp_path / "train.tsv"
    train.write_text('gj04\t1\t\tShe said "no.\ngj04\t0\t*\tHe go.\n' * 1)
    data = build("data", {**line("cola"), "files": {"train": str(train), "validation": str(train)}})
    first = data.open("train", tmp_path / "data").examples[0]
    assert (first.texts, first.answer) == (('She said "no.',), 1)


def two(tmp_path: Path, split: str, rows: list[dict[str, Any]], good: list[dict[str, Any]], name: str, **keys: Any):
    files = {}
    for one in ("train", "validation", "test"):
        file = tmp_path / f"{one}.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in (rows if one == split else good)))
        files[one] = str(file)
    return build("data", {**line(name), "files": files, "layout": "table", **keys})


GOOD = [{"sentence": "a", "label": "0"}, {"sentence": "b", "label": "1"}]


PREMISE = {"premise": "p", "hypothesis": "h"}
SPAN = {"question": "q", "context": "Ann met Bob"}
UNLABELLED = [*GOOD, {"sentence": "c", "label": None}]
REFUSED = {
    "an unknown label in the test split": (
        ("cola", "test", [GOOD[0], {"sentence": "c", "label": "2"}], GOOD),
        r"data.label: test split, test.jsonl, example 2: .* no such label '2'",
    ),
    "a missing column": (
        ("cola", "validation", [{"text": "c", "label": "1"}], GOOD),
        r"validation split.*no field 'sentence'",
    ),
    "a missing label": (("cola", "train", UNLABELLED, GOOD), r"train split, train.jsonl, example 3: it has no label"),
    "an empty split": (
        ("snli", "validation", [{**PREMISE, "label": None}], [{**PREMISE, "label": "0"}]),
        r"the validation split is empty",
    ),
    "a span that is not in its context": (
        ("squad1", "train", [{**SPAN, "answers": {"text": ["Bob"], "answer_start": [7]}}], []),
        r"train split, train.jsonl, example 1: the span 'Bob' is not in its context at 7",
    ),
    "a question without an answer where all have one": (
        ("squad1", "train", [{**SPAN, "answers": {"text": [], "answer_start": []}}], []),
        r"it has no answer; set data.none=allowed",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what, tmp_path):
    (name, split, rows, good), message = REFUSED[what]
    with pytest.raises(ScalingError, match=message):
        two(tmp_path, split, rows, good or rows, name).open("train", tmp_path / "data")


def test_a_label_may_be_missing_in_the_test_split(tmp_path):
    assert two(tmp_path, "test", UNLABELLED, GOOD, "cola").open("test", tmp_path / "data").examples[2].answer is None


def test_a_limit_keeps_the_same_training_examples_in_any_order(tmp_path):
    file = tmp_path / "train.jsonl"
    rows = [json.dumps({"text": f"text {number}", "label": "pos"}) for number in range(60)]

    def split(name: str, limit: int | None) -> set[tuple[str, ...]]:
        keys = {"files": {"train": str(file)}, "validation": 0.25, "limit": limit}
        source = build("data", {**line("movie_reviews"), **keys}).open(name, tmp_path / "data")
        return {example.texts for example in source.examples}

    kept = []
    for order in (rows, rows[::-1]):
        file.write_text("\n".join(order))
        few, more, whole = (split("train", limit) for limit in (5, 20, None))
        assert (len(few), len(more)) == (5, 20)
        assert few < more < whole
        assert split("validation", 5) == split("validation", None)
        kept.append(few)
    assert kept[0] == kept[1]
    with pytest.raises(ScalingError, match=rf"limit=61: the training split has {len(whole)} examples"):
        split("train", 61)


def test_what_was_prepared_of_the_hub_is_opened_without_it(tmp_path, monkeypatch):
    """`prepare` asks the hub which commit its revision names and reads that; opening the task later does not."""
    rows, special, _ = LAYOUTS["cola"]
    asked = []

    def load_dataset(path: str, config: str | None, *, split: str, revision: str, **options: Any) -> datasets.Dataset:
        asked.append((split, revision))
        return table(rows, special)

    monkeypatch.setattr(Published, "commit", "c" * 40)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    data = build("data", line("cola"))
    home = data.prepare(tmp_path)
    assert asked == [(split, "c" * 40) for split in ("train", "validation", "test")]
    monkeypatch.undo()
    again = build("data", line("cola"))
    assert [again.open(split, tmp_path).home for split in ("train", "test")] == [home, home]
    with pytest.raises(ScalingError, match="has not been prepared"):
        build("data", {**line("cola"), "text": "a {sentence}"}).open("train", tmp_path)


def test_a_row_is_shown_with_its_answer(tmp_path, capsys):
    rows, special, _ = LAYOUTS["trec"]
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in named(rows, special)))
    words = ["data", "show", "trec", f"data.files={{train: {file}}}", "data.tokenizer=Byte", "data.validation=0.5"]
    assert main([*words, f"runs={tmp_path / 'runs'}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["train"]["examples"] + shown["validation"]["examples"] == 20
    assert all(row["answer"][0]["text"] in line("trec")["labels"].values() for row in shown["windows"])
