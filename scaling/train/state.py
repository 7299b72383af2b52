"""State: everything a run carries from step to step, as files of tensors. There is no other: no generator, no loader.

weights.safetensors      parameters by name, in float32 where masters are kept
optimizer.safetensors    the optimizer's tensors by parameter and name
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from scaling.errors import ScalingError
from scaling.train.parameter import Parameter

WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"


def save(folder: Path, parameters: Sequence[Parameter], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Write parameters and optimizer state into a folder."""
    save_file({one.place.name: one.tensor.detach().contiguous() for one in parameters}, folder / WEIGHTS)
    states = {}
    for one in parameters:
        for optimizer in optimizers:
            for key, value in optimizer.state.get(one.tensor, {}).items():
                tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
                states[f"{one.place.name}/{key}"] = tensor.detach().contiguous().clone()
    save_file(states, folder / OPTIMIZER)


@torch.no_grad()
def restore(folder: Path, parameters: Sequence[Parameter], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Read back what `save` wrote, into the same parameters and fresh optimizers."""
    own = {one.place.name: one.tensor for one in parameters}
    weights = load_file(folder / WEIGHTS)
    _match(folder / WEIGHTS, own, weights)
    for name, tensor in own.items():
        tensor.copy_(weights[name])
    owner = {
        id(tensor): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for tensor in group["params"]
    }
    for key, value in load_file(folder / OPTIMIZER).items():
        name, _, part = key.rpartition("/")
        tensor = own[name]
        owner[id(tensor)].state[tensor][part] = value.to(tensor.device) if value.ndim else value


def _match(file: Path, wanted: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """Name every tensor that is missing, too many, or of another shape."""
    wrong = [f"{name} is missing" for name in wanted if name not in found]
    wrong += [f"{name} is not the model's" for name in found if name not in wanted]
    wrong += [
        f"{name} has shape {list(found[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in wanted.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if wrong:
        raise ScalingError("; ".join(wrong), file=file, mend="these are the weights of another model")
