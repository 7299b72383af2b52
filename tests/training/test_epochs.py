"""A run's length as passes over its data."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scaling.cli import main
from scaling.data.batches import Batches
from scaling.data.plan import BatchSize, Buckets, Windows
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.studies.assembly import assembled
from scaling.training.experiment import _passed, assemble
from tests.training.conftest import load, words

NUMBERS = {"trainer.max_steps": "absent", "schedule.warmup": 0}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A prepared text that ends."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "text.txt").write_text("".join(f"the law of {number} and no other\n\n" for number in range(300)))
    data = {
        "data": "files",
        "data.corpus.files": folder / "text.txt",
        "data.tokenizer": "Byte",
        "data.symbols": "absent",
    }
    data |= {"data.validation": 0.2}
    told = words(folder / "runs", **data)
    assert main(["data", "prepare", *(word for word in told if word.startswith(("data", "runs")))]) == 0
    return folder / "runs", {**data, **NUMBERS}


def of(text: tuple[Path, dict[str, Any]], **changes: Any) -> list[str]:
    return words(text[0], **{**text[1], **changes})


@pytest.mark.parametrize("epochs", [0.5, 1, 3, 2.5])
def test_epochs_are_the_fewest_updates_that_see_all_rows_so_often(epochs, text):
    found = assemble(load(of(text, **{"train.epochs": epochs})))
    assert found.batches.passes(found.steps) >= epochs > found.batches.passes(found.steps - 1)
    rows = np.concatenate([found.batches.plan.drawn(step).rows for step in range(found.steps)])
    _, counts = np.unique(rows, return_counts=True)
    if epochs >= 1:
        assert len(counts) == found.batches.source.windows(found.batches.objective.reads)
        assert counts.min() >= int(epochs)


def test_epochs_are_steps_by_another_name(text):
    found = assemble(load(of(text, **{"train.epochs": 2})))
    steps = assemble(load(of(text, **{"trainer.max_steps": found.steps})))
    assert run_id(found.spec) == run_id(steps.spec)
    (varied, _), _ = assembled("decoder", [tuple(of(text, **{"train.epochs": number})[1:]) for number in (2, 3)])
    assert varied.steps == found.steps


@pytest.mark.parametrize("key", ["trainer.max_steps", "train.tokens"])
def test_a_run_has_one_length(key, text):
    said = rf"train\.epochs=2.*{key} sets the length of training too; set {key} to null"
    with pytest.raises(ScalingError, match=said):
        assemble(load(of(text, **{"train.epochs": 2, key: 100})))
    assert assemble(load(of(text, **{"train.epochs": 2, key: "null"}))).steps


def test_a_config_that_was_saved_keeps_its_epochs(text, tmp_path):
    """Ranks read it, and a person may train from it."""
    config = load(of(text, **{"train.epochs": 2}))
    config.save(tmp_path / "config.yaml")
    again = assemble(load([str(tmp_path / "config.yaml")]))
    assert run_id(again.spec) == run_id(assemble(config).spec)


def test_endless_data_have_no_epochs(tmp_path):
    with pytest.raises(ScalingError, match=r"train\.epochs=1.*there is no end to the data; set train\.tokens"):
        assemble(load(words(tmp_path / "runs", **NUMBERS, **{"train.epochs": 1})))


@pytest.mark.parametrize("value", ["0", "-1", "many"])
def test_epochs_are_a_positive_number(value, tmp_path):
    with pytest.raises(ScalingError, match=r"train\.epochs="):
        assemble(load(words(tmp_path / "runs", **NUMBERS, **{"train.epochs": value})))


@pytest.mark.parametrize("epochs", [0.1, 1, 2, 7])
@pytest.mark.parametrize("seed", range(3))
def test_epochs_of_pairs_and_of_growing_batches(epochs, seed, tmp_path):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 40, (int(random.integers(1, 90)), 2))
    config = load(words(tmp_path / "runs"))
    some = assemble(config).batches
    plans = [
        Buckets(lengths, 32, 128, seed),
        Windows(int(random.integers(1, 500)), 16, BatchSize.of({"from": 2, "to": 8, "over": 10}), seed),
    ]
    for plan in plans:
        batches: Batches = dataclasses.replace(some, plan=plan)
        steps = _passed(config, batches, epochs)
        assert plan.passes(steps) >= epochs
        assert steps == 1 or plan.passes(steps - 1) < epochs
