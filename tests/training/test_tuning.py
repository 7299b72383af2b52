"""Tuned runs: the base stays to the bit, checkpoints hold what was trained, and what is read again is the same."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from scaling.batch import Batch
from scaling.cli import main
from scaling.errors import ScalingError
from scaling.interop import weights
from scaling.interop.run import read, write
from scaling.ledger import Ledger, run_id
from scaling.schema import build
from scaling.training.experiment import assemble
from scaling.training.run import train
from tests.training.conftest import load, same, words
from tests.training.test_early_stop import the
from tests.training.test_resume import in_save

LINES = {
    "LoRA": "{kind: LoRA, rank: 2, targets: [all], dropout: 0.1}",
    "Prefix": "{kind: Prefix, length: 2, mlp: 4}",
    "Prompt": "{kind: Prompt, length: 2}",
    "Adapters": "{kind: Adapters, activation: ReLU, bottleneck: 2}",
    "IA3": "IA3",
    "BitFit": "BitFit",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    runs = tmp_path_factory.mktemp("base") / "runs"
    return runs, train(load(words(runs, **BIASED)))["run"]


BIASED = {"model.block.channel.bias": "true", "train.checkpoint_every": "8"}


def tuned(base: tuple[Path, str], kind: str, **changes: Any) -> list[str]:
    runs, run = base
    return words(runs, **{**BIASED, "start.run": run, "tuning": LINES[kind], "seed": "1", **changes})


@pytest.mark.parametrize("kind", LINES)
def test_the_base_stays_to_the_bit_and_checkpoints_hold_what_was_trained(kind, base):
    runs, run = base
    experiment = assemble(load(tuned(base, kind)))
    result = train(load(tuned(base, kind)))
    before, after = read(run, runs).described, read(result["run"], runs).described
    tuning = build("tuning", after.sections["tuning"])
    trained = {name for name in after.tensors if tuning.trains(name)}
    assert trained == experiment.trained
    for name, tensor in before.tensors.items():
        assert torch.equal(after.tensors[name], tensor) is not (name in trained), name
    initial = weights.of(experiment.initial_model())
    moved = {name for name, tensor in after.tensors.items() if not torch.equal(tensor, initial[name])}
    assert moved == trained
    folders = (runs / "store" / result["run"]).glob("checkpoints/*")
    for folder in folders:
        assert load_file(folder / "weights.safetensors").keys() == trained
        assert {name.partition("/")[0] for name in load_file(folder / "optimizer.safetensors")} == trained
    assert experiment.cost.parameters_trained == sum(after.tensors[name].numel() for name in trained)
    assert result["N"]["total"] == experiment.cost.parameters


def test_a_tuned_run_that_is_killed_is_what_it_would_have_been(base, tmp_path, fork):
    runs, run = base
    write(tmp_path / "base", read(run, runs), "here")
    changes = {**BIASED, "start.folder": str(tmp_path / "base"), "tuning": LINES["LoRA"]}
    unbroken = train(load(words(tmp_path / "one", **changes)))["run"]
    told = words(tmp_path / "two", **changes)
    assert fork(told, in_save).wait() == -signal.SIGKILL
    assert fork(told).wait() == 0
    same(the(tmp_path / "two", unbroken), the(tmp_path / "one", unbroken))


@pytest.mark.parametrize("kind", LINES)
def test_a_tuned_run_in_bfloat16_becomes_a_folder_and_generates(kind, base, tmp_path, capsys):
    runs, _ = base
    result = train(load(tuned(base, kind, **{"trainer.precision": "bf16-true", "evaluate.precision": "bf16-true"})))
    saved = read(result["run"], runs)
    write(tmp_path / "folder", saved, "here")
    again = read(tmp_path / "folder")
    assert again.described.sections == saved.described.sections
    tokens = torch.arange(10)[None] % 8
    batch = Batch(tokens, tokens)
    assert torch.equal(again.model().logits(batch), saved.model().logits(batch))
    assert main(["generate", result["run"], "--prompt", "1 2 3", "--steps", "4", "--runs", str(runs)]) == 0
    assert main(["show", result["run"], "--runs", str(runs)]) == 0
    assert "Traceback" not in capsys.readouterr().err


def test_a_run_starts_from_a_tuned_one(base):
    runs, _ = base
    first = train(load(tuned(base, "LoRA")))["run"]
    second = assemble(load(tuned((runs, first), "LoRA", seed=5)))
    taken = weights.of(second.initial_model())
    for name, tensor in read(first, runs).described.tensors.items():
        assert torch.equal(taken[name], tensor)
    assert second.trained == {name for name in taken if "lora" in name.split(".")}
    with pytest.raises(ScalingError, match=r"unused .*lora"):
        assemble(load(tuned((runs, first), "IA3")))


def test_what_the_start_lacks_and_named_parts_are_trained_beside_the_tuning(base):
    added = {name for name in assemble(load(tuned(base, "LoRA"))).trained if "lora" in name}
    with_new = assemble(load(tuned(base, "LoRA", **{"start.new": "['decoder.stack.norm.*']"})))
    assert with_new.trained == {*added, "decoder.stack.norm.gain"} == with_new.saved
    with_norms = assemble(load(tuned(base, "LoRA", **{"train.parts": "['*.norm.*']"})))
    assert {name for name in with_norms.trained if ".norm." not in name} == added
    assert len(with_norms.trained) > len(added)


def test_an_untuned_run_keeps_its_id_and_a_tuned_one_has_its_own(tmp_path):
    spec = assemble(load(words(tmp_path / "runs"))).spec
    assert "tuning" not in spec
    assert not any(key.startswith("tuning.") for key in spec["versions"])
    assert run_id(assemble(load(words(tmp_path / "runs", tuning="null"))).spec) == run_id(spec)
    one = assemble(load(words(tmp_path / "runs", tuning="LoRA"))).spec
    assert one["versions"]["tuning.LoRA"] == 1
    same = {"versions": spec["versions"], "tuning": None, "name": None}
    assert {**one, **same} == {**spec, **same}


def test_a_tuning_that_does_not_suit_is_refused_before_training(base, capsys):
    runs, _ = base
    for line, said in (
        (
            "{kind: LoRA, targets: [qery]}",
            "tuning.targets='qery': no linear map has such a name; did you mean 'query'?",
        ),
        ("{kind: LoRA, rnk: 2}", "tuning.rnk=2: LoRA has no such key; did you mean 'rank'?"),
        ("LORA", "tuning.kind='LORA': tuning has no such kind; did you mean 'LoRA'?"),
        ("{kind: Prefix, slots: [cross]}", "no block has such a mixer"),
    ):
        assert main(["train", *words(runs, tuning=line)]) == 2
        error = capsys.readouterr().err.strip()
        assert error.startswith("scaling: command line: tuning")
        assert said in error
        assert "\n" not in error


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("kind", ["LoRA", "Prefix", "Adapters", "Prompt"])
def test_ranks_train_what_a_tuning_does(kind, strategy, base, tmp_path):
    runs, run = base
    write(tmp_path / "base", read(run, runs), "here")
    changes = {**BIASED, "start.folder": str(tmp_path / "base"), "tuning": LINES[kind].replace(", dropout: 0.1", "")}
    changes["model.block.mixer.dropout"] = "0"
    alone = train(load(words(tmp_path / "one", **changes)))
    two = load(words(tmp_path / "two", **changes, **{"trainer.devices": 2, "trainer.strategy": strategy}))
    train(two)
    result = Ledger.open(tmp_path / "two").result(alone["run"])
    assert result is not None
    assert result["loss"] == pytest.approx(alone["loss"], rel=1e-5)
    before, after = (
        read(one, where).described.tensors for one, where in ((run, runs), (alone["run"], tmp_path / "two"))
    )
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
