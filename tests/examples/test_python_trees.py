"""The example of trees: the places of tokens in the syntax trees of Python sources."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.config import load
from scaling.data.prepare import prepare
from scaling.data.tree import OUTSIDE
from scaling.errors import ScalingError
from scaling.schema import extend
from scaling.training.experiment import assemble
from scaling.training.run import train

TREES = Path(__file__).parents[2] / "examples" / "python_trees" / "trees.py"
SOURCE = 'import os\n\x0c\ndef é(x, *rest):\n    return [os.path(x + 1), "a"]\n\ny = é(3)\n'


@pytest.fixture(autouse=True)
def joined() -> None:
    extend(TREES)


def places(source: str, ends: np.ndarray) -> np.ndarray | None:
    return sys.modules[f"scaling_extension_{TREES.stem}"].places(source, ends)


def is_above(one: Any, other: Any) -> bool:
    return one[1] <= other[1] < one[2]


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


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A prepared corpus of eight sources, one of which is no Python."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    sources = [f"def f{n}(x):\n    return x + {n}  # é\n" for n in range(7)] + ["this is no python\n"]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sources))
    corpus = f"{{kind: Files, files: {tmp_path / 'sources.jsonl'}}}"
    data = f"data={{kind: PythonTrees, corpus: {corpus}, tokenizer: {{kind: Byte}}, validation: 0.3}}"
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
    spans = assemble(load("encoder", [*python, "model.position=Syntax", "objective=Spans"])).batches
    for batch in (batches.batch(0), spans.batch(0)):
        assert batch.tree is not None
        assert batch.tree.shape == (1, 24, 3)
        assert tuple(batch.tree[0, 0].tolist()) == OUTSIDE


@pytest.mark.parametrize(
    ("model", "overrides"),
    [("decoder", []), ("encoder", ["data.kind=Text"])],
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


def statements(source: str) -> list[Any]:
    from examples.python_trees import depths

    return list(depths.statements(source))


def test_depths_are_those_of_the_syntax_tree() -> None:
    source = "import os\n\n@f\ndef g(x):\n    return os.path[x + 'ü'] + 1\n"
    first, second = statements(source)
    assert [first.text[word.start : word.stop] for word in first.words] == ["import", "os"]
    assert [word.depth for word in first.words] == [1, 2]
    depths = [(second.text[word.start : word.stop], word.depth) for word in second.words]
    # def 1, its decorator and argument 2, return 2, + 3, [ ] 4, os.path 5, os 6; x + 'ü' 5, x 6
    assert depths == [
        ("@", 1), ("f", 2), ("def", 1), ("g", 1), ("(", 1), ("x", 2), (")", 1), (":", 1), ("return", 2), ("os", 6),
        (".", 5), ("path", 5), ("[", 4), ("x", 6), ("+", 5), ("'ü'", 6), ("]", 4), ("+", 3), ("1", 4),
    ]  # fmt: skip
    assert statements("this is no python") == []


def test_a_form_feed_ends_no_line() -> None:
    assert [one.text.strip() for one in statements(SOURCE)] == [
        "import os",
        'def é(x, *rest):\n    return [os.path(x + 1), "a"]',
        "y = é(3)",
    ]


def test_a_run_on_python_is_probed_for_depths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from examples.python_trees import depths

    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    sources = [f"def f{n}(x):\n    return x + {n}\n" for n in range(40)]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sources))
    corpus = f"{{kind: Files, files: {tmp_path / 'sources.jsonl'}}}"
    words = [f"data={{kind: Text, corpus: {corpus}, tokenizer: {{kind: Byte}}, validation: 0.3}}", "train.batch=2"]
    words += ["size={width: 16, layers: 1, heads: 2, length: 48}", "trainer.max_steps=2", "log.wandb=disabled"]
    words += ["evaluate.points=1", f"runs={tmp_path / 'runs'}"]
    prepare(load("decoder", words).build("data"), tmp_path / "data")
    run = train(assemble(load("decoder", words)))["run"]
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["depths.py", run, "--tokens", "200", "--runs", str(tmp_path / "runs")])
    depths.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition("(")[0] for line in lines] == ["Baselines", "LayerScore", "LayerScore"]
