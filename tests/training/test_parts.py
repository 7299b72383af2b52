"""Parts of a model that are trained while the rest stays as it is, to the bit; and rates that fall layer by layer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from scaling.errors import ScalingError
from scaling.interop import weights
from scaling.interop.run import read
from scaling.ledger import Ledger, run_id
from scaling.model.parameters import parameters
from scaling.training.experiment import Experiment, assemble, counted
from scaling.training.module import FamilyModule
from scaling.training.parts import depths
from scaling.training.run import train
from tests.training.conftest import load, words
from tests.training.test_start import in_save

STILL = {"model.block.mixer.dropout": 0, "parametrization": "{kind: Standard, head: normal}", "size.layers": 3}
FAMILIES: dict[str, dict[str, Any]] = {
    "decoder": {},
    "encoder": {},
    "encoder_decoder": {"objective": "SpanCorruption", "model.tie": "[encoder, decoder]"},
    "gpt2": {"model.block.mixer.dropout": "absent"},  # a tied head, and biases
    "bert": {"model.block.mixer.dropout": "absent", "objective": "Masked"},
}
OPTIMIZERS = ["AdamW", "Adam", "SGD", "Adafactor", "Muon"]
UNTIED = "model.tie"


def config(runs: Path, name: str = "decoder", **changes: Any) -> list[str]:
    told = {**STILL, "trainer.max_steps": 4, "evaluate.points": 1, **FAMILIES.get(name, {}), **changes}
    if name in ("gpt2", "bert"):
        told |= {"size.heads": 2, "model.sentence": "null"} if name == "bert" else {"size.heads": 2}
    return words(runs, name, **told)


def experiment(name: str = "decoder", /, **changes: Any) -> Experiment:
    return assemble(load(config(Path("/nowhere/runs"), name, **changes)))


def last(runs: Path, run: str) -> dict[str, dict[str, torch.Tensor]]:
    folders = Ledger.open(runs).folder(run).glob("checkpoints/[0-9]*")
    folder = max(folders, key=lambda path: int(path.name))
    return {path.stem: load_file(path) for path in folder.glob("*.safetensors")}


PARTS = {
    "head": lambda name: name.startswith("head."),
    "{last: 1}": lambda name: name.startswith("head.") or ".blocks.2." in name or ".stack.norm." in name,
    "['*.mixer.*', 'head.*']": lambda name: ".mixer." in name or name.startswith("head."),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", ["decoder", "encoder", "encoder_decoder"])
def test_what_is_frozen_stays_as_it_is_and_has_no_state(name, optimizer, tmp_path):
    parts = list(PARTS)[(OPTIMIZERS.index(optimizer) + len(name)) % len(PARTS)]
    changes = {"train.parts": parts, "optimizer": f"{{kind: {optimizer}}}"}
    told = config(tmp_path / "runs", name, **changes)
    before = {key: tensor.clone() for key, tensor in weights.of(assemble(load(told)).initial_model()).items()}
    run = train(load(told))["run"]
    found = last(tmp_path / "runs", run)
    is_trained = PARTS[parts]
    if name == "encoder_decoder" and "last" in parts:
        is_trained = lambda one: PARTS[parts](one) and not one.startswith("encoder.")  # noqa: E731
    moved = {key for key, tensor in found["weights"].items() if not torch.equal(tensor, before[key])}
    assert moved == {key for key in before if is_trained(key)}
    assert {key.rpartition("/")[0] for key in found["optimizer"]} <= moved
    if optimizer not in ("SGD",):
        assert found["optimizer"]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("parts", ["head", "bias", {"last": 2}, ["*.norm.*"]])
def test_gradients_are_where_they_should_be(name, parts, tmp_path):
    changes = {} if parts != "head" or name in STILL else {UNTIED: "[]"}
    if name in ("decoder", "encoder") and parts == "bias":
        with pytest.raises(ScalingError, match=r"train\.parts='bias'.*no biases"):
            experiment(name, **{"train.parts": parts})
        return
    line = parts if isinstance(parts, str) else "{last: 2}" if isinstance(parts, dict) else "['*.norm.*']"
    found = experiment(name, **{"train.parts": line, **changes})
    module = FamilyModule(found)
    model = module.model
    model.loss(found.batches.batch(0)).total.backward()
    with_gradient = {spec.name for spec, one in parameters(model) if one.grad is not None}
    assert with_gradient == found.trained
    assert {one.spec.name for one in module.weights.parameters} == found.trained
    held = {
        id(one) for optimizer in module.torch_optimizers for group in optimizer.param_groups for one in group["params"]
    }
    assert held == {id(one) for spec, one in parameters(model) if spec.name in found.trained}
    if parts == "bias":
        assert {name.rpartition(".")[2] for name in found.trained} == {"bias"}


def test_a_tied_table_belongs_to_the_embedding_and_has_all_its_names():
    tied = {"model.tie": "[decoder, head]"}
    with pytest.raises(
        ScalingError, match=r"train\.parts='head'.*no parameters of its own; take head out of model\.tie"
    ):
        experiment(**tied, **{"train.parts": "head"})
    table = "decoder.embedding.table"
    assert experiment(**tied, **{"train.parts": "[head.weight]"}).trained == {table}
    assert experiment(**tied, **{"train.parts": "['*.embedding.*']"}).trained == {table}
    assert table not in experiment(**tied, **{"train.parts": "{last: 3}"}).trained


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ("[head.wieght]", r"train\.parts='head\.wieght'.*no parameter has such a name; did you mean 'head\.weight'"),
        ("[head.weight, '*.nothing']", r"train\.parts='\*\.nothing'.*no parameter"),
        ("[]", r"train\.parts=\[\].*names no parameter"),
        ("heads", r"train\.parts='heads'.*expected one of all, head, bias or a list of text or keys"),
        ("{last: 4}", r"train\.parts.*there are 3 blocks; write \{last: 3\}"),
        ("{last: 0}", r"train\.parts.*write \{last: 2\}"),
        ("{first: 1}", r"train\.parts.*write \{last: 2\}"),
        ("bias", r"train\.parts='bias'.*the model below its head has no biases"),
    ],
)
def test_parts_that_are_not_there_are_refused(parts, said):
    with pytest.raises(ScalingError, match=said):
        experiment(**{"train.parts": parts})


def test_a_new_head_is_trained_with_the_biases(tmp_path):
    runs = tmp_path / "runs"
    run = train(load(config(runs, "gpt2")))["run"]
    changes = {"model.tie": "[]", "start.run": run, "start.new": "[head.*]", "train.parts": "bias"}
    found = assemble(load(config(runs, "gpt2", **changes))).trained
    assert "head.weight" in found
    assert {name.rpartition(".")[2] for name in found - {"head.weight"}} == {"bias"}


@pytest.mark.parametrize("parts", ["head", "{last: 1}", "[head.*]"])
def test_what_a_run_trains_is_counted_before_it(parts, tmp_path):
    runs = tmp_path / "runs"
    run = train(load(config(runs)))["run"]
    for changes in ({}, {"start.run": run, "start.new": "[head.*]"}):
        checked = load(config(runs, **changes, **{"train.parts": parts, UNTIED: "[]"}))
        assert counted(checked).parameters_trained == assemble(checked).cost.parameters_trained


def test_parts_and_decay_name_the_run():
    assert experiment(**{"train.parts": "head"}).spec["train"]["parts"] == "head"
    assert experiment(**{"train.layer_decay": 0.9}).spec["train"]["layer_decay"] == 0.9
    assert {"parts", "layer_decay"}.isdisjoint(
        experiment(**{"train.parts": "all", "train.layer_decay": 1}).spec["train"]
    )


# bfloat16


@pytest.mark.parametrize(("evaluation", "dtype"), [("bf16-true", torch.bfloat16), ("32-true", torch.float32)])
def test_what_is_frozen_stays_under_bfloat16_and_has_no_copy_that_nothing_reads(evaluation, dtype, tmp_path):
    runs = tmp_path / "runs"
    base = train(load(config(runs)))["run"]
    told = {
        "trainer.precision": "bf16-true",
        "evaluate.precision": evaluation,
        "train.parts": "head",
        "start.run": base,
    }
    found = assemble(load(config(runs, **told)))
    module = FamilyModule(found)
    types = {one.spec.name: one.tensor.dtype for one in module.weights.every}
    assert types.pop("head.weight") == torch.float32
    assert set(types.values()) == {dtype}
    run = train(load(config(runs, seed=1, **told)))["run"]
    was, now = (read(one, runs).described.tensors for one in (base, run))
    assert {name for name in was if not torch.equal(was[name], now[name])} == {"head.weight"}


# Rates


def rates(found: Experiment) -> dict[str, float]:
    """Each parameter's peak learning rate, by its group."""
    module = FamilyModule(found)
    names = {id(one.tensor): one.spec.name for one in module.weights.parameters}
    return {
        names[id(one)]: group["peak"]
        for optimizer in module.torch_optimizers
        for group in optimizer.param_groups
        for one in group["params"]
    }


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("name", FAMILIES)
def test_rates_fall_by_a_factor_with_each_block_below_the_top(name, optimizer):
    line = {"optimizer": f"{{kind: {optimizer}, lr: 0.01}}"}
    plain, decayed = rates(experiment(name, **line)), rates(experiment(name, **line, **{"train.layer_decay": 0.5}))
    factors = {key: decayed[key] / plain[key] for key in plain}
    for key, factor in factors.items():
        if ".blocks." in key:
            assert factor == pytest.approx(0.5 ** (2 - int(key.split(".blocks.")[1].split(".")[0]))), key
        elif ".embedding." in key or ".position" in key:
            assert factor == pytest.approx(0.5**3), key
        else:
            assert factor == 1, key
    assert min(factors.values()) == pytest.approx(0.5**3)


