"""Each folder of examples/ runs as its README says: every command is given in a copy of the folder, in order."""

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import scaling
from examples import minimal
from scaling.config.compose import load
from scaling.config.schema import extend
from scaling.laws import fit, named
from scaling.laws.points import load_points
from scaling.laws.written import law_of
from scaling.training.experiment import assemble
from scaling.training.parametrization import initialise
from scaling.verbs.command_line import main

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


@pytest.mark.parametrize(
    "folder", [pytest.param(folder, marks=pytest.mark.slow if folder in TESTED else ()) for folder in FOLDERS]
)
def test_an_example_begins_as_its_page_says(folder, copy, monkeypatch, capsys):
    monkeypatch.chdir(copy / folder)
    monkeypatch.delenv("SCALING_DATA", raising=False)
    assert len(commands(folder)) >= 3
    for _, *words in short(folder):
        assert main(words) == 0, words
        assert capsys.readouterr().out.strip(), words


@pytest.mark.slow
@pytest.mark.parametrize("folder", [folder for folder in FOLDERS if short(folder) != commands(folder)])
def test_an_example_runs_as_its_page_says(folder, copy):
    options = {"capture_output": True, "text": True, "timeout": 540, "cwd": copy / folder}
    options["env"] = {name: value for name, value in os.environ.items() if name != "SCALING_DATA"}
    for program, *words in commands(folder):
        assert program == "scaling"
        done = subprocess.run([sys.executable, "-m", "scaling", *words], check=False, **options)
        assert done.returncode == 0, f"scaling {shlex.join(words)}: {done.stderr}"
        assert done.stdout.strip(), words
        assert "Traceback" not in done.stderr


def test_both_ways_to_write_a_law_are_one_law():
    extend(EXAMPLES / "own_law" / "law.py")
    points = load_points(EXAMPLES / "own_law" / "points.csv")
    one = fit(named("delayed"), points, starts=256)
    form = law_of(str(EXAMPLES / "own_law" / "law.yaml"), points)[0]
    assert fit(form, points, starts=256).objective == pytest.approx(one.objective, rel=1e-9)
    assert one.estimates["D_0"] == pytest.approx(5e4, rel=0.1)
    assert not one.not_identified


# examples/minimal.py

STEPS, WARMUP = 16, 4
NAMES = {
    "decoder.embedding.table": "table",
    "decoder.stack.": "",
    "branches.mixer.norm": "attention_norm",
    "branches.mixer.piece": "attention",
    "branches.channel.norm": "channel_norm",
    "branches.channel.piece": "channel",
}


def plain(name: str) -> str:
    """The name of a parameter in the one file."""
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def test_one_file_trains_to_the_losses_of_scaling_train_from_the_same_weights_on_the_same_batches(tmp_path):
    words = [f"trainer.max_steps={STEPS}", f"schedule.warmup={WARMUP}", "size=tiny", "size.length=32", "train.batch=8"]
    words += ["log.every=1", f"runs={tmp_path}", "log.wandb=disabled"]
    experiment = assemble(load("decoder", words))
    model = initialise(experiment.model(), experiment.parametrization, experiment.seed)
    one_file = minimal.Decoder(minimal.Size())
    one_file.load_state_dict({plain(name): value for name, value in model.state_dict().items()})
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


# Published sets: they are whole and credited, and every published fit is reproduced

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
