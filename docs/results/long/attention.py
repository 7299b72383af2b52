"""Tables of the study long_attention: losses and gaps to dense attention at equal FLOPs, tokens and CPU seconds.

    python docs/results/long/attention.py points.csv              the tables, in Markdown
    python docs/results/long/attention.py points.csv --time       times steps too and writes seconds.csv

A gap is a method's loss minus that of dense attention of the same width, in nats per token. The budgets of one width
share a trunk, so that a width counts once, by the mean of its gaps; the trend is a least-squares line of these means
over the logarithm of dense attention's parameters, without embeddings, and its intervals are Student's.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy import stats

DENSE, STUDY, SCALE = "Dense", "long_attention", "text"
REACH = 1.5  # a loss is extrapolated along log D by this factor at most
REPETITIONS = 5


def read(path: Path) -> pd.DataFrame:
    """The finished runs, each with its place among the budgets of its width."""
    points = pd.read_csv(path)
    points = points[points["status"] == "finished"].copy()
    points["equal_tokens"] = points["name"].str.endswith("tokens=1M")
    points["budget"] = points["C"].map(lambda flops: float(f"{flops:.1e}"))
    return points


def gaps(points: pd.DataFrame, equal: str) -> pd.DataFrame:
    """Each run's loss minus that of the dense run of its width with the same budget, of which `equal` is the column."""
    dense = points[points["row"] == DENSE].set_index(["width", equal])[["loss", "N"]].add_suffix("_dense")
    own = points[points["row"] != DENSE].join(dense, on=["width", equal]).dropna(subset="loss_dense")
    return own.assign(gap=own["loss"] - own["loss_dense"])


def trend(widths: pd.DataFrame) -> tuple[str, pd.Series]:
    """The slope of the gap over each tenfold of parameters, and half the width of the line's interval at each width."""
    x, y = np.log10(widths["N_dense"].to_numpy()), widths["gap"].to_numpy()
    if len(x) < 3:
        return "", pd.Series(np.nan, widths.index)
    line = stats.linregress(x, y)
    t = stats.t.ppf(0.975, len(x) - 2)
    residual = np.sqrt(np.sum((y - line.intercept - line.slope * x) ** 2) / (len(x) - 2))
    half = t * residual * np.sqrt(1 / len(x) + (x - x.mean()) ** 2 / np.sum((x - x.mean()) ** 2))
    return f"{line.slope:+.3f} ± {t * line.stderr:.3f}", pd.Series(half, widths.index)


def table(points: pd.DataFrame, own: pd.DataFrame) -> str:
    """Dense attention's loss by width, the gap of every method, and its trend."""
    columns = sorted(own["width"].unique())
    dense = points[points["row"] == DENSE].groupby("width")["loss"].mean()
    lines = [[DENSE + ", loss", *(f"{dense[width]:.3f}" for width in columns), ""]]
    for method in (row for row in points["row"].unique() if row != DENSE):
        widths = own[own["row"] == method].groupby("width")[["N_dense", "gap"]].mean()
        slope, half = trend(widths)
        cells = [f"{widths['gap'][w]:+.3f} ± {half[w]:.3f}" if w in widths.index else "" for w in columns]
        lines.append([method, *cells, slope])
    return markdown(["", *(f"width {width}" for width in columns), "for each tenfold of N"], lines)


def at_equal_seconds(points: pd.DataFrame, seconds: pd.DataFrame) -> pd.DataFrame:
    """Each method's loss after the CPU seconds of the longest dense run of its width, along its own budgets."""
    cost = seconds.set_index(["row", "width"])["seconds_per_million_tokens"]
    rows = []
    for width, of_width in points.groupby("width"):
        dense = of_width[of_width["row"] == DENSE].nlargest(1, "D")
        if dense.empty or (DENSE, width) not in cost:
            continue
        for method, own in of_width.groupby("row"):
            own = own.sort_values("D")
            tokens = float(dense["D"].iloc[0]) * cost[DENSE, width] / cost[method, width]
            if len(own) < 2 or not own["D"].iloc[0] / REACH <= tokens <= own["D"].iloc[-1] * REACH:
                continue
            loss = dense["loss"].iloc[0] if method == DENSE else interpolated(own, tokens)
            rows.append({"row": method, "width": width, "loss": loss, "N": own["N"].iloc[0], "once": 0})
    return pd.DataFrame(rows)


