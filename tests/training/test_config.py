"""What a user can get wrong in a run is one line before anything starts; sizes and threads follow from the run."""

from __future__ import annotations

import json
import os

import pytest
import torch

from scaling import cli
from scaling.errors import ScalingError
from scaling.ledger import run_id
from scaling.training import machine
from tests.training.conftest import experiment, load, train, words

# Overrides, and what the one line has to hold.
BAD = {
    "optimizer.lr=0": "optimizer.lr=0",
    "optimizer.lr=fast": "optimizer.lr",
    "optimizer.kind=AdamX": "did you mean 'Adam",
    "optimizer.beta=0.9": "did you mean 'betas'",
    "optimizer.betas=[0.9]": "betas",
    "schedule.kind=Cosin": "did you mean 'Cosine'",
    "schedule.warmup=12": "warmup",
    "parametrization=MuPP": "did you mean 'MuP'",
    "trainer.max_step=3": "did you mean 'max_steps",
    "trainer.max_steps=0": "trainer.max_steps",
    "train.tokens=null trainer.max_steps=null": "train.tokens",
    "train.tokens=10 trainer.max_steps=null": "less than one batch",
    "train.epochs=many trainer.max_steps=null": "train.epochs",
    "train.patience=0": "train.patience=",
    "train.smoothing=1.5": "below 1",
    "train.batch={5: 4}": "train.batch",
    f"train.batch={10**30}": "more than 4,194,304 rows a step",
    f"train.batch={{0: 4, 5: {2**40}}}": "more than 4,194,304 rows a step",
    f"train.batch={{from: 1, to: {2**62}, over: {2**62}}}": "more than 4,194,304 rows a step",
    "train.batch={from: 3, to: 4, over: 10}": "train.batch",
    "train.micro_batch=3": "do not divide",
    "trainer.devices=4096": "trainer.devices",
    "trainer.strategy=ddp": "trainer.strategy",
    "trainer.strategy=dpp": "did you mean 'ddp'",
    "trainer.precision=bf16": "did you mean 'bf16-true'",
    "log.loggers=[cvs]": "csv",
    "model.block.mixer.kind=Atention": "did you mean 'Attention'",
    "size.vocabulary=8": "use 9 ids; set size.vocabulary to 9",
    "size.length=100000": "data",
    "size.width=7 size.heads=2": "size",
    "data.validation=3": "shorter than one window",
    "objective=Masked": "objective.kind",
    "objective=Sequence": "objective.kind",
    "seed=-1": "seed",
    "tuning={kind: LoRA, targets: [qery]}": "no linear map has such a name; did you mean 'query'?",
    "tuning={kind: LoRA, rnk: 2}": "LoRA has no such key; did you mean 'rank'?",
    "tuning={kind: Prefix, slots: [cross]}": "no block has such a mixer",
    "trainer.devices=2 trainer.strategy=fsdp optimizer.kind=Adafactor": "does not work on shards",
    "trainer.strategy=fsdp": "there is one device",
    "data.symbols=1000 data.order=1 size.vocabulary=512": "use 1001 ids",
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


def test_an_output_that_is_no_folder_or_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    outputs = [tmp_path / "file"]
    if os.geteuid() != 0:  # root may write anywhere
        (tmp_path / "locked").mkdir(mode=0o500)
        outputs.append(tmp_path / "locked" / "runs")
    for output in outputs:
        assert cli.main(["train", *words(output)]) == 2
        assert capsys.readouterr().err.count("\n") == 1


# The vocabulary: what data and objective need, rounded up where that is asked, and never fewer

MANY = {"data.symbols": 1000, "data.order": 1, "size.vocabulary": "absent"}
VOCABULARIES = [
    *(
        ({"data.symbols": 16, "train.round_vocabulary": multiple}, size)
        for multiple, size in ((1, 17), (8, 24), (128, 128))
    ),
    (MANY, 1001),  # a shipped size is a shape; its vocabulary is that of another corpus
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


@pytest.fixture
def two_threads(monkeypatch):
    """As a person's shell leaves torch: nothing in the environment, and several threads."""
    for variable in machine.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


SHORT = {"trainer.max_steps": 2, "schedule.warmup": 0}


def test_a_small_run_trains_with_one_thread_unless_a_person_asks(run, two_threads, monkeypatch):
    """It leaves torch as it was, and the number is no part of what the run is."""
    ids = {result["run"]: result["circumstances"]["threads"] for result in (run(**SHORT), run("encoder", **SHORT))}
    assert list(ids.values()) == [1, 1]
    assert torch.get_num_threads() == 2
    if (os.cpu_count() or 1) > 1:
        assert run(**SHORT, train__threads=2, seed=1)["circumstances"]["threads"] == 2
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert run(**SHORT, seed=2)["circumstances"]["threads"] == 2
    assert run(**SHORT, seed=3, train__threads=1)["circumstances"]["threads"] == 1
    assert run_id(experiment(train__threads=1).spec) == run_id(experiment().spec)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    with pytest.raises(ScalingError, match=r"train.threads=3: there are 2 cores; take fewer, or auto"):
        experiment(train__threads=3)


SUITED = {"size=tiny": 1, "size=ladder/100k train.batch=16": 1, "size=ladder/10M": 16}
SUITED["size=ladder/10M train.micro_batch=1"] = 1


@pytest.mark.parametrize("line", SUITED)
def test_threads_grow_with_what_is_computed_at_once(line):
    data = ["data=synthetic", "size.vocabulary=null", "trainer.max_steps=20"]
    from scaling.training.experiment import assemble

    assert machine.suited(assemble(load(["decoder", *data, *line.split()])), 16) == SUITED[line]


@pytest.mark.parametrize("call", [2, 13])
def test_steps_and_evaluations_count_subnormal_numbers_as_zero_and_what_follows_does_not(call, sabotaged):
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)
    product = "(torch.tensor(1e-39) * 1).item()"
    with pytest.raises(ArithmeticError, match="it was zero"):
        train(
            sabotaged(
                f"import torch\nif {product} == 0: raise ArithmeticError('it was zero')", call, **{"evaluate.points": 1}
            )
        )
    assert eval(product) != 0
