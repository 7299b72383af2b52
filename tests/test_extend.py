"""`--extend FILE.py`: a class of one's own joins any slot, on every command and in the workers that it starts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scaling.cli import main
from scaling.config import schema
from scaling.laws import fit

SMALL = Path(__file__).parent / "studies" / "small.yaml"


def written(folder: Path, text: str) -> str:
    (folder / "mine.py").write_text(text)
    return str(folder / "mine.py")


LAW = """
from scaling.laws import Law, Parameter

LAW = Law(
    name="sinking",
    formula="L = E + A D^-beta",
    citation="Doe 2026",
    inputs=("D",),
    parameters=(
        Parameter("E", "nats", "linear", 0.0, 1e6, (0.1, 2.0), linear=True),
        Parameter("A", "nats", "log", 1e-100, 1e100, (1.0, 1e10), linear=True),
        Parameter("beta", "1", "linear", 0.0, 5.0, (0.02, 1.0)),
    ),
    curve=lambda p, x: p.E + p.A * x.D**-p.beta,
)
"""
POINTS = "D,loss\n" + "".join(f"{d},{2 + 50 * d**-0.5}\n" for d in (1e3, 3e3, 1e4, 3e4, 1e5, 3e5))


def explained(path: str, name: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["explain", name, "--extend", path, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["kinds"]


def test_a_class_joins_any_slot_and_is_explained(tmp_path, capsys):
    classes = [f'class Mine{n}:\n    """Mine. (Doe 2026)"""\n\n    slot = "{s}"\n' for n, s in enumerate(schema.SLOTS)]
    path = written(tmp_path, "\n\n".join(classes))
    for number, slot in enumerate(schema.SLOTS):
        (kind,) = explained(path, f"Mine{number}", capsys)
        assert slot in kind["slots"]


def test_a_dataclass_joins(tmp_path, capsys):
    text = "from __future__ import annotations\n\nfrom dataclasses import dataclass\n\n\n"
    text += '@dataclass(frozen=True, kw_only=True)\nclass Mine:\n    """Mine."""\n\n    slot = "corpus"\n'
    (kind,) = explained(written(tmp_path, text + "    count: int = 3\n"), "Mine", capsys)
    assert kind["keys"]["count"] == {"type": "a whole number", "needed": False, "default": 3}


def test_a_law_of_ones_own_is_fitted_by_its_name(tmp_path, capsys):
    path = written(tmp_path, LAW)
    (tmp_path / "points.csv").write_text(POINTS)
    words = ["fit", str(tmp_path / "points.csv"), "--law", "sinking", "--intervals", "none", "--extend", path, "--json"]
    assert main(words) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["estimates"]["beta"] == pytest.approx(0.5, rel=1e-4)
    assert document["citation"] == "Doe 2026"
    assert main(["explain", "law", "--extend", path]) == 0
    assert "sinking" in capsys.readouterr().out
    assert fit("sinking", {"D": [1e3, 1e4, 1e5, 1e6], "loss": [3.0, 2.5, 2.2, 2.1]}).form.name == "sinking"


BAD = {
    "no law": ('class Sinking:\n    slot = "law"\n', "Sinking is no law"),
    "a law without a formula": (LAW.replace("    formula=", "    objective="), "argument: 'formula'"),
    "a law of a name that is taken": (LAW.replace("sinking", "chinchilla"), "there is a law chinchilla already"),
    "a slot that is none": (
        'class A:\n    slot = "channle"\n',
        "A.slot='channle': there is no such slot; did you mean 'channel'",
    ),
    "a kind of a name that is taken": ('class GeLU:\n    slot = "activation"\n', "activation has a kind GeLU already"),
    "no slot": ("class A: ...\n", "no class in it names a slot; set slot = "),
    "no Python": ("class A\n", "mine.py:1: it does not import: SyntaxError"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_join_is_one_line(name, tmp_path, capsys):
    text, said = BAD[name]
    assert main(["explain", "law-of-mine", "--extend", written(tmp_path, text)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert said in err


def test_a_file_that_is_not_there_is_one_line(tmp_path, capsys):
    assert main(["explain", "law", "--extend", str(tmp_path / "gone.py")]) == 2
    assert capsys.readouterr().err.endswith("there is no such Python file; give --extend the path of a .py file\n")


MINE = (
    LAW
    + '''

from collections.abc import Iterator
from typing import Any

from torch import nn


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

    def cells(self, price) -> Iterator[dict[str, Any]]:
        for size in self.axes["size"]:
            for budget in self.budgets:
                yield {"size": size, "train.tokens": budget}
'''
)


def own_study(folder: Path) -> None:
    written(folder, MINE)
    text = SMALL.read_text().partition("grid:")[0]
    text = text.replace("set:\n", "set:\n  model.block.channel.activation: Squared\n")
    sizes = "[{width: 8, heads: 1}, {width: 16, heads: 2}]"
    grid = f"grid: {{kind: Twice, axes: {{size: {sizes}}}, budgets: [2048, 4096, 6144, 8192]}}\n"
    (folder / "study.yaml").write_text(text + grid + "law: sinking\n")


def test_a_study_is_planned_with_classes_of_ones_own(tmp_path, capsys):
    own_study(tmp_path)
    words = [str(tmp_path / "study.yaml"), f"runs={tmp_path / 'runs'}", "--extend", str(tmp_path / "mine.py")]
    assert main(["plan", *words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 8


@pytest.mark.slow
def test_workers_read_the_file_that_the_study_read(tmp_path):
    own_study(tmp_path)
    words = ["study.yaml", "runs=runs", "--extend", "mine.py", "--json", "--workers", "1"]
    command = [sys.executable, "-m", "scaling", "study", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["law"] == "sinking"
