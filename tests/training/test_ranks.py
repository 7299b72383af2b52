"""Real ranks: what one rank computes, from the same samples, and no rank that outlives another."""

import multiprocessing
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from safetensors.torch import load_file

import scaling
from scaling.base.signals import Stopped
from scaling.ledger import Ledger
from scaling.training import ranks
from tests.command_line import refused
from tests.training.conftest import LONG, STILL, ends, left, losses, train, words

slow = pytest.mark.slow

# What a run on two ranks may differ in from one: three batches of an evaluation, of which they take two each; losses
# that blocks add; tied blocks; ranks without rows, or with fewer micro batches than the other.
FEW = {"data": "{kind: SyntheticPairs, pairs: 61, validation: 24}", "objective": "Sequence", "data.symbols": "absent"}
FEW |= {"data.validation": "absent", "size.length": 32, "train.batch": 3, "trainer.max_steps": 16}
SWITCH = "{kind: Switch, activation: ReLU, experts: 2, capacity: 0.8}"
ROUTED = {**FEW, "train.micro_batch": 1, "model.block.channel": SWITCH, "optimizer": "{kind: AdamW, lr: 3e-3}"}
BLOCKS = {"objective": "SpanCorruption", "size.layers": 2, "model.encoder.block.channel": SWITCH, **LONG}
TIED = {"optimizer.kind": "Muon", "size.layers": 2, "model.tie": "[decoder, head]"}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "added losses": ("fsdp", "encoder_decoder", {"optimizer": "AdamW", **BLOCKS}),
    "no rows": ("ddp", "encoder_decoder", ROUTED),
    "Muon": ("fsdp", "decoder", {**TIED, "evaluate.precision": "bf16-true", "evaluate.points": 6}),
    "a frozen part": ("fsdp", "decoder", {"start.run": "BASE", "train.parts": "{last: 1}"}),
    "LoRA": ("ddp", "decoder", {"start.run": "BASE", "tuning": "{kind: LoRA, rank: 2, targets: [all]}"}),
}
FAST = ("no rows", "added losses")


def last(runs: Path, run: str) -> dict[str, torch.Tensor]:
    """The tensors of a run's last checkpoint."""
    files = max((Ledger.open(runs).folder(run) / "checkpoints").glob("[0-9]*")).glob("*.safetensors")
    return {f"{path.stem}/{name}": one for path in files for name, one in load_file(path).items()}


@pytest.mark.parametrize("case", [pytest.param(one, marks=() if one in FAST else slow) for one in CASES])
def test_two_ranks_learn_as_one(case, base, tmp_path):
    strategy, name, changes = CASES[case]
    changes = {**STILL, **{key: str(value).replace("BASE", base[1]) for key, value in changes.items()}}
    for folder in ("one", "two"):
        shutil.copytree(base[0], tmp_path / folder)
    result = train(words(tmp_path / "one", name, **changes))
    two = {"trainer.devices": 2, "trainer.strategy": strategy}
    assert train(words(tmp_path / "two", name, **changes, **two))["run"] == result["run"]
    one, both = (left(tmp_path / folder, result["run"]) for folder in ("one", "two"))
    near = 1e-2 if case == "Muon" else 1e-4  # Muon makes its steps orthogonal in bfloat16
    assert both.losses == pytest.approx(one.losses, rel=near)
    assert both.result["loss"] == pytest.approx(one.result["loss"], rel=near)
    assert both.result["targets"] == one.result["targets"]
    found, wanted = (last(tmp_path / folder, result["run"]) for folder in ("two", "one"))
    assert found.keys() == wanted.keys()
    if near == 1e-4:
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-5)


RAISE = 'raise ValueError("the first trouble")'
# The ranks that go wrong, at which call of a model, how, and what the command reports.
FAULTS: list[Any] = [("1", 10, RAISE, "rank 1 of 2.*ValueError: the first trouble")]
MORE = [
    ("0", 1, "os.kill(os.getpid(), 9)", "rank 0 of 2: its process was killed by SIGKILL"),
    ("1", 4, "while 1: 1", "rank 0 of 2:.*[Tt]im"),  # torch's timeout, 20 seconds here
    ("0", 4, "os.kill(os.getpid(), signal.SIGSTOP)", "rank 1 of 2:.*[Tt]im"),
    ("1", 4, "os._exit(0)", "rank [01] of 2: "),
]
SOONER = """
import datetime
from scaling.training import ranks
ranks.TIMEOUT = datetime.timedelta(seconds=20)
class Unused:
    slot = "optimizer"
"""


