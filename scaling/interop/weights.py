"""Safetensors files: read whole or in shards, checked by name and shape before a tensor is used."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from scaling import atomic, schema
from scaling.errors import ScalingError
from scaling.schema import overlay
from scaling.shape import Shape

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read(path: Path) -> dict[str, Tensor]:
    """Every tensor of a weight file."""
    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
    except FileNotFoundError:
        raise ScalingError("there is no such file", file=path) from None
    except (SafetensorError, OSError) as error:
        raise ScalingError(f"it is no whole safetensors file: {error}", file=path) from None


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's weight file, or of the shards that its index lists."""
    return {name: tensor for path in _files(folder) for name, tensor in read(path).items()}


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = {}) -> None:
    """One weight file, whole or not there."""
    partial = atomic.temporary(path)
    try:
        save(partial, tensors, metadata)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = {}) -> None:
    """The tensors as a file; a full disk is an `OSError`, as it is everywhere else."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)  # as the umask and the folder grant it
    try:
        whole = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        save_file(whole, path, {"format": "pt", **metadata})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)  # safetensors writes files that only their owner reads


def of(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, each once: a tied table under its first name."""
    once: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        once.setdefault(id(tensor), (name, tensor))
    return dict(once.values())


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors by name, type, shape and bytes, in whatever file or order they are."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def once(tensors: dict[str, Tensor], model: nn.Module, file: Path) -> dict[str, Tensor]:
    """What a file holds, with a table that is tied in the model under its first name only."""
    first = {id(tensor): name for name, tensor in of(model).items()}
    names = {name: first[id(tensor)] for name, tensor in model.state_dict(keep_vars=True).items()}
    kept: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        table = names.get(name, name)
        if not torch.equal(kept.setdefault(table, tensor), tensor):
            raise ScalingError(f"{name} is tied to {table} and differs from it", file=file)
    return kept


def check(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], file: Path | None = None) -> None:
    """Refuse weights whose names or shapes are not the expected ones, naming each that differs."""
    complaints = [f"missing {name}" for name in expected if name not in tensors]
    complaints += [f"extra {name}" for name in tensors if name not in expected]
    complaints += [
        f"{name} is {_shape(tensors[name])} instead of {_shape(tensor)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if complaints:
        raise ScalingError(f"the tensors are not the config's: {', '.join(complaints)}", file=file)


def place(folder: Path) -> Path:
    """What to name when the weights of a folder are wrong."""
    return next((folder / name for name in (FILE, INDEX) if (folder / name).is_file()), folder)


def _files(folder: Path) -> list[Path]:
    if (folder / FILE).is_file():
        return [folder / FILE]
    index = folder / INDEX
    if not index.is_file():
        pickles = [path.name for kind in _PICKLES for path in folder.glob(kind)]
        reason = f", only {pickles[0]}, and pickles are not read" if pickles else ""
        raise ScalingError(f"there is no {FILE}{reason}", file=folder, fix="save the weights as safetensors")
    try:
        shards = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        inside = all(PurePosixPath(shard).name == shard for shard in shards)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ScalingError("it does not list the weight files", file=index) from None
    for shard in shards:
        if not inside or not (folder / shard).is_file():
            raise ScalingError(f"it lists {shard}, which is not next to it", file=index)
    return [folder / shard for shard in shards]


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a scalar"


TOWERS = ("encoder", "decoder")
_TOWER_SLOTS = ("embedding", "position", "pattern", "block", "stack")
_ABSENT = "nothing"


def spread(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with what an encoder-decoder's towers share written out for each of them."""
    model, size = dict(tree["model"]), dict(tree["size"])
    if not all(tower in model for tower in TOWERS):
        return {"model": model, "size": size}
    common = {slot: model.pop(slot) for slot in _TOWER_SLOTS if slot in model}
    sizes = {key: value for key, value in size.items() if key not in TOWERS}
    return {
        "model": {**model, **{tower: overlay(common, dict(model[tower] or {})) for tower in TOWERS}},
        "size": {tower: {**sizes, **(size.get(tower) or {})} for tower in TOWERS},
    }


def complete(tree: Mapping[str, Any]) -> dict[str, Any]:
    """`model` and `size` with every default written out, every kind in the long form, and one hidden width."""
    both = spread(tree)
    model, size = both["model"], both["size"]
    parts = [(model[tower], size[tower]) for tower in TOWERS] if TOWERS[0] in size else [(model, size)]
    for part, sizes in parts:
        shape = Shape.of(sizes)
        for slot in _TOWER_SLOTS:
            part[slot] = _spelled(slot, part[slot])
        channel = part["block"].get("channel") or {}
        sizes.clear()
        sizes.update(asdict(shape), hidden=shape.hidden_times(channel.pop("hidden_times", 1.0)))
    for slot in ("head", "sentence", "language"):
        model[slot] = _spelled(slot, model.get(slot))
    if len(parts) > 1:
        model["memory"] = _spelled("memory", model.get("memory", "Last"))
        model["share"] = model.get("share", "nothing")
    model["tie"] = sorted(model["tie"])
    return both


def differences(ours: Any, theirs: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Where two completed trees differ: the dotted key and both values."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{key}.kind", ours.get("kind", _ABSENT), theirs.get("kind", _ABSENT)
            return
        for name in {**ours, **theirs}:
            path = f"{key}.{name}" if key else name
            yield from differences(ours.get(name, _ABSENT), theirs.get(name, _ABSENT), path)
    elif ours != theirs:
        yield key, short(ours), short(theirs)


def short(value: Any) -> Any:
    """A line by its kind."""
    return value.get("kind", value) if isinstance(value, Mapping) else value


def _spelled(slot: str, line: Any) -> Any:
    """A line in the long form: its kind and every key of it, those of the pieces within it too."""
    if line is None:
        return None
    given = {"kind": line} if isinstance(line, str) else dict(line)
    spelled = {"kind": given["kind"]}
    for key, parameter in schema.keys(schema.kinds(slot)[given["kind"]]).items():
        value = given.get(key, parameter.default)
        spelled[key] = _spelled(key, value) if schema.is_recipe(parameter.annotation) else value
    return spelled
