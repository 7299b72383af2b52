"""BLEU by the length of the source, one run a model.

    python lengths.py test.de.gz test.en.gz MODEL.jsonl …

Predictions are as `scaling predict` writes them, in a file of the model's name. The sentences are cut into five groups
of about one size by the words of the source; intervals are of 95%, by the bootstrap over the sentences of a group.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from pathlib import Path

import numpy as np

from scaling.metrics.metric import bootstrap
from scaling.metrics.text import BLEU

GROUPS = 5


def main() -> None:
    source, target, *written = sys.argv[1:]
    lengths = np.array([len(line.split()) for line in _lines(source)])
    references = [[line] for line in _lines(target)]
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, GROUPS + 1)).astype(int))
    edges[-1] += 1
    groups = [np.flatnonzero((lengths >= low) & (lengths < high)) for low, high in itertools.pairwise(edges)]
    titles = [*(f"{low} to {high - 1}" for low, high in itertools.pairwise(edges)), "all"]
    groups.append(np.arange(len(lengths)))
    print("| words of the source |", " | ".join(titles), "|")
    print("|---|" + "--:|" * len(groups))
    print("| sentences |", " | ".join(str(len(group)) for group in groups), "|")
    for path in map(Path, written):
        texts = [json.loads(line)["prediction"] or "" for line in path.read_text().splitlines()]
        cells = []
        for group in groups:
            found = bootstrap(BLEU(), [texts[at] for at in group], [references[at] for at in group])
            low, high = found["intervals"]["bleu"]
            cells.append(f"{found['metrics']['bleu']:.1f} [{low:.1f}, {high:.1f}]")
        print(f"| {path.stem} |", " | ".join(cells), "|")


def _lines(path: str) -> list[str]:
    return gzip.open(path, "rt", encoding="utf-8").read().splitlines()


if __name__ == "__main__":
    main()
