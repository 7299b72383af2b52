"""Bits per byte by kind of token at equal text: words, characters, BPE, WordPiece and bytes.

    python benchmarks/token_kinds.py english/documents.jsonl.gz [--megabytes 3] [--seeds 3] [--to docs/results/inside]

One decoder is trained for each kind and seed, on every seventh document of the file. All see the same bytes of training
text, in windows of the same bytes, and are scored on the whole held-out text. Writes token_kinds.csv, a row for each
run, and prints the table in Markdown.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import scaling

KINDS = {
    "bytes": "{kind: Byte}",
    "characters": "{kind: Character, vocabulary: 1024}",
    "byte-level BPE": "{kind: ByteBPE, vocabulary: 4096}",
    "BPE": "{kind: BPE, vocabulary: 4096, alphabet: 256}",
    "WordPiece": "{kind: WordPiece, vocabulary: 4096, alphabet: 256}",
    "words": "{kind: Word, vocabulary: 4096}",
}
WINDOW = 512  # bytes of text in a window, about
BATCH = 16
MODEL = ["size={width: 64, layers: 2, heads: 4}", "evaluate.points=1", "evaluate.windows=null", "log.wandb=disabled"]


def some(text: str, runs: str) -> str:
    """A file of every seventh document: one of few sources would say little of others."""
    file = Path(runs) / "some.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(text, "rt") as whole:
        file.write_text("".join(line for number, line in enumerate(whole) if number % 7 == 0))
    return str(file)


def prepared(text: str, tokenizer: str, runs: str) -> tuple[list[str], dict[str, Any]]:
    """The words that name the data, and what preparing them reports of the training split."""
    corpus = f"{{kind: Files, files: {text}}}"
    words = [f"data={{kind: Text, corpus: {corpus}, tokenizer: {tokenizer}, validation: 0.05}}", f"runs={runs}"]
    command = [sys.executable, "-m", "scaling", "data", "prepare", *words, "--json"]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return words, json.loads(out)


def trained(words: list[str], report: dict[str, Any], megabytes: float, seed: int) -> dict[str, Any]:
    width = report["train"]["bytes_per_token"]
    length = round(WINDOW / width)
    tokens = max(1, round(megabytes * 1e6 / (width * length * BATCH))) * length * BATCH
    start = time.process_time()
    own = [f"size.length={length}", f"train.tokens={tokens}", f"train.batch={BATCH}", f"seed={seed}"]
    run = scaling.train("decoder", *MODEL, *words, *own)
    assert run.result is not None
    return {
        "vocabulary": report["train"]["vocabulary"],
        "bytes_per_token": round(width, 3),
        "unknown_fraction": round(report["validation"]["unknown_fraction"], 4),
        "tokens": tokens,
        "seed": seed,
        "loss_nats_per_token": round(run.result["loss"], 4),
        "bits_per_byte": round(run.result["bits_per_byte"], 4),
        "cpu_seconds": round(time.process_time() - start),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("--megabytes", type=float, default=3)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--runs", default="runs/token_kinds")
    parser.add_argument("--to", type=Path, default=Path("docs/results/inside"))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    text = some(options.text, options.runs)
    for kind, tokenizer in KINDS.items():
        words, report = prepared(text, tokenizer, options.runs)
        for seed in range(options.seeds):
            rows.append({"kind": kind, **trained(words, report, options.megabytes, seed)})
    with (options.to / "token_kinds.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| tokens | vocabulary | bytes per token | unknown | bits per byte | by seed | tokens seen |")
    print("|---|--:|--:|--:|--:|---|--:|")
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind]
        bits = [row["bits_per_byte"] for row in own]
        cells = [f"{own[0]['vocabulary']:,}", f"{own[0]['bytes_per_token']:.2f}", f"{own[0]['unknown_fraction']:.1%}"]
        listed = ", ".join(f"{value:.3f}" for value in bits)
        print(f"| {kind} | {' | '.join(cells)} | {fmean(bits):.3f} | {listed} | {own[0]['tokens']:,} |")


if __name__ == "__main__":
    main()
