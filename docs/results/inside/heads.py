"""When do previous-token and induction heads appear, against tokens and size?

Trains small decoders on Python and scores every head as it goes: heads.csv, heads.png.

    scaling data prepare python data.tokenizer.vocabulary=512 data.corpus.limit=16M
    python docs/results/inside/heads.py
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import scaling
from scaling.inside.heads import repetition, scores
from scaling.lightning import Callback

HERE = Path(__file__).parent
SIZES = {"2 layers, width 64": (2, 64), "2 layers, width 32": (2, 32), "1 layer, width 64": (1, 64)}
SEEDS, STEPS, BATCH, LENGTH = (0, 1), 1000, 32, 96
TIMES = [0, 25, 50, 100, 150, 200, 300, 400, 500, 600, 700, 800, 900, 1000]
COLUMNS = ("size", "parameters", "seed", "step", "tokens", "previous", "induction", "loss")


class Watching(Callback):
    """The highest score of any head, at some steps."""

    def __init__(self, vocabulary: range):
        self.vocabulary, self.rows = vocabulary, {}

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.look(0, module.model)

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
        self.look(module.start + number + 1, module.model)

    def look(self, step: int, model: Any) -> None:
        if step not in TIMES or step in self.rows:
            return
        draws = [repetition(model, self.vocabulary, LENGTH, seed) for seed in range(4)]
        heads = [scores(maps, maps) for maps in draws]
        means = {
            name: max(sum(getattr(draw[head], name) for draw in heads) / len(heads) for head in range(len(heads[0])))
            for name in ("previous", "induction")
        }
        model.train()
        self.rows[step] = means


def main(runs: str) -> None:
    with (HERE / "heads.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for seed in SEEDS:
            for size, (layers, width) in SIZES.items():
                watching = Watching(range(4, 512))
                words = [f"size.layers={layers}", f"size.width={width}", "size.heads=4", f"size.length={LENGTH}"]
                words += ["data=python", "data.tokenizer.vocabulary=512", "data.corpus.limit=16M", "evaluate.points=1"]
                words += [f"train.steps={STEPS}", f"train.batch={BATCH}", "optimizer.lr=0.004", "evaluate.windows=256"]
                words += ["size.vocabulary=null", "log.wandb=disabled", f"seed={seed}", f"runs={runs}"]
                run = scaling.train("decoder", *words, callbacks=[watching], again=True, progress=False)
                result = run.result or {}
                count = result["N"]["non_embedding"]
                for step, means in watching.rows.items():
                    row = (size, count, seed, step, step * BATCH * LENGTH, means["previous"], means["induction"])
                    table.writerow([*row, result["loss"]])
                file.flush()
    draw()


def draw() -> None:
    import pandas
    from matplotlib.figure import Figure

    table = pandas.read_csv(HERE / "heads.csv")
    chart = Figure(figsize=(8, 3.2), layout="constrained")
    for ax, name in zip(chart.subplots(1, 2, sharey=True), ("previous", "induction"), strict=True):
        for color, (size, rows) in zip(("tab:gray", "tab:blue", "tab:red"), table.groupby("size", sort=True)):
            for number, (_, one) in enumerate(rows.groupby("seed")):
                ax.plot(one.tokens / 1e6, one[name], color=color, lw=1, label=size if number == 0 else None)
        ax.set(title=f"highest {name} score of any head", xlabel="million tokens", ylim=(0, 1))
    chart.axes[0].legend(frameon=False)
    chart.savefig(HERE / "heads.png", dpi=120)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs")
