"""GPT-2 in the form of nanoGPT: plain torch modules, one product for queries, keys and values, a tied head.

Attention is torch's fused kernel (`flash`), or two products with a softmax between them. Written for the benchmarks
from the description of the model, with nanoGPT's choices of operations.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    causal: Tensor  # without `flash`

    def __init__(self, width: int, heads: int, length: int, flash: bool):
        super().__init__()
        self.heads, self.flash = heads, flash
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        if not flash:
            self.register_buffer("causal", torch.ones(length, length, dtype=torch.bool).tril(), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.out(self.attention(self.norm_attention(x)))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x))))

    def attention(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.qkv(x).split(width, dim=2)
        )
        if self.flash:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q @ k.transpose(-2, -1)) * k.size(-1) ** -0.5
            scores = scores.masked_fill(~self.causal[:length, :length], float("-inf"))
            mixed = F.softmax(scores, dim=-1) @ v
        return mixed.transpose(1, 2).contiguous().view(rows, length, width)


class PlainGPT(nn.Module):
    def __init__(self, width: int, layers: int, heads: int, length: int, vocabulary: int, flash: bool):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, length, flash) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.apply(self._draw)
        self.tokens.weight = self.head.weight

    @staticmethod
    def _draw(module: nn.Module) -> None:
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def loss(self, tokens: Tensor) -> Tensor:
        """Of each token given those before it."""
        given, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.tokens(given) + self.places(torch.arange(given.size(1)))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))
