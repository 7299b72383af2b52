"""Load a trained model, let it write or fill gaps, ask it about activations, and exchange weights with transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, overload

from scaling.base.errors import ScalingError
from scaling.config.compose import assignments
from scaling.config.schema import build
from scaling.verbs.verb import RUNS, Flag, Result, RunName, verb

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
        from scaling.evaluation.likelihood import MaskedScorer, Scorer

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
        device, stop = next(self.module.parameters()).device, {ids["eos"]} if "eos" in ids else set()
        batch = batch_of(rows, self.family, ids).to(device)
        written = generate(self.module, batch, strategy, steps=steps, stop=stop)
        return [[Continuation(self._decoded(one.tokens), **vars(one)) for one in row] for row in written]

    def fill(self, text: str, *, best: int = 5) -> list[list[Filling]]:
        """The likeliest tokens of an encoder at each `[MASK]` of a text, the best first. A space before `[MASK]`
        belongs to the token.

            scaling.load("5d1c").fill("the [MASK] of the law")[0][0].text
        """
        from scaling.evaluation.likelihood import filled

        if self.family != "encoder":
            fix = "take `generate`, or an encoder"
            raise ScalingError(f"a run of the family {self.family} fills no mask", key="prompt", value=text, fix=fix)
        if self.tokenizer is None:
            fix = "take a run that was trained on text"
            raise ScalingError("this model has no tokenizer", key="prompt", fix=fix)
        return [[Filling(*one) for one in row] for row in filled(self.scorer, self.tokenizer, text, best)]

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
        """The token ids of a text. An encoder reads `[MASK]` as its mask; an encoder-decoder with sentinels reads its
        first one for the first `[MASK]`, the next one for the next.
        """
        from scaling.evaluation.likelihood import masked

        has_gaps = self.family == "encoder" or (self.family == "encoder_decoder" and "sentinel_0" in self.ids)
        if self.tokenizer is None:
            try:
                tokens = [int(word) for word in text.split()]
            except ValueError:
                fix = "write token ids, as in '5 9 2'"
                raise ScalingError("this model has no tokenizer", key="prompt", value=text, fix=fix) from None
        elif has_gaps:
            tokens = masked(self.tokenizer, self.ids, text)
        else:
            tokens = list(self.tokenizer.encode([text])[0])
        size = self.config["size"]["vocabulary"]
        if beyond := [token for token in tokens if not 0 <= token < size]:
            raise ScalingError(f"token {beyond[0]} is beyond the vocabulary of {size}", key="prompt", value=text)
        return tokens

    def framed(self, text: str, target: str | None = None) -> dict[str, list[int]]:
        """The tokens that each tower reads of a text, framed as in training. An encoder-decoder writes `target`, by
        default what it would write.
        """
        from scaling.inside.look import framed

        if target is not None and self.family != "encoder_decoder":
            raise ScalingError(f"a run of the family {self.family} reads no target", key="target", value=target)
        tokens = {"text": self.encoded(text)}
        if self.family == "encoder_decoder":
            written = self.continuations([text])[0][0].tokens if target is None else self.encoded(target)
            tokens["target"] = list(written)
        return framed(self.family, self.ids, tokens)

    def _read(self, text: str, target: str | None) -> Batch:
        """A batch of one text."""
        from scaling.inside.look import batch_of

        return batch_of(self.module, self.framed(text, target))

    def _decoded(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens)) if self.tokenizer is None else self.tokenizer.decode(tokens)

    def __repr__(self) -> str:
        count = sum(tensor.numel() for tensor in self.saved.tensors.values())
        return f"Model({self.config['model']['kind']}, {count:,} parameters)"


def load(source: RunName, *, runs: str | Path = RUNS, device: str | None = None, step: int | None = None) -> Model:
    """The model of a run (a `Run`, or the beginning of its id in the ledger at `runs`), or of a folder. `step` takes
    the weights of a checkpoint.

        scaling.load("3fa9").generate("def main(")
    """
    from scaling.interop.run import read

    return Model(read(source, runs, step), device)


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
    run: RunName,
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

    An encoder fills each `[MASK]`, a decoder continues the prompt, and an encoder-decoder answers it. key=value sets
    how: `scaling explain decode` prints the strategies and their keys. A model without a tokenizer reads and writes
    token ids. Without a prompt, every line of standard input is one.

    Args:
        prompt: a text to continue; repeats
        steps: the maximum number of tokens to write
    """
    keys = assignments(overrides)
    strategy = {"kind": STRATEGY, **keys}
    build("decode", strategy)  # what is wrong with it is reported before the model is read
    texts = list(prompt) or ([] if sys.stdin.isatty() else sys.stdin.read().splitlines())
    if not texts:
        raise ScalingError("there is no prompt", fix="give --prompt TEXT, or pass one per line on standard input")
    model = load(run, runs=runs, device=device)
    answers, lines = [], []
    if model.family == "encoder":
        if keys:
            what = "an encoder fills masks and has no strategy"
            raise ScalingError(what, key=next(iter(keys)), fix="leave it out")
        for text in texts:
            masks = model.fill(text)
            answers.append({"prompt": text, "masks": [list(map(vars, mask)) for mask in masks]})
            lines.append(text)
            for number, mask in enumerate(masks, 1):
                filled = (f"{one.text.strip()} {one.probability:.3f}" for one in mask)
                lines.append(f"  mask {number}: {', '.join(filled)}")
        return Result(answers, lines)
    joint = " " if model.tokenizer is None else ""
    for text, written in zip(texts, model.continuations(texts, steps=steps, **strategy), strict=True):
        answers.append({"prompt": text, "written": list(map(vars, written))})
        # a decoder's continuation stands behind its prompt
        lines.append((text + joint if model.family == "decoder" else "") + written[0].text)
    return Result(answers, lines)


