"""Two real ranks: the losses of one, samples in the same order, signals agreed, and no rank outliving another."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling import schema
from scaling.ledger import Ledger
from scaling.training.evaluation import Evaluation
from scaling.training.experiment import assemble
from scaling.training.module import FamilyModule
from scaling.training.ranks import RankFailed
from scaling.training.run import train
from tests.training.conftest import alive, evaluate, held_out, load, words
from tests.training.test_step import logged

STILL = {"model.block.mixer.dropout": 0}

# Ranks that go wrong at a step in the way they are told to.
SABOTEUR = """
import datetime, os, signal, time
from scaling.training import ranks
from scaling.training.module import FamilyModule

ranks.TIMEOUT = datetime.timedelta(seconds=20)

before = FamilyModule.training_step

def broken(self, batch, number):
    if number == {step} and os.environ["RANK"] in "{ranks}":
        {deed}
    return before(self, batch, number)

FamilyModule.training_step = broken

class Unused:
    slot = "optimizer"
"""


# Tokens: three batches of an evaluation, of which two ranks take two each.
LONG = {"data__validation": 140_000, "evaluate__windows": "null"}


@pytest.mark.parametrize("steps", [20, pytest.param(100, marks=pytest.mark.slow)])
def test_two_ranks_learn_as_one(steps, tmp_path, run):
    run(runs=tmp_path / "two", trainer__devices=2, trainer__max_steps=steps, **STILL, **LONG)
    run(runs=tmp_path / "one", trainer__max_steps=steps, **STILL, **LONG)
    one, both = logged(tmp_path / "one"), logged(tmp_path / "two")
    assert len(one) == len(both) == steps
    assert both[0] == pytest.approx(one[0], rel=1e-6)
    assert both[-1] == pytest.approx(one[-1], rel=1e-4)
    ledger = Ledger.open(tmp_path / "two")
    (name,) = ledger.runs()
    (attempt,) = ledger.attempts(name)
    assert attempt.end is not None
    result = ledger.result(name)
    assert result is not None
    shared_evaluation_is_one_ranks(result, ledger.folder(name) / "checkpoints" / f"{steps:012d}", tmp_path)


def shared_evaluation_is_one_ranks(result: dict[str, Any], checkpoint: Path, tmp_path: Path) -> None:
    """The same weights, evaluated here on all batches."""
    experiment = assemble(load(words(tmp_path / "unused", **STILL, **LONG)))
    assert experiment.evaluation()[1] == 3
    trained = FamilyModule.load_from_checkpoint(checkpoint).model
    batches = held_out(experiment)
    alone = evaluate(trained, batches, Evaluation(experiment.held_out))
    assert result["targets"] == alone["targets"] == 140_000 // 17 * 16
    assert result["accuracy"] == alone["accuracy"]
    assert result["loss"] == pytest.approx(alone["loss"], rel=1e-12)
    assert result["loss_by_position"] == pytest.approx(alone["loss_by_position"], rel=1e-12)


def test_the_rows_of_the_ranks_are_the_global_batch():
    batches = assemble(load(words(Path("unused")))).batches
    for step in range(5):
        whole = batches.batch(step).tokens
        parts = [batches.batch(step, rank, 2).tokens for rank in range(2)]
        assert torch.equal(torch.cat(parts), whole)


RAISE = 'raise ValueError("the first trouble")'
KILL = "os.kill(os.getpid(), signal.SIGKILL)"
SLEEP, STOP, SPIN = "time.sleep(1000)", "os.kill(os.getpid(), signal.SIGSTOP)", "while True: pass"
LEAVE = "os._exit(0)"
# Which ranks go wrong, at which step, how, and what the command reports.
FAULTS = [("1", 3, RAISE, "rank 1 of 2.*ValueError: the first trouble")]
MORE = [
    *((ranks, step, RAISE, "ValueError: the first trouble") for ranks in "01" for step in (0, 9)),
    ("01", 3, RAISE, "ValueError: the first trouble"),
    *((ranks, step, KILL, "rank [01] (of 2 )?ended with code -9") for ranks in "01" for step in (0, 3)),
    *(
        ("1", 3, deed, "rank 0 of 2 .rank 1 ended with code -9.:.*[Tt]im") for deed in (SLEEP, STOP, SPIN)
    ),  # torch's timeout, 20 seconds here
    ("0", 3, STOP, "rank 1 of 2 .rank 0 ended with code -9.:.*[Tt]im"),
    ("1", 3, LEAVE, "rank 0 of 2"),
]


@pytest.mark.parametrize(
    ("ranks", "step", "deed", "told"), [*FAULTS, *(pytest.param(*one, marks=pytest.mark.slow) for one in MORE)]
)
def test_a_rank_that_goes_wrong_ends_all_and_is_reported(ranks, step, deed, told, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "harmless.py").write_text('class Harmless:\n    slot = "optimizer"\n')
    (tmp_path / "saboteur.py").write_text(SABOTEUR.format(deed=deed, step=step, ranks=ranks))
    for name in ("harmless.py", "saboteur.py"):  # the ranks read both, this process neither
        monkeypatch.setitem(schema._extensions, str(tmp_path / name), None)
    begun = time.monotonic()
    with pytest.raises(RankFailed, match=re.compile(told, re.DOTALL)):
        train(load(words(tmp_path / "runs", trainer__devices=2, trainer__max_steps=50)))
    assert time.monotonic() - begun < 180  # of which most is the start of two processes
    assert alive(tmp_path) == []


TRAIN = ["-m", "scaling", "train"]
TORCHRUN = ["-m", "torch.distributed.run", "--nproc-per-node"]
ONE = [*TORCHRUN, "1", "--nnodes", "2", "--master-addr", "127.0.0.1", "--master-port", "PORT", "--node-rank"]
STEP = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "2"}
STEP |= {"SLURM_NODEID": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "PORT"}
# The processes that a person starts: arguments of Python, and variables.
STARTS = {
    "torchrun": [([*TORCHRUN, "2", "--master-port", "PORT", *TRAIN], {})],
    "torchrun on two machines": [([*ONE, rank, *TRAIN], {}) for rank in "01"],
    "srun": [(TRAIN, {**STEP, "SLURM_PROCID": rank, "SLURM_LOCALID": rank}) for rank in "01"],
}


@pytest.mark.parametrize(
    "start", [pytest.param(name, marks=pytest.mark.slow if "two" in name else ()) for name in STARTS]
)
@pytest.mark.parametrize("step", [None, pytest.param(3, marks=pytest.mark.slow)])
def test_ranks_that_others_start(start, step, tmp_path):
    """They train one run, or end all when one raises."""
    (tmp_path / "saboteur.py").write_text(SABOTEUR.format(deed=RAISE, step=step, ranks="1"))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    told = [*words(tmp_path / "runs", trainer__max_steps=6, **STILL), "--extend", str(tmp_path / "saboteur.py")]
    rank = 'os.environ.get("RANK") or os.environ["SLURM_PROCID"]'
    saboteur = tmp_path / "saboteur.py"
    saboteur.write_text(saboteur.read_text().replace('os.environ["RANK"]', f"({rank})"))
    started = [
        subprocess.Popen(
            [sys.executable, *(port if word == "PORT" else word for word in arguments), *told],
            env={**os.environ, **{key: port if value == "PORT" else value for key, value in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments, variables in STARTS[start]
    ]
    try:
        ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    finally:
        for process in started:
            process.kill()
    if step is not None:
        assert all(code for _, _, code in ended)
        assert "ValueError: the first trouble" in "".join(errors for _, errors, _ in ended)
        return
    assert all(code == 0 for _, _, code in ended), ended
    assert sum(out.count("finished, held-out loss") for out, _, _ in ended) == 1
    train(load(words(tmp_path / "here", trainer__max_steps=6, trainer__devices=2, **STILL)))
    assert logged(tmp_path / "runs") == logged(tmp_path / "here")


def test_a_signal_is_agreed_on(tmp_path):
    """While two ranks train; at other moments: tests/test_signals.py."""
    told = words(tmp_path / "runs", trainer__devices=2, trainer__max_steps=100000, train__checkpoint_every=100000)
    process = subprocess.Popen(
        [sys.executable, "-m", "scaling", "train", *told],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    try:
        while not any("loss" in path.read_text() for path in tmp_path.glob("runs/store/*/log.jsonl")):
            assert process.poll() is None
            time.sleep(0.05)
        assert len(alive(tmp_path)) == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 143
        assert alive(tmp_path) == []
    finally:
        process.kill()
    ledger = Ledger.open(tmp_path / "runs")
    (attempt,) = ledger.attempts(ledger.runs()[0])
    assert attempt.end is not None
    assert attempt.end["outcome"] == "stopped"
    assert list(tmp_path.glob("runs/store/*/checkpoints/*/manifest.json"))


PAIRS = {"data": "{kind: SyntheticPairs, pairs: 61, validation: 24}", "objective": "Sequence", "data.symbols": "absent"}
PAIRS |= {"data.validation": "absent", "size.length": 32, "train.batch": 3, "model.block.mixer.dropout": "absent"}
# A rank without rows, and micro batches of which one rank has fewer than the other, under what adds to the loss.
ROUTED = "{kind: Switch, activation: ReLU, experts: 2, capacity: 0.8}"
HALTED = "{kind: Universal, norm: RMSNorm, halting: ACT}"
FEWER = [
    ("encoder_decoder", "ddp", {"model.block.channel": ROUTED}),
    *(
        pytest.param(name, strategy, changes, marks=pytest.mark.slow)
        for name in ("decoder", "encoder_decoder")
        for strategy in ("ddp", "fsdp")
        for changes in ({}, {"train.micro_batch": 1, "model.block.channel": ROUTED}, {"model.stack": HALTED})
    ),
]


@pytest.mark.parametrize(("name", "strategy", "changes"), FEWER)
def test_a_rank_without_rows_learns_with_the_others(name, strategy, changes, tmp_path, run):
    """The last batch of a bucket may hold one pair, or an odd number of them."""
    told = {**PAIRS, "trainer.max_steps": 16, "evaluate.points": 3, **changes}
    if strategy == "fsdp":  # torch's Adafactor works on no shards
        told["optimizer"] = "{kind: AdamW, lr: 3e-3}"
    rows = [assemble(load(words(tmp_path, name, **told))).batches.batch(step).rows for step in range(16)]
    assert 1 in rows
    assert any(number % 2 and number > 1 for number in rows)
    run(name, runs=tmp_path / "two", **told, trainer__devices=2, trainer__strategy=strategy)
    alone = run(name, runs=tmp_path / "one", **told)
    assert logged(tmp_path / "two") == pytest.approx(logged(tmp_path / "one"), rel=1e-5)
    ledger = Ledger.open(tmp_path / "two")
    result = ledger.result(ledger.runs()[0])
    assert result is not None
    assert result["loss"] == pytest.approx(alone["loss"], rel=1e-5)
