"""Adafactor over many small tensors at once: for a small model, torch's loop over tensors is a tenth of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

# Numbers that are worth a copy to be moved together; what is larger is moved where it lies, one after the other.
TOGETHER = 1 << 18


class StackedAdafactor(torch.optim.Adafactor):
    """torch's Adafactor, by its formulas and with its state, where tensors of one shape are stacked while they move."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        with torch.enable_grad():  # Lightning computes the gradients here
            loss = None if closure is None else closure()
        for group in self.param_groups:
            for parameters in stacks([parameter for parameter in group["params"] if parameter.grad is not None]):
                self._move(parameters, group)
        return loss

    def _move(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        """One update of parameters of one shape, as torch computes it."""
        states = [self._state(parameter) for parameter in parameters]
        gradient = _stacked([parameter.grad for parameter in parameters if parameter.grad is not None])
        each = [-1] + [1] * (gradient.ndim - 1)  # one number a parameter
        eps = torch.finfo(gradient.dtype).eps if group["eps"][0] is None else group["eps"][0]

        step = _stacked([state["step"] for state in states]) + 1
        _keep(states, "step", step)
        step = step.to(gradient.device, torch.float64)
        forget = step.pow(group["beta2_decay"]).to(gradient.dtype).view(each)
        rate = step.rsqrt_().clamp_(max=group["lr"]) * _rms(_stacked(parameters)).clamp_(min=group["eps"][1])
        if group["weight_decay"]:
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])

        square = gradient.square()
        if gradient.ndim > 2:
            row = _averaged(states, "row_var", square.mean(-1, keepdim=True), forget)
            column = _averaged(states, "col_var", square.mean(-2, keepdim=True), forget)
            row = row / row.mean(-2, keepdim=True).clamp_(min=eps)
            variance = torch.mul(row, column, out=square)
        else:
            variance = square.copy_(_averaged(states, "variance", square, forget))
        update = variance.clamp_(min=eps * eps).rsqrt_().mul_(gradient)
        rate.div_(_rms(update).div_(group["d"]).clamp_(min=1))
        update.mul_(rate.neg_().to(update.dtype).view(each))
        torch._foreach_add_(parameters, update.unbind())

    def _state(self, parameter: Tensor) -> dict[str, Tensor]:
        """As torch makes it, so that either goes on from the other's checkpoints."""
        state = self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            if parameter.ndim > 1:
                state["row_var"] = torch.zeros_like(parameter[..., :1])
                state["col_var"] = torch.zeros_like(parameter[..., :1, :])
            else:
                state["variance"] = torch.zeros_like(parameter)
        return state


def stacks(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Parameters of one shape and type together, no more of them than are worth it."""
    alike: dict[Any, list[Tensor]] = {}
    for parameter in parameters:
        alike.setdefault((parameter.shape, parameter.dtype, parameter.device), []).append(parameter)
    for same in alike.values():
        count = max(1, TOGETHER // max(1, same[0].numel()))
        yield from (same[start : start + count] for start in range(0, len(same), count))


def _stacked(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].unsqueeze(0) if len(tensors) == 1 else torch.stack(list(tensors))


def _keep(states: Sequence[dict[str, Tensor]], name: str, values: Tensor) -> None:
    for state, value in zip(states, values.unbind(), strict=True):
        state[name] = value


def _averaged(states: Sequence[dict[str, Tensor]], name: str, new: Tensor, forget: Tensor) -> Tensor:
    average = torch.lerp(_stacked([state[name] for state in states]), new, forget)
    _keep(states, name, average)
    return average


def _rms(stacked: Tensor) -> Tensor:
    """The root mean square of each parameter."""
    rows = stacked.reshape(len(stacked), -1)
    return rows.norm(dim=1).double().div_(rows.shape[1] ** 0.5)
