"""How often the answers of a study hold the truth, over simulated studies.

    python benchmarks/answers.py compare [--studies 200]   k of `scaling compare`
    python benchmarks/answers.py tuned                     what a rung loses by its learning rate
    python benchmarks/answers.py mixture                   the best proportions of `scaling mixture`

Each line of a table is one kind of study, and how many of its 95% intervals hold the truth.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from scaling.laws import fit
from scaling.laws.compare import advantage
from scaling.laws.horizon import rungs
from scaling.laws.optimum import best_mixture
from scaling.laws.points import Points

NOISE = 0.004


def ladders(rng: np.random.Generator, kind: str, k: float) -> Points:
    """Five sizes with 20 tokens a parameter and three seeds, or a grid of five sizes by four token budgets; the loss at
    C is that of the baseline at k C.
    """
    size = np.geomspace(1e5, 3e7, 5)
    if kind == "ladder":
        N = np.repeat(size, 3)
        D = 20 * N
        loss = 2 + 8 * (k * 6 * N * D / 1e12) ** -0.06
    else:
        N, D = (each.ravel() for each in np.meshgrid(size, np.geomspace(2e6, 6e8, 4)))
        loss = 2 + 30 * (N * k**0.5) ** -0.3 + 60 * (D * k**0.5) ** -0.3
    return Points({"N": N, "D": D, "C": 6 * N * D, "loss": loss * np.exp(NOISE * rng.standard_normal(len(N)))})


def compare(studies: int) -> Iterator[list[str]]:
    yield ["study", "k", "k is inside", "B is called better", "high / low of k"]
    for kind in ("ladder", "grid"):
        for k in (1.0, 1.2, 2.0):
            rng = np.random.default_rng(0)
            found = [advantage(ladders(rng, kind, 1.0), ladders(rng, kind, k)).k for _ in range(studies)]
            inside, better = np.mean([(each.covers(k), each.low > 1) for each in found], axis=0)
            width = np.median([each.high / each.low for each in found])
            yield [kind, f"{k:g}", f"{inside:.1%}", f"{better:.1%}", f"{width:.2f}"]


def tuned(studies: int) -> Iterator[list[str]]:
    """Rungs with a run at half and one at twice the rate; log loss rises by 0.02 (log rate)²/2 about the best rate."""
    yield [
        "rungs",
        "noise",
        "best / used rate",
        "left on the table",
        "it is inside",
        "best rate is inside",
        "median upper end",
    ]
    for count, noise, off in ((5, 0.001, 1.0), (5, 0.001, 1.5), (5, 0.003, 2.0), (8, 0.002, 1.2), (8, 0.002, 3.0)):
        rng, curvature = np.random.default_rng(0), 0.02
        N = np.repeat(np.geomspace(1e5, 1e7, count), 3)
        rate = np.tile([0.5e-3, 1e-3, 2e-3], count)
        left = np.expm1(curvature / 2 * np.log(off) ** 2)
        found = []
        for _ in range(studies):
            excess = curvature / 2 * np.log(rate / (off * 1e-3)) ** 2
            loss = (2 + 8 * N**-0.1) * np.exp(excess + noise * rng.standard_normal(len(N)))
            found.append(rungs({"N": N, "D": 20 * N, "lr": rate, "loss": loss}, rate == 1e-3)[0])
        inside = np.mean([rung["left"].covers(left) for rung in found])
        best = np.mean([rung["best"].covers(off * 1e-3) for rung in found])
        high = np.median([rung["left"].high for rung in found])
        yield [f"{count}", f"{noise:.1%}", f"{off:g}", f"{left:.2%}", f"{inside:.1%}", f"{best:.1%}", f"{high:.2%}"]


def mixture(studies: int) -> Iterator[list[str]]:
    """Three domains with exponential laws that pull apart; a run's three errors are correlated by half."""
    yield ["runs", "noise", "proportions inside", "loss inside", "gain inside", "loss above the optimum's, most"]
    pull = np.array([[-2.0, 0.3, 0.5], [0.2, -1.5, 0.1], [0.4, -0.2, -2.5]])
    floor, scale = np.array([1.5, 2.0, 1.8]), np.array([1.0, 0.8, 1.2])

    def losses(proportions: np.ndarray) -> np.ndarray:
        return floor + scale * np.exp(proportions @ pull.T)

    best = np.array([0.382897, 0.223289, 0.393814])  # of the mean of the three, by quadratic programming
    at_best, at_even = losses(best).mean(), losses(np.full(3, 1 / 3)).mean()
    truth = (*best, at_best, at_even - at_best)
    for runs, noise in ((20, 0.003), (50, 0.003), (200, 0.01)):
        rng, inside, excess = np.random.default_rng(0), [], []
        for _ in range(studies):
            shares = rng.dirichlet(np.ones(3), runs)
            errors = rng.standard_normal((runs, 1)) + rng.standard_normal((runs, 3))
            table = losses(shares) * np.exp(noise * np.sqrt(0.5) * errors)
            columns = {f"p_{place + 1}": column for place, column in enumerate(shares.T)}
            fits = [fit("mixture_exponential_3", columns | {"loss": column}, starts=64) for column in table.T]
            found = best_mixture(fits)
            inside.append([interval.covers(value) for interval, value in zip(found.values(), truth)])
            proportions = np.array([found[f"p_{place}"].estimate for place in (1, 2, 3)])
            excess.append(losses(proportions).mean() / at_best - 1)
        *shares, loss, gain = np.mean(inside, axis=0)
        yield [f"{runs}", f"{noise:.1%}", f"{np.mean(shares):.1%}", f"{loss:.1%}", f"{gain:.1%}", f"{max(excess):.2%}"]


QUESTIONS = {"compare": compare, "tuned": tuned, "mixture": mixture}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--studies", type=int, default=200)
    arguments = parser.parse_args()
    for place, cells in enumerate(QUESTIONS[arguments.question](arguments.studies)):
        print(f"| {' | '.join(cells)} |", flush=True)
        if not place:
            print(f"|{'---:|' * len(cells)}", flush=True)


if __name__ == "__main__":
    main()
