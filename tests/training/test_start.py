"""Weights to begin with: taken to the bit, checked by name and shape, known by their hash, found again when read."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling.cli import main
from scaling.errors import ScalingError
from scaling.interop import huggingface, weights
from scaling.interop.run import Run, read, write
from scaling.ledger import Ledger, run_id
from scaling.training.experiment import assemble
from scaling.training.finetune import pretrained
from scaling.training.run import train
from tests.training.conftest import load, same, words
from tests.training.test_early_stop import the
from tests.training.test_resume import after

STILL = {"model.block.mixer.dropout": "0"}
FAMILIES: dict[str, dict[str, Any]] = {
    "decoder": {},
    "encoder": {},
    "encoder_decoder": {"objective": "SpanCorruption"},
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A trained run, and its ledger, which other tests copy."""
    runs = tmp_path_factory.mktemp("base") / "runs"
    return runs, train(load(words(runs)))["run"]


@pytest.fixture
def ledger(base, tmp_path) -> Path:
    shutil.copytree(base[0], tmp_path / "runs")
    return tmp_path / "runs"


def initial(runs: Path, name: str = "decoder", **changes: Any) -> dict[str, torch.Tensor]:
    return weights.of(assemble(load(words(runs, name, **changes))).initial_model())


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_begins_with_the_weights_of_another(name, tmp_path):
    runs, changes = tmp_path / "runs", {**FAMILIES[name], **STILL}
    done = train(load(words(runs, name, **changes)))
    taken = initial(runs, name, seed=1, start__run=done["run"], **changes)
    assert equal(taken, read(done["run"], runs).described.tensors)
    free = train(load(words(runs, name, seed=1, start__run=done["run"], **changes)))["run"]
    shutil.rmtree(Ledger.open(runs).folder(done["run"]))
    read(free, runs)  # nothing was frozen, so that it needs its base no more


def test_the_same_weights_under_other_names_are_one_run(ledger, base, tmp_path, capsys):
    (_, run) = base
    source = read(run, ledger)
    write(tmp_path / "ours", source, "here")
    ids = {
        run_id(assemble(load(words(ledger, **start))).spec)
        for start in (
            {"start.run": run},
            {"start.run": run[:6]},
            {"start.run": run, "start.step": 12},
            {"start.folder": tmp_path / "ours"},
            {"start.folder": ledger / "store" / run},
        )
    }
    assert len(ids) == 1
    drawn = run_id(assemble(load(words(ledger))).spec)
    other = run_id(assemble(load(words(ledger, start__run=run, start__step=8))).spec)
    assert len({*ids, drawn, other}) == 3


def test_a_run_without_a_start_keeps_its_id(tmp_path):
    spec = assemble(load(words(tmp_path / "runs"))).spec
    assert "start" not in spec
    assert not {"parts", "layer_decay", "patience", "epochs"} & set(spec["train"])
    told = assemble(load(words(tmp_path / "runs", start="null"))).spec
    assert {**told, "name": spec["name"]} == spec


def test_a_folder_of_transformers_is_a_start(tmp_path):
    from tests.interop.test_run import described

    huggingface.write(tmp_path / "theirs", found := described("gpt2"))
    write(tmp_path / "ours", Run(found, None), "here")
    size = {f"size.{key}": value for key, value in found.sections["size"].items()}
    told = {**size, "model.block.mixer.dropout": "absent", "data.symbols": 64}
    one, other = (
        assemble(load(words(tmp_path / "runs", "gpt2", start__folder=tmp_path / folder, **told)))
        for folder in ("theirs", "ours")
    )
    assert run_id(one.spec) == run_id(other.spec)
    assert equal(weights.of(one.initial_model()), found.tensors)


