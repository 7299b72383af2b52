"""How long a fit takes: all of Hoffmann et al.'s 4,500 starts at once, against scipy.

    python benchmarks/fit.py [--practice-starts 4500] [--json]

The practice is that of the published fits: scipy's L-BFGS-B with numeric gradients on (log E, log A, log B, α, β), one
start after another. Seconds are those of the CPU, in one thread, so that a busy machine costs little.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from scaling.laws import fit, named
from scaling.laws.problem import named_objective

TRUTH = np.array([1.8172, 482.01, 2085.43, 0.3478, 0.3658])
POINTS, NOISE = 240, 0.01
DELTA = 1e-3


def study(seed: int = 0) -> dict[str, np.ndarray]:
    """240 runs around the law that Besiroglu et al. 2024 (arXiv 2404.10102) fitted to Hoffmann et al.'s points."""
    rng = np.random.default_rng(seed)
    N = np.exp(rng.uniform(np.log(5e7), np.log(2e10), POINTS))
    D = np.exp(rng.uniform(np.log(1e9), np.log(1e12), POINTS))
    loss = named("chinchilla").predict(TRUTH, {"N": N, "D": D})
    return {"N": N, "D": D, "loss": loss * np.exp(NOISE * rng.standard_normal(POINTS))}


def grid() -> np.ndarray:
    """The 4,500 starts of Hoffmann et al. 2022 (arXiv 2203.15556), appendix D.3, as (log E, log A, log B, α, β)."""
    step = np.arange(0, 2.1, 0.5)
    axes = (np.arange(-1, 1.1, 0.5), np.arange(0, 26, 5), np.arange(0, 26, 5), step, step)
    return np.column_stack([axis.ravel() for axis in np.meshgrid(*axes)])


def practice(table: dict[str, np.ndarray], starts: np.ndarray) -> tuple[float, int]:
    """The least objective by L-BFGS-B from each start in turn, and how many starts end within 10⁻⁶ of it."""
    from scipy.optimize import minimize
    from scipy.special import huber, logsumexp

    log_n, log_d, log_loss = np.log(table["N"]), np.log(table["D"]), np.log(table["loss"])

    def cost(z: np.ndarray) -> float:
        terms = np.stack([np.full(POINTS, z[0]), z[1] - z[3] * log_n, z[2] - z[4] * log_d])
        return float(np.sum(huber(DELTA, logsumexp(terms, axis=0) - log_loss)))

    ends = np.array([minimize(cost, start, method="L-BFGS-B").fun for start in starts])
    return float(ends.min()), int((ends <= ends.min() * (1 + 1e-6)).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--practice-starts", type=int, default=4500, help="of the 4,500, evenly thinned")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    table, starts = study(), grid()
    theta = np.column_stack([np.exp(starts[:, :3]), starts[:, 3:]])

    fit("chinchilla", table, starts=8)  # the first call pays for imports
    began = time.process_time()
    found = fit("chinchilla", table, objective=named_objective("log_huber", DELTA), starts=theta)
    ours = time.process_time() - began

    thinned = starts[:: max(1, len(starts) // arguments.practice_starts)]
    began = time.process_time()
    least, agreeing = practice(table, thinned)
    theirs = time.process_time() - began

    everything = theirs / len(thinned) * len(starts)
    told = {
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, one thread",
        "numpy": np.__version__,
        "points": POINTS,
        "starts": len(starts),
        "seconds": ours,
        "objective": found.objective,
        "starts_agreeing": found.starts_agreeing,
        "practice_starts": len(thinned),
        "practice_seconds": theirs,
        "practice_seconds_for_all_starts": everything,
        "practice_objective": least,
        "practice_starts_agreeing": agreeing / len(thinned),
        "times_faster": everything / ours,
    }
    print(
        json.dumps(told, indent=2) if arguments.json else "\n".join(f"{name}: {value}" for name, value in told.items())
    )


if __name__ == "__main__":
    main()
