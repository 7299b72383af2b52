"""A trained model as a folder: a run of the ledger, or one of our own folders,

config.yaml          its sections `model` and `size`, resolved
model.safetensors    its weights
tokenizer.json       its tokenizer, where it has one
ids.json             the ids of pad, bos, eos and start, where they are known
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from scaling import atomic
from scaling.build import build, kinds
from scaling.config import Config, load
from scaling.data import store
from scaling.data.codec import Codec
from scaling.data.manifest import TOKENIZER
from scaling.data.source import Vocabulary
from scaling.errors import ScalingError
from scaling.interop import weights
from scaling.interop.huggingface import Described
from scaling.ledger import Ledger, checkpoint, document
from scaling.ledger.result import NAME as RESULT
from scaling.model.blank import blank
from scaling.model.family import Family

CONFIG, IDS, SPEC = "config.yaml", "ids.json", "spec.json"
CHECKPOINT_WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Run:
    """What a folder holds."""

    described: Described
    tokenizer: Path | None

    def model(self, device: torch.device | str = "cpu") -> Family:
        """The model with its weights, ready to evaluate."""
        sections = self.described.sections
        model = build("model", sections["model"], sections["size"])
        with torch.no_grad():
            for name, tensor in weights.of(model).items():
                tensor.copy_(self.described.tensors[name])
        return model.to(device).eval()


def read(name: str | Path, runs: str | Path = "runs") -> Run:
    """The run in a folder, or the one of the ledger at `runs` whose id begins so."""
    folder = Path(name)
    if (folder / CONFIG).is_file():
        return _own(folder)
    if (folder / SPEC).is_file():
        return _of_ledger(folder, folder.parents[1])
    if folder.exists():
        raise ScalingError(f"it holds neither {CONFIG} nor {SPEC}", file=folder, fix="name a run, or import it first")
    ledger = Ledger.open(runs)
    return _of_ledger(ledger.folder(ledger.find(str(name))), Path(runs))


def write(folder: str | Path, run: Run, origin: str) -> None:
    """Write one of our own folders; `origin` is where what it holds came from."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sections = run.described.sections
    family = kinds("model")[sections["model"]["kind"]].family  # type: ignore[attr-defined]
    # The objective that the family's own config names, so that the folder can be trained on as it is.
    tree = {**sections, "objective": load(family)["objective"]}
    Config(tree, dict.fromkeys(_dotted(tree), origin)).save(folder / CONFIG)
    weights.write(folder / weights.FILE, run.described.tensors)
    if run.described.ids:
        atomic.write_json(folder / IDS, run.described.ids)
    if run.tokenizer is not None:
        shutil.copyfile(run.tokenizer, folder / TOKENIZER)


def _own(folder: Path) -> Run:
    config = load(str(folder / CONFIG))
    tokenizer = folder / TOKENIZER
    ids = _ids(folder / IDS) if (folder / IDS).is_file() else None
    tokenizer = tokenizer if tokenizer.is_file() else None
    run = _run(config.tree, folder / weights.FILE, tokenizer)
    if ids is None and tokenizer is not None:
        ids = _started(Codec.load(tokenizer).specials, config["model.kind"])
    return replace(run, described=replace(run.described, ids=ids or {}))


def _of_ledger(folder: Path, runs: Path) -> Run:
    try:
        spec = (document.read(folder / SPEC) or {})["spec"]
    except (document.Damaged, KeyError) as error:
        raise ScalingError(f"it cannot be read: {error}", file=folder / SPEC) from None
    found = checkpoint.latest(folder.glob("attempts/*/checkpoints"))
    if found is None:
        done = (folder / RESULT).is_file()
        fix = "add --again to the command that trained it: its weights were freed" if done else "train it first"
        raise ScalingError("the run has no whole checkpoint", file=folder, fix=fix)
    prepared = str(spec["data"].get("fingerprint", "")).rpartition("-")[0]
    tokenizer = store.root(runs) / prepared / TOKENIZER
    run = _run(spec, found.folder / CHECKPOINT_WEIGHTS, tokenizer if prepared and tokenizer.is_file() else None)
    ids = _started(_specials(spec, runs), spec["model"]["kind"])
    return replace(run, described=replace(run.described, ids=ids))


def _specials(spec: Mapping[str, Any], runs: Path) -> Mapping[str, int]:
    """The ids by name that the run's data and objective gave; none where its data are not on this machine."""
    try:
        data = build("data", {key: value for key, value in spec["data"].items() if key != "fingerprint"})
        vocabulary = Vocabulary.of(data.open("train", store.root(runs)))
        family = kinds("model")[spec["model"]["kind"]].family  # type: ignore[attr-defined]
        return build("objective", spec["objective"], vocabulary, spec["size"]["length"], family).vocabulary.specials
    except ScalingError:
        return {}


def _started(specials: Mapping[str, int], kind: str) -> dict[str, int]:
    """The ids that generating needs. Documents stand end to end, so a decoder's text begins after the end of another;
    an encoder-decoder's target begins after bos.
    """
    ids = {name: specials[name] for name in ("pad", "bos", "eos") if name in specials}
    order = ("bos", "eos") if kind == "EncoderDecoder" else ("eos", "bos")
    start = [ids[name] for name in order if name in ids][:1]
    return {**ids, **({"start": start[0]} if start else {})}


def _run(tree: Mapping[str, Any], file: Path, tokenizer: Path | None) -> Run:
    sections = {"model": tree["model"], "size": tree["size"]}
    with blank():
        empty = build("model", sections["model"], sections["size"])
    tensors = weights.once(weights.read(file), empty, file)
    weights.check(tensors, weights.of(empty), file)
    return Run(Described(sections, tensors), tokenizer)


def _dotted(tree: Mapping[str, Any], above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield above + key
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{above}{key}.")


def _ids(path: Path) -> dict[str, int]:
    try:
        ids = atomic.read_json(path)
        known = {str(name): int(number) for name, number in ids.items()}
    except (ValueError, TypeError, AttributeError):
        raise ScalingError("expected a JSON object of ids by name", file=path) from None
    return known
