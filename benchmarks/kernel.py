"""The compiled kernels beside torch's operations for the same formulas, forward and backward.

    python benchmarks/kernel.py [--threads 1] [--turns 25]

Nanoseconds a number of the largest tensor (in attention, a query and a key), the least of the turns, which the two
sides take by turns: 8,192 vectors of 256, 64 × 4 heads of 64 over 128 tokens, and 8,192 rows of 1,024 classes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from scaling.kernels.compiled import absent
from scaling.kernels.operations import Activated, Depthwise, Gated, Norm, Rotated, Softmax, attention, cross_entropy
from scaling.training.machine import keep_freed, processor

Step = Callable[[], object]

ROWS, WIDTH, CLASSES = 8192, 256, 1024
BATCH, HEADS, LENGTH, HEAD = 64, 4, 128, 64
NONE = "– | – | –"


def both_ways(function: Callable[..., Tensor], *inputs: Tensor) -> Step:
    """Forward and backward of a function of tensors; a gradient left as a view is copied, as what comes next would."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    upstream = torch.randn_like(function(*leaves))
    return lambda: [x.contiguous() for x in torch.autograd.grad(function(*leaves), leaves, upstream)]


def losses(logits: Tensor, targets: Tensor) -> Step:
    found, gradient = torch.empty(len(targets)), torch.empty_like(logits)
    return lambda: cross_entropy(logits, targets, found, gradient, 0.0)


def torch_losses(logits: Tensor, targets: Tensor) -> Step:
    leaf = logits.clone().requires_grad_()
    return lambda: torch.autograd.grad(F.cross_entropy(leaf.float(), targets, reduction="sum"), leaf)


def our_attention(causal: bool) -> Callable[..., Tensor]:
    return lambda q, k, v, bias=None: attention(q, k, v, bias, scale=0.125, causal=causal)


def torch_attention(causal: bool) -> Callable[..., Tensor]:
    def function(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, bias, is_causal=causal, scale=0.125)
        return mixed.transpose(1, 2)

    return function


def cases(dtype: torch.dtype) -> dict[str, tuple[int, Step, Step]]:
    """How many numbers, ours, and torch's."""
    x, y = torch.randn(2, ROWS, WIDTH).to(dtype)
    gain, bias = torch.randn(2, WIDTH).to(dtype)
    scores = torch.randn(BATCH * HEADS, LENGTH, LENGTH).to(dtype)
    mask = torch.full((LENGTH, LENGTH), torch.finfo(dtype).min, dtype=dtype).triu(1)
    heads = torch.randn(BATCH, LENGTH, HEADS, HEAD).to(dtype)
    angles = torch.randn(1, LENGTH, HEAD // 2)
    cos, sin = (torch.cat([table, table], -1)[:, :, None].to(dtype) for table in (angles.cos(), angles.sin()))
    around, taps = torch.randn(BATCH, LENGTH + 8, WIDTH).to(dtype), torch.randn(9, WIDTH).to(dtype)
    logits, targets = torch.randn(ROWS, CLASSES).to(dtype), torch.randint(CLASSES, (ROWS,))

    def turn(x: Tensor) -> Tensor:
        one, other = x.chunk(2, -1)
        return (x * cos + torch.cat([-other, one], -1) * sin).transpose(1, 2).contiguous()

    made = {
        "GeLU, tanh": (
            x.numel(),
            both_ways(lambda x: Activated.apply("gelu", x), x),
            both_ways(lambda x: F.gelu(x, approximate="tanh"), x),
        ),
        "SwiGLU's gate": (
            x.numel(),
            both_ways(lambda x, y: Gated.apply("silu", x, y), x, y),
            both_ways(lambda x, y: F.silu(x) * y, x, y),
        ),
        "LayerNorm": (
            x.numel(),
            both_ways(lambda x, g, b: Norm.apply("layer_norm", x, g, b, 1e-5), x, gain, bias),
            both_ways(lambda x, g, b: F.layer_norm(x, (WIDTH,), g, b), x, gain, bias),
        ),
        "RMSNorm": (
            x.numel(),
            both_ways(lambda x, g: Norm.apply("rms_norm", x, g, None, 1e-6), x, gain),
            both_ways(lambda x, g: F.rms_norm(x, (WIDTH,), g, 1e-6), x, gain),
        ),
        "causal softmax": (
            scores.numel(),
            both_ways(lambda x: Softmax.apply(x + 0, None, HEADS, 0.125, True), scores),
            both_ways(lambda x: ((x + 0) * 0.125 + mask).softmax(-1), scores),
        ),
        "rotary, heads first": (
            heads.numel(),
            both_ways(lambda x: Rotated.apply(x, angles.cos(), angles.sin()).transpose(1, 2), heads),
            both_ways(turn, heads),
        ),
        "depthwise, 9 taps": (
            around.numel(),
            both_ways(lambda x, w: Depthwise.apply(x, w, None), around, taps),
            both_ways(lambda x, w: F.conv1d(x.mT, w.mT[:, None], groups=WIDTH).mT, around, taps),
        ),
        "cross-entropy": (logits.numel(), losses(logits, targets), torch_losses(logits, targets)),
    }
    if dtype is torch.float32:
        bias = torch.randn(1, HEADS, LENGTH, LENGTH)
        for name, inputs, causal in (
            ("attention, causal", (heads, heads, heads), True),
            ("attention, a bias that learns", (heads, heads, heads, bias), False),
        ):
            sides = (our_attention(causal), torch_attention(causal))
            ours, theirs = (both_ways(side, *inputs) for side in sides)
            made[name] = (scores.numel(), ours, theirs)
    return made


def least(sides: tuple[Step, Step], turns: int) -> list[float]:
    found = [float("inf")] * 2
    for _ in range(turns):
        for side, step in enumerate(sides):
            started = time.perf_counter()
            step()
            found[side] = min(found[side], time.perf_counter() - started)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=25)
    given = parser.parse_args()
    if (why := absent()) is not None:
        raise SystemExit(f"no kernels: {why}")
    keep_freed()
    torch.set_num_threads(given.threads)
    print(f"{processor()}, {given.threads} threads, torch {torch.__version__}\n")
    print("| | bfloat16: ours | torch | times | float32: ours | torch | times |\n|---|" + "---:|" * 6)
    found: dict[str, list[str]] = {}
    for dtype in (torch.bfloat16, torch.float32):
        for name, (numbers, ours, theirs) in cases(dtype).items():
            own, other = (1e9 * seconds / numbers for seconds in least((ours, theirs), given.turns))
            cells = found.setdefault(name, [] if dtype is torch.bfloat16 else [NONE])
            cells.append(f"{own:.2f} | {other:.2f} | {other / own:.1f}")
    for name, cells in found.items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
