"""Trees on their way into batches, from the heads of words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scaling.base.batch import Batch
from scaling.base.errors import ScalingError
from scaling.config.schema import build
from scaling.data.batches import evaluation
from scaling.data.source import Vocabulary
from scaling.data.tree import OUTSIDE
from scaling.data.tree import places as of_heads
from scaling.objectives.answer import Answer
from scaling.objectives.objective import Family

SENTENCES = [
    {"words": ["old", "dogs", "bark"], "tags": ["a", "b", "b"], "heads": [2, 3, 0]},
    {"words": ["they", "see"], "tags": ["a", "b"], "heads": [2, 0]},
]


def is_above(one: Any, other: Any) -> bool:
    return one[1] <= other[1] < one[2]


def test_the_numbers_of_a_tree_say_what_is_above_what() -> None:
    heads = [2, 0, 2, 3, 0]
    tree = of_heads(heads)
    assert [depth for depth, _, _ in tree] == [2, 1, 2, 3, 1]
    above = {1: {1, 2}, 2: {2}, 3: {2, 3}, 4: {2, 3, 4}, 5: {5}}
    for word, own in above.items():
        assert {other for other in above if is_above(tree[other - 1], tree[word - 1])} == own
    assert all(is_above(OUTSIDE, place) for place in tree)


@pytest.fixture
def line(tmp_path: Path) -> dict[str, Any]:
    for split in ("train", "validation"):
        (tmp_path / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in SENTENCES))
    return {
        "kind": "Task",
        "answer": "tags",
        "text": "{words}",
        "label": "{tags}",
        "labels": ["a", "b"],
        "heads": "{heads}",
        "metric": "TagAccuracy",
        "tokenizer": {"kind": "Byte"},
        "files": {split: str(tmp_path / f"{split}.jsonl") for split in ("train", "validation")},
    }


def first_batch(line: dict[str, Any], folder: Path, family: Family) -> Batch:
    source = build("data", line).open("train", folder)
    return evaluation(source, Answer(Vocabulary.of(source), 32, family), 2)[0].batch(0)


def test_every_token_of_a_word_has_the_place_of_the_word(line: dict[str, Any], tmp_path: Path) -> None:
    batch = first_batch(line, tmp_path, "encoder")
    assert batch.tree is not None
    assert batch.examples is not None
    row, words, text = batch.tree[batch.examples == 0][0].tolist(), of_heads([2, 3, 0]), "old dogs bark"
    for number, character in enumerate(text):
        if character != " ":
            assert tuple(row[1 + number]) == words[text[:number].count(" ")], (number, character)
    assert tuple(row[0]) == tuple(row[len(text) + 1]) == OUTSIDE


@pytest.mark.parametrize(
    ("heads", "what"),
    [
        ([2, 4, 0], "has 3 words, and the head is none of them '4'"),
        ([2, -1, 0], "has 3 words, and the head is none of them '-1'"),
        ([2, 3], "has 3 words and 2 heads"),
        ([2, 1, 0], "form a circle"),
    ],
)
def test_heads_that_make_no_tree_are_refused(heads: list[int], what: str, line: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(json.dumps({**SENTENCES[0], "heads": heads}))
    with pytest.raises(ScalingError, match=f"train.jsonl, example 1: .*{what}"):
        build("data", line).open("train", tmp_path)