def interpolated(runs: pd.DataFrame, tokens: float) -> float:
    """The loss at so many tokens, on lines over log D through the runs; beyond them, on the line of the last two."""
    x, y = np.log(runs["D"].to_numpy()), runs["loss"].to_numpy()
    after = int(np.clip(np.searchsorted(x, np.log(tokens)), 1, len(x) - 1))
    slope = (y[after] - y[after - 1]) / (x[after] - x[after - 1])
    return float(y[after - 1] + slope * (np.log(tokens) - x[after - 1]))


def measured(folder: Path) -> pd.DataFrame:
    """CPU seconds of a million tokens: the minimum of a few training steps of each method and width, on one thread."""
    import torch

    from scaling.studies.plan import plan
    from scaling.studies.question import read as question
    from scaling.training.precision import Weights

    torch.set_num_threads(1)
    models = {}
    for run in plan(question(STUDY, SCALE), [], "stand_in").runs:
        row = next(word for word in run.overrides if word.startswith("row=")).partition("=")[2].strip('"')
        models.setdefault((row, run.experiment.cost.parameters, run.name.split("width=")[1].split()[0]), run.experiment)
    rows = []
    for (row, _, width), experiment in models.items():
        model = experiment.initial_model()
        weights = Weights(model, "32-true")
        optimizers = experiment.optimizer.make(weights.parameters, experiment.rates)
        took = []
        for number in range(1 + REPETITIONS):
            before = time.process_time()
            model.loss(experiment.batches.batch(number)).total.backward()
            torch.nn.utils.clip_grad_norm_(weights.masters, 1.0)
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            took.append(time.process_time() - before)
        tokens = experiment.tokens(1)
        per_million = min(took[1:]) / tokens * 1e6
        flops = experiment.cost.flops_train_per_token
        rows.append({"row": row, "width": int(width), "seconds_per_million_tokens": round(per_million, 2), "c": flops})
    seconds = pd.DataFrame(rows)
    seconds.to_csv(folder / "seconds.csv", index=False)
    return seconds


def laws(path: Path) -> str:
    """The exponents of each method's law, and how far they lie from dense attention's."""
    document = json.loads(path.read_text())
    lines = []
    for entry in document.get("rows", {}).get("exponents", ()):
        difference = entry["difference"]
        lines.append([entry["row"], entry["name"], interval(entry), "" if difference is None else interval(difference)])
    return markdown(["", "exponent", "95% interval", "minus dense attention's"], lines) if lines else "no law"


def interval(entry: dict) -> str:
    low, high = (("open" if entry[end] is None else f"{entry[end]:.3f}") for end in ("low", "high"))
    return f"{entry['estimate']:.3f} [{low}, {high}]"


def markdown(header: list[str], lines: list[list[str]]) -> str:
    rule = ["---", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("points", type=Path)
    parser.add_argument("--time", action="store_true", help="time steps and write seconds.csv")
    words = parser.parse_args()
    folder, points = words.points.parent, read(words.points)
    budgets, tokens = points[~points["equal_tokens"]], points[points["equal_tokens"]]

    print("Gap to dense attention at equal FLOPs, nats per token, mean of the budgets of a width:\n")
    own = gaps(budgets, "budget")
    print(table(budgets, own))
    print("\nThe same at equal tokens (1M), where dense attention costs 2 to 9 times the FLOPs:\n")
    print(table(tokens, gaps(tokens, "equal_tokens")))
    file = folder / "seconds.csv"
    if words.time or file.is_file():
        seconds = measured(folder) if words.time else pd.read_csv(file)
        even = at_equal_seconds(points, seconds)
        print("\nThe same at equal CPU seconds, those of the longest dense run of the width:\n")
        print(table(even, gaps(even, "once")))
        print("\nCPU seconds of a million tokens in training:\n")
        wide = seconds.pivot(index="row", columns="width", values="seconds_per_million_tokens")
        wide = wide.loc[list(dict.fromkeys(seconds["row"]))]
        lines = [[str(row), *(f"{value:.1f}" for value in wide.loc[row])] for row in wide.index]
        print(markdown(["", *(f"width {width}" for width in wide.columns)], lines))
    if (folder / "fit.json").is_file():
        print("\nThe law of each method, one floor for all:\n")
        print(laws(folder / "fit.json"))


if __name__ == "__main__":
    main()
