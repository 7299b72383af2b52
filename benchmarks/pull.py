"""Seconds in which `scaling pull` brings back 1,000 runs of 2,000 rows from a W&B server on this machine.

python benchmarks/pull.py [--runs 1000] [--rows 2000] [--json]

The server is that of the tests, in a process beside; a row is what our runs log. Then the same command again, which
finds everything known; of both, the whole command is timed, the interpreter's start included.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.wandb_server.server import serving
from tests.wandb_server.world import PAGE, Run, World

GOAL = 60.0  # seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        fill(server.world, arguments.runs, arguments.rows)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
        environment = {**kept, **server.environment(), "HOME": folder}
        words = [sys.executable, "-m", "scaling", "pull", "me/proj", "--to", "pulled", "--json"]
        found = []
        for _ in range(2):
            started = time.perf_counter()
            told = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout
            found.append({**json.loads(told), "seconds": time.perf_counter() - started})
    first, again = found
    assert first["complete"]
    assert (first["fetched"], again["fetched"]) == (arguments.runs, 0)
    if arguments.json:
        print(json.dumps({"seconds": first["seconds"], "again": again["seconds"], "goal": GOAL}))
        return
    print(f"{arguments.runs:,} runs of {arguments.rows:,} rows: {first['seconds']:.1f} s (goal {GOAL:.0f} s)")
    print(f"the same again, all known: {again['seconds']:.1f} s")


def fill(world: World, runs: int, rows: int) -> None:
    """Runs as our own would be there: a row a step, every hundredth an evaluation's.

    All have the same rows, and the server's answers are made beforehand: it shares this machine with the command, which
    a real one would not.
    """
    logged = Run("proj", "w", 0).rows
    for row in range(rows):
        shared = {"_step": row, "_timestamp": 1.5 * row, "_runtime": 1.5 * row, "trainer/global_step": row + 1}
        axes = {"tokens": 64 * row, "flops": 2e5 * row}
        loss = 3 + 1 / (row + 1)
        training = {"loss": loss, "gradient_norm": loss / 9, "learning_rate": loss / 999, "tokens_per_second": 1e5}
        kind, values = ("evaluate", {"loss": loss}) if row % 100 == 99 else ("train", training)
        logged[row] = {**shared, **axes, **{f"{kind}/{key}": value for key, value in values.items()}}
    texts = [json.dumps(row) for row in logged.values()]
    keys = Run("proj", "w", 0, rows=logged).keys()
    for number in range(runs):
        name = f"w{number:07d}"
        one = world.runs[name] = Run("proj", name, number, state="finished", rows=logged)
        one.page = lambda first, end, samples: texts[first:end][: min(samples, PAGE)]  # type: ignore[method-assign]
        one.keys = lambda: keys  # type: ignore[method-assign]
        point = {"N": 1000 + number, "N_total": 2000 + number, "D": 64 * rows, "C": 4e8, "S": rows, "seed": number}
        one.config = {"run": {"value": f"{number:016x}"}, "point": {"value": point}}
        one.summary = {"outcome": "finished", "loss": 3 + number / runs, "step": rows, "_step": rows - 1}


if __name__ == "__main__":
    main()
