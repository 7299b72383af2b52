"""Let a trained model continue a prompt, or answer one where it is an encoder-decoder.

scaling generate 3f2a --prompt "def main("
scaling generate gpt2 --prompt "The law of" kind=Sample top_p=0.9 temperature=0.8 seed=1
scaling generate marian kind=Beam beams=4 penalty=0.6 < sentences.txt

key=value says how: `scaling explain decode` prints the strategies and their keys. A model without a tokenizer reads and
writes token ids. Without --prompt, every line of standard input is one.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from scaling.errors import ScalingError

if TYPE_CHECKING:
    from scaling.batch import Batch
    from scaling.data.codec import Codec

STRATEGY = "Greedy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's id, or a folder")
    parser.add_argument("words", nargs="*", metavar="key=value", help=f"the strategy's kind ({STRATEGY}) and its keys")
    parser.add_argument("--prompt", action="append", metavar="TEXT", help="a text to continue; repeats")
    parser.add_argument("--steps", type=int, default=64, metavar="N", help="the most tokens to write (64)")
    parser.add_argument("--device", metavar="NAME", help="cpu, cuda, … (cuda where there is one)")
    parser.add_argument("--extend", metavar="PATH", help="a .py file whose classes join the slots they name")
    parser.add_argument("--json", action="store_true", help="prompts, continuations and scores as one JSON document")


def run(arguments: argparse.Namespace) -> None:
    from scaling import build
    from scaling.command.runs import DEFAULT
    from scaling.config.override import overrides

    if arguments.extend:
        build.extend(arguments.extend)
    _, keys = overrides([word for word in arguments.words if not word.startswith("runs=")], ())
    strategy = build.build("decode", {"kind": STRATEGY, **keys.plain()})
    texts = arguments.prompt or _lines()

    import torch

    from scaling.data.codec import Codec
    from scaling.decode import generate
    from scaling.interop.run import read

    found = read(arguments.run, arguments.runs or DEFAULT)
    codec = Codec.load(found.tokenizer) if found.tokenizer else None
    model = found.model(_device(arguments.device, torch))
    ids = found.described.ids
    batch = _batch([_encoded(text, codec) for text in texts], model.family, ids)
    limit = found.described.sections["size"]["vocabulary"]
    largest = int(max(tokens.max() for tokens in (batch.tokens, batch.source) if tokens is not None))
    if largest >= limit:
        raise ScalingError(f"token {largest} is beyond the vocabulary of {limit}", key="--prompt", value=texts[0])
    device = next(model.parameters()).device
    stop = {ids["eos"]} if "eos" in ids else set()
    rows = generate(model, batch.to(device), strategy, steps=arguments.steps, stop=stop)
    answers = [
        {
            "prompt": text,
            "written": [
                {"text": _decoded(one.tokens, codec), "tokens": one.tokens, "score": one.score, "stopped": one.stopped}
                for one in row
            ],
        }
        for text, row in zip(texts, rows, strict=True)
    ]
    if arguments.json:
        print(json.dumps(answers, indent=2, ensure_ascii=False))
        return
    between = "" if codec else " "
    for answer in answers:  # the best continuation, a decoder's behind its prompt
        lead = answer["prompt"] + between if model.family == "decoder" else ""
        print(lead + answer["written"][0]["text"])


def _lines() -> list[str]:
    if sys.stdin.isatty():
        raise ScalingError("there is no prompt", mend="say --prompt TEXT, or pass one a line on standard input")
    lines = sys.stdin.read().splitlines()
    if not lines:
        raise ScalingError("standard input is empty", mend="say --prompt TEXT, or pass one a line")
    return lines


def _device(name: str | None, torch: Any) -> Any:
    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ScalingError("there is no such device here", key="--device", value=name, mend="take cpu") from None
    return device


def _encoded(text: str, codec: Codec | None) -> list[int]:
    if codec is not None:
        return list(codec.encode([text])[0])
    try:
        tokens = [int(word) for word in text.split()]
    except ValueError:
        raise ScalingError(
            "this model has no tokenizer", key="--prompt", value=text, mend="write token ids, as in --prompt '5 9 2'"
        ) from None
    if any(token < 0 for token in tokens):
        raise ScalingError("a token id is not negative", key="--prompt", value=text)
    return tokens


def _decoded(tokens: list[int], codec: Codec | None) -> str:
    return codec.decode(tokens) if codec is not None else " ".join(map(str, tokens))


def _batch(rows: list[list[int]], family: str, ids: dict[str, int]) -> Batch:
    """The prompts as a model of the family reads them: as sources that end in eos, or behind the start token."""
    import torch

    from scaling.decode import aligned, prompt

    pad = ids.get("pad", 0)
    if family == "encoder_decoder":
        end = [ids["eos"]] if "eos" in ids else []
        source, documents = aligned([[*row, *end] for row in rows], pad)
        start = torch.full((len(rows), 1), ids.get("start", ids.get("bos", 0)))
        return prompt(start, source=source, source_documents=documents)
    start = [ids[name] for name in ("start", "bos") if name in ids][:1]
    rows = [[*start, *row] for row in rows]
    if not all(rows):
        raise ScalingError("there is nothing to continue", key="--prompt", value="", mend="write a token id at least")
    tokens, documents = aligned(rows, pad)
    # A prefix LM sees its prompt whole; other decoders do not look.
    return prompt(tokens, documents, prefix=torch.tensor([len(row) for row in rows]))
