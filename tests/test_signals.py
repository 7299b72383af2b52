"""SIGTERM, SIGINT and SIGUSR1 end every command within seconds, with 143, 130 and 138, at whatever moment they come.

Moments of a run, from which it goes on to the bit: tests/training/test_resume.py.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from scaling.base import signals
from scaling.base.signals import Stopped
from tests.studies.test_unfinished import until, write
from tests.sweeps.conftest import write as write_sweep
from tests.training.conftest import ends, words

slow = pytest.mark.slow
SCALING = [sys.executable, "-m", "scaling"]
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 138}
SECONDS = 60.0  # on a busy machine; mostly it is one


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


def wait_for_the_end(processes: set[int]) -> None:
    until(lambda: not any(map(is_alive, processes)), seconds=4)


def test_the_first_signal_counts_whatever_an_exception_becomes_on_its_way():
    def load() -> None:
        with signals.listening():
            try:
                os.kill(os.getpid(), signal.SIGUSR1)
            except Stopped:
                os.kill(os.getpid(), signal.SIGTERM)
                raise ImportError("initialization failed") from None

    with pytest.raises(Stopped, match="stopped by SIGUSR1"):
        load()
    assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL


def stopped(code: str, folder: Path, number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """The exit code and the standard error of a program whose group gets a signal once it has printed a line."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True, **pipes)
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=4 * SECONDS)  # what sleeps ten minutes has ended by the signal
    return process.returncode, err


def test_a_signal_ends_at_once_what_waits_in_a_library(tmp_path):
    """As a rank does that waits for one which has left; a handler of Python's would run after the wait."""
    code = "import ctypes\nfrom scaling.base import signals\n"
    code += "with signals.listening(to_the_end=True), signals.unhandled():\n    print('ready', flush=True)\n"
    code += "    ctypes.PyDLL(None).sleep(600)"  # PyDLL: no bytecode runs before it returns
    assert stopped(code, tmp_path)[0] == -signal.SIGTERM


def test_a_signal_changes_no_exit_code_of_a_command_that_is_done(tmp_path):
    """The interpreter needs a second to tidy up behind torch, and takes no signal any more."""
    code = "import os, time\nfrom scaling.base import signals\n"
    code += "class Late:\n  def __del__(self, write=os.write, sleep=time.sleep): write(1, b'ready\\n'); sleep(2)\n"
    code += "late = Late()\nwith signals.listening(to_the_end=True): pass"
    assert stopped(code, tmp_path) == (0, "")


@slow
def test_an_interrupt_at_the_terminal_leaves_the_fork_server_silent(tmp_path):
    """It gets the signal too, while it imports."""
    code = "import signal, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"  # ignored in a background
    code += "from scaling.executors.local import Local\nLocal(1)\nprint('ready', flush=True)\n"
    code += "try: time.sleep(600)\nexcept KeyboardInterrupt: pass"
    assert stopped(code, tmp_path, signal.SIGINT) == (0, "")


# What a process does when it is stopped. An exception within torch's import aborts the process (SIGABRT).
SWALLOWED = {
    "by a library that catches all": "try: time.sleep(600)\nexcept BaseException: time.sleep(600)",
    "in a destructor": "b = type('B', (), {'__del__': lambda self: time.sleep(600)})(); del b\ntime.sleep(600)",
    "in an import": "import slow",
}


@pytest.mark.parametrize("how", SWALLOWED)
def test_a_signal_that_is_swallowed_ends_the_process_all_the_same(how, tmp_path):
    (tmp_path / "slow.py").write_text("import os, time\ntry: time.sleep(600)\nexcept BaseException: os.abort()\n")
    lines = ["print('ready', flush=True)", *SWALLOWED[how].splitlines()]
    code = "import time\nfrom scaling.base import signals\nwith signals.listening(to_the_end=True):\n    "
    code, err = stopped(code + "\n    ".join(lines), tmp_path)
    assert (code, err.splitlines()[-1]) == (143, "scaling: stopped by SIGTERM")


