"""What a user can get wrong in a run is one line before anything starts; sizes and threads follow from the run."""

from __future__ import annotations

import json
import os

import pytest
import torch

from scaling import cli
from scaling.base.errors import ScalingError
from scaling.ledger import run_id
from scaling.training import machine
from tests.training.conftest import experiment, train, words

# Overrides, and what the one line has to hold.
BAD = {
    "optimizer.lr=0": "optimizer.lr=0",
    "optimizer.kind=AdamX": "did you mean 'Adam",
    "optimizer.betas=[0.9]": "betas",
    "schedule.warmup=12": "warmup",
    "trainer.max_step=3": "did you mean 'max_steps",
    "trainer.max_steps=0": "trainer.max_steps",
    "train.tokens=null trainer.max_steps=null": "train.tokens",
    "train.tokens=10 trainer.max_steps=null": "less than one batch",
    "train.epochs=1 trainer.max_steps=null train.tokens=null": "there is no end to the data",
    "train.batch={5: 4}": "train.batch",
    f"train.batch={{0: 4, 5: {2**40}}}": "more than 4,194,304 rows a step",
    "train.batch={from: 3, to: 4, over: 10}": "train.batch",
    "train.micro_batch=3": "do not divide",
    "trainer.devices=4096": "trainer.devices",
    "trainer.strategy=ddp": "there is one device",
    "trainer.precision=bf16": "did you mean 'bf16-true'",
    "size.vocabulary=8": "use 9 ids; set size.vocabulary to 9",
    "size.width=7 size.heads=2": "size",
    "data.validation=3": "shorter than one window",
    "objective=Masked": "objective.kind",
    "tuning={kind: LoRA, targets: [qery]}": "no linear map has such a name; did you mean 'query'?",
    "tuning={kind: Prefix, slots: [cross]}": "no block has such a mixer",
    "trainer.devices=2 trainer.strategy=fsdp optimizer.kind=Adafactor": "does not work on shards",
    "encoder": "found one more",
}


@pytest.mark.parametrize("line", BAD)
def test_a_mistake_is_one_line_before_anything_starts(line, tmp_path, capsys):
    overrides = line.split(" ") if "{" not in line else [line]
    assert cli.main(["train", *words(tmp_path / "runs"), *overrides]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("scaling: ")
    assert BAD[line] in error
    assert not list(tmp_path.glob("runs/store/*/log.jsonl"))


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["train", *words(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


# A shipped size is a shape; its vocabulary is what data and objective need, rounded up where that is asked.
MANY = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
VOCABULARIES = [
    ({"data.symbols": 16}, 17),
    ({"data.symbols": 16, "train.round_vocabulary": 8}, 24),
    (MANY, 1001),
    ({**MANY, "train.round_vocabulary": 128}, 1024),
    ({"size.vocabulary": "absent"}, 512),
]


@pytest.mark.parametrize(("changes", "size"), VOCABULARIES)
def test_a_model_has_the_ids_that_its_data_need(changes, size, tmp_path, capsys):
    """It is counted with the ids with which it is trained."""
    one = experiment(tmp_path, **changes)
    assert one.config["size.vocabulary"] == one.spec["size"]["vocabulary"] == size
    assert one.cost.parameters_by_slot["head"] == size * 8
    assert cli.main(["inspect", *words(tmp_path, **changes), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == one.cost.parameters


# Threads and the processor

SHORT = {"trainer.max_steps": 2, "schedule.warmup": 0}


def test_a_small_run_trains_with_one_thread_unless_a_person_asks(run, monkeypatch):
    """It leaves torch as it was, and the number is no part of what the run is."""
    before = torch.get_num_threads()
    for variable in machine.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    torch.set_num_threads(2)
    try:
        assert run(**SHORT)["circumstances"]["threads"] == 1
        assert torch.get_num_threads() == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
        assert run(**SHORT, seed=2)["circumstances"]["threads"] == 2
        assert run(**SHORT, seed=3, train__threads=1)["circumstances"]["threads"] == 1
    finally:
        torch.set_num_threads(before)
    assert run_id(experiment(train__threads=1).spec) == run_id(experiment().spec)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(ScalingError, match=r"train.threads=3: there are 2 cores; take fewer, or auto"):
        experiment(train__threads=3)
    large = dict.fromkeys(("size.width", "size.layers", "size.length", "data.validation"), "absent")
    large |= {"size": "ladder/10M", "train.batch": 64}
    assert [machine.suited(experiment(**large, train__micro_batch=rows), 16) for rows in (1, "null")] == [1, 16]


@pytest.mark.parametrize("call", [2, 13])
def test_steps_and_evaluations_count_subnormal_numbers_as_zero_and_what_follows_does_not(call, sabotaged):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)
    product = "(torch.tensor(1e-39) * 1).item()"
    fault = f"import torch\nif {product} == 0: raise ArithmeticError('it was zero')"
    with pytest.raises(ArithmeticError, match="it was zero"):
        train(sabotaged(fault, call, **{"evaluate.points": 1}))
    assert eval(product) != 0
