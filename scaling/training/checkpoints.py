"""Checkpoints: how a Trainer's state is written as a folder of plain files, without pickles.

weights.safetensors      parameters by name, in float32 where masters are kept
optimizer.safetensors    the optimizers' tensors, as PARAMETER/NAME
trainer.json             all else: the loops, the callbacks, the config
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO
from lightning.pytorch.strategies import ModelParallelStrategy, Strategy
from torch import Tensor

from scaling.base.errors import ScalingError
from scaling.interop import weights
from scaling.training.precision import laid_out, whole

WEIGHTS, OPTIMIZER, TRAINER = "weights.safetensors", "optimizer.safetensors", "trainer.json"
MODEL = "model."  # the place of the model in a LightningModule
LEARNED = "learned"  # of a Trainer's checkpoint: the names of the parameters of each optimizer, in its order


class FolderIO(TorchCheckpointIO):
    """A checkpoint whose path is a folder is written as files that hold no code; any other, as of one's own
    `ModelCheckpoint`, is torch's.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        folder = Path(path)
        if not folder.is_dir():
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        rest = dict(checkpoint)
        parameters, optimizers = rest.pop("state_dict"), rest.pop("optimizer_states")
        tensors = {
            f"{names[number]}/{key}": value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            for names, optimizer in zip(checkpoint[LEARNED], optimizers, strict=True)
            for number, state in optimizer["state"].items()
            for key, value in state.items()
        }
        rest["groups"] = [optimizer["param_groups"] for optimizer in optimizers]
        weights.save(folder / WEIGHTS, {name.removeprefix(MODEL): tensor for name, tensor in parameters.items()})
        weights.save(folder / OPTIMIZER, tensors)
        (folder / TRAINER).write_text(json.dumps(rest, default=_plain))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        folder = Path(path)
        if not folder.is_dir():
            return super().load_checkpoint(path, map_location, weights_only is not False)
        checkpoint: dict[str, Any] = json.loads((folder / TRAINER).read_text(), object_hook=_restored)
        optimizers = [{"state": {}, "param_groups": groups} for groups in checkpoint.pop("groups")]
        owners = {name: (one, at) for one, names in enumerate(checkpoint[LEARNED]) for at, name in enumerate(names)}
        for place, tensor in weights.read(folder / OPTIMIZER).items():
            name, _, key = place.rpartition("/")
            optimizer, number = owners[name]
            optimizers[optimizer]["state"].setdefault(number, {})[key] = tensor
        parameters = {MODEL + name: tensor for name, tensor in weights.read(folder / WEIGHTS).items()}
        return {**checkpoint, "state_dict": parameters, "optimizer_states": optimizers}


def _plain(value: Any) -> Any:
    """A tensor, which is small here, as JSON holds it: by its type and its numbers."""
    if isinstance(value, Tensor):
        return {"tensor": str(value.dtype).removeprefix("torch."), "values": value.tolist()}
    raise ScalingError(
        f"a checkpoint holds plain values, and a callback has a {type(value).__name__}",
        fix="return plain values and tensors from the callback's state_dict",
    )


def _restored(value: dict[str, Any]) -> Any:
    if value.keys() == {"tensor", "values"}:
        return torch.tensor(value["values"], dtype=getattr(torch, value["tensor"]))
    return value


class Sharded(ModelParallelStrategy):
    """FSDP2 by Lightning's strategy, whose checkpoints are those of one rank: gathered, and laid out when read.

    Lightning's own reads files of another form, in which the optimizers are with the weights.
    """

    lightning_restore_optimizer = Strategy.lightning_restore_optimizer
    lightning_module_state_dict = Strategy.lightning_module_state_dict
    load_model_state_dict = Strategy.load_model_state_dict
    save_checkpoint = Strategy.save_checkpoint
    load_checkpoint = Strategy.load_checkpoint

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = optimizer.state_dict()
        gathered = {number: gather(tensors, self.is_global_zero) for number, tensors in state["state"].items()}
        return {**state, "state": gathered}

    def load_optimizer_state_dict(self, checkpoint: Mapping[str, Any]) -> None:
        Strategy.load_optimizer_state_dict(self, checkpoint)
        for optimizer in self.optimizers:
            for parameter, state in optimizer.state.items():
                for key, value in state.items():
                    state[key] = laid_out(value, parameter) if value.ndim else value


def gather(tensors: Mapping[str, Any], keep: bool = True) -> dict[str, Any]:
    """Full tensors by name; where they are not kept, a rank only helps others to gather what is sharded."""
    gathered = {}
    for name, tensor in tensors.items():
        full = whole(tensor.detach()) if isinstance(tensor, Tensor) else tensor
        if keep:
            gathered[name] = full
    return gathered
