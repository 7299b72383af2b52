"""Tokens a second at which one core draws, assembles and corrupts batches of 128 × 512.

python benchmarks/data.py [--megabytes 16] [--repeats 40] [--json]

The text is Python's standard library, prepared into a temporary folder; all of it is in memory before it is timed.
Beside our own: the same windows by `datasets` with PyTorch's default collation, and by a plain memory map as training
scripts read one. Seconds are those of the CPU in one thread, the best of the repeats, so that a busy machine costs
little. Tokens are those read from the source.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from scaling.config.schema import build, kinds
from scaling.data.batches import training
from scaling.data.plan import BatchSize
from scaling.data.source import Source, Vocabulary
from scaling.data.synthetic.language import Synthetic, SyntheticPairs
from scaling.data.text import prepare

ROWS, LENGTH = 128, 512
GOALS = {"synthetic drawn": 5e6, "Causal": 50e6, "Masked": 20e6, "Spans": 20e6, "SpanCorruption": 20e6}


@dataclass(frozen=True)
class Figure:
    what: str
    tokens: float  # a second
    goal: float | None = None


def rate(work: Callable[[int], int], repeats: int) -> float:
    """Tokens a second of `work(step)`, which returns how many tokens it did."""
    work(0)
    best = 0.0
    for step in range(1, repeats + 1):
        started = time.thread_time()
        tokens = work(step)
        best = max(best, tokens / (time.thread_time() - started))
    return best


def text(folder: Path, megabytes: int) -> Source:
    line = {
        "kind": "Text",
        "corpus": {"kind": "Python", "reach": "standard", "limit": megabytes << 20},
        "tokenizer": {"kind": "ByteBPE", "vocabulary": 4096, "sample": 2 << 20},
    }
    data = build("data", line)
    prepare(data, folder)
    return data.open("train", folder)


def drawn(law: Synthetic, repeats: int) -> float:
    source, rows = law.open("train", Path()), np.arange(ROWS)
    return rate(lambda step: source.read(rows + step * ROWS, LENGTH).tokens.size, repeats)


def paired(repeats: int) -> float:
    source = SyntheticPairs().open("train", Path())
    made = training(
        source, build("objective", "Sequence", Vocabulary.of(source), 32, "encoder_decoder"), BatchSize.of(1024), seed=0
    )

    def work(step: int) -> int:
        batch = made.batch(step)
        return batch.tokens.numel() + (0 if batch.source is None else batch.source.numel())

    return rate(work, repeats)


def batches(source: Source, line: object, family: str, repeats: int) -> float:
    objective = build("objective", line, Vocabulary.of(source), LENGTH, family)  # type: ignore[arg-type]
    made = training(source, objective, BatchSize.of(ROWS), seed=0)
    return rate(lambda step: made.batch(step).rows * objective.reads, repeats)


def measured(source: Source, repeats: int) -> Iterator[Figure]:
    """Each figure as it is taken; `source` is text."""
    yield Figure("synthetic drawn", drawn(Synthetic(), repeats), GOALS["synthetic drawn"])
    yield Figure("synthetic, 256 symbols, drawn", drawn(Synthetic(symbols=256), repeats))
    yield Figure("synthetic pairs in buckets of 1024×32", paired(repeats))
    for kind in kinds("objective"):
        if kind in ("Sequence", "Distil", "Answer"):
            continue
        for family in kinds("objective")[kind].families:
            yield Figure(f"{kind}, {family}", batches(source, kind, family, repeats), GOALS.get(kind))
    words = {"kind": "Masked", "unit": "word"}
    yield Figure("Masked by word, encoder", batches(source, words, "encoder", repeats), GOALS["Masked"])

    yield Figure("plain memory map", plain(source, repeats))
    yield Figure("datasets, default collation", hub(source, repeats))


def plain(source: Source, repeats: int) -> float:
    """Random windows of one array, a slice and a conversion each, stacked."""
    windows = source.windows(LENGTH + 1) or 0
    tokens = source.read(np.arange(windows), LENGTH + 1).tokens.ravel()
    draw = np.random.default_rng(0)

    def work(_: int) -> int:
        starts = draw.integers(0, len(tokens) - LENGTH - 1, ROWS)
        x = torch.stack([torch.from_numpy(tokens[i : i + LENGTH].astype(np.int64)) for i in starts])
        y = torch.stack([torch.from_numpy(tokens[i + 1 : i + 1 + LENGTH].astype(np.int64)) for i in starts])
        return x.numel() + y.shape[0]

    return rate(work, repeats)


def hub(source: Source, repeats: int) -> float:
    """A table of windows in `datasets`, shuffled by PyTorch's loader."""
    import datasets

    windows = source.windows(LENGTH + 1) or 0
    rows = source.read(np.arange(windows), LENGTH + 1).tokens.astype(np.int64)
    table = datasets.Dataset.from_dict({"input_ids": list(rows)}).with_format("torch")
    loader = torch.utils.data.DataLoader(table, batch_size=ROWS, shuffle=True, drop_last=True)  # type: ignore[arg-type]
    endless = (batch for _ in range(repeats + 2) for batch in loader)
    return rate(lambda _: next(endless)["input_ids"].numel(), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=16, help="text to prepare")
    parser.add_argument("--repeats", type=int, default=40, help="batches, of which the fastest counts")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        figures = list(measured(text(Path(folder), given.megabytes), given.repeats))
    if given.json:
        print(json.dumps([vars(figure) for figure in figures], indent=2))
        return
    for figure in figures:
        goal = "" if figure.goal is None else f"   goal {figure.goal / 1e6:.0f}"
        print(f"{figure.what:36}{figure.tokens / 1e6:8.1f} M tokens/s{goal}")


if __name__ == "__main__":
    main()