def command(verb: str, folder: Path) -> list[str]:
    runs, long = f"runs={folder / 'runs'}", "trainer.max_steps=3000"  # none is done before the signal comes
    if verb == "study":
        return ["study", str(write(folder, grid={"seed": list(range(40))})), runs, long, "--workers", "2"]
    if verb == "sweep":
        path = write_sweep(folder / "small.yaml", parameters={"seed": {"values": list(range(40))}})
        return ["sweep", str(path), "--local", "--workers", "2", runs, long]
    changes = {"trainer__devices": 2, "model__block__mixer__dropout": 0} if verb == "ranks" else {}
    return ["train", *words(folder / "runs", trainer__max_steps=100_000, train__checkpoint_every=100_000, **changes)]


# Seconds after the command has taken its signals: imports, planning, the start of workers and ranks, training.
DELAYS = (1.0, 3.5, 9.0)
FEW = {("train", 1.0), ("study", 3.5)}  # of ranks: tests/training/test_ranks.py
MOMENTS = [
    pytest.param(verb, delay, [*CODES][(i + j) % 3], marks=[] if (verb, delay) in FEW else slow)
    for i, verb in enumerate(("train", "ranks", "study", "sweep"))
    for j, delay in enumerate(DELAYS)
]


@pytest.mark.parametrize(("verb", "delay", "number"), MOMENTS)
def test_a_signal_ends_a_command_at_any_moment(verb, delay, number, tmp_path):
    line, pipes = [*SCALING, *command(verb, tmp_path)], {"stdout": -3, "stderr": -1}
    with subprocess.Popen(line, cwd=tmp_path, text=True, **pipes) as process:  # type: ignore[call-overload]
        status = Path(f"/proc/{process.pid}/status")
        while not int(status.read_text().partition("SigCgt:")[2].split()[0], 16) >> (signal.SIGUSR1 - 1) & 1:
            time.sleep(0.02)  # it has not taken its signals yet, for which a busy machine needs seconds
        time.sleep(delay)
        assert process.poll() is None
        family = children(process.pid)
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == CODES[number], err
    assert "Traceback" not in err
    assert f"scaling: stopped by {number.name}" in err
    wait_for_the_end(family)
    for log in tmp_path.glob("runs/store/*/log.jsonl"):
        if verb in ("train", "ranks") and b'"loss"' in log.read_bytes():
            assert b'"stopped"' in log.read_bytes()
            assert list(log.parent.glob("checkpoints/*/manifest.json"))


@pytest.mark.parametrize("verb", ["ranks", pytest.param("study", marks=slow)])
def test_no_training_outlives_a_command_that_is_killed(verb, tmp_path):
    """Its ranks, its workers, and the ranks of those."""
    line = [*command(verb, tmp_path), "trainer.devices=2", "train.checkpoint_every=100000"]
    process = subprocess.Popen([*SCALING, *line], stdout=subprocess.DEVNULL)
    try:
        until(lambda: any(b'"loss"' in path.read_bytes() for path in tmp_path.glob("runs/store/*/log.jsonl")))
        family = children(process.pid)
        assert len(family) > 2
    finally:
        process.kill()
        process.wait()
    wait_for_the_end(family)


@slow
def test_training_whose_lines_cannot_be_shown_or_nobody_reads_is_finished(tmp_path):
    with open("/dev/full", "w") as full:
        command = [*SCALING, "train", *words(tmp_path / "one")]
        done = subprocess.run(command, stderr=full, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0
    assert "finished, held-out loss" in done.stdout
    reader, writer = os.pipe()
    os.close(reader)
    command = [*SCALING, "train", *words(tmp_path / "runs")]
    assert subprocess.run(command, stderr=writer, stdout=writer, timeout=300).returncode == 0
    os.close(writer)
    assert ends(tmp_path / "runs") == ["finished"]
