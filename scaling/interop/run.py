"""A trained model as a folder: a run of the ledger, one of transformers, or one of our own folders,

config.yaml          its sections `model` and `size`, resolved
model.safetensors    its weights
tokenizer.json       its tokenizer, where it has one
ids.json             the ids of pad, bos, eos and start, where they are known
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import Tensor

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural, refuse, under
from scaling.base.numbers import Range
from scaling.config.compose import load
from scaling.config.document import Config
from scaling.config.schema import build, check, family, kinds, walk
from scaling.data import store
from scaling.data.codec import Codec
from scaling.data.source import objective_of
from scaling.data.store import TOKENIZER
from scaling.interop import huggingface, weights
from scaling.interop.huggingface import Saved
from scaling.interop.location import CONFIG, SPEC, locate
from scaling.ledger import checkpoint, document
from scaling.ledger.run import read_result
from scaling.model.tuned import sections

IDS = "ids.json"
CHECKPOINT_WEIGHTS = "weights.safetensors"
ANEW = "remove its folder and give the command that trained it"


def read(name: str | PathLike[str], runs: str | Path = "runs", step: int | None = None) -> Saved:
    """The model that a word names (`locate`): of a run the weights of its result, its last ones, or a step's."""
    folder = locate(name, runs)
    if (folder / SPEC).is_file():
        return _of_ledger(folder, step)
    what, fix = "a folder has one set of weights", "leave it out, or name a run"
    refuse(step is not None, what, fix, file=folder, key="step", value=step)
    return _own(folder) if (folder / CONFIG).is_file() else huggingface.read(folder)


def averaged(folder: Path, count: int) -> Saved:
    """A run with the mean of the weights of its last `count` checkpoints. (Vaswani et al. 2017, section 6.1)"""
    last = read(folder)
    steps = sorted(step for step in checkpoint.steps(folder) if step <= last.place["step"])[-count:]
    if len(steps) < count:
        fix = f"take {len(steps)}, or train with train.keep={count} and a smaller train.checkpoint_every"
        raise ScalingError(f"the run has {plural(len(steps), 'checkpoint')}", key="average", value=count, fix=fix)
    saved = [read(folder, step=step).tensors for step in steps]
    mean = {name: torch.stack([tensors[name].double() for tensors in saved]).mean(0).float() for name in saved[0]}
    return replace(last, tensors=mean)