@verb
def export(
    run: RunName,
    *,
    form: Annotated[str, Flag("format")] = "hf",
    adapter: bool = False,
    to: str | Path | None = None,
    runs: str | Path = RUNS,
) -> Result:
    """Write a trained model as a folder that transformers loads.

        scaling export 3f2a                        a run of the ledger, by the beginning of its id
        scaling export my_model --to my_model_hf   a folder of config.yaml and model.safetensors
        scaling export 3f2a --adapter              of a run tuned by LoRA the updates alone, as peft loads them

    Args:
        run: a run's id, or a folder
        form: hf, the first format of transformers that fits, or one by name (`scaling explain format`)
        adapter: only the LoRA updates of a tuned run; without it they are merged
        to: where to (RUN-hf; RUN-adapter)
    """
    from scaling.interop import huggingface, peft
    from scaling.interop.run import read

    target = to or f"{Path(run).name}-{'adapter' if adapter else 'hf'}"
    saved, name = read(run, runs), None if form == "hf" else form
    with _new(target) as folder:
        if adapter:
            tensors, written = peft.added(saved), peft.write(folder, saved, name)
        else:
            saved = peft.merged(saved)
            tensors, written = saved.tensors, huggingface.write(folder, saved, name)
    return _written(target, "architecture", written.architecture, tensors)


@verb
def import_(folder: str | Path, *, adapter: str | Path | None = None, to: str | Path | None = None) -> Result:
    """Read a folder that transformers saved, and write it as one of ours: config.yaml and model.safetensors.

        scaling import gpt2-folder --to gpt2
        scaling generate gpt2 --prompt "The law of"
        scaling import gpt2-folder --adapter lora-folder   with the LoRA that peft saved for it

    Args:
        folder: config.json and safetensors, as transformers saves them
        adapter: a folder of adapter_config.json and safetensors, as peft saves LoRA for this model
        to: where to (FOLDER-imported)
    """
    from scaling.interop import huggingface, peft
    from scaling.interop.run import write

    target, saved = to or f"{Path(folder).name}-imported", huggingface.read(folder)
    if adapter is not None:
        saved = peft.read(adapter, saved)
    with _new(target) as work:
        write(work, saved, str(Path(folder) / huggingface.CONFIG))
    return _written(target, "kind", saved.sections["model"]["kind"], saved.tensors)


@contextmanager
def _new(name: str | Path) -> Iterator[Path]:
    """A folder that is not there yet, or holds nothing: whole or not there, whatever happens while it is written."""
    folder = Path(name).absolute()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ScalingError("it is there already", file=name, fix="name another with --to")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        partial = Path(work, folder.name)
        partial.mkdir()
        yield partial
        partial.rename(folder)


def _written(folder: str | Path, what: str, name: str, tensors: Any) -> Result:
    count = sum(tensor.numel() for tensor in tensors.values())
    document = {"folder": str(folder), what: name, "parameters": count}
    return Result(document, [f"{folder}: {name}, {count:,} parameters"])
