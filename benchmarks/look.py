"""The page of a look, and what watching costs a forward pass.

    OMP_NUM_THREADS=1 python benchmarks/look.py [--rounds 15]

A model of 12 layers with 12 heads (BERT-base's shape, drawn at random) on 64 tokens: the seconds from a loaded model to
the finished page, and its size. Then a forward pass before any watching, after it (off), and while the outputs of all
mixers are collected (on). Rounds alternate. Seconds are of processor time; the median of the rounds' ratios counts.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from scaling.base.batch import Batch
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.inside.look import look, page

SIZE = {"width": 768, "layers": 12, "heads": 12, "vocabulary": 1000, "length": 64}


def seconds(what: Callable[[], Any]) -> float:
    start = time.process_time()
    what()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    model: Any = build("model", load("bert")["model"], SIZE).eval()
    tokens = torch.randint(0, 1000, (8, 64))
    batch = Batch(tokens, tokens)

    @torch.no_grad()
    def plain() -> None:
        model(batch)

    @torch.no_grad()
    def watched() -> None:
        with model.watch("*.branches.mixer.piece"):
            model(batch)

    plain()
    before = [(seconds(plain), seconds(plain)) for _ in range(rounds)]

    def seen() -> str:
        return page(*look(model, {}, None, {"encoder": tokens[0].tolist()}), "Attention")

    size, made = len(seen().encode()), seconds(seen)
    print(f"page of 12 layers with 12 heads on 64 tokens: {made:.2f} s, {size / 1e6:.2f} MB")
    noise = statistics.median(second / first for first, second in before)
    pairs = [(seconds(plain), seconds(watched), seconds(plain)) for _ in range(rounds)]
    usual = statistics.median(first for first, _ in before)
    off = statistics.median(first for first, _, _ in pairs) / usual
    on = statistics.median(watched_ / ((first + last) / 2) for first, watched_, last in pairs)
    print(f"forward pass of 8 × 64 tokens: {usual * 1e3:.1f} ms; of two unwatched ones {noise:.3f}")
    print(f"watching off: {off:.3f} of a pass before any watching; on: {on:.3f}")


if __name__ == "__main__":
    main()
