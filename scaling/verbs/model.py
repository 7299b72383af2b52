"""Load a trained model, let it write or fill gaps, and ask it about words and activations."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from scaling.base.errors import ScalingError
from scaling.config.compose import assignments
from scaling.config.schema import build
from scaling.verbs.verb import RUNS, Result, verb

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, device

    from scaling.base.batch import Batch
    from scaling.data.codec import Codec
    from scaling.interop.huggingface import Saved
    from scaling.model.family import Family

STRATEGY = "Greedy"


@dataclass(frozen=True)
class Continuation:
    """What a model wrote after a prompt; `score` is the sum of the log probabilities, under beam search penalised."""

    text: str
    tokens: Sequence[int]
    score: float
    stopped: bool


@dataclass(frozen=True)
class Filling:
    """A token that may stand at a mask, and its probability."""

    text: str
    token: int
    probability: float


@dataclass(frozen=True)
class Model:
    """A trained model with its tokenizer. `module` is the torch module, ready to evaluate."""

    saved: Saved
    device: str | None = None

    @cached_property
    def module(self) -> Family:
        return self.saved.model(torch_device(self.device))

    @cached_property
    def tokenizer(self) -> Codec | None:
        """None where the model was trained on token ids without text."""
        from scaling.data.codec import Codec

        return Codec.load(self.saved.tokenizer) if self.saved.tokenizer else None

    @property
    def config(self) -> Mapping[str, Any]:
        """The sections `model` and `size`."""
        return self.saved.sections

    @property
    def family(self) -> str:
        """`encoder`, `decoder` or `encoder_decoder`."""
        return self.module.family

    @property
    def ids(self) -> Mapping[str, int]:
        """The special tokens by name: those of the run, and of its tokenizer where it has no other."""
        return {**({} if self.tokenizer is None else self.tokenizer.specials), **self.saved.ids}

    @cached_property
    def scorer(self) -> Any:
        """The likelihood of continuations by a decoder or an encoder-decoder, the pseudo-likelihood by an encoder."""
        from scaling.evaluation.likelihood import Scorer
        from scaling.evaluation.masked import MaskedScorer

        length = self.config["size"]["length"]
        if self.family == "encoder":
            return MaskedScorer(self.module, self.ids, length)
        return Scorer(self.module, self.saved.ids, length)

    @overload
    def generate(self, prompt: str, *, steps: int = 64, kind: str = STRATEGY, **keys: Any) -> str: ...
    @overload
    def generate(self, prompt: Sequence[str], *, steps: int = 64, kind: str = STRATEGY, **keys: Any) -> list[str]: ...
    def generate(
        self, prompt: str | Sequence[str], *, steps: int = 64, kind: str = STRATEGY, **keys: Any
    ) -> str | list[str]:
        """The best continuation of a prompt, or of each of several, of at most `steps` tokens.

        `kind` is a strategy with its keys: `scaling.explain("decode")` prints them. A model without a tokenizer reads
        and writes token ids, `"5 9 2"`.

            model.generate("def main(", kind="Sample", temperature=0.8, seed=1)
        """
        prompts = [prompt] if isinstance(prompt, str) else list(prompt)
        best = [written[0].text for written in self.continuations(prompts, steps=steps, kind=kind, **keys)]
        return best[0] if isinstance(prompt, str) else best

    def continuations(
        self, prompts: Sequence[str], *, steps: int = 64, kind: str = STRATEGY, **keys: Any
    ) -> list[list[Continuation]]:
        """All continuations that the strategy keeps of each prompt, the best first."""
        from scaling.evaluation.generate import generate
        from scaling.evaluation.generate import prompts as batch_of
        from scaling.evaluation.likelihood import check_head

        strategy, ids = build("decode", {"kind": kind, **keys}), self.saved.ids
        check_head(self.module)
        rows = [self.encoded(text) for text in prompts]
        if self.family == "encoder_decoder":  # the prompts are sources, which end in eos
            rows = [[*row, ids["eos"]] if "eos" in ids else row for row in rows]
        else:
            start = [ids[name] for name in ("start", "bos") if name in ids][:1]
            rows = [[*start, *row] for row in rows]
            if not all(rows):
                raise ScalingError("there is nothing to continue", key="prompt", value="", fix="write a token id")
        batch, limit = batch_of(rows, self.family, ids), self.config["size"]["vocabulary"]
        largest = int(max(tokens.max() for tokens in (batch.tokens, batch.source) if tokens is not None))
        if largest >= limit:
            raise ScalingError(f"token {largest} is beyond the vocabulary of {limit}", key="prompt", value=prompts[0])
        device, stop = next(self.module.parameters()).device, {ids["eos"]} if "eos" in ids else set()
        written = generate(self.module, batch.to(device), strategy, steps=steps, stop=stop)
        return [
            [Continuation(self._decoded(one.tokens), one.tokens, one.score, one.stopped) for one in row]
            for row in written
        ]

    def fill(self, text: str, *, best: int = 5) -> list[list[Filling]]:
        """The likeliest tokens of an encoder at each `[MASK]` of a text, the best first. A space before `[MASK]`
        belongs to the token.

            scaling.load("5d1c").fill("the [MASK] of the law")[0][0].text
        """
        from scaling.evaluation.masked import filled

        if self.family != "encoder":
            fix = "take `generate`, or an encoder"
            raise ScalingError(f"a run of the family {self.family} fills no mask", key="prompt", value=text, fix=fix)
        return [[Filling(*one) for one in row] for row in filled(self.scorer, self._codec("prompt"), text, best)]

    def ablate(self, batches: Iterable[Batch]) -> pandas.DataFrame:
        """The loss without each block, then without each head: `name` of the module, `head`, `loss` in nats per target,
        and `effect`, how much higher it is than with all of them.

            held_out = scaling.data_module("decoder", "size=tiny").val_dataloader()
            scaling.load("3fa9").ablate(itertools.islice(held_out, 8)).nlargest(5, "effect")
        """
        import pandas

        from scaling.inside.effects import ablate

        return pandas.DataFrame(ablate(self.module, batches))

    def lens(self, text: str, *, target: str | None = None) -> list[Tensor]:
        """The logits [tokens, vocabulary] that the stream after each block gives by the last norm and the head (the
        logit lens); the last are the model's.
        """
        from scaling.inside.effects import lens

        return [logits[0] for logits in lens(self.module, self._read(text, target))]

    def patch(
        self,
        text: str,
        other: str,
        *patterns: str,
        target: str | None = None,
        tokens: Sequence[int] | slice = slice(None),
    ) -> Tensor:
        """The logits [tokens, vocabulary] over a text when the activations of these names are those over another text,
        at all tokens or at some. Both have the same number of tokens.
        """
        from scaling.inside.effects import patch

        batch, others = self._read(text, target), self._read(other, target)
        return patch(self.module, batch, others, *patterns, tokens=tokens)[0]

    def encoded(self, text: str) -> list[int]:
        """The token ids of a text. An encoder-decoder with sentinels reads its first one for the first `[MASK]`, the
        next one for the next.
        """
        if self.tokenizer is not None:
            if self.family == "encoder_decoder" and "sentinel_0" in self.ids:
                from scaling.evaluation.masked import masked

                return masked(self.tokenizer, self.ids, text)
            return list(self.tokenizer.encode([text])[0])
        try:
            tokens = [int(word) for word in text.split()]
        except ValueError:
            fix = "write token ids, as in '5 9 2'"
            raise ScalingError("this model has no tokenizer", key="prompt", value=text, fix=fix) from None
        if any(token < 0 for token in tokens):
            raise ScalingError("a token id is not negative", key="prompt", value=text)
        return tokens

    def framed(self, text: str, target: str | None = None) -> dict[str, list[int]]:
        """The tokens that each tower reads of a text, framed as in training. An encoder reads `[MASK]` as its mask; an
        encoder-decoder writes `target`, by default what it would write.
        """
        from scaling.evaluation.masked import masked
        from scaling.inside.look import framed

        if target is not None and self.family != "encoder_decoder":
            raise ScalingError(f"a run of the family {self.family} reads no target", key="target", value=target)
        is_masked = self.family == "encoder" and self.tokenizer is not None
        tokens = {"text": masked(self._codec("text"), self.ids, text) if is_masked else self.encoded(text)}
        if self.family == "encoder_decoder":
            written = self.continuations([text])[0][0].tokens if target is None else self.encoded(target)
            tokens["target"] = list(written)
        return framed(self.family, self.ids, tokens)

    def _codec(self, key: str) -> Codec:
        if self.tokenizer is None:
            raise ScalingError("this model has no tokenizer", key=key, fix="take a run that was trained on text")
        return self.tokenizer

    def _read(self, text: str, target: str | None) -> Batch:
        """A batch of one text."""
        from scaling.inside.look import batch_of

        return batch_of(self.module, self.framed(text, target))

    def _decoded(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens)) if self.tokenizer is None else self.tokenizer.decode(tokens)

    def __repr__(self) -> str:
        count = sum(tensor.numel() for tensor in self.saved.tensors.values())
        return f"Model({self.config['model']['kind']}, {count:,} parameters)"


def load(source: Any, *, runs: str | Path = RUNS, device: str | None = None, step: int | None = None) -> Model:
    """The model of a run (a `Run`, or the beginning of its id in the ledger at `runs`), or of a folder. `step` takes
    the weights of a checkpoint.

        scaling.load("3fa9").generate("def main(")
    """
    from scaling.interop.run import read

    return Model(read(getattr(source, "path", source), runs, step), device)


def torch_device(name: str | None) -> device:
    """The device of a name; without one CUDA where there is one."""
    import torch

    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # torch built without it raises any of these
        raise ScalingError("there is no such device here", key="device", value=name, fix="take cpu") from None
    return device


@verb
def generate(
    run: Any,
    *overrides: str,
    prompt: Sequence[str] = (),
    steps: int = 64,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Result:
    """Continue a prompt with a trained model, or fill its gaps.

        scaling generate 3f2a --prompt "def main("
        scaling generate gpt2 --prompt "The law of" kind=Sample top_p=0.9 temperature=0.8 seed=1
        scaling generate marian kind=Beam beams=4 penalty=0.6 < sentences.txt
        scaling generate bert --prompt "the [MASK] of the law"

        scaling.generate("3f2a", prompt=["def main("], kind="Sample", seed=1).document

    An encoder fills each `[MASK]`, a decoder continues the prompt, and an encoder-decoder answers it. key=value sets
    how: `scaling explain decode` prints the strategies and their keys. A model without a tokenizer reads and writes
    token ids. Without a prompt, every line of standard input is one.

    Args:
        run: the beginning of a run's id, or a folder
        prompt: a text to continue; repeats
        steps: the maximum number of tokens to write
    """
    keys = assignments(overrides)
    strategy = {"kind": STRATEGY, **keys}
    build("decode", strategy)  # what is wrong with it is reported before the model is read
    texts = list(prompt) or _standard_input()
    model = load(run, runs=runs, device=device)
    if model.family == "encoder":
        if keys:
            what = "an encoder fills masks and has no strategy"
            raise ScalingError(what, key=next(iter(keys)), fix="leave it out")
        rows: list[list[Any]] = [[[asdict(one) for one in mask] for mask in model.fill(text)] for text in texts]
    else:
        rows = [[asdict(one) for one in row] for row in model.continuations(texts, steps=steps, **strategy)]
    key = "masks" if model.family == "encoder" else "written"
    answers = [{"prompt": text, key: row} for text, row in zip(texts, rows, strict=True)]
    lines = []
    for text, row in zip(texts, rows, strict=True):
        if model.family == "encoder":
            lines.append(text)
            for number, mask in enumerate(row, 1):
                filled = (f"{one['text'].strip()} {one['probability']:.3f}" for one in mask)
                lines.append(f"  mask {number}: {', '.join(filled)}")
        else:  # a decoder's continuation stands behind its prompt
            joint = " " if model.tokenizer is None else ""
            lines.append((text + joint if model.family == "decoder" else "") + row[0]["text"])
    return Result(answers, lines)


def _standard_input() -> list[str]:
    """The lines of standard input."""
    fix = "give --prompt TEXT, or pass one per line on standard input"
    if sys.stdin.isatty():
        raise ScalingError("there is no prompt", fix=fix)
    lines = sys.stdin.read().splitlines()
    if not lines:
        raise ScalingError("standard input is empty", fix=fix)
    return lines
