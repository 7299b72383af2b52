"""Trees on their way into batches: from the heads of words, and from Python's own parser."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.batch import Batch
from scaling.cli import main
from scaling.config import load
from scaling.data.batches import evaluation
from scaling.data.prepare import prepare
from scaling.data.python_tree import places, statements
from scaling.data.source import Vocabulary
from scaling.data.tree import OUTSIDE
from scaling.data.tree import places as of_heads
from scaling.errors import BAD_INPUT, ScalingError
from scaling.objective.answer import Answer
from scaling.objective.objective import Family
from scaling.schema import build
from scaling.training.experiment import assemble

SOURCE = 'import os\n\x0c\ndef é(x, *rest):\n    return [os.path(x + 1), "a"]\n\ny = é(3)\n'
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


def test_tokens_of_python_have_the_places_of_their_nodes() -> None:
    found = places(SOURCE, np.arange(1, len(SOURCE) + 1))
    assert found is not None
    at = {name: tuple(found[SOURCE.index(name)].tolist()) for name in ("import", "def", "return", "os.path", "1", '"a')}
    y = tuple(found[SOURCE.index("y =")].tolist())
    assert is_above(at["def"], at["return"])
    assert is_above(at["return"], at["os.path"])
    assert not is_above(at["return"], y)
    assert not is_above(at["os.path"], at['"a'])
    # import 1; def 1; return 2; [ 3; call 4; attribute 5; name 6; x + 1: 5, its parts 6
    depths = {name: place[0] for name, place in at.items()}
    assert depths == {"import": 1, "def": 1, "return": 2, "os.path": 6, "1": 6, '"a': 4}
    assert y[0] == 2
    assert tuple(found[SOURCE.index("\x0c")].tolist()) == OUTSIDE
    assert places("this is no python", np.array([4])) is None


def test_a_form_feed_ends_no_line() -> None:
    assert [one.text.strip() for one in statements(SOURCE)] == [
        "import os",
        'def é(x, *rest):\n    return [os.path(x + 1), "a"]',
        "y = é(3)",
    ]


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


def test_a_decoder_is_shown_no_tree_of_words_that_come_later(line: dict[str, Any], tmp_path: Path) -> None:
    assert first_batch(line, tmp_path, "decoder").tree is None


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


def test_a_head_out_of_range_ends_the_command_in_one_line(
    tmp_path: Path, line: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conllu"
    file.write_text("1\tGo\t_\tVB\tVB\t_\t2\troot\t_\t_\n")
    keys = {"layout": "conllu", "text": "{tokens}", "label": "{upos}", "labels": ["VB", "NN"]}
    data = json.dumps({**line, **keys, "files": {"train": str(file)}})
    assert main(["data", "prepare", f"data={data}", f"runs={tmp_path / 'runs'}"]) == BAD_INPUT
    error = capsys.readouterr().err
    assert error.startswith(f"scaling: {file}:1: head='2': the sentence has 1 word, and the head is none of them")
    assert error.count("\n") == 1


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A prepared corpus of eight sources, one of which is no Python."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    sources = [f"def f{n}(x):\n    return x + {n}  # é\n" for n in range(7)] + ["this is no python\n"]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sources))
    corpus = f"{{kind: Files, files: {tmp_path / 'sources.jsonl'}}}"
    data = f"data={{kind: Text, corpus: {corpus}, tokenizer: {{kind: Byte}}, validation: 0.3, trees: python}}"
    return [data, "size={width: 16, layers: 1, heads: 2, length: 24}", "trainer.max_steps=1", "train.batch=1"]


def test_windows_keep_the_places_of_their_documents(python: list[str]) -> None:
    config = load("encoder", [*python, "model.position=Syntax"])
    prepare(config.build("data"), Path(os.environ["SCALING_DATA"]))
    batches = assemble(config).batches
    source = batches.source
    assert source.tokens is not None
    whole = source.read(np.array([0]), source.tokens).tokens[0]
    trees = np.concatenate([source.read(np.array([row]), 5).tree[0] for row in range(source.tokens // 5)])  # type: ignore[index]
    start = 0
    for document in np.split(whole, np.flatnonzero(whole == source.specials["eos"]) + 1)[:-1]:
        text = source.decode(document[:-1])
        ends = np.array([len(bytes(text, "utf-8")[: n + 1].decode(errors="ignore")) for n in range(len(document) - 1)])
        expected = places(text, np.maximum(ends, 1))
        own = trees[start : start + len(document) - 1]
        if expected is None:
            assert (own == OUTSIDE).all()
        else:
            ascii_only = np.array([byte < 128 for byte in text.encode()])[: len(own)]
            np.testing.assert_array_equal(own[ascii_only], expected[: len(own)][ascii_only])
        start += len(document)
    batch = batches.batch(0)
    assert batch.tree is not None
    assert batch.tree.shape == (1, 24, 3)
    assert tuple(batch.tree[0, 0].tolist()) == OUTSIDE


@pytest.mark.parametrize(
    ("model", "overrides"),
    [("decoder", []), ("encoder", ["data.trees=none"]), ("encoder", ["objective=Spans"])],
)
def test_a_position_that_finds_no_tree_is_refused(model: str, overrides: list[str], python: list[str]) -> None:
    config = load(model, [*python, "model.position=Syntax", *overrides])
    prepare(config.build("data"), Path(os.environ["SCALING_DATA"]))
    with pytest.raises(ScalingError, match="it reads a tree, and no batch has one"):
        assemble(config)


def test_a_corpus_without_python_has_no_trees(python: list[str], tmp_path: Path) -> None:
    rows = [{"text": f"this is {number} no python"} for number in range(8)]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = load("encoder", python).build("data")
    prepare(data, tmp_path / "data")
    with pytest.raises(ScalingError, match="no document of the corpus is Python"):
        data.open("train", tmp_path / "data")
