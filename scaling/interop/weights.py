"""Safetensors files: read whole or in shards, checked by name and shape before a tensor is used."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from scaling.base import atomic
from scaling.base.errors import ScalingError, refuse

FILE = "model.safetensors"
INDEX = "model.safetensors.index.json"
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def read(path: Path) -> dict[str, Tensor]:
    """Every tensor of a weight file."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise ScalingError("there is no such file", file=path) from None
    except (SafetensorError, OSError) as error:
        raise ScalingError(f"it is not a whole safetensors file: {error}", file=path) from None


def read_object(folder: Path, name: str, saver: str) -> dict[str, Any]:
    """The JSON object in a file of a folder that another library saved."""
    path = folder / name
    try:
        value = atomic.read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        raise ScalingError(f"there is no {name}", file=folder, fix=f"name a folder that {saver} saved") from None
    except (ValueError, OSError) as error:
        raise ScalingError(f"it is not JSON: {error}", file=path) from None
    refuse(not isinstance(value, dict), "expected a JSON object", file=path)
    return value


def read_folder(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a folder's weight file, or of the shards that its index lists."""
    if (folder / FILE).is_file():
        return read(folder / FILE)
    index = folder / INDEX
    if not index.is_file():
        pickles = [path.name for kind in _PICKLES for path in folder.glob(kind)]
        reason = f", only {pickles[0]}, and pickles are not read" if pickles else ""
        raise ScalingError(f"there is no {FILE}{reason}", file=folder, fix="save the weights as safetensors")
    try:
        listed = read_object(folder, INDEX, "transformers")["weight_map"].values()
        shards = sorted({PurePosixPath(name) for name in listed})
    except (KeyError, TypeError, AttributeError):
        raise ScalingError("it does not list the weight files", file=index) from None
    for shard in shards:
        refuse(len(shard.parts) != 1, f"it lists {shard}, which is not next to it", file=index)
    return {name: tensor for shard in shards for name, tensor in read(folder / shard).items()}


def save(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] = {}) -> None:
    """The tensors as a file; a full disk is an `OSError`, as it is everywhere else."""
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)  # as the umask and the folder grant it
    try:
        contiguous = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
        save_file(contiguous, path, {"format": "pt", **metadata})
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from None
    if stat.S_IMODE(path.stat().st_mode) != mode:
        path.chmod(mode)  # safetensors writes files that only their owner reads


def aliases(model: nn.Module) -> list[tuple[Tensor, list[str]]]:
    """Each tensor of a model with all its names: a tied table has several."""
    names: dict[int, tuple[Tensor, list[str]]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        names.setdefault(id(tensor), (tensor, []))[1].append(name)
    return list(names.values())


def of(model: nn.Module) -> dict[str, Tensor]:
    """A model's tensors, each once: a tied table under its first name."""
    return {names[0]: tensor for tensor, names in aliases(model)}


def once(tensors: Mapping[str, Tensor], model: nn.Module, file: Path) -> dict[str, Tensor]:
    """The tensors of a file of a model, each tied table under its first name only."""
    first = {name: names[0] for _, names in aliases(model) for name in names}
    tensors_once: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        table = first.get(name, name)
        is_same = torch.equal(tensors_once.setdefault(table, tensor), tensor)
        refuse(not is_same, f"{name} is tied to {table} and differs from it", file=file)
    return tensors_once


def digest(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors by name, type, shape and bytes, in whatever file or order they are."""
    hashed = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        hashed.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def check(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor], file: Path | None = None) -> None:
    """Refuse weights whose names, shapes or types are not the expected ones, naming each that differs."""
    complaints = [f"missing {name}" for name in expected if name not in tensors]
    complaints += [f"extra {name}" for name in tensors if name not in expected]
    complaints += [
        f"{name} is {shape(tensors[name])} instead of {shape(tensor)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    complaints += [
        f"{name} is of type {str(tensor.dtype).removeprefix('torch.')}, which is not read"
        for name, tensor in tensors.items()
        if name in expected and (tensor.itemsize == 1 or not tensor.is_floating_point())
    ]
    refuse(complaints, f"the tensors are not the config's: {', '.join(complaints)}", file=file)


def shape(tensor: Tensor) -> str:
    """A tensor's shape in an error."""
    return "×".join(map(str, tensor.shape)) or "a scalar"
