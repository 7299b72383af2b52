"""Run names: loggers show a run under what sets it apart, and not under a hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaling import config
from scaling.training.experiment import assemble
from scaling.training.run_name import LONGEST, run_name
from tests.training.conftest import load, words


def test_a_run_is_shown_under_what_the_command_line_set(tmp_path: Path) -> None:
    name = run_name(assemble(load(words(tmp_path / "runs", optimizer__lr="0.02", seed=7))))
    assert name.startswith("Decoder ")
    assert {"lr=0.02", "seed=7", "max_steps=12"} <= set(name.split())
    assert not any(word.startswith(("runs=", "wandb=", "every=")) for word in name.split())
    assert len(name) <= LONGEST


def test_a_name_that_is_given_is_taken(tmp_path: Path) -> None:
    assert run_name(assemble(load(words(tmp_path / "runs", log__name="mine")))) == "mine"


@pytest.mark.parametrize("name", ["decoder", "encoder"])
def test_without_overrides_it_is_shown_under_its_family_and_size(name: str) -> None:
    told = run_name(assemble(config.load(name, ["data=synthetic", "size=tiny"])))
    assert told.split()[1].replace(",", "").isdigit()