def test_a_study_is_named_with_its_row(ledger, base):
    (_, run) = base
    held = Ledger.open(ledger)
    second = train(load(words(ledger, seed=3)))["run"]
    third = train(load(words(ledger, seed=4)))["run"]
    names = {run: "Plain GeLU seed=0", second: "Plain GeLU seed=3", third: "Other seed=0"}
    held.save_plan("mine", {"runs": [{"run": one, "name": name} for one, name in names.items()]})

    assert pretrained("mine:Other", ledger).folder.name == pretrained("mi:Other", ledger).folder.name == third
    held.save_plan("minor", {"runs": []})
    with pytest.raises(ScalingError, match="2 studies begin so: mine, minor"):
        pretrained("mi:Other", ledger)

    def place(**start: Any) -> str:
        return assemble(load(words(ledger, start__study="mine", **start))).spec["start"]["run"]

    assert place(start__row='"Other"') == third
    assert place(start__row='"Plain GeLU seed=3"') == second
    assert place(start__row='"seed=3"') == second
    for row in ({}, {"start.row": '"Plain GeLU"'}):
        with pytest.raises(ScalingError, match=r"2|3 runs of the study mine are meant: 'Plain GeLU seed=0', "):
            place(**row)
    with pytest.raises(ScalingError, match=r"start\.row=.*no such run; did you mean 'Other seed=0'"):
        place(start__row='"Othr seed=0"')
    with pytest.raises(ScalingError, match=r"start\.study=.*no such study"):
        assemble(load(words(ledger, start__study="minee")))


def test_what_does_not_fit_is_listed_by_name(ledger, base):
    changes = {"model.head": "{kind: Linear, bias: true}", "size.hidden": 24, "model.stack.norm": "NoNorm"}
    with pytest.raises(ScalingError) as refused:
        assemble(load(words(ledger, start__run=base[1], **changes)))
    line = str(refused.value)
    assert "missing head.bias" in line
    assert "unused decoder.stack.norm.gain" in line
    assert "decoder.stack.blocks.0.branches.channel.piece.out.weight is 8×24 instead of 8×16" in line
    assert "start.new=[" in line
    assert "start.unused=[decoder.stack.norm.gain]" in line
    assert "\n" not in line
    accepted = {"start.new": "['head.*', '*.channel.piece.*']", "start.unused": "['*.norm.gain']"}
    start = assemble(load(words(ledger, start__run=base[1], **changes, **accepted))).start
    assert start is not None
    assert start.left == {"decoder.stack.norm.gain"}
    assert {"head.weight", "head.bias"} & start.drawn == {"head.bias"}
    assert len(start.drawn) == 4


def test_a_start_of_which_nothing_is_taken_is_refused(ledger, base):
    with pytest.raises(ScalingError, match=r"start\.new=.*the run takes no tensor of run"):
        assemble(
            load(words(ledger, start__run=base[1], **{"start.new": "['*']", "start.unused": "['*']", "size.width": 12}))
        )


def test_new_rows_of_a_table_are_drawn_and_the_old_ones_stay(ledger, base):
    more = {"size.vocabulary": 20, "parametrization.head": "normal"}
    with pytest.raises(ScalingError, match=r"decoder\.embedding\.table is 9×8 instead of 20×8, head\.weight is 9×8"):
        assemble(load(words(ledger, start__run=base[1], **more)))
    new = {"start.run": base[1], "start.new": "[decoder.embedding.table, head.weight]"}
    taken, drawn = initial(ledger, **more, **new), initial(ledger, **more)
    was = read(base[1], ledger).described.tensors
    for name in ("decoder.embedding.table", "head.weight"):
        assert torch.equal(taken[name][:9], was[name])
        assert torch.equal(taken[name][9:], drawn[name][9:])
        assert taken[name][9:].abs().sum() > 0


def test_a_vocabulary_that_nobody_gave_is_at_least_the_starts(tmp_path):
    runs = tmp_path / "runs"
    wide = train(load(words(runs, **{"size.vocabulary": 12})))["run"]
    assert assemble(load(words(runs, start__run=wide))).config["size.vocabulary"] == 12
    with pytest.raises(ScalingError, match="12×8 instead of 10×8"):
        assemble(load(words(runs, start__run=wide, **{"size.vocabulary": 10})))


