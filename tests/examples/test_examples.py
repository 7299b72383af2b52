"""Each folder of examples/ runs as its README says: every command is given in a copy of the folder, in order."""

import importlib
import json
import re
import shlex
import shutil
import struct
import sys
import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import scaling
from examples import minimal
from scaling.config.compose import load
from scaling.config.schema import build, extend
from scaling.data.task.example import OUTSIDE
from scaling.data.text import prepare
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise
from scaling.verbs.command_line import main
from tests.command_line import refuses

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
LONG = ("train", "--train", "--local")  # what trains, and what is read of it afterwards
TESTED = ("harness", "machine_corpora", "published", "python_trees")  # what these hold has tests of its own


def commands(folder: str) -> list[list[str]]:
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    return [shlex.split(line) for block in BLOCK.findall(text) for line in block.splitlines()]


def short(folder: str) -> list[list[str]]:
    """The commands before the first that trains."""
    every = commands(folder)
    trains = (words[1] == "study" or {*words} & {*LONG} for words in every)
    first = next((place for place, long in enumerate(trains) if long), len(every))
    return every[:first]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("runs", "data", "wandb")
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored))


CASES = [pytest.param(folder, short, marks=pytest.mark.slow if folder in TESTED else ()) for folder in FOLDERS]
CASES += [pytest.param(folder, commands, marks=pytest.mark.slow) for folder in FOLDERS]


@pytest.mark.parametrize(("folder", "asked"), CASES)
def test_an_example_runs_as_its_page_says(folder, asked, copy, monkeypatch, capsys):
    monkeypatch.chdir(copy / folder)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    assert len(commands(folder)) >= 3
    for program, *words in asked(folder):
        assert program == "scaling"
        assert main(words) == 0, words
        assert capsys.readouterr().out.strip(), words


def test_both_ways_to_write_a_law_are_one_law():
    folder = EXAMPLES / "own_law"
    extend(folder / "law.py")
    laws = ("delayed", folder / "law.yaml")
    one, other = (scaling.fit(folder / "points.csv", law=str(law), intervals="none") for law in laws)
    assert one.estimates == pytest.approx(other.estimates, rel=1e-6)
    assert one.estimates["D_0"] == pytest.approx(5e4, rel=0.1)
    assert not one.document["not_identified"]


STEPS, WARMUP = 16, 4


def test_one_file_trains_to_the_losses_of_scaling_train_from_the_same_weights_on_the_same_batches(tmp_path):
    words = [f"trainer.max_steps={STEPS}", f"schedule.warmup={WARMUP}", "size=tiny", "size.length=32", "train.batch=8"]
    words += ["log.every=1", f"runs={tmp_path}", "log.wandb=disabled"]
    experiment = assemble(load("decoder", words))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    one_file = minimal.Decoder(minimal.Size())
    one_file.load_state_dict(dict(zip(one_file.state_dict(), model.state_dict().values(), strict=True)))  # in one order
    batches = (experiment.batches.batch(step) for step in range(STEPS))
    pairs = ((batch.tokens, batch.targets) for batch in batches)
    losses = list(minimal.train(one_file, pairs, steps=STEPS, warmup=WARMUP))
    log = scaling.train("decoder", *words, progress=False).log
    trained = log[log["kind"] == "train"]
    assert list(trained["step"]) == list(range(1, STEPS + 1))
    assert losses[-1] < losses[0] - 0.05
    torch.testing.assert_close(losses, list(trained["loss"]), atol=1e-5, rtol=0)
    alone = minimal.Decoder(minimal.Size(vocabulary=64)).initialise(0)
    losses = list(minimal.train(alone, minimal.walks(0, 64), steps=40, warmup=6))
    assert losses[0] == pytest.approx(torch.log(torch.tensor(64.0)).item(), abs=1e-4)  # the head is zero
    assert losses[-1] < 3.5


SETS = ("gadre2024", "datablations", "porian2024", "olmo_ladder")


@pytest.fixture
def module(monkeypatch):
    """Import a file of the folder by name, as a person does who works in the folder."""
    monkeypatch.syspath_prepend(str(EXAMPLES / "published"))
    return importlib.import_module


def test_every_published_set_is_whole_and_credited(module):
    gadre2024, datablations, porian2024, olmo_ladder = map(module, SETS)
    assert sum(len(gadre2024.points(corpus)) for corpus in gadre2024.CORPORA) == 104
    assert (len(datablations.points()), len(datablations.points("all"))) == (182, 296)
    assert sum(len(porian2024.points(setting)) for setting in porian2024.settings()) == 1745
    assert len(olmo_ladder.points()) == 30
    licences = (EXAMPLES / "published" / "tables" / "LICENCES.md").read_text(encoding="utf-8")
    for credit in (module(name).CREDIT for name in SETS):
        assert "arXiv" in credit
        assert credit.rpartition(" at ")[2].partition(" ")[0] in licences


@pytest.mark.slow
def test_every_published_figure_holds_and_the_document_has_it(module, capsys):
    module("reproduce").main()
    printed = capsys.readouterr().out
    assert printed == (ROOT / "docs" / "published_fits.md").read_text(encoding="utf-8")
    assert printed.count("| holds") == 4 + 7 + 2 * 15
    assert "does not hold" not in printed


SOURCE = 'import os\n\x0c\ndef é(x, *rest):\n    return [os.path(x + 1), "a"]\n\ny = é(3)\n'


@pytest.fixture
def places():
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


def test_windows_keep_the_places_of_their_documents_and_what_has_no_tree_is_refused(places, tmp_path, monkeypatch):
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
    refuses("it reads a tree, and no batch has one", assemble, config)


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
