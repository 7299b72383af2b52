"""State: everything a run carries from step to step, as files of tensors. There is no other: no generator, no loader.

weights.safetensors      parameters by name, in float32 where masters are kept
optimizer.safetensors    the optimizer's tensors by parameter and name
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from scaling.errors import ScalingError
from scaling.interop import weights as files
from scaling.training.parameter import Parameter
from scaling.training.sharding import laid_out, whole

WEIGHTS, OPTIMIZER = "weights.safetensors", "optimizer.safetensors"


def save(folder: Path | None, parameters: Sequence[Parameter], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Write parameters and optimizer state into a folder; without one, only help others to gather what is sharded."""
    states = {}
    for parameter in parameters:
        for optimizer in optimizers:
            for key, value in optimizer.state.get(parameter.tensor, {}).items():
                tensor = value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
                states[f"{parameter.spec.name}/{key}"] = tensor.detach().clone()
    for file, tensors in (
        (WEIGHTS, {parameter.spec.name: parameter.tensor for parameter in parameters}),
        (OPTIMIZER, states),
    ):
        gathered = ((name, whole(tensor.detach())) for name, tensor in tensors.items())
        if folder is not None:
            files.save(folder / file, dict(gathered))
        else:
            deque(gathered, maxlen=0)  # one after the other, and none kept


@torch.no_grad()
def restore(
    folder: Path, parameters: Sequence[Parameter], optimizers: Sequence[torch.optim.Optimizer] | None = None
) -> None:
    """Read back what `save` wrote, into the same parameters and fresh optimizers, or into the parameters alone."""
    own = {parameter.spec.name: parameter.tensor for parameter in parameters}
    weights = files.read(folder / WEIGHTS)
    _match(folder / WEIGHTS, own, weights)
    for name, tensor in own.items():
        tensor.copy_(laid_out(weights[name], tensor))
    if optimizers is None:
        return
    owner = {
        id(tensor): optimizer
        for optimizer in optimizers
        for group in optimizer.param_groups
        for tensor in group["params"]
    }
    for key, value in files.read(folder / OPTIMIZER).items():
        name, _, part = key.rpartition("/")
        if name not in own:
            raise ScalingError(f"{name} is not the model's", file=folder / OPTIMIZER)
        tensor = own[name]
        owner[id(tensor)].state[tensor][part] = laid_out(value, tensor) if value.ndim else value


def _match(file: Path, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Name every tensor that is missing, too many, or of another shape."""
    wrong = [f"{name} is missing" for name in expected if name not in tensors]
    wrong += [f"{name} is not the model's" for name in tensors if name not in expected]
    wrong += [
        f"{name} has shape {list(tensors[name].shape)}, not {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in tensors and tensors[name].shape != tensor.shape
    ]
    if wrong:
        raise ScalingError("; ".join(wrong), file=file, fix="these are the weights of another model")