@pytest.mark.parametrize(
    ("start", "said"),
    [
        ({"run": "feed"}, r"start\.run='feed'.*there is no such run"),
        ({"run": "feed", "folder": "/tmp"}, r"start.*names weights by run and by folder"),
        ({}, r"start.*names no weights"),
        ({"folder": "nowhere"}, r"start\.folder='nowhere'.*there is no such folder"),
        ({"folder": "."}, r"start\.folder='\.'.*holds neither"),
        ({"folder": "x", "step": 3}, r"start\.step=3.*one set of weights"),
        ({"run": "BASE", "row": "x"}, r"start\.row='x'.*only a study has rows"),
        ({"run": "BASE", "step": 5}, r"start\.step=5.*no whole checkpoint of step 5; take one of 8, 12"),
        ({"run": "BASE", "stepp": 5}, r"start\.stepp=5.*no such key; did you mean 'step'"),
        ({"run": "BASE", "new": "head"}, r"start\.new='head'.*expected a list"),
    ],
)
def test_a_bad_start_is_one_line_before_training(start, said, ledger, base, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = {f"start.{key}": base[1] if value == "BASE" else value for key, value in start.items()} or {"start": "{}"}
    begun = time.monotonic()
    assert main(["train", *words(ledger, seed=5, **told)]) == 2
    assert time.monotonic() - begun < 2
    error = capsys.readouterr().err.strip()
    assert re.search(said, error)
    assert error.count("\n") == 0
    assert len(Ledger.open(ledger).runs()) == 1


def test_a_run_that_is_not_finished_needs_a_step(ledger, base):
    held = Ledger.open(ledger)
    folder = held.folder(base[1])
    (folder / "result.json").unlink()
    with pytest.raises(ScalingError, match=r"start\.run.*has no result; train it first, or name start\.step"):
        assemble(load(words(ledger, start__run=base[1])))
    assert assemble(load(words(ledger, start__run=base[1], start__step=12))).start is not None


def test_another_tokenizer_is_refused(tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text("".join(f"the law of {number} and no other\n\n" for number in range(400)))

    def told(vocabulary: int, **changes: Any) -> list[str]:
        line = {
            "data": "files",
            "data.corpus.files": tmp_path / "text.txt",
            "data.tokenizer.vocabulary": vocabulary,
            "data.validation": 0.3,
            "data.symbols": "absent",
        }
        return words(tmp_path / "runs", **line, **changes)

    for vocabulary in (270, 280):
        data = [word for word in told(vocabulary) if word.startswith(("data", "runs"))]
        assert main(["data", "prepare", *data]) == 0
    run = train(load(told(270)))["run"]
    assert assemble(load(told(270, start__run=run))).start is not None
    with pytest.raises(ScalingError, match=r"data\.tokenizer: the data have another tokenizer .* than run"):
        assemble(load(told(280, start__run=run)))


# Checkpoints that hold what was trained alone

TUNED = {"seed": 1, "train.parts": "head", "train.checkpoint_every": 4}


def checkpoints(runs: Path, run: str) -> list[Path]:
    return sorted(Ledger.open(runs).folder(run).glob("checkpoints/*"))


def test_checkpoints_hold_only_what_is_trained(ledger, base, capsys):
    tuned = train(load(words(ledger, start__run=base[1], **TUNED)))["run"]
    for folder in checkpoints(ledger, tuned):
        assert set(weights.read(folder / "weights.safetensors")) == {"head.weight"}
        assert {name.rpartition("/")[0] for name in weights.read(folder / "optimizer.safetensors")} == {"head.weight"}
    was, found = (read(run, ledger).described.tensors for run in (base[1], tuned))
    assert {name for name in was if not torch.equal(was[name], found[name])} == {"head.weight"}
    again = initial(ledger, start__run=tuned)
    assert equal(again, found)
    third = train(load(words(ledger, start__run=tuned, **{**TUNED, "train.parts": "[decoder.stack.norm.gain]"})))["run"]
    chained = read(third, ledger).described.tensors
    assert {name for name in found if not torch.equal(found[name], chained[name])} == {"decoder.stack.norm.gain"}
    assert main(["generate", third, f"runs={ledger}", "--prompt", "1 2", "--steps", "2"]) == 0


def test_gc_keeps_a_base_while_a_run_needs_it(ledger, base, capsys):
    tuned = train(load(words(ledger, start__run=base[1], **TUNED)))["run"]
    freed = ["gc", f"runs={ledger}", "--free", "--json"]
    assert main(freed) == 0
    capsys.readouterr()
    read(tuned, ledger)
    # A run that has no result yet needs its start too, before its first checkpoint.
    spec = assemble(load(words(ledger, start__run=base[1], seed=9))).spec
    Ledger.open(ledger).add(spec)
    assert main([*freed, "--weights"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert {item["run"] for item in said["kept"]} == {base[1]}
    assert {item["run"] for item in said["items"]} == {tuned}
    assert read(base[1], ledger).place == {"run": base[1], "step": 12}


def test_a_base_that_is_gone_or_changed_is_one_line(ledger, base, tmp_path, capsys):
    write(tmp_path / "ours", read(base[1], ledger), "here")
    tuned = train(load(words(ledger, start__folder=tmp_path / "ours", **TUNED)))["run"]
    read(tuned, ledger)
    (tmp_path / "ours").rename(tmp_path / "elsewhere")
    assert main(["generate", tuned, f"runs={ledger}", "--prompt", "1"]) == 2
    assert "the weights that it started from, the folder" in capsys.readouterr().err
    assert main(["train", *words(ledger, start__folder=tmp_path / "ours", **TUNED)]) == 2
    assert "start.folder" in capsys.readouterr().err
    # The same weights from another place are the same run, which is done.
    assert train(load(words(ledger, start__folder=tmp_path / "elsewhere", **TUNED)))["already"]
    other = read(base[1], ledger, 8)
    write(tmp_path / "ours", other, "here")
    with pytest.raises(ScalingError, match="have changed; put them back"):
        read(tuned, ledger)


def in_save() -> None:
    from scaling.training.checkpoints import FolderIO

    FolderIO.save_checkpoint = after(2, FolderIO.save_checkpoint)


@pytest.mark.parametrize(
    "changes",
    [
        TUNED,
        {**TUNED, "train.parts": "{last: 1}", "train.layer_decay": 0.5, "optimizer.kind": "Muon"},
        pytest.param({**TUNED, "train.parts": "[decoder.embedding.*]", "trainer.precision": "bf16-true"}),
        pytest.param({"seed": 2, "optimizer.kind": "Adafactor"}, marks=pytest.mark.slow),
    ],
)
def test_a_kill_changes_nothing(changes, ledger, base, tmp_path, fork):
    told = {"start.run": base[1], **changes}
    shutil.copytree(ledger, tmp_path / "other" / "runs")
    whole, broken = ledger, tmp_path / "other" / "runs"
    tuned = train(load(words(whole, **told)))["run"]
    assert fork(words(broken, **told), in_save).wait() != 0
    assert train(load(words(broken, **told)))["run"] == tuned
    same(the(broken, tuned), the(whole, tuned))


@pytest.mark.parametrize("name", ["encoder", "decoder"])
@pytest.mark.parametrize("parts", ["all", "head", "{last: 1}"])
def test_a_pretrained_model_learns_a_task_with_a_new_head(name, parts, tmp_path):
    runs, length = tmp_path / "runs", {"size.length": 24}
    pretrained = train(load(words(runs, name, **{"data.symbols": 16, **length, **STILL})))["run"]
    task = {
        "data": "rank_tags",
        "data.symbols": "absent",
        "data.validation": "absent",
        "data.examples": 40,
        "data.held_out": 16,
        "model.head": "{kind: Tokens, classes: 4}",
        "trainer.max_steps": "absent",
        "train.epochs": 2,
        "schedule.warmup": 1,
        "train.patience": 50,
        "train.parts": parts,
        **length,
        **STILL,
    }
    with pytest.raises(ScalingError, match=r"missing head\.out\.weight, head\.out\.bias; unused head\."):
        assemble(load(words(runs, name, start__run=pretrained, **task)))
    start = {"start.run": pretrained, "start.new": "['head.*', '*.embedding.table']", "start.unused": "['head.*']"}
    result = train(load(words(runs, name, **start, **task)))
    assert result["step"] == 20
    assert 0 < result["best_step"] <= 20
    assert result["passes"] == 2
    table = f"{name}.embedding.table"
    was, found = (read(run, runs).described.tensors[table] for run in (pretrained, result["run"]))
    assert torch.equal(found[: len(was)], was) == (parts != "all")
