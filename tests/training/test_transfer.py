"""Runs that start from the weights of others, train parts of a model, are tuned, or end early."""

import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from scaling.base.batch import Batch
from scaling.interop import weights
from scaling.interop.run import read, write
from scaling.ledger import Ledger, run_id
from scaling.training.callbacks import Best
from scaling.training.experiment import Experiment, counted
from scaling.training.module import FamilyModule
from scaling.verbs.command_line import main
from tests.command_line import printed, refused, refuses
from tests.training.conftest import STILL, WORSE, experiment, left, load, train, words

LAYERS = {**STILL, "parametrization": "{kind: Standard, head: normal}", "size.layers": 3, "trainer.max_steps": 4}
FAMILIES: dict[str, dict[str, Any]] = {
    "decoder": LAYERS,
    "encoder_decoder": {**LAYERS, "objective": "SpanCorruption", "model.tie": "[encoder, decoder]"},
    "gpt2": {**LAYERS, "model.block.mixer.dropout": "absent", "size.heads": 2},  # a tied head, and biases
}
PARTS = [
    ("decoder", "head", "AdamW", r"head\."),
    ("decoder", "['*.norm.*']", "Muon", r".*\.norm\."),
    ("gpt2", "bias", "Adafactor", r".*\.bias$"),
    ("encoder_decoder", "{last: 1}", "SGD", r"head\.|decoder.*(blocks\.2|stack\.norm)\."),
]
HEAD = {"seed": 1, "train.parts": "head"}
TUNED = {"LoRA": "{kind: LoRA, rank: 2, targets: [all], dropout: 0.1}", "Prefix": "{kind: Prefix, length: 2}"}


