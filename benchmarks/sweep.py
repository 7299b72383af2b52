"""A grid through `scaling sweep --local`: seconds from the command to the first claim and step, and beside each run.

python benchmarks/sweep.py [--runs 1000] [--workers 2] [--json]

The runs are of the smallest model and a dozen steps, so that what is not training shows. Their own seconds are those
that each result states; all else of the workers' time counts as overhead. A goal is for an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scaling.ledger import Ledger

WORDS = (
    *("decoder", "size=tiny", "size.width=8", "size.layers=1", "size.vocabulary=null", "size.length=16"),
    *("data=synthetic", "data.symbols=8", "data.validation=512", "trainer.max_steps=12", "train.batch=4"),
    *("evaluate.points=1", "schedule.warmup=2"),
)


@dataclass(frozen=True)
class Figure:
    what: str
    seconds: float
    goal: float


def waited(started: float, seen: Callable[[], bool], process: subprocess.Popen[bytes]) -> float:
    while not seen():
        if process.poll() not in (None, 0):
            raise SystemExit(f"the sweep ended with code {process.returncode}")
        time.sleep(0.005)
    return time.monotonic() - started


def measure(runs: int, workers: int, folder: Path) -> list[Figure]:
    sweep = {
        "program": "scaling",
        "command": ["scaling", "train", *WORDS, "${args_no_hyphens}"],
        "method": "grid",
        "metric": {"name": "evaluate/loss", "goal": "minimize"},
        "parameters": {"seed": {"min": 1, "max": runs}},
    }
    (folder / "grid.yaml").write_text(json.dumps(sweep))
    command = [sys.executable, "-m", "scaling", "sweep", "grid.yaml", "--local", "--workers", str(workers)]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    store = folder / "runs" / "store"
    claim = waited(started, lambda: next(store.glob("*/lock"), None) is not None, process)
    step = waited(started, lambda: any(b'"train"' in log.read_bytes() for log in store.glob("*/log.jsonl")), process)
    process.wait()
    passed = time.monotonic() - started - claim
    ledger = Ledger.open(folder / "runs")
    trained = sum((ledger.result(run) or {})["circumstances"]["seconds"] for run in ledger.runs())
    return [
        Figure("to the first claim", claim, 3.0),
        Figure("to the first step", step, 7.0),
        Figure("beside each run", (passed * workers - trained) / runs, 0.1),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(arguments.runs, arguments.workers, Path(folder))
    if arguments.json:
        print(json.dumps([vars(figure) for figure in figures], indent=1))
        return
    for figure in figures:
        print(f"{figure.what:<20} {figure.seconds:7.3f} s   goal {figure.goal:g}")


if __name__ == "__main__":
    main()
