"""Launch: worker processes on this machine, watched until the study is done. One dies, the others go on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from scaling.ledger import RESULTS, Ledger
from scaling.study.plan import Plan

LOOK = 0.5  # seconds between looks at the ledger


def launch(
    ledger: Ledger, found: Plan, words: Sequence[str], workers: int, tell: Callable[[int, float], None], log: Path
) -> None:
    """Run `workers` processes of `scaling work` to the end; `tell` hears how many runs are done, and of what work.

    One torch thread each: on two cores, two processes do more than one process with two threads.
    """
    left = [one for one in found.runs if ledger.result(one.run) is None]
    if not left:
        return
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "scaling", "work", *words]
    with log.open("ab") as told:
        processes = [
            subprocess.Popen(command, env=environment, stdout=told, stderr=told, stdin=subprocess.DEVNULL)
            for _ in range(min(workers, len(left)))
        ]
        try:
            while any(process.poll() is None for process in processes):
                tell(*progress(ledger, found))
                time.sleep(LOOK)
        except BaseException:
            # Each saves its run at the next step and leaves; the same command goes on from there.
            for process in processes:
                process.send_signal(signal.SIGTERM)
            for process in processes:
                process.wait()
            raise
    tell(*progress(ledger, found))


def progress(ledger: Ledger, found: Plan) -> tuple[int, float]:
    """How many runs are done, and how much of the study's compute, by the last step that each run has logged."""
    trunks = {name: (trunk, ledger.status(name).step or 0) for name, trunk in found.trunks.items()}
    done, passed, whole = 0, 0.0, 0.0
    for one in found.runs:
        row = ledger.status(one.run)
        done += row.state in RESULTS
        first = one.trunk[1] if one.trunk else 0
        steps = one.experiment.steps
        reached = steps if row.state in RESULTS else max(first, row.step or 0)
        passed += one.flops * (reached - first) / (steps - first)
        whole += one.flops
    for trunk, step in trunks.values():
        flops = trunk.tokens(trunk.steps) * trunk.cost.flops_train_per_token
        passed += flops * min(1.0, step / trunk.steps)
        whole += flops
    return done, passed / whole