@pytest.fixture
def ledger(base: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of the ledger of the tiny run."""
    shutil.copytree(base[0], tmp_path / "runs")
    return tmp_path / "runs"


@pytest.fixture(scope="session")
def start(base: tuple[Path, str]) -> dict[str, str]:
    return {"start.run": base[1]}


def initial(*arguments: Any, **changes: Any) -> dict[str, torch.Tensor]:
    return weights.of(experiment(*arguments, **changes).initial_model())


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> set[str]:
    assert one.keys() <= other.keys()
    return {name for name, tensor in one.items() if not torch.equal(tensor, other[name])}


def test_the_same_weights_under_other_names_are_one_run(ledger, base, tmp_path):
    """What says nothing says nothing in a run's identity."""
    run = base[1]
    write(tmp_path / "ours", read(run, ledger), "here")
    Ledger.open(ledger).save_plan("mine", {"runs": [{"run": run, "name": "Plain GeLU seed=0"}]})
    starts = [{"run": run[:6]}, {"run": run, "step": 12}, {"run": "min:GeLU"}, {"folder": tmp_path / "ours"}]
    starts += [{"folder": ledger / "store" / run}, {"run": run, "step": 8}]
    lines = [{f"start.{key}": value for key, value in one.items()} for one in starts]
    ids = [run_id(experiment(ledger, **line).spec) for line in lines]
    assert len({*ids[:-1]}) == 1 != len({*ids})
    unknown = {"start.run": "mine:Plian"}
    refuses("the study mine has no such run; choose from Plain", experiment, ledger, **unknown)
    null = {"start": "null", "tuning": "null", "train.patience": "null", "train.parts": "all", "train.layer_decay": 1}
    assert run_id(experiment(ledger, **null).spec) == run
    others = ({"train.patience": 3}, {"train.parts": "head"}, {"train.layer_decay": 0.9})
    assert len({run, *(run_id(experiment(ledger, **other).spec) for other in others)}) == 4


def test_what_does_not_fit_is_listed_by_name(ledger, start):
    changes = {"model.head": "{kind: Linear, bias: true}", "size.hidden": 24, "model.stack.norm": "NoNorm"}
    listed = r"missing head\.bias.*channel\.piece\.out\.weight is 8×24 instead of 8×16.*start\.unused=\[decoder\.stack"
    refuses(listed, experiment, ledger, **start, **changes)
    accepted = {"start.new": "['head.bias', '*.channel.piece.*']", "start.unused": "['*.norm.gain']"}
    taken = initial(ledger, **start, **changes, **accepted)
    assert torch.equal(taken["head.weight"], read(start["start.run"], ledger).tensors["head.weight"])
    nothing = {"start.new": "['*']", "start.unused": "['*']", "size.width": 12}
    refuses(r"start\.new=.*the run takes no tensor of run", experiment, ledger, **start, **nothing)


def test_new_rows_of_a_table_are_drawn_and_the_old_ones_stay(ledger, start):
    more = {"size.vocabulary": 20, "parametrization.head": "normal"}
    taken = initial(ledger, **more, **start, **{"start.new": "[decoder.embedding.table, head.weight]"})
    before, drawn = read(start["start.run"], ledger).tensors, initial(ledger, **more)
    for name in ("decoder.embedding.table", "head.weight"):
        assert torch.equal(taken[name][:9], before[name])
        assert torch.equal(taken[name][9:], drawn[name][9:])
        assert taken[name][9:].abs().sum() > 0


def test_checkpoints_hold_only_what_is_trained_and_gc_keeps_what_they_need(ledger, start, capsys):
    tuned = train(words(ledger, **start, **HEAD))["run"]
    for folder in Ledger.open(ledger).folder(tuned).glob("checkpoints/*"):
        assert set(load_file(folder / "weights.safetensors")) == {"head.weight"}
    found = read(tuned, ledger).tensors
    assert differing(read(start["start.run"], ledger).tensors, found) == {"head.weight"}
    chain = {"start.run": tuned, **HEAD, "train.parts": "[decoder.stack.norm.gain]"}
    third = train(words(ledger, **chain))["run"]
    assert differing(found, read(third, ledger).tensors) == {"decoder.stack.norm.gain"}
    assert main(["generate", third, f"runs={ledger}", "--prompt", "1 2", "--steps", "2"]) == 0
    shutil.rmtree(Ledger.open(ledger).folder(third))
    free = ["gc", f"runs={ledger}", "--free", "--json"]
    printed(capsys, *free)
    read(tuned, ledger)
    # A run that has no result yet needs its start too, before its first checkpoint.
    Ledger.open(ledger).add(experiment(ledger, **start, seed=9).spec)
    freed = printed(capsys, *free, "--weights")
    assert {item["run"] for item in freed["kept"]} == {start["start.run"]}
    assert {item["run"] for item in freed["items"]} == {tuned}


def test_a_base_that_is_gone_or_changed_is_one_line(ledger, base, tmp_path, capsys):
    folder, elsewhere = tmp_path / "ours", tmp_path / "elsewhere"
    write(folder, read(base[1], ledger), "here")
    tuned, whole = (train(words(ledger, start__folder=folder, **each))["run"] for each in (HEAD, {"seed": 2}))
    folder.rename(elsewhere)
    read(whole, ledger)  # nothing was frozen, so that it needs its base no more
    error = refused(capsys, "generate", tuned, f"runs={ledger}", "--prompt", "1")
    assert "the weights that it started from, the folder" in error
    # The same weights from another place are the same run, which is done.
    assert train(words(ledger, start__folder=elsewhere, **HEAD))["run"] == tuned
    write(folder, read(base[1], ledger, 8), "here")
    refuses("have changed; put them back", read, tuned, ledger)


def layered(name: str = "decoder", runs: Path | str = "/nowhere", /, **changes: Any) -> Experiment:
    return experiment(runs, name, **{**FAMILIES[name], **changes})


@pytest.mark.parametrize(("name", "parts", "optimizer", "pattern"), PARTS)
def test_what_is_frozen_stays_to_the_bit_and_has_no_state(name, parts, optimizer, pattern, tmp_path):
    changes = {**FAMILIES[name], "train.parts": parts, "evaluate.points": 1, "optimizer": optimizer}
    one = experiment(tmp_path, name, **changes)
    assert one.trained == {key for key in one.names if re.match(pattern, key)}
    before, run = weights.of(one.initial_model()), train(words(tmp_path, name, **changes))["run"]
    assert differing(before, read(run, tmp_path).tensors) == one.trained
    folder = max(Ledger.open(tmp_path).folder(run).glob("checkpoints/*"))
    assert {key.rpartition("/")[0] for key in load_file(folder / "optimizer.safetensors")} <= one.trained
    assert one.cost.parameters_trained == sum(before[key].numel() for key in one.trained)
    assert counted(load(words(tmp_path, name, **changes))).parameters_trained == one.cost.parameters_trained


def test_a_tied_table_belongs_to_the_embedding():
    tied, table = {"model.tie": "[decoder, head]"}, "decoder.embedding.table"
    assert layered(**tied, **{"train.parts": "[head.weight]"}).trained == {table}
    assert table not in layered(**tied, **{"train.parts": "{last: 3}"}).trained


def rates(one: Experiment) -> dict[str, float]:
    """Each parameter's peak learning rate, by its group."""
    module = FamilyModule(one)
    groups = [group for optimizer in module.torch_optimizers for group in optimizer.param_groups]
    peaks = {id(tensor): group["peak"] for group in groups for tensor in group["params"]}
    return {spec.name: peaks[id(tensor)] for spec, tensor in module.weights.parameters}


@pytest.mark.parametrize(("name", "optimizer"), [("gpt2", "Muon"), ("encoder_decoder", "AdamW")])
def test_rates_fall_by_a_factor_with_each_block_below_the_top(name, optimizer):
    line = {"optimizer": f"{{kind: {optimizer}, lr: 0.01}}"}
    plain, decayed = rates(layered(name, **line)), rates(layered(name, **line, **{"train.layer_decay": 0.5}))
    for key, rate in plain.items():
        below = 3 if ".embedding." in key or ".position" in key else 0
        if ".blocks." in key:
            below = 2 - int(key.split(".blocks.")[1].split(".")[0])
        assert decayed[key] / rate == pytest.approx(0.5**below), key


@pytest.mark.parametrize("kind", TUNED)
def test_a_tuned_run_keeps_its_base_to_the_bit_and_becomes_a_folder(kind, ledger, start, tmp_path):
    """Its checkpoints hold what was trained; what is read again is the same, generates, and starts others."""
    changes = {**start, "tuning": TUNED[kind], "seed": 1}
    changes |= {"trainer.precision": "bf16-true", "evaluate.precision": "bf16-true"} if kind == "LoRA" else {}
    one, run = experiment(ledger, **changes), train(words(ledger, **changes))["run"]
    saved, before = read(run, ledger), read(start["start.run"], ledger).tensors
    found = saved.tensors
    assert one.trained == found.keys() - before
    assert differing(weights.of(one.initial_model()), found) == one.trained
    assert not differing(before, found)
    for folder in (ledger / "store" / run).glob("checkpoints/*"):
        assert load_file(folder / "weights.safetensors").keys() == one.trained
    write(tmp_path / "folder", saved, "here")
    again, batch = read(tmp_path / "folder"), Batch(torch.arange(10)[None] % 8, torch.arange(10)[None] % 8)
    assert torch.equal(again.model().logits(batch), saved.model().logits(batch))
    assert main(["generate", run, "--prompt", "1 2 3", "--steps", "4", "--runs", str(ledger)]) == 0
    second = experiment(ledger, **{**changes, "start.run": run})
    assert not differing(found, weights.of(second.initial_model()))
    assert second.trained == one.trained
    refuses("unused ", experiment, ledger, **{**changes, "start.run": run, "tuning": "IA3"})
    new = experiment(ledger, **changes, **{"start.new": "['decoder.stack.norm.*']"})
    assert new.trained == new.saved == {*one.trained, "decoder.stack.norm.gain"}


def test_a_run_ends_after_so_many_evaluations_without_improvement(tmp_path, capsys):
    """Its weights are the best ones, and stay."""
    run = train(words(tmp_path, **WORSE))["run"]
    result, found = left(tmp_path).result, left(tmp_path).losses
    evaluated = {step: loss for (step, kind), loss in found.items() if kind == "evaluate"}
    best = min(evaluated, key=lambda step: evaluated[step])
    assert (result["outcome"], result["best_step"], result["loss"]) == ("finished", best, evaluated[best])
    assert result["step"] == max(evaluated) < 40
    assert sum(step > best for step in evaluated) == 2
    one = experiment(tmp_path, **WORSE)
    assert set(evaluated) == {step for step in one.evaluated if step <= result["step"]}
    assert len(set(one.evaluated.values())) == 1  # evaluations that are compared are on the same windows
    assert f"best at step {best} of {result['step']}, " in printed(capsys, "train", *words(tmp_path, **WORSE))
    saved = Ledger.open(tmp_path).checkpoint(run, best)
    assert not differing(load_file(saved.folder / "weights.safetensors"), read(run, tmp_path).tensors)
    assert main(["gc", f"runs={tmp_path}", "--free"]) == 0
    assert read(run, tmp_path).place == {"run": run, "step": best}
    by_score = Best()  # a higher one is better than a lower loss
    for step, score in enumerate([0.5, 0.7, 0.7, math.nan], 1):
        by_score = by_score.after(step, {"loss": 1.0 / step, "score": score})
    assert (by_score.step, by_score.measured["score"], by_score.since) == (2, 0.7, 2)
