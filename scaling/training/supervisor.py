"""Supervisor: starts the ranks of a run, watches them, and lets none outlive another's failure.

A rank that raises ends its process; one that hangs falls silent, and soon all do, since they wait for one another. In
both cases every rank is gone within a minute, and the first traceback is reported.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from scaling import parent
from scaling.config import Config
from scaling.errors import ScalingError
from scaling.schema import extensions
from scaling.training import signals
from scaling.training.ranks import PULSE

BEGIN = 600.0  # seconds until the first step: imports, compilation
SILENCE = 45.0  # seconds without a sign from any rank
GRACE = 5.0  # seconds in which the others may end by themselves, and write down why
LOOK = 0.1


class RankFailed(Exception):
    """A rank raised, hung or was killed; the message is its traceback."""


def supervise(
    config: Config,
    ranks: int,
    trunk: int | None = None,
    again: bool = False,
    silence: float = SILENCE,
    threads: int = 1,
) -> None:
    """Train a run on `ranks` processes of this machine, to its end; a finished one again with `again`. Each has as many
    threads as `threads`, unless OMP_NUM_THREADS sets the number.

    A signal that ends a command is handed on to every rank: they agree, save and leave. Then it ends this process too.
    """
    with signals.listening(), signals.deferred(), tempfile.TemporaryDirectory(prefix="scaling-") as name:
        folder = Path(name)
        config.save(folder / "config.yaml")
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        words = [str(folder / "config.yaml"), "again" if again else "" if trunk is None else str(trunk)]
        signals.begin_run()
        processes: list[subprocess.Popen[bytes]] = []
        hung = True
        try:
            for started in _started(words, ranks, folder, writer, threads):
                processes.append(started)
            os.close(writer)
            hung = _watched(processes, reader, silence)
        finally:
            _ended(processes, 0.0 if hung else GRACE)
            os.close(reader)
        _judge(processes, folder, hung)


def _started(
    words: Sequence[str], ranks: int, folder: Path, writer: int, threads: int
) -> Iterator[subprocess.Popen[bytes]]:
    shared = {
        **parent.named(),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "TORCHELASTIC_RUN_ID": folder.name,  # by which Lightning knows that the ranks are started already
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(threads)),
        PULSE: str(writer),
    }
    config, how = words
    for rank in range(ranks):
        own = {**os.environ, **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        yield subprocess.Popen(
            [sys.executable, "-m", "scaling.training.rank", config, str(_failure(folder, rank)), how, *extensions()],
            env=own,
            pass_fds=(writer,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=None if rank == 0 else subprocess.DEVNULL,
            start_new_session=True,  # the terminal's signals reach the supervisor alone, which hands them on
        )


def _watched(processes: Sequence[subprocess.Popen[bytes]], reader: int, silence: float) -> bool:
    """Wait until every rank has ended well, one has failed, or all have fallen silent; whether it was the last."""
    last, patience, handed = time.monotonic(), BEGIN, 0
    while True:
        # A rank that does not listen yet would die of the wish to prune it, and leave no result.
        number = signals.received() or (signals.PRUNE if signals.pruned() and patience != BEGIN else 0)
        if number != handed:
            handed = number
            _hand_on(number, processes)
            if number == signals.received() and patience == BEGIN:
                last, patience = time.monotonic(), GRACE  # no step is done yet, so there is nothing to save
        if select.select([reader], [], [], LOOK)[0] and os.read(reader, 65536):
            last, patience = time.monotonic(), silence
        codes = [process.poll() for process in processes]
        if all(code is not None for code in codes) or any(_failed(code, handed) for code in codes):
            return False
        if time.monotonic() - last > patience:
            return True
        if any(code is not None for code in codes):
            time.sleep(LOOK)  # a pipe whose writers have gone is always ready


def _hand_on(number: int, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.poll() is None:
            process.send_signal(number)


def _ended(processes: Sequence[subprocess.Popen[bytes]], grace: float) -> None:
    """Let the ranks that are left end by themselves for a moment; then kill them."""
    until = time.monotonic() + grace
    for process in processes:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _judge(processes: Sequence[subprocess.Popen[bytes]], folder: Path, hung: bool) -> None:
    """Raise what the ranks ended by, if they did not end well."""
    codes = [process.returncode for process in processes]
    if signals.received():
        signals.stop(signals.received())
    if hung:
        raise RankFailed("no rank gave a sign of life any more; all were killed")
    if not any(map(_failed, codes)):
        stopped = next((code for code in codes if code), 0)
        if stopped:
            signals.stop(stopped - 128)
        return
    failures = [
        (path.stat().st_mtime_ns, path) for rank in range(len(codes)) if (path := _failure(folder, rank)).exists()
    ]
    if not failures:
        rank = next(rank for rank, code in enumerate(codes) if _failed(code))
        raise RankFailed(f"rank {rank} of {len(codes)} ended with code {codes[rank]}")
    first = min(failures)[1]
    rank = int(first.stem)
    text = first.read_text()
    if not text.startswith("Traceback"):
        raise ScalingError(text, code=codes[rank])
    left = [str(rank) for rank, code in enumerate(codes) if code == 0]
    early = f" (rank {' and '.join(left)} had already ended)" if left else ""
    raise RankFailed(f"rank {rank} of {len(codes)}{early}:\n{text}")


def _failed(code: int | None, handed: int = 0) -> bool:
    """Whether a rank ended badly. One that a signal was handed on to may have died of it before it listened."""
    return code not in (None, 0, -handed) and code - 128 not in signals.ENDING


def _failure(folder: Path, rank: int) -> Path:
    return folder / f"{rank}.txt"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
