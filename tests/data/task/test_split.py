"""What is held out of the training examples, what is held out together, and what of it is counted as trained on too."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from scaling.config.schema import build
from scaling.data.task import task as task_module

CLASS = {"answer": "class", "labels": ["no", "yes"], "text": "{text}", "metric": "Accuracy"}
SPAN = {"answer": "span", "text": "{question}", "second": "{context}", "label": "{answers}", "metric": "SQuAD"}


def task(files: dict[str, Path], **line: Any):
    named = {split: str(file) for split, file in files.items()}
    return build("data", {"kind": "Task", "files": named, "tokenizer": "Byte", "validation": 0.25, **line})


def written(file: Path, rows: list[dict[str, Any]]) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def answers(folder: Path) -> Path:
    """Three answers to each of 40 questions, which share its label."""
    rows = [
        {"qid": question, "text": f"passage {question} answer {answer}", "label": "yes" if question % 3 else "no"}
        for question in range(40)
        for answer in range(3)
    ]
    return written(folder / "answers.jsonl", rows)


def questions(folder: Path, layout: str) -> Path:
    """Three questions about each of 40 contexts."""
    paragraphs = [
        {
            "context": f"Ann has {number} cats.",
            "qas": [
                {"question": f"{word} of {number}?", "answers": [{"text": "Ann", "answer_start": 0}]}
                for word in ("who", "which", "what")
            ],
        }
        for number in range(40)
    ]
    if layout == "squad":
        file = folder / "questions.json"
        file.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
        return file
    rows = [
        {"context": each["context"], "question": one["question"], "answers": {"text": ["Ann"], "answer_start": [0]}}
        for each in paragraphs
        for one in each["qas"]
    ]
    return written(folder / "questions.jsonl", rows)


def dialogues(folder: Path) -> Path:
    rows = [
        {"turns": [{"speaker": "ann", "text": f"{number} and {turn}"} for turn in range(4)]} for number in range(40)
    ]
    return written(folder / "talk.jsonl", rows)


def both(data, folder: Path, what) -> tuple[set[Any], set[Any]]:
    train, validation = (list(map(what, data.open(split, folder).examples)) for split in ("train", "validation"))
    assert len(train) + len(validation) == 120
    assert 10 < len(validation) < 60
    return set(train), set(validation)


def test_examples_of_one_group_are_on_one_side(tmp_path):
    data = task({"train": answers(tmp_path)}, **CLASS, group="{qid}")
    train, validation = both(data, tmp_path / "data", lambda one: one.group)
    assert not train & validation


@pytest.mark.parametrize("layout", ["squad", "table"])
def test_questions_about_one_context_are_on_one_side(layout, tmp_path):
    data = task({"train": questions(tmp_path, layout)}, **SPAN, layout=layout)
    train, validation = both(data, tmp_path / "data", lambda one: one.texts[1])
    assert not train & validation
    assert {one.group for one in data.open("train", tmp_path / "data").examples} == {None}  # scores have no groups


def test_replies_of_one_dialogue_are_on_one_side(tmp_path):
    line = {"answer": "text", "text": "{history}", "label": "{reply}", "metric": "BLEU"}
    data = task({"train": dialogues(tmp_path)}, **line, layout="dialogue")
    train, validation = both(data, tmp_path / "data", lambda one: one.texts[0].partition(" and ")[0])
    assert not train & validation


def test_an_example_without_a_group_is_held_out_by_its_text(tmp_path):
    data = task({"train": answers(tmp_path)}, **CLASS)
    for one in data.open("validation", tmp_path / "data").examples:
        hashed = hashlib.blake2b(one.texts[0].encode() + b"\0", digest_size=8).digest()
        assert int.from_bytes(hashed, "big") < 0.25 * 2**64


@pytest.mark.parametrize(
    ("file", "harm"),
    [("manifest.json", "flipped"), ("train.npz", "truncated"), ("train.jsonl", "missing")],
)
def test_a_damaged_task_is_prepared_again(tmp_path, file, harm):
    data = task({"train": answers(tmp_path)}, **CLASS)
    home = data.prepare(tmp_path / "data")
    content = {each.name: each.read_bytes() for each in home.iterdir() if each.name != "trusted.json"}
    half = len(content[file]) // 2
    flipped = content[file][:half] + bytes([content[file][half] ^ 1]) + content[file][half + 1 :]
    (home / file).unlink()
    if harm != "missing":
        (home / file).write_bytes(flipped if harm == "flipped" else content[file][:half])
    assert data.prepare(tmp_path / "data") == home
    assert [each.name for each in home.parent.iterdir()] == [home.name]
    assert content == {each.name: each.read_bytes() for each in home.iterdir() if each.name != "trusted.json"}


def warnings(folder: Path, capsys, train: list[tuple], validation: list[tuple], **line: Any) -> list[str]:
    task_module._warn.cache_clear()
    splits = {"train": train, "validation": validation}
    files = {
        split: written(folder / f"{split}.jsonl", [dict(zip(("text", "label", "qid"), row)) for row in rows])
        for split, rows in splits.items()
    }
    task(files, **{**CLASS, **line}).open("train", folder / "data")
    return [line.removeprefix("scaling: warning: ") for line in capsys.readouterr().err.splitlines()]


def test_groups_that_two_files_share_are_counted(tmp_path, capsys):
    train, validation = (
        [("a", "yes", 1), ("b", "no", 2)],
        [("c", "yes", 1), ("d", "yes", 1), ("e", "no", 2), ("f", "no", 3)],
    )
    (line,) = warnings(tmp_path, capsys, train, validation, group="{qid}")
    assert line.startswith("2 groups of the validation split are in the train split too; numbers that begin again")


def test_texts_that_differ_in_case_or_spaces_are_counted(tmp_path, capsys):
    train, validation = [("A cat", "yes"), ("a dog", "no")], [("a cat ", "yes"), ("a dog", "no"), ("a fox", "no")]
    assert warnings(tmp_path, capsys, train, validation) == [
        "1 example of the validation split is in the train split too",
        "1 example of the validation split is in the train split too, but for case or spaces at the ends",
    ]


def test_contradictory_labels_are_counted(tmp_path, capsys):
    train = [("a", "yes"), ("a", "no"), ("a", "no"), ("b", "yes"), ("b", "yes"), ("c", "no")]
    (line,) = warnings(tmp_path, capsys, train, [("d", "no"), ("e", "no")])
    assert line == "1 text has labels that contradict one another, in 3 examples"
    told = warnings(tmp_path, capsys, train, [("c", "yes"), ("e", "no")])
    assert told[1] == "2 texts have labels that contradict one another, in 5 examples"
