"""A trained model, and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from scaling.errors import ScalingError

if TYPE_CHECKING:
    import pandas
    from torch import Tensor
    from torch.nn import Module

    from scaling.batch import Batch
    from scaling.data.codec import Codec
    from scaling.decode.written import Written
    from scaling.interop.run import Run as Saved
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
    """What may stand at a mask, and how likely it is."""

    text: str
    token: int
    probability: float


@dataclass(frozen=True)
class Model:
    """A trained model with its tokenizer. `module` is the torch module, ready to evaluate."""

    saved: Saved
    device: str | None = None

    @cached_property
    def module(self) -> Module:
        return self.saved.model(_device(self.device))

    @cached_property
    def tokenizer(self) -> Codec | None:
        """None where the model was trained on token ids without text."""
        from scaling.data.codec import Codec

        return Codec.load(self.saved.tokenizer) if self.saved.tokenizer else None

    @property
    def config(self) -> Mapping[str, Any]:
        """The sections `model` and `size`."""
        return self.saved.described.sections

    @property
    def family(self) -> str:
        """`encoder`, `decoder` or `encoder_decoder`."""
        return self.module.family  # type: ignore[return-value]

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
        from scaling.decode import generate
        from scaling.schema import build

        strategy = build("decode", {"kind": kind, **keys})
        rows = [self.encoded(text) for text in prompts]
        ids = self.saved.described.ids
        batch = _batch(rows, self.family, ids)
        limit = self.config["size"]["vocabulary"]
        largest = int(max(tokens.max() for tokens in (batch.tokens, batch.source) if tokens is not None))
        if largest >= limit:
            raise ScalingError(f"token {largest} is beyond the vocabulary of {limit}", key="prompt", value=prompts[0])
        device = next(self.module.parameters()).device
        stop = {ids["eos"]} if "eos" in ids else set()
        written = generate(self.module, batch.to(device), strategy, steps=steps, stop=stop)  # type: ignore[arg-type]
        return [[self._decoded(continuation) for continuation in row] for row in written]

    def fill(self, text: str, *, best: int = 5) -> list[list[Filling]]:
        """What an encoder finds the likeliest at each `[MASK]` of a text, the best first. A space before it belongs to
        it.

            scaling.load("5d1c").fill("the [MASK] of the law")[0][0].text
        """
        from scaling.scoring.masked import MaskedScorer, filled

        if self.family != "encoder":
            fix = "take `generate`, or an encoder"
            raise ScalingError(f"a run of the family {self.family} fills no mask", key="prompt", value=text, fix=fix)
        if self.tokenizer is None:
            raise ScalingError("this model has no tokenizer", key="prompt", value=text)
        scorer = MaskedScorer(self.module, self.ids, self.config["size"]["length"])  # type: ignore[arg-type]
        return [[Filling(*one) for one in row] for row in filled(scorer, self.tokenizer, text, best)]

    def ablate(self, batches: Iterable[Batch]) -> pandas.DataFrame:
        """The loss without each block, then without each head: `name` of the module, `head`, `loss` in nats per target,
        and `effect`, how much higher it is than with all of them.

            held_out = scaling.data_module("decoder", "size=tiny").val_dataloader()
            scaling.load("3fa9").ablate(itertools.islice(held_out, 8)).nlargest(5, "effect")
        """
        import pandas

        from scaling.inside.effects import ablate

        return pandas.DataFrame([asdict(effect) for effect in ablate(self._family, batches)])

    def lens(self, text: str, *, target: str | None = None) -> list[Tensor]:
        """The logits [tokens, vocabulary] that the stream after each block gives by the last norm and the head (the
        logit lens); the last are the model's.
        """
        from scaling.inside.effects import lens

        return [logits[0] for logits in lens(self._family, self._read(text, target))]

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
        return patch(self._family, batch, others, *patterns, tokens=tokens)[0]

    def neighbours(self, word: str, *, best: int = 10) -> pandas.DataFrame:
        """The tokens whose static vectors (of the embedding) are nearest to a word's: `token`, `text` and `cosine`.

        scaling.load("3fa9").neighbours("law")
        """
        import pandas

        from scaling.inside.words import neighbours, spelled, table, token_of

        if best < 1:
            raise ScalingError("expected a positive number", key="best", value=best)
        near = neighbours(table(self._family), token_of(self._codec, word), best)
        rows = [(token, spelled(self._codec, self.ids, token), cosine) for token, cosine in near]
        return pandas.DataFrame(rows, columns=["token", "text", "cosine"])

    def word_map(self, words: Sequence[str]) -> pandas.DataFrame:
        """The static vectors of words on the plane of their first two principal components: `word`, `x` and `y`."""
        import pandas

        from scaling.inside.words import plane, table, token_of

        if len(words) < 2:
            raise ScalingError("a map takes two words or more", key="words", value=" ".join(words))
        places = plane(table(self._family)[[token_of(self._codec, word) for word in words]])
        return pandas.DataFrame({"word": list(words), "x": places[:, 0], "y": places[:, 1]})

    def in_context(self, word: str, texts: Sequence[str]) -> pandas.DataFrame:
        """How alike a word is in each pair of texts by its vector in each layer: `layer` (0: what the first block is
        given), the numbers `one` and `other` of two texts, and the `cosine`. Of a static vector it is 1 throughout.

            model.in_context("bank", ["the bank of the river", "the bank lends money", "money in the bank"])
        """
        import pandas

        from scaling.inside.words import cosines, in_context

        if len(texts) < 2:
            raise ScalingError("two texts or more are compared", key="texts", value=list(texts))
        tower = "decoder" if self.family == "decoder" else "encoder"
        streams = []
        for text in texts:
            first = text.startswith(word)
            own = [int(token) for token in self._codec.encode([word if first else f" {word}"])[0]]
            target = "" if self.family == "encoder_decoder" else None
            tokens = self.framed(text, target)[tower]
            streams.append(in_context(self._family, self._read(text, target), tokens, own))
        rows = []
        for layer, vectors in enumerate(zip(*streams, strict=True)):
            like = cosines(vectors)
            pairs = [(one, other) for one in range(len(texts)) for other in range(one + 1, len(texts))]
            rows += [(layer, one, other, float(like[one, other])) for one, other in pairs]
        return pandas.DataFrame(rows, columns=["layer", "one", "other", "cosine"])

    @property
    def _codec(self) -> Codec:
        if self.tokenizer is None:
            raise ScalingError("this model has no tokenizer", key="word", fix="take a run that was trained on text")
        return self.tokenizer

    @property
    def _family(self) -> Family:
        return self.module  # type: ignore[return-value]

    def _read(self, text: str, target: str | None) -> Batch:
        """A batch of one text."""
        from scaling.inside.look import batch_of

        return batch_of(self._family, self.framed(text, target))

    @property
    def ids(self) -> Mapping[str, int]:
        """The special tokens by name: those of the run, and of its tokenizer where it has no other."""
        own = {} if self.tokenizer is None else self.tokenizer.specials
        return {**own, **self.saved.described.ids}

    def encoded(self, text: str) -> list[int]:
        """The token ids of a text. An encoder-decoder with sentinels reads its first one for the first `[MASK]`, the
        next one for the next.
        """
        if self.tokenizer is not None:
            if self.family == "encoder_decoder" and "sentinel_0" in self.ids:
                from scaling.inside.look import masked

                return masked(self.tokenizer, self.ids, text)
            return list(self.tokenizer.encode([text])[0])
        try:
            tokens = [int(word) for word in text.split()]
        except ValueError:
            raise ScalingError(
                "this model has no tokenizer", key="prompt", value=text, fix="write token ids, as in '5 9 2'"
            ) from None
        if any(token < 0 for token in tokens):
            raise ScalingError("a token id is not negative", key="prompt", value=text)
        return tokens

    def framed(self, text: str, target: str | None = None) -> dict[str, list[int]]:
        """The tokens that each tower reads of a text, framed as in training. An encoder reads `[MASK]` as its mask; an
        encoder-decoder writes `target`, by default what it would write.
        """
        from scaling.inside.look import framed, masked

        if target is not None and self.family != "encoder_decoder":
            raise ScalingError(f"a run of the family {self.family} reads no target", key="--target", value=target)
        if self.family == "encoder" and self.tokenizer is not None:
            encoded = {"text": masked(self.tokenizer, self.ids, text)}
        else:
            encoded = {"text": self.encoded(text)}
        if self.family == "encoder_decoder":
            written = self.continuations([text])[0][0].tokens if target is None else self.encoded(target)
            encoded["target"] = list(written)
        return framed(self.family, self.ids, encoded)

    def _decoded(self, written: Written) -> Continuation:
        tokens = written.tokens
        text = " ".join(map(str, tokens)) if self.tokenizer is None else self.tokenizer.decode(tokens)
        return Continuation(text, tokens, written.score, written.stopped)

    def __repr__(self) -> str:
        count = sum(tensor.numel() for tensor in self.saved.described.tensors.values())
        return f"Model({self.config['model']['kind']}, {count:,} parameters)"


def load(source: str | Path | object, *, runs: str | Path = "runs", device: str | None = None) -> Model:
    """The model of a run (a `Run`, or the beginning of its id in the ledger at `runs`), or of a folder.

    scaling.load("3fa9").generate("def main(")
    """
    from scaling.interop.run import read

    source = getattr(source, "path", source)
    return Model(read(source, runs), device)  # type: ignore[arg-type]


def _device(name: str | None) -> Any:
    import torch

    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError):  # torch built without it raises any of these
        raise ScalingError("there is no such device here", key="device", value=name, fix="take cpu") from None
    return device


def _batch(rows: list[list[int]], family: str, ids: Mapping[str, int]) -> Batch:
    """The prompts as a model of the family reads them: as sources that end in eos, or behind the start token."""
    from scaling.decode import prompts

    if family == "encoder_decoder":
        end = [ids["eos"]] if "eos" in ids else []
        return prompts([[*row, *end] for row in rows], family, ids)
    start = [ids[name] for name in ("start", "bos") if name in ids][:1]
    rows = [[*start, *row] for row in rows]
    if not all(rows):
        raise ScalingError("there is nothing to continue", key="prompt", value="", fix="write a token id at least")
    return prompts(rows, family, ids)
