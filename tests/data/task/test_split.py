"""What is held out of the training examples, what is held out together, and what of it is counted as trained on too."""

import hashlib
import json

import pytest

from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.task import task as task_module

CLASS = {"answer": "class", "labels": ["no", "yes"], "text": "{text}", "metric": "Accuracy"}
SPAN = {"answer": "span", "text": "{question}", "second": "{context}", "label": "{answers}", "metric": "SQuAD"}
REPLY = {"answer": "text", "text": "{history}", "label": "{reply}", "metric": "BLEU", "layout": "dialogue"}
BOTH = ("train", "validation")


def task(file, **line):
    files = {"train": str(file)}
    return build("data", {"kind": "Task", "files": files, "tokenizer": "Byte", "validation": 0.25, **line})


def jsonl(file, rows):
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def examples(data, folder, split="train"):
    return data.open(split, folder / "data").examples


# Three examples in each of 40 units; the answers to a question share its label.
EACH = [(unit, number) for unit in range(40) for number in range(3)]
ANSWERS = [{"qid": u, "text": f"passage {u} answer {n}", "label": "yes" if u % 3 else "no"} for u, n in EACH]
WHERE = {"text": ["Ann"], "answer_start": [0]}
QUESTIONS = [{"context": f"Ann has {u} cats.", "question": f"question {n} of {u}", "answers": WHERE} for u, n in EACH]
ASKED = [{"question": f"question {n}", "answers": [{"text": "Ann", "answer_start": 0}]} for n in range(3)]
SQUAD = {"data": [{"paragraphs": [{"context": f"Ann has {u} cats.", "qas": ASKED} for u in range(40)]}]}
TALK = [{"turns": [{"speaker": "ann", "text": f"{u} and {n}"} for n in range(4)]} for u in range(40)]
TOGETHER = {
    "a group": (ANSWERS, {**CLASS, "group": "{qid}"}, lambda one: one.group),
    "a context of SQuAD": ([SQUAD], {**SPAN, "layout": "squad"}, lambda one: one.texts[1]),
    "a context of a table": (QUESTIONS, SPAN, lambda one: one.texts[1]),
    "a dialogue": (TALK, REPLY, lambda one: one.texts[0].partition(" and ")[0]),
}


@pytest.mark.parametrize("what", TOGETHER)
def test_examples_that_share_something_are_on_one_side(what, tmp_path):
    rows, line, shared = TOGETHER[what]
    data = task(jsonl(tmp_path / "rows.jsonl", rows), **line)
    train, validation = (examples(data, tmp_path, split) for split in BOTH)
    assert len(train) + len(validation) == 120
    assert 10 < len(validation) < 60
    assert not {*map(shared, train)} & {*map(shared, validation)}
    assert what == "a group" or {one.group for one in train} == {None}  # scores have no groups


def test_an_example_without_a_group_is_held_out_by_its_text_and_a_limit_keeps_the_same_ones(tmp_path):
    file, kept = tmp_path / "rows.jsonl", []
    for rows in (ANSWERS, ANSWERS[::-1]):
        jsonl(file, rows)
        few, more, whole = (
            {one.texts for one in examples(task(file, **CLASS, limit=n), tmp_path)} for n in (5, 20, None)
        )
        assert (len(few), len(more)) == (5, 20)
        assert few < more < whole
        held_out = {one.texts for one in examples(task(file, **CLASS, limit=5), tmp_path, "validation")}
        assert len(held_out) + len(whole) == 120
        kept.append((few, held_out))
    assert kept[0] == kept[1]
    for (text,) in held_out:
        hashed = hashlib.blake2b(text.encode() + b"\0", digest_size=8).digest()
        assert int.from_bytes(hashed, "big") < 0.25 * 2**64
    with pytest.raises(ScalingError, match=rf"limit=121: the training split has {len(whole)} examples"):
        examples(task(file, **CLASS, limit=121), tmp_path)


@pytest.mark.parametrize("name", ["manifest.json", "train.npz", "train.jsonl"])
def test_a_damaged_task_is_prepared_again(tmp_path, name):
    data = task(jsonl(tmp_path / "rows.jsonl", ANSWERS), **CLASS)
    home = data.prepare(tmp_path / "data")
    content = {file.name: file.read_bytes() for file in home.iterdir() if file.name != "trusted.json"}
    half = len(content[name]) // 2
    (home / name).write_bytes(content[name][:half] + bytes([content[name][half] ^ 1]) + content[name][half + 1 :])
    if name == "train.jsonl":
        (home / name).unlink()
    assert data.prepare(tmp_path / "data") == home
    assert [each.name for each in home.parent.iterdir()] == [home.name]
    assert content == {file.name: file.read_bytes() for file in home.iterdir() if file.name != "trusted.json"}


ALSO = "1 example of the validation split is in the train split too"
GROUPS = [("a", "yes", 1), ("b", "no", 2)], [("c", "yes", 1), ("d", "yes", 1), ("e", "no", 2), ("f", "no", 3)]
SHARED = [("A cat", "yes"), ("a dog", "no")], [("a cat ", "yes"), ("a dog", "no"), ("a fox", "no")]
DIFFERING = (
    [("a", "yes"), ("a", "no"), ("a", "no"), ("b", "yes"), ("b", "yes"), ("c", "no")],
    [("c", "yes"), ("e", "no")],
)


@pytest.mark.parametrize(
    ("rows", "line", "told"),
    [
        (
            GROUPS,
            {"group": "{qid}"},
            ["2 groups of the validation split are in the train split too; numbers that begin"],
        ),
        (SHARED, {}, [ALSO, f"{ALSO}, but for case or spaces at the ends"]),
        (DIFFERING, {}, [ALSO, "2 texts have labels that contradict one another, in 5 examples"]),
    ],
    ids=["groups", "case and spaces", "labels"],
)
def test_what_is_trained_on_too_is_counted(rows, line, told, tmp_path, capsys):
    task_module._warn.cache_clear()
    named = [[dict(zip(("text", "label", "qid"), row)) for row in own] for own in rows]
    files = {split: str(jsonl(tmp_path / f"{split}.jsonl", own)) for split, own in zip(BOTH, named)}
    examples(task(tmp_path, **{**CLASS, **line, "files": files}), tmp_path)
    found = [line.removeprefix("scaling: warning: ") for line in capsys.readouterr().err.splitlines()]
    assert len(found) == len(told)
    assert all(one.startswith(other) for one, other in zip(found, told))
