"""Every shipped task reads files of the layout that its set has, local ones and through `datasets`."""

import json

import datasets
import pytest

from scaling.base.errors import ScalingError
from scaling.cli import main
from scaling.config.compose import load, shipped
from scaling.config.schema import build
from scaling.data.sets import Published
from tests.data.task.layouts import ENTAILED, LAYOUTS, LOCAL, PAIR, classes, named

SYNTHETIC = {"which_language", "language_switch", "rank_tags", "list_ops", "copy", "recall"}
SPLITS = ("train", "validation", "test")
TASKS = sorted({file.stem for file in (shipped() / "task").glob("*.yaml")} - SYNTHETIC)
OF_HUB = [name for name in TASKS if name not in LOCAL | {"parse_treebank", "dialogue"}]


def line(name):
    return {**load("decoder", [f"data={name}"])["data"], "tokenizer": "Byte", "validation": 0.5}


def jsonl(file, rows):
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_read_from_local_files(name, tmp_path):
    rows, special, (texts, answer, target) = LAYOUTS[name]
    file = jsonl(tmp_path / "train.jsonl", named(rows, special))
    # Where rows have one group or context in common, none of them can be held out alone.
    files = dict.fromkeys(SPLITS if name in {"multirc", "squad1", "squad2"} else ("train", "test"), file)
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


def table(rows, special):
    plain = datasets.Dataset.from_list(rows).features
    return datasets.Dataset.from_list(rows, features=datasets.Features({**plain, **special}))


@pytest.mark.parametrize(("name", "how"), [("squad2", "saved"), *((name, "tables") for name in OF_HUB)])
def test_a_task_is_read_through_datasets(name, how, tmp_path):
    """From a folder with a copy of its set: as `save_to_disk` writes it, or tables by split with the hub's card."""
    rows, special, (texts, answer, _) = LAYOUTS[name]
    hub, home = {**load("decoder", [f"data={name}"])["data.hub"], "path": str(tmp_path / "set")}, tmp_path / "set"
    sets = {}
    for asked in (hub[split] for split in SPLITS if hub.get(split) is not None):
        own = {"config": hub.get("config"), **({"split": asked} if isinstance(asked, str) else asked)}
        of_set = classes(PAIR, ENTAILED, 1)[:2] if own["config"] == "axb" else (rows, special)
        sets.setdefault(own["config"], {})[own["split"]] = table(*of_set)
    if how == "saved":
        datasets.DatasetDict(*sets.values()).save_to_disk(home)
    else:
        card = []
        for config, splits in sets.items():
            for split, own in splits.items():
                own.to_parquet(home / f"{config}-{split}.parquet")
            files = [{"split": split, "path": f"{config}-{split}.parquet"} for split in splits]
            card.append({"config_name": config or "default", "data_files": files})
        (home / "README.md").write_text(f"---\nconfigs: {json.dumps(card)}\n---\n")
    data = build("data", {**line(name), "hub": hub})
    splits = SPLITS[: 1 if "validation" in hub else 2]
    found = {one.texts: one.answer for split in splits for one in data.open(split, tmp_path / "data").examples}
    assert found[texts] == answer
    assert name != "snli" or len(found) == 15  # a class below 0 is kept secret
    if name == "axb":
        assert data.open("test", tmp_path / "data").examples[0].texts == ("It rains. (0)", "It is wet. (0)")


def test_what_was_prepared_of_the_hub_is_opened_without_it(tmp_path, monkeypatch):
    """`prepare` asks the hub which commit its revision names and reads that; opening the task later does not."""
    asked, data = [], build("data", line("cola"))
    with pytest.raises(ScalingError, match=r"has not been prepared.*scaling data prepare"):
        data.open("train", tmp_path)

    def load_dataset(path, config, *, split, revision, **options):
        asked.append((split, revision))
        return table(*LAYOUTS["cola"][:2])

    with monkeypatch.context() as patched:
        patched.setattr(Published, "commit", "c" * 40)
        patched.setattr(datasets, "load_dataset", load_dataset)
        home = data.prepare(tmp_path)
    assert asked == [(split, "c" * 40) for split in SPLITS]
    assert [build("data", line("cola")).open(split, tmp_path).home for split in SPLITS] == [home] * 3
    with pytest.raises(ScalingError, match="has not been prepared"):
        build("data", {**line("cola"), "text": "a {sentence}"}).open("train", tmp_path)


def test_a_published_file_without_a_header_is_read_and_a_row_is_shown_with_its_answer(tmp_path, capsys):
    (tmp_path / "train.tsv").write_text('gj04\t1\t\tShe said "no.\ngj04\t0\t*\tHe go.\n')
    files = dict.fromkeys(("train", "validation"), str(tmp_path / "train.tsv"))
    first = build("data", {**line("cola"), "files": files}).open("train", tmp_path / "data").examples[0]
    assert (first.texts, first.answer) == (('She said "no.',), 1)
    file = jsonl(tmp_path / "train.jsonl", named(*LAYOUTS["trec"][:2]))
    words = ["data", "show", "trec", f"data.files={{train: {file}}}", "data.tokenizer=Byte", "data.validation=0.5"]
    assert main([*words, f"runs={tmp_path / 'runs'}", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["train"]["examples"] + shown["validation"]["examples"] == 20
    assert all(row["answer"][0]["text"] in line("trec")["labels"].values() for row in shown["windows"])


COLA = [{"sentence": text, "label": label} for text, label in (("a", "0"), ("b", "1"), ("c", "2"), ("d", None))]
SNLI = [{"premise": "p", "hypothesis": "h", "label": label} for label in ("0", None)]
ASKED = [{"text": ["Bob"], "answer_start": [7]}, {"text": [], "answer_start": []}]
SQUAD = [{"question": "q", "context": "Ann met Bob", "answers": answers} for answers in ASKED]
REFUSED = {
    "an unknown label in the test split": (
        *("cola", COLA[:2], "test", COLA[1:3]),
        r"data.label: test split, test.jsonl, example 2: .* no such label '2'",
    ),
    "a missing column": ("cola", COLA[:2], "validation", SNLI[:1], "validation split.*no field 'sentence'"),
    "a missing label": ("cola", COLA[:2], "train", COLA[::3], "train split, train.jsonl, example 2: it has no label"),
    "an empty split": ("snli", SNLI[:1], "validation", SNLI[1:], "the validation split is empty"),
    "a span that is not in its context": ("squad1", SQUAD, "train", SQUAD, "example 1: the span 'Bob' is not in its"),
    "a question without an answer": ("squad1", SQUAD, "train", SQUAD[1:], "it has no answer; set data.none=allowed"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(what, tmp_path):
    name, good, split, bad, message = REFUSED[what]
    files = {one: jsonl(tmp_path / f"{one}.jsonl", bad if one == split else good) for one in SPLITS}
    with pytest.raises(ScalingError, match=message):
        build("data", {**line(name), "files": files, "layout": "table"}).open("train", tmp_path / "data")
    if what == "a missing label":  # which it may be in the test split
        files = {**files, "train": files["validation"], "test": files["train"]}
        data = build("data", {**line(name), "files": files, "layout": "table"})
        assert [one.answer for one in data.open("test", tmp_path / "data").examples] == [0, None]
