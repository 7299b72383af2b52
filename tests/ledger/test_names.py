"""Runs are named by their plan, or by what the command line set, and not by a hash."""

import pytest

from scaling import cli
from scaling.ledger import Ledger
from scaling.ledger.identity import LONGEST, assignments, run_name
from tests.training.conftest import load, words


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"size.width": 16, "train.tokens": "500k"}, "width=16 tokens=500k"),
        ({"row": "Plain GeLU", "seed": 0}, "Plain GeLU seed=0"),
        ({"optimizer.lr": 0.00123456, "schedule.decay": 1000.0}, "lr=0.001235 decay=1000"),
        ({"model.a.kind": "X", "model.b.kind": "Y"}, "model.a.kind=X model.b.kind=Y"),
        ({"model.l": [1, 2], "train.compile": True}, "l=[1,2] compile=true"),
    ],
)
def test_words_of_a_name(values, name):
    assert " ".join(assignments(values)) == name


def test_a_run_is_named_by_what_the_command_line_set(tmp_path):
    name = run_name(load(words(tmp_path / "runs", optimizer__lr="0.0212345", seed=7)), 6464)
    assert name.startswith("Decoder 6,464 ")
    assert {"lr=0.02123", "seed=7", "max_steps=12"} <= set(name.split())
    assert not any(word.startswith(("runs=", "wandb=", "every=")) for word in name.split())
    assert len(name) <= LONGEST


def test_a_name_that_is_given_is_the_one_that_runs_lists(tmp_path, capsys):
    assert cli.main(["train", *words(tmp_path / "runs", log__name="mine")]) == 0
    capsys.readouterr()
    assert cli.main(["runs", f"runs={tmp_path / 'runs'}"]) == 0
    assert "  mine  " in capsys.readouterr().out
    (run_id,) = Ledger.open(tmp_path / "runs").runs()
    assert Ledger.open(tmp_path / "runs").spec(run_id)["name"] == "mine"
