"""What a start is worth: random weights, word vectors of a file, or a pretrained model, on two small tasks.

    python benchmarks/starts.py SHARED VECTORS [--seeds 2] [--to docs/results/inside]

SHARED holds english/documents.jsonl.gz, tasks/sst2 and tasks/trec; VECTORS is a file of vectors of 64 numbers
(`start.vectors`). Each start is then trained on each task by one recipe. Writes starts.csv, a row for each run, and
prints the table in Markdown.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import fmean
from typing import Any

import scaling

SIZE = "size={width: 64, layers: 2, heads: 4, length: 128, vocabulary: null}"
PRETRAINING = [SIZE, "train.tokens=1500k", "train.batch=16", "evaluate.points=2", "log.wandb=disabled"]
RECIPE = ["train.epochs=2", "train.batch=32", "evaluate.points=1", "evaluate.windows=null", "optimizer.lr=0.002"]
TASKS = {
    "sst2": ["data.files={{train: {0}/train.tsv, validation: {0}/test.tsv}}", "data.columns=[sentence, label]"],
    "trec": ["data.files={{train: {0}/train.jsonl, validation: {0}/test.jsonl}}"],
}


def scored(start: str, task: str, words: list[str], run: Any, seed: int, runs: str) -> dict[str, Any]:
    own = [*RECIPE, *words, f"seed={seed}", "log.wandb=disabled"]
    result = scaling.finetune(run, task, *own, runs=runs, progress=False).result
    assert result is not None
    row = {"task": task, "start": start, "seed": seed, "score": round(result["score"], 4)}
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path)
    parser.add_argument("vectors", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--runs", default="runs/starts")
    parser.add_argument("--to", type=Path, default=Path("docs/results/inside"))
    options = parser.parse_args()
    corpus = f"{{kind: Files, files: {options.shared / 'english' / 'documents.jsonl.gz'}}}"
    tokenizer = "{kind: ByteBPE, vocabulary: 4096, sample: 4M}"
    data = [f"data={{kind: Text, corpus: {corpus}, tokenizer: {tokenizer}, validation: 0.01}}", f"runs={options.runs}"]
    scaling.data_prepare(None, *data)
    pretrained = scaling.train("decoder", *PRETRAINING, *data, progress=False)
    starts = {
        "random": ["start=null"],
        "word vectors": ["start.run=null", f"start.vectors={options.vectors}"],
        "language model": [],
    }
    rows = [
        scored(start, task, [*files, *words], pretrained, seed, options.runs)
        for task, names in TASKS.items()
        for files in [[name.format(options.shared / "tasks" / task) for name in names]]
        for start, words in starts.items()
        for seed in range(options.seeds)
    ]
    with (options.to / "starts.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| task | start | score | by seed |\n|---|---|--:|---|")
    for task in TASKS:
        for start in starts:
            own = [row["score"] for row in rows if (row["task"], row["start"]) == (task, start)]
            print(f"| {task} | {start} | {fmean(own):.3f} | {', '.join(f'{score:.3f}' for score in own)} |")


if __name__ == "__main__":
    main()
