"""Scoring the options of multiple-choice questions beside its forward passes alone.

    OMP_NUM_THREADS=1 python benchmarks/options.py [--options 10000] [--rounds 5] [--width 128] [--layers 4]

The whole of `scaling.evaluation.options.scored` (writing the prompts, tokenizing them, sorting, padding, losses and
choices) beside a replay of the same padded passes with their caches and logits. Rounds alternate; the median of their
ratios counts.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from tokenizers import Tokenizer

from scaling.config.compose import load
from scaling.config.schema import build
from scaling.data.codec import Codec
from scaling.data.tokenizer import ByteBPE
from scaling.evaluation.likelihood import Scorer
from scaling.evaluation.options import Prompting, Question, scored
from scaling.model.context import Cache
from scaling.model.family import Family

CHOICES, SHOTS = 4, 1


def questions(count: int) -> list[Question]:
    """Questions of 20 to 50 words, each with four options of 1 to 9 words."""
    draw = random.Random(1)
    words = ["".join(draw.choices("aeioulnrst", k=draw.randrange(2, 8))) for _ in range(500)]

    def text(count: int) -> str:
        return " ".join(draw.choices(words, k=count))

    return [
        Question(text(draw.randrange(20, 50)), tuple(text(draw.randrange(1, 9)) for _ in range(CHOICES)), (0,))
        for _ in range(count // CHOICES)
    ]


class Replay:
    """The forward passes that a model is asked for, to be made again without anything around them."""

    def __init__(self, model: Family):
        self.model, self.events, self.caches = model, [], {}
        self.forward, self.copy, self.select, self.loss = model.forward, Cache.copy, Cache.select, model.head.loss

    def __enter__(self) -> Replay:
        def forward(batch: Any, cache: Cache | None = None) -> Any:
            self.events.append(("forward", batch, cache))
            return self.forward(batch, cache)

        def copy(cache: Cache) -> Cache:
            new = self.copy(cache)
            self.events.append(("copy", cache, new))
            return new

        def select(cache: Cache, rows: torch.Tensor) -> None:
            self.events.append(("select", cache, rows))
            self.select(cache, rows)

        def loss(hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            self.events.append(("head", torch.randn_like(hidden), None))
            return self.loss(hidden, targets)

        self.model.forward, self.model.head.loss = forward, loss  # type: ignore[method-assign]
        Cache.copy, Cache.select = copy, select  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: Any) -> None:
        self.model.forward, self.model.head.loss = self.forward, self.loss  # type: ignore[method-assign]
        Cache.copy, Cache.select = self.copy, self.select  # type: ignore[method-assign]
        held = {id(one): number for number, one in enumerate(self._caches())}
        last = {}
        for number, (kind, first, second) in enumerate(self.events):
            names = [held.get(id(one)) if isinstance(one, Cache) else one for one in (first, second)]
            self.events[number] = (kind, *names)
            last |= {id(one): number for one in (first, second) if isinstance(one, Cache)}
        self.ends = {number: held[one] for one, number in last.items()}

    def _caches(self) -> list[Cache]:
        return [one for event in self.events for one in event[1:] if isinstance(one, Cache)]

    @torch.inference_mode()
    def __call__(self) -> None:
        caches: dict[int, Cache] = {}
        for number, (kind, first, second) in enumerate(self.events):
            if kind == "forward":
                self.model(first, None if second is None else caches.setdefault(second, Cache()))
            elif kind == "copy":
                caches[second] = caches[first].copy()
            elif kind == "select":
                caches[first].select(second)
            else:
                self.model.head(first)
            if number in self.ends:
                del caches[self.ends[number]]


def seconds(call: Callable[[], Any]) -> float:
    started = time.process_time()
    call()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("options", 10_000), ("rounds", 5), ("width", 128), ("layers", 4), ("vocabulary", 4096)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args()
    asked = questions(given.options)
    tokenizer: Tokenizer = ByteBPE(vocabulary=given.vocabulary).fit(one.text for one in asked[:500])
    codec = Codec(tokenizer)
    heads = max(1, given.width // 64)
    size = {"width": given.width, "layers": given.layers, "heads": heads, "vocabulary": given.vocabulary, "length": 256}
    torch.manual_seed(1)
    model: Family = build("model", load("decoder")["model"], size).eval()
    ids, prompting = {"start": codec.specials["eos"], "pad": codec.specials["pad"]}, Prompting(shots=SHOTS)
    scorer, numbered = Scorer(model, ids, size["length"]), dict(enumerate(asked[SHOTS:]))
    head = prompting.head(asked[:SHOTS])

    def score() -> None:
        for one in scored(scorer, codec, numbered, prompting, head)[0]:
            _ = one.choices

    with Replay(model) as replay:
        score()
    passes = sum(kind == "forward" for kind, *_ in replay.events)
    print(f"{len(numbered) * CHOICES:,} options, {passes} forward passes, {torch.get_num_threads()} threads")
    ratios = []
    for _ in range(given.rounds):
        alone, whole = seconds(replay), seconds(score)
        ratios.append(whole / alone)
        print(f"scoring {whole:7.2f} s, forward passes alone {alone:7.2f} s, ratio {ratios[-1]:.3f}")
    print(f"median ratio {statistics.median(ratios):.3f}")


if __name__ == "__main__":
    main()
