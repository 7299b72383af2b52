"""Parity: our models of record and transformers' implementations of them, with the same random weights.

    python -m tests.interop.parity    # the table of docs/parity.md

Each model is drawn at a small size, written as a folder and loaded from it by transformers. Both read the same tokens,
whole and a few at a time from their caches, with padding and without. transformers goes through float32 in some places
whatever the type (the norms of T5 and Llama, softmax, angles, sinusoids); in float64 it is not let, so that what is
compared are the formulas.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import date
from functools import cache
from itertools import pairwise
from typing import Any, Literal, NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from scaling.base.batch import IGNORE, Batch
from scaling.config.compose import load
from scaling.config.schema import build
from scaling.interop import huggingface, weights
from scaling.model.context import Cache, Places
from scaling.model.family import vectors

MODELS = (
    *("gpt1", "gpt2", "opt", "bloom", "bert", "roberta", "distilbert", "electra", "albert"),
    *("t5", "t5_v1_1", "bart", "marian", "llama", "mistral", "qwen2", "gemma", "pythia"),
)
HEADS = {
    "classifying": "model.head={kind: Sequence, classes: 3, activation: Tanh, dropout: 0.1}",
    "tagging": "model.head={kind: Tokens, classes: 5, dropout: 0.1}",
    "answering": "model.head=Span",
}
UNTIED, TIED = "model.tie=[]", "model.tie=[decoder, head]"
BARE = "{kind: LayerNorm, gain: false, bias: false}"
NARROW = ("model.embedding.width=12", "model.head.width=12")
PLAIN = "model.embedding={kind: Token, segments: 2, norm: {kind: LayerNorm, eps: 1e-12}, dropout: 0.1}"
# What releases turn in a model of record, or users do, each compared on its own: the model and its lines.
VARIANTS: dict[str, tuple[str, ...]] = {
    "opt untied": ("opt", UNTIED),
    "galactica": (
        *("opt", f"model.block.norm={BARE}", f"model.stack.norm={BARE}", "model.block.mixer.bias=false"),
        "model.block.channel={kind: Dense, activation: GeLU, bias: false}",
    ),
    "bloom untied": ("bloom", UNTIED),
    "bert masked": ("bert", "model.sentence=null"),
    "distilbert untied": ("distilbert", UNTIED, "model.block.channel.activation=ReLU", "model.head.activation=ReLU"),
    "electra narrow": ("electra", *NARROW),
    "electra plain": ("electra", PLAIN, "model.head.width=null"),
    "electra untied": ("electra", UNTIED),
    "albert narrow": ("albert", *NARROW, "model.sentence={kind: NextSentence, activation: Tanh, dropout: 0.1}"),
    "llama tied": ("llama", TIED, "model.block.mixer.bias=true", "model.block.channel.bias=true"),
    "mistral window": ("mistral", "model.pattern.size=11"),
    "mistral windowless": ("mistral", "model.pattern=Causal"),
    "mistral tied": ("mistral", "model.pattern.size=11", TIED),
    "qwen2 tied": ("qwen2", TIED),
    "gemma untied": ("gemma", UNTIED, "model.block.mixer.bias=true"),
    "pythia tied": ("pythia", TIED),
    "xlm-r": ("roberta",),
}
VARIANTS |= {
    f"{model} {task}": (model.replace("xlm-r", "roberta"), head, "model.sentence=null", "model.tie=[]")
    for model in ("bert", "roberta", "distilbert", "xlm-r")
    for task, head in HEADS.items()
}
VARIANTS["distilbert classifying"] += ("model.head.activation=ReLU", "model.head.dropout=0.2")
COMPARED = (*MODELS, *VARIANTS)
# Formats that another one expresses as well.
NAMED = {"electra plain": "PlainELECTRA", "mistral windowless": "WindowlessMistral", "xlm-r": "XLMR"}
NAMED |= {f"xlm-r {task}": f"{task.title()}XLMR" for task in HEADS}
BOUNDS = {torch.float32: 1e-4, torch.float64: 1e-9}

SIZE = {"width": 32, "layers": 3, "heads": 4, "vocabulary": 97, "length": 48}
SIZES = {
    **{name: {**SIZE, "head_width": 12, "hidden": 80} for name in ("t5", "t5_v1_1")},
    **{name: {**SIZE, "key_heads": 2, "hidden": 80} for name in ("llama", "mistral", "qwen2")},
    "gemma": {**SIZE, "key_heads": 1, "head_width": 12, "hidden": 80},
    "bloom untied": {**SIZE, "width": 48, "heads": 6},  # ALiBi's slopes where heads are not a power of two
}
ROWS, TOKENS, SOURCE = 3, 40, 44
PADDED = (0, 5, 17)  # padding of each row
PAD = 1  # the token by which RoBERTa recognises padding
CHUNKS = (0, 7, 8, 9, 14, TOKENS)  # where an incremental reading starts and stops


@dataclass(frozen=True)
class Case:
    model: str
    dtype: torch.dtype
    reading: Literal["whole", "incremental"]
    padding: Literal["none", "left", "right"]


class Pair(NamedTuple):
    """One model twice, ours and transformers'; the latter computes within `exactly`."""

    ours: Any
    theirs: Any
    exactly: Callable[[], AbstractContextManager[Any]]


