"""Load a trained model, generate text or fill gaps, read its activations, and exchange weights with transformers."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from scaling.base.errors import ScalingError, refuse
from scaling.base.numbers import PositiveInt
from scaling.config.compose import assignments
from scaling.config.schema import build
from scaling.verbs.verb import RUNS, Flag, Result, RunName, frame, verb

if TYPE_CHECKING:
    import pandas
    from torch import Tensor, device

    from scaling.base.batch import Batch
    from scaling.data.codec import Codec
    from scaling.evaluation.likelihood import Filling
    from scaling.interop.huggingface import Saved
    from scaling.model.family import Family

STRATEGY = "Greedy"


@dataclass(frozen=True)
class Continuation:
    """The text that a model wrote after a prompt; `score` is the sum of log probabilities, penalised under beam
    search.
    """

    text: str
    tokens: Sequence[int]
    score: float
    stopped: bool


@dataclass(frozen=True, repr=False)
class Model:
    """A trained model with its tokenizer. `module` is the torch module, ready to evaluate."""

    saved: Saved
    device: str | None = None

    @cached_property
    def module(self) -> Family:
        return self.saved.model(torch_device(self.device))

    @cached_property
    def tokenizer(self) -> Codec | None:
        """None if the model was trained on token ids without text."""
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
        """The special tokens by name: those of the run, or else of its tokenizer."""
        return {**({} if self.tokenizer is None else self.tokenizer.specials), **self.saved.ids}

    @cached_property
    def scorer(self) -> Any:
        """The likelihood of continuations by a decoder or an encoder-decoder, the pseudo-likelihood by an encoder."""
        from scaling.evaluation import likelihood

        length = self.config["size"]["length"]
        if self.family == "encoder":
            return likelihood.MaskedScorer(self.module, self.ids, length)
        return likelihood.Scorer(self.module, self.saved.ids, length)

    def generate(self, prompt: str | Sequence[str], *, steps: int = 64, **strategy: Any) -> Any:
        """The best continuation of a prompt, or of each of several prompts, with at most `steps` tokens. A strategy has
        a `kind` with keys (`scaling.explain("decode")`). A model without a tokenizer reads and writes token ids.

            model.generate("def main(", kind="Sample", temperature=0.8, seed=1)
        """
        prompts = [prompt] if isinstance(prompt, str) else prompt
        best = [written[0].text for written in self.continuations(prompts, steps=steps, **strategy)]
        return best[0] if isinstance(prompt, str) else best

    def continuations(self, prompts: Sequence[str], *, steps: int = 64, **strategy: Any) -> list[list[Continuation]]:
        """All continuations that the strategy keeps of each prompt, the best first."""
        from scaling.evaluation import generate, likelihood

        decode, ids = build("decode", {"kind": STRATEGY, **strategy}), self.saved.ids
        likelihood.check_head(self.module)
        stop = {ids["eos"]} if "eos" in ids else set()
        before, after = generate.framing(self.family, ids)
        rows = [[*before, *self.encoded(text), *after] for text in prompts]
        refuse(not all(rows), "there is nothing to continue", "write a token id", key="prompt", value="")
        batch = generate.prompts(rows, self.family, ids).to(next(self.module.parameters()).device)
        written = generate.generate(self.module, batch, decode, steps=steps, stop=stop)
        text = self.tokenizer.decode if self.tokenizer else lambda tokens: " ".join(map(str, tokens))
        return [[Continuation(text(one.tokens), **vars(one)) for one in row] for row in written]

    def fill(self, text: str, *, best: int = 5) -> list[list[Filling]]:
        """The most likely tokens of an encoder at each `[MASK]` of a text, the best first."""
        from scaling.evaluation.likelihood import MASK, filled

        what, fix = f"a run of the family {self.family} cannot fill masks", "take `generate`, or an encoder"
        refuse(self.family != "encoder", what, fix, key="prompt", value=text)
        if self.tokenizer is None:
            raise ScalingError("this model has no tokenizer", key="prompt", fix="take a run that was trained on text")
        scorer = self.scorer  # a head that predicts no tokens is refused first
        refuse(MASK not in text, "it has no mask", f"write {MASK} where a token is asked for", key="prompt", value=text)
        return filled(scorer, self.tokenizer, self.encoded(text), best)

    def ablate(self, batches: Iterable[Batch]) -> pandas.DataFrame:
        """`name`, `head`, `loss` (nats per target) and `effect` (its increase) without each block, then each head."""
        from scaling.inside.effects import ablate

        return frame(ablate(self.module, batches))

    def lens(self, text: str, *, target: str | None = None) -> list[Tensor]:
        """The logit lens: the last norm and the head on each block's output give logits [tokens, vocabulary]."""
        from scaling.inside.effects import lens

        return [logits[0] for logits in lens(self.module, self._read(text, target))]

    def patch(self, text: str, other: str, *patterns: str, target: str | None = None, tokens=slice(None)) -> Tensor:
        """The logits [tokens, vocabulary] for a text when the named activations, at all tokens or at some, come from
        another text with the same number of tokens.
        """
        from scaling.inside.effects import patch

        batch, others = self._read(text, target), self._read(other, target)
        return patch(self.module, batch, others, *patterns, tokens=tokens)[0]

    def encoded(self, text: str) -> list[int]:
        """The token ids of a text. `[MASK]` is an encoder's mask, or the next sentinel of an encoder-decoder."""
        from scaling.evaluation.likelihood import masked

        is_text = text == text.encode(errors="ignore").decode()  # a terminal may pass on bytes that are none
        refuse(not is_text, "it is not UTF-8", "convert it, as by iconv", key="prompt", value=text)
        has_gaps = self.family == "encoder" or (self.family == "encoder_decoder" and "sentinel_0" in self.ids)
        if self.tokenizer is not None:
            tokens = masked(self.tokenizer, self.ids, text) if has_gaps else [*self.tokenizer.encode([text])[0]]
        elif all(word.removeprefix("-").isdecimal() for word in text.split()):
            tokens = [*map(int, text.split())]
        else:
            fix = "write token ids, as in '5 9 2'"
            raise ScalingError("this model has no tokenizer", key="prompt", value=text, fix=fix)
        size = self.config["size"]["vocabulary"]
        if beyond := [token for token in tokens if not 0 <= token < size]:
            raise ScalingError(f"token {beyond[0]} is beyond the vocabulary of {size}", key="prompt", value=text)
        return tokens

    def framed(self, text: str, target: str | None = None) -> dict[str, list[int]]:
        """The tokens that each tower reads for a text, framed as in training. `target`: the output (None: its own)."""
        from scaling.evaluation.generate import framing, start

        before, after = framing(self.family, self.ids)
        read = [*before, *self.encoded(text), *after]
        if self.family != "encoder_decoder":
            refuse(target is not None, f"a run of the family {self.family} reads no target", key="target", value=target)
            return {self.family: read}
        steps = min(64, self.module.towers["decoder"].shape.length - 1)  # one less than it reads: the start is one
        written = self.encoded(target) if target is not None else self.continuations([text], steps=steps)[0][0].tokens
        return {"encoder": read, "decoder": [start(self.ids), *written]}

    def _read(self, text: str, target: str | None) -> Batch:
        """A batch of one text."""
        from scaling.inside.look import batch_of

        return batch_of(self.module, self.framed(text, target))

    def __repr__(self) -> str:
        count = sum(tensor.numel() for tensor in self.saved.tensors.values())
        return f"Model({self.config['model']['kind']}, {count:,} parameters)"


