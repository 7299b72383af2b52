"""Tasks whose answer follows from the text: each label is what the text says, by a second way of reading it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.data.synthetic import Copy, ListOps, Recall
from scaling.data.synthetic.list_ops import WORDS

SMALL: dict[str, Any] = {"examples": 1500, "held_out": 100, "shortest": 20, "longest": 120, "depth": 5, "arguments": 6}
OF: dict[str, Any] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(np.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def evaluated(words: list[str], task: ListOps) -> int:
    """The value of a text, read from left to right."""
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for word in words:
        if word in OF:
            open_lists.append((word, []))
            assert len(open_lists) <= task.depth
        elif word == "]":
            operator, values = open_lists.pop()
            assert 2 <= len(values) <= task.arguments
            open_lists[-1][1].append(OF[operator](values))
        else:
            open_lists[-1][1].append(int(word))
    ((_, values),) = open_lists
    assert len(values) == 1
    return values[0]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    task = ListOps(**SMALL)
    return task, {split: task.open(split, tmp_path_factory.getbasetemp()) for split in ("train", "validation", "test")}


def test_list_ops_are_labelled_by_their_value(small):
    task, splits = small
    for split, count in (("train", 1500), ("validation", 100), ("test", 100)):
        examples = splits[split].examples
        assert len(examples) == len(splits[split].items) == count
        for example in examples:
            words = example.texts[0].split()
            assert task.shortest < len(words) < task.longest
            assert evaluated(words, task) == example.answer
    assert task.best == 1
    texts = [example.texts for source in splits.values() for example in source.examples]
    assert len({*texts}) == 1700  # none comes twice


def test_list_ops_are_drawn_as_the_benchmark_draws(small):
    """By an exact recursion: the mean length of all texts is that of a branching process of 1 + a/2 arguments."""
    task = ListOps(examples=400, held_out=1, shortest=1, longest=1 << 16, depth=4, arguments=6)
    lengths = np.diff(task.generate("train").ends)
    means, children = [1.0], (2 + 6) / 2
    for _ in range(task.depth - 2):  # of a node below the root, from the deepest up
        means.append(0.75 + 0.25 * (2 + children * means[-1]))
    of_root = 2 + children * means[-1]  # a root that is a digit has one token, and is not kept
    assert abs(lengths.mean() - of_root) < 4 * lengths.std() / len(lengths) ** 0.5 + 0.02 * of_root
    words = np.bincount(task.generate("train").tokens, minlength=len(WORDS))
    np.testing.assert_allclose(words[10:14] / words[14], 0.25, atol=0.05)
    np.testing.assert_allclose(words[:10] / words[:10].sum(), 0.1, atol=0.03)


@pytest.mark.parametrize("length", [9, 500])
def test_recall_is_the_symbol_behind_the_key(length, tmp_path):
    task = Recall(length=length, pairs=4, symbols=5, examples=50, held_out=5)
    for example in task.open("train", tmp_path).examples:
        *text, key = map(int, example.texts[0].split())
        assert [text.count(5 + pair) for pair in range(4)] == [1] * 4
        assert key >= 5
        assert text[text.index(key) + 1] == example.answer
        assert len(text) == length - 1


def test_copy_is_the_symbol_of_before(tmp_path):
    task = Copy(length=20, distance=7, symbols=5, examples=50, held_out=5)
    for example in task.open("test", tmp_path).examples:
        assert example.answer == [example.texts[max(0, place - 7)] for place in range(20)]


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["data=list_ops", "data.longest=501"], "data.longest"),
        (["data=list_ops", "data.depth=1"], "data.depth"),
        (["data=recall", "data.pairs=40"], "data.pairs"),
        (["data=copy", "data.distance=64"], "data.distance"),
        (["data=copy", "data.length=1000000"], "data.length"),
    ],
)
def test_what_does_not_fit_is_refused(words, key):
    config = load("encoder", [*words, "size=tiny"])
    with pytest.raises(ScalingError) as refused:
        config.build("data")
    assert refused.value.key == key