def write(folder: str | Path, saved: Saved, origin: str) -> None:
    """Write one of our own folders; `origin` is where what it holds came from."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # The objective that the family's own config names, so that the folder can be trained on as it is.
    tree = {**saved.sections, "objective": load(family(saved.sections["model"]))["objective"]}
    Config(tree, dict.fromkeys((key for key, _ in walk(tree)), origin)).save(folder / CONFIG)
    weights.save(folder / weights.FILE, saved.tensors)
    if saved.ids:
        atomic.write_json(folder / IDS, saved.ids)
    if saved.tokenizer is not None:
        shutil.copyfile(saved.tokenizer, folder / TOKENIZER)


def _own(folder: Path) -> Saved:
    config = load(str(folder / CONFIG))
    tokenizer = folder / TOKENIZER if (folder / TOKENIZER).is_file() else None
    saved, ids = _saved(config.tree, folder / weights.FILE), {}
    if (folder / IDS).is_file():
        token = Annotated[int, Range(least=0, below=config["size.vocabulary"])]
        with under(IDS):
            ids = {name: check(name, id, token) for name, id in weights.read_object(folder, IDS, "scaling").items()}
    elif tokenizer is not None:
        ids = _started(Codec.load(tokenizer).specials, config["model.kind"])
    return replace(saved, ids=ids, tokenizer=tokenizer, place={"folder": str(folder.resolve())})


def _of_ledger(folder: Path, step: int | None = None) -> Saved:
    runs = folder.parents[1]
    spec: dict[str, Any] = (document.read_valid(folder / SPEC) or {}).get("spec", {})
    refuse(not spec, "the run has no spec that can be read", file=folder / SPEC)
    checkpoint, tokenizer = _checkpoint(folder, step), store.tokenizer(spec["data"], runs)
    saved = _saved(spec, checkpoint.folder / CHECKPOINT_WEIGHTS, _base(checkpoint, runs))
    tokenizer = tokenizer if tokenizer is not None and tokenizer.is_file() else None
    specials, labels = _learned(spec, runs, tokenizer)
    ids, head = _started(specials, spec["model"]["kind"]), spec["model"]["head"]
    kind: Any = kinds("head")[head if isinstance(head, str) else head["kind"]]
    if "extract" in specials and kind.answer is not None:  # a decoder with the head of a task
        ids |= {name: specials[name] for name in ("start", "delim", "extract")}
    place = {"run": folder.name, "step": checkpoint.step}
    return replace(saved, ids=ids, labels=labels, tokenizer=tokenizer, place=place)


def _checkpoint(folder: Path, step: int | None) -> checkpoint.Checkpoint:
    """The whole checkpoint of a step of a run; where none is named, that of its result, or its last one."""
    result = read_result(folder)
    saved = checkpoint.final(folder, result) if step is None else checkpoint.find(folder, step)
    if saved is not None:
        return saved
    what = "the run has no whole checkpoint"
    refuse(step is None, what, "train it first" if result is None else f"{ANEW}: its weights were freed", file=folder)
    there = ", ".join(map(str, sorted(checkpoint.steps(folder))))
    fix = f"take one of {there}" if there else "train it first"
    raise ScalingError(f"the run has no whole checkpoint of step {step}", file=folder, key="step", fix=fix)


def _base(kept: checkpoint.Checkpoint, runs: Path) -> Mapping[str, Tensor]:
    """The weights that a checkpoint without them was trained from, checked."""
    start = kept.note.get("start")
    if start is None:
        return {}
    where = f"run {start['run']} at step {start['step']}" if "run" in start else f"the folder {start['folder']}"
    fix = f"put them back, or train the run again from weights that are there ({ANEW})"
    try:
        tensors = read(start.get("run") or Path(start["folder"]), runs, start.get("step")).tensors
        if weights.digest(tensors) == start["sha256"]:
            return tensors
        reason = "have changed"
    except (ScalingError, OSError) as error:
        reason = f"cannot be read: {error.what if isinstance(error, ScalingError) else error.strerror}"
    what = f"the run holds what it trained; the weights that it started from, {where}, {reason}"
    raise ScalingError(what, file=kept.folder, fix=fix)


def _learned(spec: Mapping[str, Any], runs: Path, tokenizer: Path | None) -> tuple[Mapping[str, int], tuple[str, ...]]:
    """The ids that the run's data and objective gave, and its task's labels. Where its data are not here, or have
    changed, the ids are those of its tokenizer alone, so that texts begin and end as in training.
    """
    try:
        data = build("data", {key: value for key, value in spec["data"].items() if key != "fingerprint"})
        objective = objective_of(Config(dict(spec), {}), data.open("train", store.root(runs)))
        return objective.vocabulary.specials, tuple(getattr(getattr(data, "goal", None), "labels", ()))
    except ScalingError:
        return {} if tokenizer is None else Codec.load(tokenizer).specials, ()


def _started(specials: Mapping[str, int], kind: str) -> dict[str, int]:
    """The ids that generating and filling masks need. Documents are laid end to end, so a decoder's text begins after
    the end of another; an encoder-decoder's target begins after bos.
    """
    frame = ("cls", "sep", "mask") if kind == "Encoder" else ()
    if kind == "EncoderDecoder":
        frame = tuple(name for name in specials if name.startswith("sentinel_"))  # by which gaps are filled
    ids = {name: specials[name] for name in ("pad", "bos", "eos", *frame) if name in specials}
    order = ("bos", "eos") if kind == "EncoderDecoder" else ("eos", "bos")
    start = [ids[name] for name in order if name in ids][:1]
    return {**ids, **({"start": start[0]} if start else {})}


def _saved(tree: Mapping[str, Any], file: Path, below: Mapping[str, Tensor] = {}) -> Saved:
    """The tensors of a weight file, and those of `below` that it leaves out."""
    described = sections(tree)
    model = huggingface.empty(described)
    tensors = weights.once(weights.read(file), model, file)
    for _, (first, *others) in weights.aliases(model):
        for name in (first, *others):
            if name in below:
                tensors.setdefault(first, below[name].float())
    weights.check(tensors, weights.of(model), file)
    return Saved(described, tensors)
