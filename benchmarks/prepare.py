"""Preparing text: its speed with 1 and 2 processes, its memory, and what comes out of it when it is killed.

    python benchmarks/prepare.py                                1 GB of text; kills on 64 MB
    python benchmarks/prepare.py --megabytes 100 --kills 3

The text is the Python sources of this machine, each copy with a number of its own. Each process has one thread for the
tokenizer. Speed is told on the wall and by CPU seconds (user and system, of all processes), which other work on the
machine leaves alone; memory is the most that any one process ever held (VmHWM). Kills are SIGKILL to all processes at
random moments; the same command goes on each time, and the fingerprint at the end is that of an undisturbed run.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.corpus import Python

COMMAND = """
import sys
from scaling.data import rows
rows.PART = int(sys.argv.pop(1))
from scaling.verbs.command_line import main
if __name__ == "__main__":
    sys.exit(main())
"""
LOOK = 0.2  # seconds between looks at the processes
TICKS = os.sysconf("SC_CLK_TCK")


class Cost(NamedTuple):
    wall: float
    cpu: float
    peak: float  # bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000, help="text for speed and memory (%(default)s)")
    parser.add_argument("--part", type=int, default=64, help="megabytes in a part (%(default)s)")
    parser.add_argument("--killed", type=int, default=64, help="megabytes of text for the kills (%(default)s)")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--vocabulary", type=int, default=8192)
    arguments = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "command.py").write_text(COMMAND)
        texts = [document.text for document in Python(limit=32_000_000).snapshot(root).documents()]
        line = {"kind": "ByteBPE", "vocabulary": arguments.vocabulary, "sample": 8_000_000}
        Codec(build("tokenizer", line).fit(iter(texts[: len(texts) // 4]))).save(root / "tokenizer.json")
        corpus = write(root / "text.txt", texts, arguments.megabytes)
        first: Cost | None = None
        for workers in (1, 2):
            cost = measured(start(root, corpus, f"workers{workers}", workers, arguments.part))
            first = first or cost
            rate = arguments.megabytes / cost.wall, arguments.megabytes / cost.cpu
            print(
                f"{workers} worker{'s' * (workers > 1)}: {cost.wall:.0f} s, {cost.cpu:.0f} CPU s, {rate[0]:.2f} MB/s, "
                f"{rate[1]:.2f} MB a CPU second, {cost.peak / 1e6:.0f} MB in the largest process, "
                f"{first.wall / cost.wall:.2f} times as fast as 1; {fingerprint(root, f'workers{workers}')}",
                flush=True,
            )
        corpus.unlink()
        killed(root, write(root / "killed.txt", texts, arguments.killed), arguments.kills)


def write(file: Path, texts: list[str], megabytes: int) -> Path:
    written = copy = 0
    with file.open("w") as content:
        while written < megabytes * 1_000_000:
            for text in texts:
                if written < megabytes * 1_000_000:
                    written += content.write(f"# {copy}\n{text}\n\n")
            copy += 1
    return file


def start(root: Path, corpus: Path, name: str, workers: int, part: int) -> subprocess.Popen[bytes]:
    words = ["data", "prepare", str(corpus), f"data.tokenizer={{kind: File, path: {root / 'tokenizer.json'}}}"]
    command = [sys.executable, str(root / "command.py"), str(part * 1_000_000), *words, "--workers", str(workers)]
    environment = {**os.environ, "SCALING_DATA": str(root / name), "RAYON_NUM_THREADS": "1"}
    with (root / "log").open("ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def processes(session: int) -> Iterator[tuple[int, list[str]]]:
    """Each process of a session, with the fields of its state behind its name."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                yield int(folder.name), fields


def measured(process: subprocess.Popen[bytes]) -> Cost:
    started, cpu, peak = time.monotonic(), {}, 0
    while process.poll() is None:
        for number, fields in processes(process.pid):
            cpu[number] = (int(fields[11]) + int(fields[12])) / TICKS
            with suppress(OSError, StopIteration):
                lines = Path(f"/proc/{number}/status").read_text().splitlines()
                peak = max(peak, next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024)
        time.sleep(LOOK)
    assert process.returncode == 0, process.returncode
    return Cost(time.monotonic() - started, sum(cpu.values()), peak)


def killed(root: Path, corpus: Path, kills: int) -> None:
    span = measured(start(root, corpus, "undisturbed", 2, 1)).wall
    draw, done = random.Random(0), 0
    while done < kills:
        process, moment = start(root, corpus, "killed", 2, 1), draw.uniform(span / 3, span)
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
        if process.poll() is not None:  # it was done before: this is no kill, and the work begins anew
            shutil.rmtree(root / "killed")
            continue
        for number, _ in list(processes(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        process.wait()
        done += 1
        parts = len(list((root / "killed").glob("preparing/*/parts/*.json")))
        print(f"  killed after {moment:.0f} s, {parts} parts done", flush=True)
    assert start(root, corpus, "killed", 2, 1).wait() == 0
    names = [fingerprint(root, name) for name in ("undisturbed", "killed")]
    print(f"killed {kills} times (undisturbed it takes {span:.0f} s): {names[1]}, undisturbed {names[0]}")
    assert names[0] == names[1]


def fingerprint(root: Path, name: str) -> str:
    (manifest,) = (root / name).glob("*/manifest.json")
    return manifest.parent.name


if __name__ == "__main__":
    main()
