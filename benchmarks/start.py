"""CPU seconds of commands before they work, and of plans and reports.

python benchmarks/start.py --turns 3

Each figure is the minimum of the turns, user and system time of one process: of `scaling train` until it prints its
first step; of `scaling fit` and `scaling report` until the solver begins; of `scaling runs`, and of a report of nine
points, whole, along a flat valley (ten small runs, trained first) and of losses that follow a law; of a plan of
10,001 runs after its imports.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.reports.conftest import make_study

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "tests" / "studies" / "small.yaml"
COMMAND = [sys.executable, "-m", "scaling"]

UNTIL = """
import os, sys, time
from scaling.laws import solver
from scaling.verbs.command_line import main

def began(*_):
    print(time.process_time(), flush=True)
    os._exit(0)

solver._quadratic = began  # the first model of the objective
sys.argv[0] = "scaling"
main()
"""
PLAN = """
import dataclasses, sys, time
from scaling.studies.plan import plan
from scaling.studies.question import read

axes = {"size": [{"width": width, "heads": 2} for width in (16, 24, 32, 48, 64)]}
axes |= {"train.tokens": [100_000 + 20_000 * index for index in range(20)], "seed": list(range(100))}
plan(read("quickstart"), [f"runs={sys.argv[1]}"])  # imports what planning needs
question = dataclasses.replace(read("quickstart"), grid=axes)
began = time.process_time()
assert len(plan(question, [f"runs={sys.argv[1]}"]).runs) == 10_001
print(time.process_time() - began)
"""


def program(text: str, *words: str) -> float:
    """What a program prints last on standard output: a number of seconds."""
    done = subprocess.run([sys.executable, "-c", text, *words], capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def whole(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([*COMMAND, *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def first_step(runs: str, seed: int) -> float:
    """CPU seconds of `scaling train` when it prints its first step."""
    words = [
        "train",
        "decoder",
        "size=tiny",
        "trainer.max_steps=1",
        "log.wandb=disabled",
        f"seed={seed}",
        f"runs={runs}",
    ]
    with subprocess.Popen([*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr is not None
        assert any(re.match(r"step +1 of 1 ", line) for line in child.stderr), "it printed no step"
        fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
        child.stderr.read()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    turns = range(parser.parse_args().turns)
    with tempfile.TemporaryDirectory() as folder:
        whole("study", str(STUDY), f"runs={folder}")
        (clear := Path(folder, "clear")).mkdir()
        make_study(clear)
        points = str(Path(folder) / "studies" / "small" / "report" / "points.csv")
        measures: dict[str, Callable[[int], float]] = {
            "scaling train, first step": lambda turn: first_step(f"{folder}/train", turn),
            "scaling runs, whole": lambda _: whole("runs", "--runs", folder),
            "scaling fit, until the solver begins": lambda _: program(UNTIL, "fit", points, "--law", "chinchilla"),
            "scaling report, until the solver begins": lambda _: program(UNTIL, "report", "small", "--runs", folder),
            "scaling inspect gpt2, whole": lambda _: whole("inspect", "gpt2"),
            "scaling report along a flat valley": lambda _: whole("report", "small", "--runs", folder),
            "scaling report of a clear law": lambda _: whole("report", "small", "--runs", f"{folder}/clear/runs"),
            "plan of 10,001 runs after imports": lambda _: program(PLAN, f"{folder}/plan"),
        }
        for name, measure in measures.items():
            print(f"{name:40s} {min(measure(turn) for turn in turns):6.2f}", flush=True)
    print("load", *(f"{load:.1f}" for load in os.getloadavg()))


if __name__ == "__main__":
    main()
