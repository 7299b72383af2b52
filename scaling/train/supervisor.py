"""Supervisor: starts the ranks of a run, watches them, and lets none outlive another's failure.

A rank that raises ends its process; one that hangs falls silent, and soon all do, since they wait for one another. In
both cases every rank is gone within a minute, and the first traceback is told.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from scaling import parent
from scaling.config import Config
from scaling.errors import ScalingError
from scaling.train.ranks import PULSE
from scaling.train.signals import HEARD, Stopped

BEGIN = 600.0  # seconds until the first step: imports, compilation
SILENCE = 45.0  # seconds without a sign from any rank
GRACE = 5.0  # seconds in which the others may end by themselves, and write down why
LOOK = 0.1


class RankFailed(Exception):
    """A rank raised, hung or was killed; the message is its traceback."""


def supervise(config: Config, ranks: int, trunk: int | None = None, silence: float = SILENCE) -> None:
    """Train a run on `ranks` processes of this machine, to its end."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as name, _forwarded() as heard:
        folder = Path(name)
        config.save(folder / "config.yaml")
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        words = [str(folder / "config.yaml"), *([] if trunk is None else [str(trunk)])]
        processes = _started(words, ranks, folder, writer, config.extend)
        os.close(writer)
        heard.processes = processes
        try:
            hung = _watched(processes, reader, silence)
        finally:
            _ended(processes)
            os.close(reader)
        _judge(processes, folder, hung)


def _started(
    words: Sequence[str], ranks: int, folder: Path, writer: int, extend: str | None
) -> list[subprocess.Popen[bytes]]:
    shared = {
        **parent.named(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": folder.name,  # by which Lightning knows that the ranks are started already
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks))),
        PULSE: str(writer),
    }
    processes = []
    config, *trunk = words
    for rank in range(ranks):
        own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "scaling.train.rank", config, str(_failure(folder, rank)), extend or "", *trunk],
                env=own,
                pass_fds=(writer,),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if rank == 0 else subprocess.DEVNULL,
                start_new_session=True,  # the terminal's signals reach the supervisor alone, which hands them on
            )
        )
    return processes


def _watched(processes: Sequence[subprocess.Popen[bytes]], reader: int, silence: float) -> bool:
    """Wait until every rank has ended well, one has failed, or all have fallen silent; whether it was the last."""
    last, patience = time.monotonic(), BEGIN
    while True:
        if select.select([reader], [], [], LOOK)[0] and os.read(reader, 65536):
            last, patience = time.monotonic(), silence
        codes = [process.poll() for process in processes]
        if all(code is not None for code in codes) or any(_failed(code) for code in codes):
            return False
        if time.monotonic() - last > patience:
            return True
        if any(code is not None for code in codes):
            time.sleep(LOOK)  # a pipe whose writers have gone is always ready


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let the ranks that are left end by themselves for a moment; then kill them."""
    until = time.monotonic() + GRACE
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _judge(processes: Sequence[subprocess.Popen[bytes]], folder: Path, hung: bool) -> None:
    """Raise what the ranks ended by, if they did not end well."""
    codes = [process.returncode for process in processes]
    if hung:
        raise RankFailed("no rank gave a sign of life any more; all were killed")
    if not any(_failed(code) for code in codes):
        stopped = next((code for code in codes if code), 0)
        if stopped:
            raise Stopped(stopped - 128, None)
        return
    told = [(path.stat().st_mtime_ns, path) for rank in range(len(codes)) if (path := _failure(folder, rank)).exists()]
    if not told:
        rank = next(rank for rank, code in enumerate(codes) if _failed(code))
        raise RankFailed(f"rank {rank} of {len(codes)} ended with code {codes[rank]}")
    first = min(told)[1]
    rank = int(first.stem)
    text = first.read_text()
    if not text.startswith("Traceback"):
        raise ScalingError(text, code=codes[rank])
    left = [str(rank) for rank, code in enumerate(codes) if code == 0]
    early = f" (rank {' and '.join(left)} had already ended)" if left else ""
    raise RankFailed(f"rank {rank} of {len(codes)}{early}:\n{text}")


def _failed(code: int | None) -> bool:
    return code is not None and code != 0 and code - 128 not in HEARD


def _failure(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.txt"


class _Heard:
    processes: Sequence[subprocess.Popen[bytes]] = ()

    def __call__(self, number: int, _: FrameType | None) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(number)


@contextmanager
def _forwarded() -> Iterator[_Heard]:
    """Hand the signals that stop a run on to every rank; they agree, save, and leave."""
    heard = _Heard()
    before = {number: signal.signal(number, heard) for number in HEARD}
    try:
        yield heard
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