def test_a_table_that_is_read_at_both_ends_has_the_lowest_rate():
    found = experiment(**{"model.tie": "[decoder, head]"})
    assert depths(found.model())["decoder.embedding.table"] == 3
    shared = experiment(**{"model.stack.distinct": 1})
    assert set(depths(shared.model()).values()) == {0, 1}


def test_decay_multiplies_the_rates_of_mup():
    changes = {"parametrization": "{kind: MuP, base: 4}", "model.block.mixer.scale": "width"}
    plain, decayed = rates(experiment(**changes)), rates(experiment(**changes, **{"train.layer_decay": 0.5}))
    assert decayed["decoder.embedding.table"] == pytest.approx(plain["decoder.embedding.table"] / 8)
    assert len(set(plain.values())) == 2


# Ranks


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_go_on_with_what_one_rank_froze(strategy, tmp_path, fork):
    runs = tmp_path / "runs"
    base = train(load(config(runs)))["run"]
    told = {
        "train.parts": "{last: 1}",
        "start.run": base,
        "seed": 1,
        "trainer.max_steps": 8,
        "train.checkpoint_every": 2,
    }
    assert fork(config(runs, **told), in_save).wait() != 0
    train(load(config(runs, **told, **{"trainer.devices": 2, "trainer.strategy": strategy})))
    found = assemble(load(config(runs, **told)))
    ledger, run = Ledger.open(runs), run_id(found.spec)
    result = ledger.result(run)
    assert result is not None
    assert result["circumstances"]["from_step"] == 2
    assert last(runs, run)["weights"].keys() == found.trained
    was, now = (read(one, runs).described.tensors for one in (base, run))
    assert {name for name in was if not torch.equal(was[name], now[name])} == found.trained