@cache
def sections(model: str) -> dict[str, Any]:
    record, *lines = VARIANTS.get(model, (model,))
    return {"model": load(record, lines)["model"], "size": SIZES.get(model, SIZES.get(record, SIZE))}


def cases(model: str) -> Iterator[Case]:
    """The comparisons that make sense for a model: encoders read whole, and are padded on the right, as sources are."""
    family = sections(model)["model"]["kind"]
    for dtype in BOUNDS:
        for padding in ("none", "left", "right") if family == "Decoder" else ("none", "right"):
            yield Case(model, dtype, "whole", padding)
            if family != "Encoder" and (family, padding) != ("Decoder", "right"):
                yield Case(model, dtype, "incremental", padding)


def pair(model: str, dtype: torch.dtype) -> Pair:
    """Our model of record at a small size with random weights, and transformers' with the same, read from a folder."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    transformers.logging.disable_progress_bar()
    parts = sections(model)
    torch.manual_seed(0)
    ours = build("model", parts["model"], parts["size"]).to(dtype).eval()
    for parameter in ours.parameters():
        # No gain is quite one and no bias zero, so that every difference shows.
        nn.init.normal_(parameter, mean=float((parameter == 1).all()), std=0.2)
    for piece in ours.modules():
        # T5's queries hold 1/√d_k themselves; without it softmax magnifies every rounding.
        if getattr(piece, "scale", None) == 1.0:
            piece.query.weight.data *= (piece.query.out_features // piece.heads) ** -0.5
    exactly = _in_float64 if dtype == torch.float64 else nullcontext
    with tempfile.TemporaryDirectory() as folder:
        form = huggingface.write(folder, huggingface.Saved(parts, weights.of(ours)), NAMED.get(model))
        kind = getattr(transformers, form.architecture)
        with exactly():
            theirs = kind.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()
    for name, buffer in theirs.named_buffers():
        if name in {line.theirs for line in form.names}:  # Marian's output bias, which transformers holds fixed
            buffer.requires_grad_()
    return Pair(ours, theirs, exactly)


def difference(case: Case, both: Pair) -> float:
    """The largest difference of a logit, over the tokens that are not padding."""
    batch = _draw(case, both.ours)
    real = torch.ones_like(batch.tokens, dtype=torch.bool) if batch.documents is None else batch.documents > 0
    with torch.no_grad():
        ours = _ours(both.ours, batch, case.reading)
        with both.exactly():
            theirs = _theirs(both.theirs, batch, case.reading)
    apart = [(a - b).abs() for a, b in zip(ours, theirs, strict=True)]
    # A span's logits are [b 2 t].
    tokens = [each if each.shape[:2] == real.shape or each.ndim < 3 else each.transpose(1, 2) for each in apart]
    return max(float((each[real] if each.ndim == 3 else each).max()) for each in tokens)


def gradient_difference(case: Case, both: Pair) -> float:
    """The largest difference of the loss's gradient, over all parameters."""
    batch = _draw(case, both.ours)
    for tensor in (*both.ours.parameters(), *_learning(both.theirs)):
        tensor.grad = None
    both.ours.loss(batch).total.backward()
    with both.exactly():
        logits = _theirs(both.theirs, batch, "whole")
        heads = [both.ours.head, getattr(both.ours, "sentence", None)]
        for head, scores in zip(filter(None, heads), logits, strict=True):
            targets: Any = batch.targets if head.target == "targets" else batch.labels
            if head.takes_absent and batch.documents is not None:  # theirs lets an answer begin in padding
                scores = scores.masked_fill((batch.documents == 0)[:, None], -float("inf"))
            F.cross_entropy(scores.flatten(0, -2), targets.flatten(), ignore_index=IGNORE).backward(retain_graph=True)
    theirs = _gradients(both.theirs)
    ours = {name: _gradient(tensor) for name, tensor in weights.of(both.ours).items()}
    assert ours.keys() == theirs.keys()
    return max(float((ours[name] - theirs[name]).abs().max()) for name in ours)


