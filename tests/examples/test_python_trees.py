"""The example of trees: the places of tokens in the syntax trees of Python sources."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import extend
from scaling.data.task.example import OUTSIDE
from scaling.data.text import prepare
from scaling.training.experiment import assemble

TREES = Path(__file__).parents[2] / "examples" / "python_trees" / "trees.py"
SOURCE = 'import os\n\x0c\ndef é(x, *rest):\n    return [os.path(x + 1), "a"]\n\ny = é(3)\n'


@pytest.fixture(autouse=True)
def places() -> Callable[[str, np.ndarray], np.ndarray | None]:
    """The function of the example that places tokens."""
    extend(TREES)
    return sys.modules[f"scaling_extension_{TREES.stem}"].places


def test_tokens_of_python_have_the_places_of_their_nodes(places) -> None:
    found = places(SOURCE, np.arange(1, len(SOURCE) + 1))
    words = ("import", "def", "return", "os.path", "1", '"a', "y =", "\x0c")
    at = {name: tuple(found[SOURCE.index(name)].tolist()) for name in words}
    above = [(one, other) for one in at for other in at if at[one][1] <= at[other][1] < at[one][2]]
    assert {("def", "return"), ("return", "os.path")} <= set(above)
    assert not {("return", "y ="), ("os.path", '"a')} & set(above)
    # import 1; def 1; return 2; [ 3; call 4; attribute 5; name 6; x + 1: 5, its parts 6
    assert [at[name][0] for name in words[:-1]] == [1, 1, 2, 6, 6, 4, 2]
    assert at["\x0c"] == OUTSIDE
    assert places("this is no python", np.array([4])) is None


def test_windows_keep_the_places_of_their_documents_and_a_position_without_a_tree_is_refused(
    places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of eight sources, one of which is no Python."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    sources = [f"def f{n}(x):\n    return x + {n}  # e\n" for n in range(7)] + ["this is no python\n"]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sources))
    corpus = f"{{kind: Files, files: {tmp_path / 'sources.jsonl'}}}"
    data = f"data={{kind: PythonTrees, corpus: {corpus}, tokenizer: {{kind: Byte}}, validation: 0.3}}"
    words = [data, "size={width: 16, layers: 1, heads: 2, length: 24}", "trainer.max_steps=1", "train.batch=1"]
    words.append("model.position=Syntax")
    prepare(load("encoder", words).build("data"), tmp_path / "data")
    source = assemble(load("encoder", words)).batches.source
    whole = source.read(np.array([0]), source.tokens).tokens[0]
    trees = np.concatenate([source.read(np.array([row]), 5).tree[0] for row in range(source.tokens // 5)])
    start = 0
    for document in np.split(whole, np.flatnonzero(whole == source.specials["eos"]) + 1)[:-1]:
        found = trees[start : start + len(document) - 1]
        expected = places(source.decode(document[:-1]), np.arange(1, len(document)))
        assert (found == (OUTSIDE if expected is None else expected[: len(found)])).all()
        start += len(document)
    config = load("encoder", [*words, "data.kind=Text"])
    prepare(config.build("data"), tmp_path / "data")
    with pytest.raises(ScalingError, match="it reads a tree, and no batch has one"):
        assemble(config)