@pytest.mark.parametrize(("rank", "call", "fault", "message"), [*FAULTS, *(pytest.param(*m, marks=slow) for m in MORE)])
def test_a_rank_that_goes_wrong_ends_all_and_is_reported(rank, call, fault, message, tmp_path, sabotaged, monkeypatch):
    """The same command then ends as the run that nothing happened to, to the bit, dropout included."""
    monkeypatch.setattr(ranks, "TIMEOUT", ranks.TIMEOUT)
    two = {"trainer.devices": 2, "evaluate.points": 1, **LONG}
    (tmp_path / "sooner.py").write_text(SOONER)
    scaling.extend(tmp_path / "sooner.py")
    with pytest.raises(Exception, match=re.compile(message, re.DOTALL)):
        train(sabotaged(fault, call, rank, **two))
    assert multiprocessing.active_children() == []
    if fault != RAISE or call != 10:
        return
    train(sabotaged(**two))
    whole = sabotaged(runs=tmp_path / "whole", **two)
    result = train(whole)
    assert left(tmp_path / "runs") == left(tmp_path / "whole")
    # The weights at the end, evaluated in one process on all batches, give the result.
    folder = max(tmp_path.glob("whole/store/*/checkpoints/[0-9]*"))
    here = lightning.Trainer(logger=False, enable_progress_bar=False, accelerator="cpu")
    module, data = scaling.DecoderModule.load_from_checkpoint(folder), scaling.data_module(*whole)
    (alone,) = here.validate(module, data, verbose=False)
    assert result["targets"] == alone["evaluate/targets"] == 140_000 // 17 * 16
    assert result["loss"] == pytest.approx(alone["evaluate/loss"], rel=1e-6)
    assert result["accuracy"] == pytest.approx(alone["evaluate/accuracy"], rel=1e-6)


@slow
@pytest.mark.parametrize("then", ["fsdp", "one"])
def test_others_take_up_a_sharded_checkpoint(then, tmp_path, sabotaged):
    changes = {"train.checkpoint_every": 3, "evaluate.points": 1, **STILL}
    shards = {"trainer.devices": 2, "trainer.strategy": "fsdp"}
    run = train(sabotaged(runs=tmp_path / "whole", **changes))["run"]
    with pytest.raises(ranks.RankFailed, match="the first trouble"):
        train(sabotaged(RAISE, 8, "1", **changes, **shards))
    how = {} if then == "one" else shards
    assert train(sabotaged(**changes, **how))["circumstances"]["from_step"] == 6
    assert losses(tmp_path / "runs") == pytest.approx(losses(tmp_path / "whole"), rel=1e-5)
    torch.testing.assert_close(last(tmp_path / "runs", run), last(tmp_path / "whole", run), rtol=1e-4, atol=1e-6)


def test_a_signal_is_agreed_on(tmp_path):
    """While two ranks train; at other moments: tests/test_signals.py."""
    line = words(tmp_path / "runs", trainer__devices=2, trainer__max_steps=100000, train__checkpoint_every=100000)

    def stop() -> None:
        while not any("loss" in path.read_text() for path in tmp_path.glob("runs/store/*/log.jsonl")):
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(Stopped) as stopped:
        train(line)
    assert stopped.value.code == 143
    assert ends(tmp_path / "runs") == ["stopped"]
    assert list(tmp_path.glob("runs/store/*/checkpoints/*/manifest.json"))


# The variables that torchrun and srun give each process.
PLACE = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "PORT", "WORLD_SIZE": "2"}
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"}
STEP |= {"SLURM_NODEID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "PORT"}
STARTS = {
    "torchrun": [{**PLACE, "LOCAL_WORLD_SIZE": "2", "RANK": rank, "LOCAL_RANK": rank} for rank in "01"],
    "two machines": [{**PLACE, "LOCAL_WORLD_SIZE": "1", "RANK": rank, "LOCAL_RANK": "0"} for rank in "01"],
    "srun": [{**STEP, "SLURM_PROCID": rank, "SLURM_LOCALID": rank} for rank in "01"],
}


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("call", [0, pytest.param(4, marks=slow)])
def test_ranks_that_others_start(start, call, tmp_path, fork, sabotaged, capfd):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    line = sabotaged(RAISE, call or 10**6, "1", **STILL, **{"evaluate.points": 1})
    places = [{key: value.replace("PORT", port) for key, value in each.items()} for each in STARTS[start]]
    codes = [one.wait() for one in [fork(line, lambda each=each: os.environ.update(each)) for each in places]]
    assert [bool(code) for code in codes] == [call > 0] * 2
    if call:
        assert "the first trouble" in capfd.readouterr().err
        return
    assert ends(tmp_path / "runs") == ["finished"]
    train(sabotaged(runs=tmp_path / "here", **STILL, **{"evaluate.points": 1}))
    assert losses(tmp_path / "runs") == pytest.approx(losses(tmp_path / "here"), rel=1e-4)


def test_ranks_that_nobody_counts_by_machine_are_refused_in_one_line(tmp_path, monkeypatch, capsys):
    for key, value in {**STEP, "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("SLURM_NTASKS_PER_NODE")
    line = refused(capsys, "train", *words(tmp_path / "runs"))
    assert line.startswith("scaling: there are 2 ranks in all, and an unstated number on this machine")


@slow
def test_torchrun_itself(tmp_path):
    line = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "scaling", "train"]
    done = subprocess.run([sys.executable, *line, *words(tmp_path / "runs", **STILL)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("finished, held-out loss") == 1
    train(words(tmp_path / "here", **STILL))
    assert losses(tmp_path / "runs") == pytest.approx(losses(tmp_path / "here"), rel=1e-4)
