"""When do previous-token and induction heads appear? Scores of the heads during training, against tokens and size.

    python benchmarks/heads.py [--tokens 2.5] [--seeds 2] [--sizes 30k 100k 300k] [--to docs/results/inside]

Decoders of the ladder learn Python sources. At log-spaced steps each head is scored: the weight of the token before,
over a window of the batch, and induction, over random sequences given twice. Writes heads.csv, the highest scores of a
run's heads at each step, and heads.svg.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch import Callback
from matplotlib import rc_context
from matplotlib.figure import Figure

import scaling
from scaling.inside.look import maps, repetition, scores

LENGTH, BATCH, VOCABULARY = 128, 4, 1024
DATA = ["data=python", "data.corpus.reach=standard", "data.corpus.limit=24M", f"data.tokenizer.vocabulary={VOCABULARY}"]
LINE = [
    "size.vocabulary=null",
    f"size.length={LENGTH}",
    f"train.batch={BATCH}",
    "evaluate.points=3",
    "optimizer.lr=0.006",
]
SEQUENCES = 4  # given twice, over which induction is averaged
POINTS = 24
SCORES = {"previous": "weight of the token before", "induction": "induction"}


class Watched(Callback):
    """The highest scores of the heads at some steps."""

    def __init__(self, steps: Sequence[int]):
        self.steps, self.step, self.rows = set(steps), 0, []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.step += 1
        if self.step not in self.steps:
            return
        module.model.eval()
        previous = [head["previous"] or 0.0 for head in scores(maps(module.model, batch.micro(0, 1)))]
        drawn = []
        for seed in range(SEQUENCES):
            twice = repetition(module.model, range(VOCABULARY // 2, VOCABULARY), LENGTH, seed)
            drawn.append([head["induction"] or 0.0 for head in scores(twice, twice)])
        module.model.train()
        row = {"step": self.step, "previous": max(previous), "induction": float(np.mean(drawn, 0).max())}
        self.rows.append({**row, "train_loss": float(outputs["loss"])})


def watched(size: str, seed: int, tokens: int, runs: str) -> list[dict[str, Any]]:
    steps = tokens // (LENGTH * BATCH)
    watch = Watched(np.unique(np.geomspace(1, steps, POINTS).round().astype(int)).tolist())
    own = [f"size=ladder/{size}", *LINE, *DATA, f"seed={seed}", f"trainer.max_steps={steps}", f"runs={runs}"]
    run = scaling.train("decoder", *own, "log.wandb=disabled", callbacks=[watch])
    print(f"{size}, seed {seed}: held-out loss {run.loss:.4f}")
    return [{"size": size, "seed": seed, "tokens": row["step"] * LENGTH * BATCH, **row} for row in watch.rows]


def drawn(rows: Sequence[dict[str, Any]], sizes: Sequence[str], path: Path) -> None:
    chart = Figure(figsize=(7.2, 2.8), layout="constrained")
    for ax, (score, name) in zip(chart.subplots(1, len(SCORES), sharey=True), SCORES.items()):
        for colour, size in zip(("#4477aa", "#228833", "#cc6677", "#aa3377"), sizes):
            for seed in sorted({row["seed"] for row in rows}):
                own = [row for row in rows if (row["size"], row["seed"]) == (size, seed)]
                x, y = [row["tokens"] for row in own], [row[score] for row in own]
                ax.plot(x, y, color=colour, lw=1, label=size if seed == 0 else None)
        ax.set(xscale="log", xlabel="tokens", title=f"{name}, highest head", ylim=(0, 1))
        ax.spines[["top", "right"]].set_visible(False)
    chart.axes[0].legend(title="parameters", frameon=False)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        chart.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=float, default=2.5, help="millions")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", default=["30k", "100k", "300k"])
    parser.add_argument("--runs", default="runs/heads")
    parser.add_argument("--to", type=Path, default=Path("docs/results/inside"))
    options = parser.parse_args()
    prepare = [sys.executable, "-m", "scaling", "data", "prepare", *DATA, f"runs={options.runs}"]
    subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL)
    rows = [
        row
        for size in options.sizes
        for seed in range(options.seeds)
        for row in watched(size, seed, round(options.tokens * 1e6), options.runs)
    ]
    with (options.to / "heads.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        writer.writerows([f"{cell:.4g}" if isinstance(cell, float) else cell for cell in row.values()] for row in rows)
    drawn(rows, options.sizes, options.to / "heads.svg")


if __name__ == "__main__":
    main()
