"""Does what a layer knows of a synthetic language predict its loss? Probes of every layer against the excess loss.

    python benchmarks/probes.py [--widths 8 16 32] [--steps 50 100 200 400] [--seeds 1] [--to docs/results/inside]

Decoders of two layers learn a language whose law is known: the next symbol is that of a hidden rank after the last two.
Linear probes predict the rank of the symbol just read and the symbol of rank 0 to come. Writes probes.csv, a row for
each run and layer, and probes.svg.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

import scaling

LINE = [
    "data=synthetic",
    "data.symbols=8",
    "size.vocabulary=null",
    "size.layers=2",
    "size.heads=2",
    "size.length=64",
    "train.batch=32",
    "optimizer.lr=0.01",
    "evaluate.points=1",
    "evaluate.windows=512",
    "log.wandb=disabled",
]
TASKS = {"successor": "symbol of rank 0 to come", "ranks": "rank of the symbol just read"}
LAYERS = {0: "#bbbbbb", 1: "#ccbb44", 2: "#4477aa"}


def probed(width: int, steps: int, seed: int, runs: str) -> list[dict[str, Any]]:
    sized = [f"size.width={width}", f"trainer.max_steps={steps}", f"seed={seed}", f"runs={runs}"]
    run = scaling.train("decoder", *LINE, *sized, progress=False)
    assert run.result is not None
    layers = {task: scaling.probe(run, task, tokens=4000, runs=runs).layers for task in TASKS}
    same = {"width": width, "steps": steps, "seed": seed, "excess": round(run.result["excess"], 5)}
    print(same, flush=True)
    return [
        {**same, "layer": layer, **{task: round(layers[task].loc[layer, "accuracy"], 4) for task in TASKS}}
        for layer in LAYERS
    ]


def drawn(rows: Sequence[dict[str, Any]], path: Path) -> None:
    chart = Figure(figsize=(7.2, 2.8), layout="constrained")
    for ax, (task, name) in zip(chart.subplots(1, len(TASKS), sharey=True), TASKS.items()):
        for layer, colour in LAYERS.items():
            own = [row for row in rows if row["layer"] == layer]
            ax.scatter(
                [row["excess"] for row in own], [row[task] for row in own], s=12, c=colour, label=f"layer {layer}"
            )
        ax.set(xscale="log", xlabel="excess loss, nats per token", title=name, ylim=(0.4, 1.03))
        ax.spines[["top", "right"]].set_visible(False)
    chart.axes[0].set_ylabel("accuracy of the probe")
    chart.axes[1].legend(frameon=False)
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "scaling"}):
        chart.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--widths", type=int, nargs="+", default=[8, 16, 32])
    parser.add_argument("--steps", type=int, nargs="+", default=[50, 100, 200, 400])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--runs", default="runs/probes")
    parser.add_argument("--to", type=Path, default=Path("docs/results/inside"))
    options = parser.parse_args()
    rows = [
        row
        for width in options.widths
        for steps in options.steps
        for seed in range(options.seeds)
        for row in probed(width, steps, seed, options.runs)
    ]
    with (options.to / "probes.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    drawn(rows, options.to / "probes.svg")


if __name__ == "__main__":
    main()
