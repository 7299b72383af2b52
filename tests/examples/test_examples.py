"""Each folder of examples/ runs as its README says: every command is given in a copy of the folder, in order."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scaling.cli import main
from scaling.config.schema import extend
from scaling.laws import fit, named
from scaling.laws.points import load_points
from scaling.laws.written import constrained_law, read_law

EXAMPLES = Path(__file__).parents[2] / "examples"
FOLDERS = sorted(path.parent.name for path in EXAMPLES.glob("*/README.md"))
BLOCK = re.compile(r"```bash\n(.*?)```", re.DOTALL)
LONG = ("train", "--train", "--local")  # what trains, and what is read of it afterwards


def commands(folder: str) -> list[list[str]]:
    text = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8")
    return [shlex.split(line) for block in BLOCK.findall(text) for line in block.splitlines()]


def short(folder: str) -> list[list[str]]:
    """The commands before the first that trains."""
    every = commands(folder)
    trains = (words[1] == "study" or {*words} & {*LONG} for words in every)
    first = next((place for place, long in enumerate(trains) if long), len(every))
    return every[:first]


def copied(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("runs", "data", "wandb")
    return Path(shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=ignored))


# What these hold has tests of its own: test_NAME.py, and tests/evaluation/test_harness.py.
TESTED = ("harness", "machine_corpora", "published", "python_trees")


@pytest.mark.parametrize(
    "folder", [pytest.param(folder, marks=pytest.mark.slow if folder in TESTED else ()) for folder in FOLDERS]
)
def test_an_example_begins_as_its_page_says(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(copied(tmp_path) / folder)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    assert len(commands(folder)) >= 3
    for _, *words in short(folder):
        assert main(words) == 0, words
        assert capsys.readouterr().out.strip(), words


@pytest.mark.slow
@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if short(folder) != commands(folder)])
def test_an_example_runs_as_its_page_says(folder, tmp_path):
    here = copied(tmp_path) / folder
    environment = {name: value for name, value in os.environ.items() if name != "SCALING_DATA"}
    for program, *words in commands(folder):
        assert program == "scaling"
        command = [sys.executable, "-m", "scaling", *words]
        done = subprocess.run(
            command, cwd=here, env=environment, capture_output=True, text=True, timeout=540, check=False
        )
        assert done.returncode == 0, f"scaling {shlex.join(words)}: {done.stderr}"
        assert done.stdout.strip(), words
        assert "Traceback" not in done.stderr


def test_both_ways_to_write_a_law_are_one_law():
    extend(EXAMPLES / "own_law" / "law.py")
    points = load_points(EXAMPLES / "own_law" / "points.csv")
    one = fit(named("delayed"), points, starts=256)
    form = constrained_law(read_law(EXAMPLES / "own_law" / "law.yaml"), points)[0]
    assert fit(form, points, starts=256).objective == pytest.approx(one.objective, rel=1e-9)
    assert one.estimates["D_0"] == pytest.approx(5e4, rel=0.1)
    assert not one.not_identified
