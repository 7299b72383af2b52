"""How long it takes to list many finished runs and to read their specs and results.

python benchmarks/ledger.py [--runs 10000] [--folder FOLDER]

The runs are made first, each with a resolved config and a result of usual size. Each figure is the best of three new
processes, the interpreter's start included.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scaling.config.compose import load
from scaling.ledger import Ledger

LISTING = "import sys; from scaling.verbs.command_line import main; sys.exit(main(['runs', *sys.argv[1:]]))"
POINTS = """
import sys
from scaling.ledger import Ledger
ledger = Ledger.open(sys.argv[1])
points = [(ledger.spec(run), ledger.result(run)) for run in ledger.runs()]
"""


def make(root: Path, runs: int) -> None:
    ledger = Ledger.create(root)
    config = load("decoder", ["size=tiny"]).tree
    for seed in range(runs):
        attempt = ledger.claim(ledger.add({**config, "seed": seed}))
        if attempt is not None:
            with attempt:
                attempt.log.write({"kind": "train", "step": 5, "steps": 5, "loss": 2.5})
                result = {
                    "loss": 2.2,
                    "step": 5,
                    "N": {"non_embedding": 100_000, "total": 123_456},
                    "tokens": 1_000_000,
                }
                attempt.finish("finished", {**result, "circumstances": {"tokens_per_second": 1e4}})


def seconds(command: list[str]) -> float:
    """The best of three runs of a command."""
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        best = min(best, time.perf_counter() - started)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, help="where the runs are made; a temporary folder unless given")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        root = Path(folder) / "runs"
        started = time.perf_counter()
        make(root, given.runs)
        print(f"made {given.runs} runs in {time.perf_counter() - started:.1f} s")
        print(f"list:   {seconds([sys.executable, '-c', LISTING, f'runs={root}']):.2f} s")
        print(f"points: {seconds([sys.executable, '-c', POINTS, str(root)]):.2f} s")


if __name__ == "__main__":
    main()
