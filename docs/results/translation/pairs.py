"""What the loss of a translator is worth: `python pairs.py RUNS points.csv`, after the study pairs.yaml.

Each run translates the first 512 held-out sentences by 4 beams. BLEU is against the best translation of each, which
the language knows, and against the drawn one, which no translator can foresee.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scaling.config.schema import build
from scaling.evaluation.generate import generate, prompts
from scaling.evaluation.strategy import Beam
from scaling.interop.run import read
from scaling.ledger import Ledger
from scaling.metrics.text import BLEU

SENTENCES = 512


def main() -> None:
    runs, points = sys.argv[1:]
    print("| parameters | tokens (M) | loss | above the entropy | BLEU, drawn | BLEU, best |")
    print("|--:|--:|--:|--:|--:|--:|")
    source: Any = None
    lines = sorted(
        csv.DictReader(Path(points).read_text().splitlines()), key=lambda line: (float(line["N"]), float(line["D"]))
    )
    for line in lines:
        data = {k: v for k, v in Ledger.open(runs).spec(line["run"])["data"].items() if k != "fingerprint"}
        source = build("data", data).open("validation", Path())
        drawn, best = scores(read(line["run"], runs), source)
        excess = float(line["loss"]) - source.entropy
        shown = (f"{float(line['N']) / 1e3:.0f}k", f"{float(line['D']) / 1e6:.1f}", f"{float(line['loss']):.4f}")
        print("|", " | ".join((*shown, f"{excess:.4f}", f"{drawn:.1f}", f"{best:.1f}")), "|")
    ceiling = _bleu([_words(row, source) for row in _rows(source, best=True).tokens], _rows(source).tokens, source)
    print(f"\nThe best translations have {ceiling:.1f} BLEU against the drawn ones.")


def scores(run: Any, source: Any) -> tuple[float, float]:
    """BLEU against the drawn translations and against the best ones."""
    length = int(source.lengths.max())
    rows = [[int(word) for word in row if word != source.specials["pad"]] for row in _rows(source).source]
    batch = prompts(rows, "encoder_decoder", source.specials)
    written = generate(run.model(), batch, Beam(beams=4, penalty=0.6), steps=length, stop={source.specials["eos"]})
    own = [" ".join(map(str, texts[0].tokens)) for texts in written]
    return _bleu(own, _rows(source).tokens, source), _bleu(own, _rows(source, best=True).tokens, source)


def _rows(source: Any, *, best: bool = False) -> Any:
    return (source.best if best else source.read)(np.arange(SENTENCES), int(source.lengths.max()))


def _bleu(own: Sequence[str], references: np.ndarray, source: Any) -> float:
    return BLEU().score(own, [[_words(row, source)] for row in references])["bleu"]


def _words(row: np.ndarray, source: Any) -> str:
    return " ".join(str(word) for word in row if word < source.law.symbols)


if __name__ == "__main__":
    main()
