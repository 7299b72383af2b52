"""A training step of a small translation model beside transformers' Marian and a plain loop over torch's Transformer.

    OMP_NUM_THREADS=1 python benchmarks/translation.py [--width 128] [--layers 4] [--rounds 15] [--tokens 2048]

All have Marian's shape and read the same padded batches: about so many tokens a side, of sentences of 10 to 28 tokens.
A step is the loss with smoothing, its gradient, the clip and Adam's update, without dropout. Each is given float32, and
autocast to bfloat16; contestants take turns, and a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.training.parametrization import Standard, initialise

PAD, BOS, EOS, FIRST = 0, 1, 2, 4
SMOOTHING = 0.1
LENGTHS = (10, 14, 18, 22, 28)


class Pairs(NamedTuple):
    """Sources padded on the right, and what the decoder reads and predicts."""

    source: Tensor
    reads: Tensor
    predicts: Tensor


def draw(length: int, tokens: int, vocabulary: int) -> Pairs:
    rows = tokens // length
    source, target = (torch.randint(FIRST, vocabulary, (rows, length)) for _ in range(2))
    for ids in (source, target):
        ends = torch.randint(length - 4, length + 1, (rows, 1))
        ids.masked_fill_(torch.arange(length) >= ends, PAD)
    start = torch.full((rows, 1), BOS)
    return Pairs(source, torch.cat([start, target[:, :-1]], 1), target.masked_fill(target == PAD, IGNORE))


class Loop(nn.Module):
    """A translation model as a plain loop has it: torch's Transformer between two uses of one table."""

    def __init__(self, width: int, layers: int, heads: int, hidden: int, vocabulary: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)
        places = torch.arange(256)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
        self.register_buffer("places", torch.cat([places.sin(), places.cos()], 1))
        counts: dict[str, Any] = {"num_encoder_layers": layers, "num_decoder_layers": layers, "dim_feedforward": hidden}
        self.body = nn.Transformer(width, heads, **counts, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, pairs: Pairs) -> Tensor:
        scale = self.table.embedding_dim**0.5
        ahead = nn.Transformer.generate_square_subsequent_mask(pairs.reads.shape[1])
        places: Any = self.places
        source, target = (self.table(ids) * scale + places[: ids.shape[1]] for ids in (pairs.source, pairs.reads))
        padding = torch.zeros(pairs.source.shape).masked_fill(pairs.source == PAD, -torch.inf)
        hidden = self.body(
            source,
            target,
            tgt_mask=ahead,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return smoothed(hidden @ self.table.weight.T, pairs.predicts)


def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
    flat = logits.flatten(0, 1).float()
    return nn.functional.cross_entropy(flat, targets.flatten(), ignore_index=IGNORE, label_smoothing=SMOOTHING)


def ours(width: int, layers: int, heads: int, hidden: int, vocabulary: int) -> tuple[nn.Module, Callable]:
    size = f"size={{width: {width}, layers: {layers}, heads: {heads}, hidden: {hidden}, vocabulary: {vocabulary}, "
    config = load("marian", [f"{size}length: 64}}", "model.embedding.dropout=0", "model.block.residual.dropout=0"])
    with torch.device("meta"):
        model = config.build("model", config["size"])
    model = initialise(model, Standard(), seed=0)

    def loss(pairs: Pairs) -> Tensor:
        batch = Batch(pairs.reads, pairs.predicts, source=pairs.source, source_documents=(pairs.source != PAD).long())
        return model.loss(batch, SMOOTHING).total

    return model, loss


def marian(width: int, layers: int, heads: int, hidden: int, vocabulary: int) -> tuple[nn.Module, Callable]:
    from transformers import MarianConfig, MarianMTModel

    sides = {
        f"{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in {"layers": layers, "attention_heads": heads, "ffn_dim": hidden}.items()
    }
    ends = {"pad_token_id": PAD, "eos_token_id": EOS, "bos_token_id": BOS, "decoder_start_token_id": BOS}
    still = {"dropout": 0.0, "use_cache": False, "scale_embedding": True, "max_position_embeddings": 64}
    made: Any = MarianMTModel(MarianConfig(vocab_size=vocabulary, d_model=width, **sides, **ends, **still))

    def loss(pairs: Pairs) -> Tensor:
        inputs = {"input_ids": pairs.source, "attention_mask": pairs.source != PAD, "decoder_input_ids": pairs.reads}
        return smoothed(made(**inputs).logits, pairs.predicts)

    return made, loss


def loop(*shape: int) -> tuple[nn.Module, Callable]:
    made = Loop(*shape)
    return made, made


PRECISIONS = ("float32", "autocast")
CONTESTANTS: dict[str, Callable[..., Any]] = {"ours": ours, "transformers' Marian": marian, "torch's Transformer": loop}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("width", 128), ("layers", 4), ("heads", 4), ("hidden", 256), ("vocabulary", 4000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=15)
    arguments = parser.parse_args()
    shape = [getattr(arguments, name) for name in ("width", "layers", "heads", "hidden", "vocabulary")]
    torch.manual_seed(0)
    batches = [draw(length, arguments.tokens, arguments.vocabulary) for length in LENGTHS]
    steps: dict[tuple[str, str], Callable[[Pairs], None]] = {}
    for name, make in CONTESTANTS.items():
        for precision in PRECISIONS:
            model, loss = make(*shape)
            steps[name, precision] = _step(model, loss, precision)
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in steps}
    for round_ in range(-1, arguments.rounds):
        for key, step in steps.items():
            began = time.process_time()
            for pairs in batches:
                step(pairs)
            if round_ >= 0:  # the first is to warm up
                seconds[key].append((time.process_time() - began) / len(batches))
    for (name, precision), own in seconds.items():
        print(f"{name:<22}{precision:<10}{statistics.median(own) * 1e3:8.1f} ms of CPU a step")
    fastest = {name: min(PRECISIONS, key=lambda each: statistics.median(seconds[name, each])) for name in CONTESTANTS}
    for name in list(CONTESTANTS)[1:]:
        for title, own, their in (("at its best", fastest["ours"], fastest[name]), ("in float32", *["float32"] * 2)):
            pairs = zip(seconds[name, their], seconds["ours", own], strict=True)
            ratios = [theirs / mine for theirs, mine in pairs]
            print(
                f"{name} {title}: {statistics.median(ratios):.2f} times ours ({min(ratios):.2f} to {max(ratios):.2f})"
            )


def _step(model: nn.Module, loss: Callable[[Pairs], Tensor], precision: str) -> Callable[[Pairs], None]:
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)

    def step(pairs: Pairs) -> None:
        with torch.autocast("cpu", torch.bfloat16) if precision == "autocast" else nullcontext():
            found = loss(pairs)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step


if __name__ == "__main__":
    main()
