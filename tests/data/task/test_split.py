"""What is held out of the training examples, what is held out together, and what of it is counted as trained on too."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.task import task as task_module

CLASS = {"answer": "class", "labels": ["no", "yes"], "text": "{text}", "metric": "Accuracy"}
SPAN = {"answer": "span", "text": "{question}", "second": "{context}", "label": "{answers}", "metric": "SQuAD"}
REPLY = {"answer": "text", "text": "{history}", "label": "{reply}", "metric": "BLEU", "layout": "dialogue"}
RANGE = range(40)


def task(file: Path, **line: Any) -> Any:
    files = {"train": str(file)}
    return build("data", {"kind": "Task", "files": files, "tokenizer": "Byte", "validation": 0.25, **line})


def jsonl(file: Path, rows: Any) -> Path:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def answers(folder: Path) -> Path:
    """Three answers to each of 40 questions, which share its label."""
    each = [(n, answer, "yes" if n % 3 else "no") for n in RANGE for answer in range(3)]
    rows = ({"qid": n, "text": f"passage {n} answer {answer}", "label": label} for n, answer, label in each)
    return jsonl(folder / "answers.jsonl", rows)


WHO = [(number, f"{word} of {number}?") for number in RANGE for word in ("who", "which", "what")]


def questions(folder: Path) -> Path:
    span = {"text": ["Ann"], "answer_start": [0]}
    rows = ({"context": f"Ann has {n} cats.", "question": asked, "answers": span} for n, asked in WHO)
    return jsonl(folder / "questions.jsonl", rows)


def squad(folder: Path) -> Path:
    span = [{"text": "Ann", "answer_start": 0}]
    asked = [[{"question": text, "answers": span} for n, text in WHO if n == number] for number in RANGE]
    paragraphs = [{"context": f"Ann has {n} cats.", "qas": own} for n, own in zip(RANGE, asked)]
    (folder / "squad.json").write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return folder / "squad.json"


def dialogues(folder: Path) -> Path:
    turns = [[{"speaker": "ann", "text": f"{number} and {turn}"} for turn in range(4)] for number in RANGE]
    return jsonl(folder / "talk.jsonl", ({"turns": own} for own in turns))


TOGETHER: dict[str, tuple[Callable[[Path], Path], dict[str, Any], Callable[[Any], Any]]] = {
    "a group": (answers, {**CLASS, "group": "{qid}"}, lambda one: one.group),
    "a context of SQuAD": (squad, {**SPAN, "layout": "squad"}, lambda one: one.texts[1]),
    "a context of a table": (questions, SPAN, lambda one: one.texts[1]),
    "a dialogue": (dialogues, REPLY, lambda one: one.texts[0].partition(" and ")[0]),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_examples_that_share_something_are_on_one_side(what, tmp_path):
    file, line, shared = TOGETHER[what]
    data = task(file(tmp_path), **line)
    train, validation = (data.open(split, tmp_path / "data").examples for split in ("train", "validation"))
    assert len(train) + len(validation) == 120
    assert 10 < len(validation) < 60
    assert not {*map(shared, train)} & {*map(shared, validation)}
    assert what == "a group" or {one.group for one in train} == {None}  # scores have no groups


def test_an_example_without_a_group_is_held_out_by_its_text_and_a_limit_keeps_the_same_ones(tmp_path):
    data = task(answers(tmp_path), **CLASS)
    held_out = {example.texts for example in data.open("validation", tmp_path / "data").examples}
    for (text,) in held_out:
        hashed = hashlib.blake2b(text.encode() + b"\0", digest_size=8).digest()
        assert int.from_bytes(hashed, "big") < 0.25 * 2**64
    rows, kept = answers(tmp_path).read_text().splitlines(), []
    for order in (rows, rows[::-1]):
        (tmp_path / "answers.jsonl").write_text("\n".join(order))
        limited = [task(tmp_path / "answers.jsonl", **CLASS, limit=limit) for limit in (5, 20, None)]
        few, more, whole = ({one.texts for one in data.open("train", tmp_path / "data").examples} for data in limited)
        assert (len(few), len(more)) == (5, 20)
        assert few < more < whole
        assert {one.texts for one in limited[0].open("validation", tmp_path / "data").examples} == held_out
        kept.append(few)
    assert kept[0] == kept[1]
    with pytest.raises(ScalingError, match=rf"limit=121: the training split has {120 - len(held_out)} examples"):
        task(tmp_path / "answers.jsonl", **CLASS, limit=121).open("train", tmp_path / "data")


@pytest.mark.parametrize("file", ["manifest.json", "train.npz", "train.jsonl"])
def test_a_damaged_task_is_prepared_again(tmp_path, file):
    data = task(answers(tmp_path), **CLASS)
    home = data.prepare(tmp_path / "data")
    content = {each.name: each.read_bytes() for each in home.iterdir() if each.name != "trusted.json"}
    half = len(content[file]) // 2
    flipped = content[file][:half] + bytes([content[file][half] ^ 1]) + content[file][half + 1 :]
    (home / file).unlink()
    if file != "train.jsonl":
        (home / file).write_bytes(flipped if file == "manifest.json" else content[file][:half])
    assert data.prepare(tmp_path / "data") == home
    assert [each.name for each in home.parent.iterdir()] == [home.name]
    assert content == {each.name: each.read_bytes() for each in home.iterdir() if each.name != "trusted.json"}


SHARED = [("A cat", "yes"), ("a dog", "no")], [("a cat ", "yes"), ("a dog", "no"), ("a fox", "no")]
GROUPS = [("a", "yes", 1), ("b", "no", 2)], [("c", "yes", 1), ("d", "yes", 1), ("e", "no", 2), ("f", "no", 3)]
CONTRADICTING = [("a", "yes"), ("a", "no"), ("a", "no"), ("b", "yes"), ("b", "yes"), ("c", "no")]


@pytest.mark.parametrize(
    ("rows", "line", "told"),
    [
        (
            GROUPS,
            {"group": "{qid}"},
            ["2 groups of the validation split are in the train split too; numbers that begin"],
        ),
        (
            SHARED,
            {},
            [
                "1 example of the validation split is in the train split too",
                "1 example of the validation split is in the train split too, but for case or spaces at the ends",
            ],
        ),
        (
            (CONTRADICTING, [("c", "yes"), ("e", "no")]),
            {},
            [
                "1 example of the validation split is in the train split too",
                "2 texts have labels that contradict one another, in 5 examples",
            ],
        ),
    ],
    ids=["groups", "case and spaces", "labels"],
)
def test_what_is_trained_on_too_is_counted(rows, line, told, tmp_path, capsys):
    task_module._warn.cache_clear()
    files = {}
    for split, own in zip(("train", "validation"), rows):
        each = (dict(zip(("text", "label", "qid"), row)) for row in own)
        files[split] = str(jsonl(tmp_path / f"{split}.jsonl", each))
    task(tmp_path, **{**CLASS, **line, "files": files}).open("train", tmp_path / "data")
    found = [line.removeprefix("scaling: warning: ") for line in capsys.readouterr().err.splitlines()]
    assert len(found) == len(told)
    assert all(one.startswith(other) for one, other in zip(found, told))
