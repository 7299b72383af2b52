"""A sweep's file is held to W&B's schema and to our configs before anything is sent: a mistake is one line, exit 2."""

from __future__ import annotations

import re
import shlex
import sys

import pytest
import yaml

from scaling.cli import main
from scaling.config.compose import shipped
from scaling.sweeps.check import check, experiment
from scaling.sweeps.file import read
from scaling.sweeps.search import listed
from tests.sweeps.conftest import WORDS, write

SWEEPS = sorted((shipped().parent / "sweeps").glob("*.yaml"))
LR = {"min": 1e-4, "max": 1e-1}

BAD = {
    "an unknown key": ({"parameters": {"model.widht": {"values": [1]}}}, "widht"),
    "an unknown key of a piece": ({"parameters": {"optimizer.lrr": {"values": [1]}}}, "lrr"),
    "a wrong value": ({"parameters": {"size.heads": {"values": [2, 3]}}}, "width"),
    "values that are wrong together": (
        {"parameters": {"size.heads": {"values": [1, 4]}, "size.width": {"values": [8, 6]}}},
        "width 6",
    ),
    "a value twice": ({"parameters": {"seed": {"values": [1, 1]}}}, "twice"),
    "min and max swapped": ({"method": "random", "parameters": {"optimizer.lr": {"min": 0.1, "max": 0.01}}}, "swap"),
    "a key the distribution lacks": ({"parameters": {"seed": {"values": [1], "q": 2}}}, "no such key"),
    "text for a number": ({"method": "random", "parameters": {"optimizer.lr": {"min": "1e-4", "max": 0.1}}}, "1.0e-4"),
    "a grid over a curve": ({"parameters": {"optimizer.lr": {"min": 0.01, "max": 0.1}}}, "a grid takes values"),
    "a command that is not ours": ({"command": ["python", "train.py", "${args}"]}, "not ours"),
    "nowhere for the parameters": ({"command": ["scaling", "train", *WORDS]}, "args_no_hyphens"),
    "an unknown top key": ({"paramters": {}}, "'parameters'"),
    "a metric nobody logs": ({"metric": {"name": "val_loss"}}, "no run logs it"),
    "hyperband without brackets": ({"early_terminate": {"type": "hyperband"}}, "min_iter"),
    "hyperband that never stops": ({"early_terminate": {"type": "hyperband", "min_iter": 9}}, "evaluate.points"),
    "a billion runs": ({"parameters": {"seed": {"min": 0, "max": 10**9}}}, "1,000,000,001 runs"),
    "a step of almost nothing": (
        {"parameters": {"optimizer.lr": {"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 1e-300}}},
        "more steps",
    ),
    "a power beyond numbers": (
        {"method": "random", "parameters": {"optimizer.lr": {"distribution": "log_uniform", "min": 1, "max": 9999}}},
        "parameters.optimizer.lr",
    ),
    "a rule that is text": ({"early_terminate": "hyperband"}, "early_terminate='hyperband': expected keys"),
}

# Text that PyYAML, which reads the file for `wandb sweep`, reads otherwise than our own reader, or not at all.
TEXTS = {
    "a tab": ("method: grid", "method:\tgrid", "bad.yaml:3", "no such YAML"),
    "a key that is true": ("seed:", "true:", "parameters", "the key True as bool"),
    "a date": ("[1, 2]", "[2026-11-20]", "parameters.seed.values.0", "datetime.date(2026, 11, 20)"),
    "a number without a point": ("[1, 2]", "[1e-3, 3e-3]", "bad.yaml:5: parameters.seed.values.0", "write 1.0e-3"),
    "an end without a point": ("{values: [1, 2]}", "{min: 1e-4, max: 0.1}", "parameters.seed.min", "write 1.0e-4"),
    "an option": ("decoder, ", "decoder, --overlay, o.yaml, ", "bad.yaml:2: command='--overlay'", "has no options"),
    "no command": ("command: [scaling, train, decoder, '${args}']\n", "", "command", "write command: [scaling, train"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_wandb_reads_otherwise_is_one_line(name, tmp_path, capsys):
    before, after, place, said = TEXTS[name]
    text = "program: scaling\ncommand: [scaling, train, decoder, '${args}']\nmethod: grid\n"
    text += "parameters:\n  seed: {values: [1, 2]}\n"
    assert before in text
    (tmp_path / "bad.yaml").write_text(text.replace(before, after))
    assert main(["sweep", str(tmp_path / "bad.yaml"), "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1, err
    assert place in err
    assert said in err


def test_a_long_row_of_numbers_is_not_written_out(tmp_path):
    sweep = read(write(tmp_path / "long.yaml", run_cap=3, parameters={"seed": {"min": 0, "max": 2**52}}))
    assert [cell["seed"] for cell in listed(sweep)] == [0, 1, 2]
    assert sweep.parameters["seed"].tried()[-1] == 2**52
    assert sys.getsizeof(sweep.parameters["seed"].values) < 100


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sweep_is_one_line(name, tmp_path, capsys):
    changes, said = BAD[name]
    path = write(tmp_path / "bad.yaml", **changes)
    assert main(["sweep", str(path), "--dry-run"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1, err
    assert said in err
    assert re.match(r"scaling: .*bad\.yaml", err), err


def test_nested_parameters_are_dotted_and_none_is_null(tmp_path):
    """W&B's agent writes Python's None; where the key may be null it is, elsewhere it is refused."""
    sweep = read(
        write(tmp_path / "none.yaml", parameters={"trainer.gradient_clip_val": {"values": [None, "None", 1.0]}})
    )
    nested = {"optimizer": {"parameters": {"lr": {"value": 0.5}, "weight_decay": {"values": [0.0, 0.1]}}}}
    cells = list(listed(read(write(tmp_path / "nested.yaml", parameters=nested))))
    assert cells == [{"optimizer.lr": 0.5, "optimizer.weight_decay": decay} for decay in (0.0, 0.1)]
    clips = [experiment(sweep.overrides(cell)).config["trainer.gradient_clip_val"] for cell in listed(sweep)]
    assert clips == [None, None, 1.0]
    assert main(["sweep", str(write(tmp_path / "bad.yaml", parameters={"seed": {"values": [None]}})), "--dry-run"]) == 2


# They look at many models; the tests of its table look at the first one's 52 too.
LONG = ("narang2021", "bayes_regularization")
EACH = [pytest.param(path, marks=pytest.mark.slow if path.stem in LONG else ()) for path in SWEEPS]


@pytest.mark.parametrize("path", EACH, ids=lambda path: path.stem)
def test_every_shipped_sweep_is_right(path):
    sweep = read(path)
    outlook, _ = check(sweep)
    assert outlook["runs"] is not None
    assert outlook["flops"] > 0


@pytest.mark.parametrize("path", SWEEPS, ids=lambda path: path.stem)
def test_rows_are_those_of_the_config(path):
    sweep = read(path)
    if "row" not in sweep.parameters:
        return
    (table,) = (word for word in sweep.words if "=" not in word)
    rows = yaml.safe_load((shipped() / f"{table}.yaml").read_text())["rows"]
    assert list(sweep.parameters["row"].values or ()) == list(rows), f"write the rows of {table} into {path.name}"


def test_the_words_are_those_of_the_real_agent(tmp_path):
    """Our spelling of a run's words and that of W&B's client, side by side."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command_args

    values = [1, 0.001, 1e-7, True, None, "GeLU", [1, 2], {"kind": "WSD", "decay": 0.2}]
    sweep = read(write(tmp_path / "words.yaml", parameters={"optimizer.lr": {"values": values}}))
    for cell in listed(sweep):
        theirs = create_sweep_command_args({"args": {key: {"value": value} for key, value in cell.items()}})
        assert sweep.overrides(cell)[len(sweep.words) :] == theirs["args_no_hyphens"]
        assert shlex.split(shlex.join(theirs["args_no_hyphens"])) == theirs["args_no_hyphens"]
