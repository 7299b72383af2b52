"""`--extend FILE.py`: a class of one's own joins any slot, on every command and in the workers that it starts.

A law, a corpus and a piece of one's own in use: tests/examples.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config import schema

SMALL = Path(__file__).parent / "studies" / "small.yaml"
LAW = (Path(__file__).parents[1] / "examples" / "own_law" / "law.py").read_text()
KIND = 'class Mine{0}:\n    """Mine. (Doe 2026)"""\n\n    slot = "{1}"\n\n\n'


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


def test_a_class_joins_any_slot_and_is_explained(tmp_path, capsys):
    path = written(tmp_path, "".join(KIND.format(number, slot) for number, slot in enumerate(schema.SLOTS)))
    for number, slot in enumerate(schema.SLOTS):
        assert main(["explain", f"Mine{number}", "--extend", path, "--json"]) == 0
        (kind,) = json.loads(capsys.readouterr().out)["kinds"]
        assert slot in kind["slots"]


BAD = {
    'class Sinking:\n    slot = "law"\n': "Sinking is no law",
    LAW.replace("    formula=", "    objective="): "argument: 'formula'",
    LAW.replace("delayed", "chinchilla"): "there is a law chinchilla already",
    'class A:\n    slot = "channle"\n': "A.slot='channle': there is no such slot; did you mean 'channel'",
    'class GeLU:\n    slot = "activation"\n': "activation has a kind GeLU already",
    "class A: ...\n": "no class in it names a slot; set slot = ",
    "class A\n": "mine.py:1: it does not import: SyntaxError",
}


def test_what_cannot_join_is_one_line(tmp_path, capsys):
    for text, said in BAD.items():
        assert main(["explain", "law-of-mine", "--extend", written(tmp_path, text)]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert said in err
    assert main(["explain", "law", "--extend", str(tmp_path / "gone.py")]) == 2
    assert capsys.readouterr().err.endswith("there is no such Python file; give --extend the path of a .py file\n")


MINE = '''

class Squared(nn.Module):
    """f(x) = x². (Doe 2026)"""

    slot = "activation"
    elements = True

    def forward(self, x):
        return x * x


class Twice:
    """Two budgets a size."""

    slot = "grid"

    def __init__(self, *, axes: dict, budgets: list[int]):
        self.axes, self.budgets = axes, budgets

    @property
    def most(self) -> int:
        return 2 * len(self.axes["size"])

    def cells(self, price):
        return ({"size": size, "train.tokens": budget} for size in self.axes["size"] for budget in self.budgets)
'''


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """The words that name a study with classes of one's own."""
    text = SMALL.read_text().partition("grid:")[0]
    text = text.replace("set:\n", "set:\n  model.block.channel.activation: Squared\n")
    sizes = "[{width: 8, heads: 1}, {width: 16, heads: 2}]"
    grid = f"grid: {{kind: Twice, axes: {{size: {sizes}}}, budgets: [2048, 4096, 6144, 8192]}}\n"
    (tmp_path / "study.yaml").write_text(text + grid + "law: delayed\n")
    mine = written(tmp_path, LAW.replace("from scaling", "from torch import nn\nfrom scaling", 1) + MINE)
    return [str(tmp_path / "study.yaml"), f"runs={tmp_path / 'runs'}", "--extend", mine, "--json"]


def test_a_study_is_planned_with_classes_of_ones_own(words, capsys):
    assert main(["plan", *words]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 8


@pytest.mark.slow
def test_workers_read_the_file_that_the_study_read(words):
    command = [sys.executable, "-m", "scaling", "study", *words, "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["law"] == "delayed"
