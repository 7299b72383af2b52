"""Let a trained model continue a prompt, answer one where it is an encoder-decoder, or fill its masks where it is an
encoder.

scaling generate 3f2a --prompt "def main("
scaling generate gpt2 --prompt "The law of" kind=Sample top_p=0.9 temperature=0.8 seed=1
scaling generate marian kind=Beam beams=4 penalty=0.6 < sentences.txt
scaling generate bert --prompt "the [MASK] of the law"

key=value sets how: `scaling explain decode` prints the strategies and their keys. A model without a tokenizer reads and
writes token ids. Without --prompt, every line of standard input is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from scaling.api.model import STRATEGY
from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.api.model import Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, or a folder")
    parser.add_argument("words", nargs="*", metavar="key=value", help=f"the strategy's kind ({STRATEGY}) and its keys")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="a text to continue; repeats")
    parser.add_argument("--steps", type=int, default=64, metavar="N", help="the most tokens to write (64)")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--json", action="store_true", help="prompts, continuations and scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling import build
    from scaling.api.model import load
    from scaling.api.runs import RUNS
    from scaling.config import assignments

    keys = assignments(word for word in arguments.words if not word.startswith("runs="))
    strategy = {"kind": STRATEGY, **keys}
    build.build("decode", strategy)  # what is wrong with it is reported before the model is read
    texts = arguments.prompt or _lines()
    model = load(arguments.run, runs=arguments.runs or RUNS, device=arguments.device)
    if model.family == "encoder":
        return _fill(model, texts, arguments)
    rows = model.continuations(texts, steps=arguments.steps, **strategy)
    if arguments.json:
        answers = [
            {"prompt": text, "written": [asdict(continuation) for continuation in row]}
            for text, row in zip(texts, rows, strict=True)
        ]
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return
    between = " " if model.tokenizer is None else ""
    for text, row in zip(texts, rows, strict=True):  # the best continuation, a decoder's behind its prompt
        print((text + between if model.family == "decoder" else "") + row[0].text)


def _fill(model: Model, texts: list[str], arguments: argparse.Namespace) -> None:
    """The likeliest fillings of each mask."""
    words = [word for word in arguments.words if not word.startswith("runs=")]
    if words:
        raise ScalingError("an encoder fills masks and has no strategy", key=words[0], fix="leave it out")
    rows = [model.fill(text) for text in texts]
    if arguments.json:
        answers = [
            {"prompt": text, "masks": [[asdict(one) for one in mask] for mask in row]}
            for text, row in zip(texts, rows, strict=True)
        ]
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return
    for text, row in zip(texts, rows, strict=True):
        print(text)
        for number, mask in enumerate(row, 1):
            print(f"  mask {number}: " + ", ".join(f"{one.text.strip()} {one.probability:.3f}" for one in mask))


def _lines() -> list[str]:
    if sys.stdin.isatty():
        raise ScalingError("there is no prompt", fix="give --prompt TEXT, or pass one per line on standard input")
    lines = sys.stdin.read().splitlines()
    if not lines:
        raise ScalingError("standard input is empty", fix="give --prompt TEXT, or pass one per line")
    return lines
