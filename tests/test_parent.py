"""Whatever is started to work for a process ends with it, killed as it may be: workers, ranks, and their like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from scaling import parent

SOON = 4.0  # seconds

CHILD = """
import time
from scaling import parent
parent.follow()
print("up", flush=True)
time.sleep(60)
"""
PARENT = """
import os, signal, subprocess, sys, time
from scaling import parent
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup make test` ignores it
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, **parent.named()}, start_new_session=True)
time.sleep(float(sys.argv[2]))
"""


def children(process: int) -> set[int]:
    """A process's descendants, the command of each still running."""
    own = Path(f"/proc/{process}/task").glob("*/children")
    direct = {int(word) for path in own for word in path.read_text().split()}
    return direct.union(*(children(one) for one in direct))


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def until(true: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_process_ends_with_the_one_it_works_for(number: int):
    words = [sys.executable, "-c", PARENT, CHILD, "60"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        (child,) = children(process.pid)
        process.send_signal(number)
        process.wait()
        until(lambda: not is_alive(child), SOON)


def test_a_process_that_comes_up_too_late_ends_at_once():
    late = f"import time; time.sleep(0.5){CHILD}"
    words = [sys.executable, "-c", PARENT, late, "0"]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=20)  # to the child's end too
    assert done.stdout == ""


def test_nothing_ends_with_a_parent_that_it_was_not_started_for():
    code = "from scaling import parent; import threading; parent.follow(); assert threading.active_count() == 1"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_children_are_not_told_of_their_grandparent():
    environment = {**os.environ, **parent.named()}
    code = f"import os; from scaling import parent; parent.follow(); assert {parent.NAME!r} not in os.environ"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def started(words: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    """A command that has begun to train."""
    command = [sys.executable, "-m", "scaling", *words, "log.wandb=disabled"]
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, cwd=folder, stdout=silent, stderr=silent, start_new_session=True)
    until(lambda: any(path.stat().st_size > 2000 for path in folder.glob("runs/store/*/log.jsonl")), 90)
    return process


TRAIN = ("size=tiny", "data=synthetic", "schedule.warmup=0", "log.every=1")
STUDY = """
question: Do workers end with their study?
base: decoder
set:
  size: tiny
  data: synthetic
  schedule.warmup: 0
  log.every: 1
  train: {batch: 4}
  trainer: {max_steps: 1000000, devices: DEVICES}
grid: {seed: [0, 1]}
"""


@pytest.mark.parametrize(
    "kind", ["ranks", pytest.param("workers", marks=pytest.mark.slow), pytest.param("both", marks=pytest.mark.slow)]
)
def test_no_training_outlives_a_command_that_is_killed(kind: str, tmp_path: Path):
    (tmp_path / "study.yaml").write_text(STUDY.replace("DEVICES", "2" if kind == "both" else "1"))
    command = {
        "ranks": ("train", "decoder", *TRAIN, "train.batch=4", "trainer.max_steps=1000000", "trainer.devices=2"),
        "workers": ("study", "study.yaml", "--workers", "2"),
        "both": ("study", "study.yaml", "--workers", "1"),
    }[kind]
    process = started(command, tmp_path)
    family = children(process.pid)
    assert len(family) >= 2
    process.kill()
    process.wait()
    until(lambda: not any(map(is_alive, family)), SOON)