def _gradients(model: Any) -> dict[str, Tensor]:
    """The gradient of every parameter under our names: saved as the weights would be, and read as they are."""
    own = _learning(model)
    before = [tensor.detach().clone() for tensor in own]
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        for tensor in own:
            tensor.copy_(_gradient(tensor))
        model.save_pretrained(folder)
        for tensor, value in zip(own, before, strict=True):
            tensor.copy_(value)
        return huggingface.read(folder).tensors


def _learning(model: nn.Module) -> list[Tensor]:
    return [tensor for tensor in model.state_dict(keep_vars=True).values() if tensor.requires_grad]


def _gradient(tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if tensor.grad is None else tensor.grad


def _draw(case: Case, model: Any) -> Batch:
    draw = torch.Generator().manual_seed(1)

    def tokens(length: int, padding: str) -> tuple[Tensor, Tensor | None]:
        drawn = torch.randint(PAD + 1, SIZE["vocabulary"], (ROWS, length), generator=draw)
        if padding == "none":
            return drawn, None
        index = torch.arange(length) if padding == "left" else torch.arange(length).flip(0)
        real = index >= torch.tensor(PADDED)[:, None]
        return drawn.where(real, PAD), real.long()

    source = source_documents = segments = None
    if model.family == "encoder_decoder":
        source, source_documents = tokens(SOURCE, case.padding)
        read, documents = tokens(TOKENS, "none")
    else:
        read, documents = tokens(TOKENS, case.padding)
    if model.family == "encoder" and model.encoder.embedding.segments is not None:
        kinds = model.encoder.embedding.segments.shape[0]
        segments = torch.randint(kinds, read.shape, generator=draw)
    labels = _labels(model, read, documents, draw)
    targets = torch.randint(SIZE["vocabulary"], read.shape, generator=draw)
    if documents is not None:
        targets = targets.where(documents > 0, IGNORE)
    others = {"documents": documents, "source": source, "source_documents": source_documents}
    return Batch(read, targets, segments=segments, labels=labels, **others)


def _labels(model: Any, read: Tensor, documents: Tensor | None, draw: torch.Generator) -> Tensor | None:
    """What the head of a task learns, or one of the next sentence."""
    head = getattr(model, "sentence", None) or model.head
    if head.target == "targets":
        return None
    shape = head.labels_like(read).shape
    if head.answer == "span":
        return torch.randint(TOKENS - max(PADDED), shape, generator=draw)
    labels = torch.randint(head.out.out_features, shape, generator=draw)
    return labels if documents is None or shape != read.shape else labels.where(documents > 0, IGNORE)


def _ours(model: Any, batch: Batch, reading: str) -> list[Tensor]:
    if reading == "incremental":
        memory, cache = model.encode(batch), Cache()
        read = [model.head(model.decode(part, memory, cache).hidden) for part in _chunks(batch)]
        return [torch.cat(read, 1)]
    output = model(batch)
    heads = [model.head, getattr(model, "sentence", None)]
    return [head(vectors(head, output, batch)) for head in heads if head is not None]


def _theirs(model: Any, batch: Batch, reading: str) -> list[Tensor]:
    if reading == "incremental" and model.config.model_type != "openai-gpt":  # which has no cache
        return [_theirs_incremental(model, batch)]
    if batch.source is not None:
        inputs = {"input_ids": batch.source, "decoder_input_ids": batch.tokens, **_mask(batch.source_documents)}
    elif batch.segments is not None:
        inputs = {"input_ids": batch.tokens, "token_type_ids": batch.segments, **_mask(batch.documents)}
    else:
        inputs = {"input_ids": batch.tokens, "position_ids": Places.of(batch).positions, **_mask(batch.documents)}
    output = model(**inputs)
    if "start_logits" in output:
        return [torch.stack([output["start_logits"], output["end_logits"]], 1)]
    every = ("logits", "prediction_logits", "seq_relationship_logits", "sop_logits")
    return [output[name] for name in every if name in output]


def _theirs_incremental(model: Any, batch: Batch) -> Tensor:
    encoded = None
    if batch.source is not None:
        encoded = model.get_encoder()(input_ids=batch.source, **_mask(batch.source_documents))
    read, past, stop = [], None, 0
    for part in _chunks(batch):
        stop += part.tokens.shape[1]
        if encoded is not None:
            inputs = {"decoder_input_ids": part.tokens, "encoder_outputs": encoded, **_mask(batch.source_documents)}
        else:
            documents = None if batch.documents is None else batch.documents[:, :stop]
            inputs = {"input_ids": part.tokens, "position_ids": part.positions, **_mask(documents)}
        output = model(**inputs, past_key_values=past, use_cache=True)
        past = output.past_key_values
        read.append(output.logits)
    return torch.cat(read, 1)


def _chunks(batch: Batch) -> Iterator[Batch]:
    """The batch a few tokens at a time."""
    by_token = {"tokens": batch.tokens, "targets": batch.targets, "documents": batch.documents}
    by_token["positions"] = Places.of(batch).positions
    for start, stop in pairwise(CHUNKS):
        yield replace(batch, **{name: own if own is None else own[:, start:stop] for name, own in by_token.items()})


def _mask(documents: Tensor | None) -> dict[str, Tensor]:
    return {} if documents is None else {"attention_mask": documents}


@contextmanager
def _in_float64() -> Iterator[None]:
    """Whatever asks for float32 gets float64."""
    # BLOOM's GELU has √(2/π) to eight digits.
    gelu = "transformers.models.bloom.modeling_bloom.BloomGelu.forward"
    bloom = mock.patch(gelu, lambda _, x: F.gelu(x, approximate="tanh"))
    # numpy's sinusoids become tensors by this name, which no mode sees.
    with bloom, mock.patch("torch.FloatTensor", torch.DoubleTensor), _Wider():
        yield


class _Wider(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            return args[0].double()
        kwargs = {key: _wider(value) for key, value in (kwargs or {}).items()}
        return func(*map(_wider, args), **kwargs)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def report() -> Iterator[str]:
    """The table of docs/parity.md, line by line, and the largest figures of all."""
    import platform

    import transformers

    transformers.logging.set_verbosity_error()
    names = [str(dtype).removeprefix("torch.") for dtype in BOUNDS]
    columns = ("whole", "incremental", "gradient")
    yield f"| model | padding | {' | '.join(f'{name} {column}' for name in names for column in columns)} |"
    yield "|---|---|" + "--:|" * len(BOUNDS) * len(columns)
    worst = dict.fromkeys(BOUNDS, 0.0)
    for model in COMPARED:
        rows: dict[str, dict[tuple[torch.dtype, str], float]] = {}
        both = {dtype: pair(model, dtype) for dtype in BOUNDS}
        for case in cases(model):
            row = rows.setdefault(case.padding, {})
            row[case.dtype, case.reading] = difference(case, both[case.dtype])
            if case.reading == "whole":
                row[case.dtype, "gradient"] = gradient_difference(case, both[case.dtype])
            worst[case.dtype] = max(worst[case.dtype], *(value for (of, _), value in row.items() if of == case.dtype))
        for padding, row in rows.items():
            cells = (row.get((dtype, column)) for dtype in BOUNDS for column in columns)
            yield f"| {model} | {padding} | " + " | ".join("–" if c is None else f"{c:.1e}" for c in cells) + " |"
    yield f"\nLargest of all: {', '.join(f'{name} {own:.1e}' for name, own in zip(names, worst.values()))}."
    yield f"{date.today()}, torch {torch.__version__}, transformers {transformers.__version__}, {platform.machine()}."


if __name__ == "__main__":
    for line in report():
        print(line)
