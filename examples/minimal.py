"""A GPT-style decoder and its training step in one short file.

    python examples/minimal.py

It computes the same as `scaling train decoder` without slots: pre-norm blocks of RMSNorm, rotary attention and SwiGLU;
AdamW; a cosine schedule with a warmup; one clipped update for each batch. `tests/examples` trains both on the
same batches from the same weights, and their losses agree to 1e-5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True)
class Size:
    width: int = 16
    layers: int = 2
    heads: int = 2
    vocabulary: int = 512
    hidden: int = 40
    """Of the feed-forward layer: 8/3 of the width, to a multiple of eight, because SwiGLU has three matrices."""


class RMSNorm(nn.Module):
    """x / rms(x) · gain. (Zhang & Sennrich 2019)"""

    def __init__(self, width: int):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self.gain, 1e-6)


def rotate(x: Tensor) -> Tensor:
    """Turn each pair of features (i, i + half) by position · 10000^(−i/half). (Su et al. 2021)"""
    half = x.shape[-1] // 2
    speed = 10000.0 ** (-torch.arange(half) / half)
    angle = torch.arange(x.shape[-2])[:, None] * speed
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angle.cos() - second * angle.sin(), second * angle.cos() + first * angle.sin()], -1)


class Attention(nn.Module):
    """softmax(q·k / √d) v over the past, for each head. (Vaswani et al. 2017)"""

    def __init__(self, size: Size):
        super().__init__()
        self.heads = size.heads
        self.query, self.key, self.value, self.out = (
            nn.Linear(size.width, size.width, bias=False) for _ in ("query", "key", "value", "out")
        )

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (
            linear(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for linear in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class SwiGLU(nn.Module):
    """(swish(x G) ⊙ x H) O. (Shazeer 2020)"""

    def __init__(self, size: Size):
        super().__init__()
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.hidden = nn.Linear(size.width, size.hidden, bias=False)
        self.out = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.silu(self.gate(x)) * self.hidden(x))


class Block(nn.Module):
    """x + f(norm(x)), first attention, then the feed-forward layer."""

    def __init__(self, size: Size):
        super().__init__()
        self.attention_norm, self.attention = RMSNorm(size.width), Attention(size)
        self.channel_norm, self.channel = RMSNorm(size.width), SwiGLU(size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.channel(self.channel_norm(x))


class Decoder(nn.Module):
    """Logits of each next token."""

    def __init__(self, size: Size):
        super().__init__()
        self.size = size
        self.table = nn.Parameter(torch.empty(size.vocabulary, size.width))
        self.blocks = nn.ModuleList(Block(size) for _ in range(size.layers))
        self.norm = RMSNorm(size.width)
        self.head = nn.Linear(size.width, size.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.embedding(tokens, self.table)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    @torch.no_grad()
    def initialise(self, seed: int) -> Decoder:
        """The table N(0, 0.02²), matrices N(0, 1/fan_in), matrices into the stream divided by √(2N), the head 0."""
        generator = torch.Generator().manual_seed(seed)
        self.table.normal_(0, 0.02, generator=generator)
        self.head.weight.zero_()
        for name, matrix in self.blocks.named_parameters():
            if matrix.ndim == 2:
                depth = 2 * self.size.layers if name.endswith("out.weight") else 1
                matrix.normal_(0, (matrix.shape[1] * depth) ** -0.5, generator=generator)
        return self


def cosine(step: int, steps: int, warmup: int, floor: float = 0.1) -> float:
    """The fraction of the peak learning rate at a step: a linear rise, then half a cosine down to the floor."""
    share = max(0, step - warmup) / max(1, steps - warmup)
    return min(1.0, (step + 1) / max(1, warmup)) * (floor + (1 - floor) * (1 + math.cos(math.pi * share)) / 2)


def train(
    model: Decoder,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    steps: int,
    warmup: int,
    lr: float = 3e-3,
    weight_decay: float = 0.1,
    clip: float = 1.0,
) -> Iterator[float]:
    """One update for each batch of tokens and the tokens that follow them; yields the loss in nats per token."""
    matrices = [one for one in model.parameters() if one.ndim > 1]
    vectors = [one for one in model.parameters() if one.ndim == 1]
    groups = [{"params": matrices, "weight_decay": weight_decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    for step, (tokens, targets) in zip(range(steps), batches):
        for group in optimizer.param_groups:
            group["lr"] = lr * cosine(step, steps, warmup)
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()


def walks(seed: int, vocabulary: int, rows: int = 16, length: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a language for a trial: each token is the last one plus 1, 2 or 3; its entropy is ln 3."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        steps = torch.randint(1, 4, (rows, length + 1), generator=generator)
        tokens = steps.cumsum(1) % vocabulary
        yield tokens[:, :-1], tokens[:, 1:]


def main() -> None:
    size = Size(vocabulary=64)
    losses = train(Decoder(size).initialise(0), walks(0, size.vocabulary), steps=300, warmup=30)
    for step, loss in enumerate(losses, 1):
        if step % 50 == 0:
            print(f"step {step:3}  loss {loss:.4f}  (the entropy of the language is {math.log(3):.4f})")


if __name__ == "__main__":
    main()
