"""The examples of data of one's own: places in syntax trees of Python, message catalogues, functions' docstrings."""

import json
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.base.errors import ScalingError
from scaling.config.compose import load
from scaling.config.schema import build, extend
from scaling.data.task.example import OUTSIDE
from scaling.data.text import prepare
from scaling.training.experiment import assemble

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE = 'import os\n\x0c\ndef é(x, *rest):\n    return [os.path(x + 1), "a"]\n\ny = é(3)\n'


@pytest.fixture
def places():
    """The function of the example that places tokens."""
    extend(EXAMPLES / "python_trees" / "trees.py")
    return sys.modules["scaling_extension_trees"].places


def test_tokens_of_python_have_the_places_of_their_nodes(places):
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
    places, tmp_path, monkeypatch
):
    """Of eight sources, one of which is not Python."""
    monkeypatch.setenv("SCALING_DATA", str(tmp_path / "data"))
    sources = [f"def f{n}(x):\n    return x + {n}  # e\n" for n in range(7)] + ["this is no python\n"]
    (tmp_path / "sources.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in sources))
    corpus = f"{{kind: Files, files: {tmp_path / 'sources.jsonl'}}}"
    data = f"data={{kind: PythonTrees, corpus: {corpus}, tokenizer: {{kind: Byte}}, validation: 0.3}}"
    words = [data, "size={width: 16, layers: 1, heads: 2, length: 24}", "trainer.max_steps=1", "train.batch=1"]
    words.append("model.position=Syntax")
    prepare(load("encoder", words).build("data"), tmp_path / "data")
    source: Any = assemble(load("encoder", words)).batches.source
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


def catalogue(file: Path, entries: dict[bytes, bytes], order: str = "<") -> None:
    """A `.mo` file, laid out as GNU gettext's manual states (section 10.3)."""
    file.parent.mkdir(parents=True, exist_ok=True)
    entries = {b"": b"Content-Type: text/plain; charset=iso-8859-1\n", **entries}
    head, texts, table = 28, b"", b""
    for side in (0, 1):
        for entry in sorted(entries.items()):
            table += struct.pack(f"{order}2I", len(entry[side]), head + 16 * len(entries) + len(texts))
            texts += entry[side] + b"\0"
    numbers = (0x950412DE, 0, len(entries), head, head + 8 * len(entries), 0, 0)
    file.write_bytes(struct.pack(f"{order}7I", *numbers) + table + texts)


FUNCTION = '''
def {0}(number):
    """Return {0} of a number.

    More."""
    total = number + number * number - number ** number
    return total
'''


def test_catalogues_and_functions_give_pairs_and_what_is_held_out_is_not_trained_on(tmp_path, monkeypatch):
    """Of forty catalogues and of forty files with something of their own each and something that all have."""
    extend(EXAMPLES / "machine_corpora" / "machine.py")
    shared = {b"menu\x04Shared  it\n": "Größe".encode("iso-8859-1"), b"untranslated": b""}
    for number in range(40):
        own = {f"own {number}\0owns".encode(): f"eigen {number}\0eigene".encode()}
        catalogue(tmp_path / "de" / "LC_MESSAGES" / f"app{number}.mo", shared | own, "<>"[number % 2])
        (tmp_path / f"file{number}.py").write_text(FUNCTION.format(f"own{number}") + FUNCTION.format("shared"))
    monkeypatch.setattr(sysconfig, "get_paths", lambda *_: {"stdlib": str(tmp_path)})
    of_gettext, of_functions = {"kind": "Gettext", "folder": str(tmp_path)}, {"kind": "Docstrings", "reach": "standard"}
    for line, text in ((of_gettext, "Größe"), (of_functions, "Return shared of a number.")):
        documents = list(build("corpus", {**line, "held_out": 0.3}).snapshot(tmp_path).documents())
        train, validation = ({d.source for d in documents if d.split == split} for split in ("train", "validation"))
        assert not train & validation
        assert len(train | validation) == 41
        assert 4 <= len(validation) <= 25
        assert {document.text for document in documents if "hared" in document.source} == {text}
        assert not [part for part in ("Return", "menu", "  it", "owns") for d in documents if part in d.source]