def load(source: RunName, *, runs: str | Path = RUNS, device: str | None = None, step: int | None = None) -> Model:
    """The model of a run of the ledger `runs`, or of a folder. `step` selects the weights of a checkpoint."""
    from scaling.interop.run import read

    return Model(read(source, runs, step), device)


def torch_device(name: str | None) -> device:
    """The device with this name; without a name CUDA if the machine has it."""
    import torch

    try:
        device = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=device).tolist()
    except (RuntimeError, AssertionError, NotImplementedError, ImportError):  # of a torch that is built without it
        raise ScalingError("there is no such device here", key="device", value=name, fix="take cpu") from None
    return device


def _lines() -> list[str]:
    """The lines of standard input, if it is not a terminal."""
    try:
        return [] if sys.stdin is None or sys.stdin.isatty() else [line.rstrip("\r\n") for line in sys.stdin]
    except UnicodeDecodeError as error:
        raise ScalingError(f"standard input is not UTF-8: {error}", fix="convert it, as by iconv") from None


@verb
def generate(
    run: RunName,
    *overrides: str,
    prompt: Annotated[Sequence[str], "a text to continue; repeats"] = (),
    steps: Annotated[PositiveInt | None, "the maximum number of tokens to write (default 64)"] = None,
    runs: str | Path = RUNS,
    device: str | None = None,
    **settings: Any,
) -> Result:
    """Continue a prompt with a trained model, or fill its gaps.

        scaling generate 3f2a --prompt "def main("
        scaling generate gpt2 --prompt "The law of" kind=Sample top_p=0.9 temperature=0.8 seed=1
        scaling generate marian kind=Beam beams=4 penalty=0.6 < sentences.txt
        scaling generate bert --prompt "the [MASK] of the law"

    An encoder fills each `[MASK]`, a decoder continues the prompt, an encoder-decoder answers it. key=value sets the
    strategy: see `scaling explain decode`. Without --prompt, each line of standard input is a prompt (text or token
    ids).
    """
    keys = assignments(overrides)
    strategy = {"kind": STRATEGY, **keys}
    build("decode", strategy)  # what is wrong with it is reported before the model is read
    texts = list(prompt) or _lines()
    refuse(not texts, "there is no prompt", "give --prompt TEXT, or pass one per line on standard input")
    model = load(run, runs=runs, device=device)
    if model.family != "encoder":
        written = model.continuations(texts, steps=steps or 64, **strategy)
        answers = [{"prompt": text, "written": list(map(vars, each))} for text, each in zip(texts, written)]
        joint = " " if model.tokenizer is None else ""
        before = [text + joint if model.family == "decoder" else "" for text in texts]  # a decoder goes on with it
        return Result(answers, [text + each[0].text for text, each in zip(before, written)])
    refuse(keys or steps, "an encoder only fills masks", "leave it out", key=", ".join(keys or ["steps"]))
    answers, lines = [], []
    for text in texts:
        masks = model.fill(text)
        answers.append({"prompt": text, "masks": [[one._asdict() for one in mask] for mask in masks]})
        filled = (", ".join(f"{one.text.strip()} {one.probability:.3f}" for one in mask) for mask in masks)
        lines += [text, *(f"  mask {number}: {words}" for number, words in enumerate(filled, 1))]
    return Result(answers, lines)


