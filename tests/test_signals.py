"""SIGTERM, SIGINT and SIGUSR1 end every command within seconds, with 143, 130 and 138, at whatever moment they come.

Moments of a run, from which it goes on to the bit: tests/training/test_resume.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scaling.base import signals
from scaling.base.signals import Stopped
from tests.studies.test_unfinished import write
from tests.training.conftest import words


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


def listens(process: int) -> bool:
    """Whether a command has taken its signals, for which a busy machine needs seconds."""
    caught = Path(f"/proc/{process}/status").read_text().partition("SigCgt:")[2].split()[0]
    return bool(int(caught, 16) >> (signal.SIGUSR1 - 1) & 1)


def ended(processes: set[int], seconds: float) -> bool:
    """Whether the processes end within so many seconds."""
    end = time.monotonic() + seconds
    while any(map(is_alive, processes)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(is_alive, processes))


CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}
SECONDS = 60.0  # on a busy machine; mostly it is one


def test_a_signal_raises_and_is_kept_for_the_end_of_a_deferred_block():
    reached = []

    def work() -> None:
        with signals.listening():
            with signals.deferred():
                os.kill(os.getpid(), signal.SIGUSR1)
                os.kill(os.getpid(), signal.SIGTERM)  # the first counts
                reached.append(signals.process.received)
            reached.append("after")

    with pytest.raises(Stopped, match="stopped by SIGUSR1") as stopped:
        work()
    assert reached == [signal.SIGUSR1]
    assert stopped.value.code == 138
    assert signals.process.received == 0
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def test_what_a_signal_turned_into_on_its_way_is_still_the_signal():
    def work() -> None:
        with signals.listening():
            try:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(1)
            except Stopped:
                raise ImportError("initialization failed") from None

    with pytest.raises(Stopped):
        work()


@pytest.mark.parametrize(
    "swallow",
    [
        "try:\n    time.sleep(60)\nexcept BaseException:\n    time.sleep(60)",
        "class A:\n    def __del__(self):\n        time.sleep(60)\ndel A\nA = None; B = type('B', (), "
        "{'__del__': lambda self: time.sleep(60)}); b = B(); del b\ntime.sleep(60)",
    ],
    ids=["a library that catches all", "a destructor"],
)
def test_a_signal_that_is_swallowed_ends_the_process_all_the_same(swallow):
    code = (
        "import time\nfrom scaling.base import signals\n"
        "with signals.listening(to_the_end=True):\n    print('ready', flush=True)\n"
        + "\n".join(f"    {line}" for line in swallow.splitlines())
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err.splitlines()[-1]) == (143, "scaling: stopped by SIGTERM")


def test_a_signal_within_an_import_ends_the_process_without_an_exception(tmp_path):
    """An exception within torch's import aborts the process (SIGABRT, "terminate called ...")."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGTERM)\n    import time; time.sleep(60)\n"
        "except BaseException:\n    os.abort()\n"
    )
    code = "from scaling.base import signals\nwith signals.listening(to_the_end=True):\n    import slow"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=SECONDS, env=environment, check=False
    )
    assert (ended.returncode, ended.stderr) == (143, "scaling: stopped by SIGTERM\n")


def command(verb: str, folder: Path) -> list[str]:
    runs, long = f"runs={folder / 'runs'}", "trainer.max_steps=3000"  # none is done before the signal comes
    if verb == "study":
        return ["study", str(write(folder, grid={"seed": list(range(40))})), runs, long, "--workers", "2"]
    if verb == "sweep":
        from tests.sweeps.conftest import write as written

        path = written(folder / "small.yaml", parameters={"seed": {"values": list(range(40))}})
        return ["sweep", str(path), "--local", "--workers", "2", runs, long]
    changes = {"trainer__devices": 2, "model__block__mixer__dropout": 0} if verb == "ranks" else {}
    return ["train", *words(folder / "runs", trainer__max_steps=100_000, train__checkpoint_every=100_000, **changes)]


# Seconds after the command has taken its signals: imports, planning, the start of workers and ranks, training.
DELAYS = (1.0, 3.5, 7.0, 12.0)
FEW = {("train", 1.0), ("study", 7.0)}  # of ranks: tests/training/test_ranks.py


@pytest.mark.parametrize(
    ("verb", "delay", "number"),
    [
        pytest.param(verb, delay, [*CODES][(i + j) % 3], marks=[] if (verb, delay) in FEW else pytest.mark.slow)
        for i, verb in enumerate(("train", "ranks", "study", "sweep"))
        for j, delay in enumerate(DELAYS)
    ],
)
def test_a_signal_ends_a_command_at_any_moment(verb, delay, number, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "scaling", *command(verb, tmp_path)],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        while process.poll() is None and not listens(process.pid):
            time.sleep(0.02)
        time.sleep(delay)
        assert process.poll() is None, process.communicate()
        family = children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    assert process.returncode == CODES[number], err
    assert "Traceback" not in err
    assert f"scaling: stopped by {number.name}" in err
    assert ended(family, 4.0)
    for log in tmp_path.glob("runs/store/*/log.jsonl"):
        if verb in ("train", "ranks") and b'"loss"' in log.read_bytes():
            assert b'"stopped"' in log.read_bytes()
            assert list(log.parent.glob("checkpoints/*/manifest.json"))


@pytest.mark.parametrize(("verb", "devices"), [("ranks", 2), pytest.param("study", 2, marks=pytest.mark.slow)])
def test_no_training_outlives_a_command_that_is_killed(verb, devices, tmp_path):
    """Its ranks, its workers, and the ranks of those."""
    words = [*command(verb, tmp_path), f"trainer.devices={devices}", "train.checkpoint_every=100000"]
    process = subprocess.Popen(
        [sys.executable, "-m", "scaling", *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while not any(b'"loss"' in path.read_bytes() for path in tmp_path.glob("runs/store/*/log.jsonl")):
            assert process.poll() is None
            time.sleep(0.05)
        family = children(process.pid)
        assert len(family) > devices
    finally:
        process.kill()
        process.wait()
    assert ended(family, 4.0)
