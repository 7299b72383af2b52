"""The four tables as one, in Markdown: `python compare.py`, where they have been kept.

For each task and method: mean accuracy over seeds with Student's interval, from the start and self-pretrained, and the
mean difference of the pairs of one seed with Student's interval over the pairs.
"""

import csv
from collections import defaultdict
from pathlib import Path
from statistics import mean

from scipy.stats import ttest_1samp

TASKS = {"ListOps": ("lists", "listops_score"), "Reviews, bytes": ("reviews", "text_score")}


def scores(name: str, column: str) -> dict[str, dict[int, tuple[float, float, float]]]:
    """Of each row and seed the accuracy, the FLOPs and the worker's seconds, pretraining included."""
    runs: dict[str, dict[int, tuple[float, float, float]]] = defaultdict(dict)
    for line in csv.DictReader(Path(name, "points.csv").read_text(encoding="utf-8").splitlines()):
        if line[column]:
            flops, seconds = (
                float(line[key]) + float(line.get(f"finetuning_{key}") or 0) for key in ("flops", "worker_seconds")
            )
            runs[line["row"]][int(line["seed"])] = float(line[column]), flops, seconds
    return runs


def interval(values: list[float]) -> str:
    value = mean(values)
    if len(values) < 2:
        return f"{value:.3f}"
    return f"{value:.3f} ± {ttest_1samp(values, 0).confidence_interval().high - value:.3f}"


def cost(runs: dict[int, tuple[float, float, float]]) -> str:
    _, flops, seconds = zip(*runs.values(), strict=True)
    return f"{sum(flops) / len(flops) / 1e12:.2f} | {sum(seconds) / len(seconds):.0f}"


print("| task | method | from the start | TFLOPs | seconds | self-pretrained | TFLOPs | seconds | difference | seeds |")
print("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|")
for task, (name, column) in TASKS.items():
    before, after = scores(name, "score"), scores(f"{name}_pretrained", column)
    for row, runs in before.items():
        others = after.get(row, {})
        both = sorted(runs.keys() & others.keys())
        if not both:
            continue
        differences = [others[seed][0] - runs[seed][0] for seed in both]
        start, pretrained = (f"{interval([run[0] for run in of.values()])} | {cost(of)}" for of in (runs, others))
        print(f"| {task} | {row} | {start} | {pretrained} | {interval(differences)} | {len(both)} |")
