"""Attention in float32 by one kernel beside two products and a softmax, and beside torch's fused kernel.

    python benchmarks/attention.py [--turns 31]

CPU milliseconds of forward and backward by one thread, medians of the turns, which the three take by turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.kernels.compiled import absent
from scaling.kernels.operations import Softmax, attention
from scaling.training.machine import keep_freed, processor


class Case(NamedTuple):
    batch: int
    queries: int
    keys: int
    heads: int
    width: int
    adds: str
    """What is added to the logits: the triangle of `causal`, a `bias` that learns, or nothing."""


CASES = [
    Case(13, 128, 128, 6, 8, "bias"),  # the small table's encoder, and its decoder
    Case(13, 29, 128, 6, 8, "nothing"),
    Case(16, 64, 64, 4, 16, "causal"),  # the quickstart's windows
    Case(16, 128, 128, 4, 64, "causal"),
    Case(8, 256, 256, 4, 64, "causal"),
    Case(8, 256, 256, 8, 64, "bias"),
    Case(4, 512, 512, 4, 64, "causal"),
    Case(2, 1024, 1024, 4, 64, "causal"),
]

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None, bool], Tensor]
SCALE = 0.3


def ours(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    return attention(q, k, v, bias, scale=SCALE, causal=causal)


def products(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    """Our softmax between them, torch's where it has to learn a bias."""
    b, t, h = q.shape[:3]
    q, k, v = (x.transpose(1, 2).reshape(b * h, -1, x.shape[-1]) for x in (q, k, v))
    if bias is None:
        weights = Softmax.apply(torch.bmm(q, k.mT), None, h, SCALE, causal)
    else:
        logits = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=SCALE)
        weights = (logits.view(b, h, t, -1) + bias).flatten(0, 1).softmax(-1)
    return (weights @ v).view(b, h, t, -1).transpose(1, 2)


def fused(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, causal: bool) -> Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=SCALE).transpose(1, 2)


def measured(case: Case, ways: list[Attend], turns: int) -> list[float]:
    lengths = (case.queries, case.keys, case.keys)
    q, k, v = (torch.randn(case.batch, length, case.heads, case.width, requires_grad=True) for length in lengths)
    learned = case.adds == "bias"
    bias = torch.randn(1, case.heads, case.queries, case.keys, requires_grad=True) if learned else None
    inputs = [x for x in (q, k, v, bias) if x is not None]
    upstream = torch.randn(q.shape)
    found: list[list[float]] = [[] for _ in ways]
    for turn in range(turns + 1):
        for way, times in zip(ways, found, strict=True):
            started = time.process_time()
            torch.autograd.grad(way(q, k, v, bias, case.adds == "causal"), inputs, upstream)
            if turn:  # the first compiles, and asks for memory
                times.append(1e3 * (time.process_time() - started))
    return [statistics.median(times) for times in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=31)
    given = parser.parse_args()
    if (why := absent()) is not None:
        raise SystemExit(f"no kernels: {why}")
    keep_freed()
    torch.set_num_threads(1)
    print(f"{processor()}, one thread, torch {torch.__version__}\n")
    print("| batch × queries × keys × heads × head width, and what is added | ours | two products | torch's fused |")
    print("|---|---:|---:|---:|")
    for case in CASES:
        times = " | ".join(f"{one:.1f}" for one in measured(case, [ours, products, fused], given.turns))
        print(f"| {' × '.join(map(str, case[:-1]))}, {case.adds} | {times} |", flush=True)


if __name__ == "__main__":
    main()