@verb
def export(
    run: RunName,
    *,
    form: Annotated[str, Flag("format"), "hf (the first that fits), or a name of `scaling explain format`"] = "hf",
    adapter: Annotated[bool, "write only the LoRA updates of a tuned run (default: they are merged)"] = False,
    to: Annotated[str | Path | None, "the folder to write (default: RUN-hf or RUN-adapter)"] = None,
    runs: str | Path = RUNS,
) -> Result:
    """Write a trained model as a folder that transformers loads.

        scaling export 3f2a                        a run of the ledger, by the beginning of its id
        scaling export my_model --to my_model_hf   a folder of config.yaml and model.safetensors
        scaling export 3f2a --adapter              only the updates of a run tuned by LoRA, for peft

    The LoRA updates of a tuned run are merged, except with --adapter.
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
def import_(
    folder: Annotated[str | Path, "a folder with config.json and safetensors that transformers saved"],
    *,
    adapter: Annotated[str | Path | None, "a folder with a LoRA that peft saved for this model"] = None,
    to: Annotated[str | Path | None, "the folder to write (default: FOLDER-imported)"] = None,
) -> Result:
    """Read a folder that transformers saved, and write it in our format.

        scaling import gpt2-folder --to gpt2
        scaling generate gpt2 --prompt "The law of"
        scaling import gpt2-folder --adapter lora-folder   with a LoRA that peft saved

    The written folder has config.yaml and model.safetensors.
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
    """A new or empty folder; after the context it is whole or absent, also after an error."""
    folder = Path(name).absolute()
    is_other = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    refuse(is_other, "it exists already", "name another with --to", file=name)
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
