"""FLOPs by slot, counted as a model runs, with the formulas of `torch.utils.flop_counter`; and what it keeps for the
backward pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from scaling.model.parameters import parts

# One matrix for all tokens; the other products are between tokens, or between a token and what was summed over others.
OF_EACH_TOKEN = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.convolution)


def counted(model: nn.Module, run: Callable[[], object], blocks: Iterable[nn.Module] = ()) -> Flops:
    """The FLOPs of `run` by slot, and the bytes that autograd keeps, those that one of `blocks` keeps among them. What
    runs outside every slot's module is the head, whose loss is not a forward.
    """
    counter = Flops(model.parameters())
    with ExitStack() as hooks, saved_tensors_hooks(counter.pack, counter.unpack), counter:
        for part in parts(model):
            if part.begins:
                enter = part.module.register_forward_pre_hook(lambda *_, slot=part.slot: counter.slots.append(slot))
                leave = part.module.register_forward_hook(lambda *_: counter.slots.__delitem__(-1), always_call=True)
                hooks.callback(enter.remove)
                hooks.callback(leave.remove)
        for block in blocks:
            hooks.callback(block.register_forward_pre_hook(lambda *_: counter.begun.append(counter.bytes)).remove)
            hooks.callback(block.register_forward_hook(counter.leave_block).remove)
        run()
    return counter


class Watch(TorchDispatchMode):
    """Shows each of `operations` that runs under it to `seen`, those inside composite ones too."""

    operations: Container[Any] = flop_registry

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True would import the compiler to keep it away from us

    def record(self, operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        """An operation that ran, with what it was given and what it made."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, operation, output = kwargs or {}, func.overloadpacket, NotImplemented
        if operation not in self.operations and func not in _plain:
            with self:  # what is made of other operations is counted as those
                output = func.decompose(*args, **kwargs)
            if output is NotImplemented:
                _plain.add(func)
        if output is NotImplemented:
            output = _run(func, args, kwargs)
        if operation in self.operations:
            self.record(operation, args, kwargs, output)
        return output


class Flops(Watch):
    """Counts the FLOPs of what runs under it by slot; torch's own mode imports its compiler, which takes a second.

    In the backward pass the slot is the one which kept the tensor that was asked for last: each product asks for one.

    `bytes` are of the distinct tensors that autograd keeps, parameters apart; `most` are what one block keeps of these.
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        super().__init__()
        self.by_slot: Counter[str] = Counter()
        self.between_tokens: Counter[str] = Counter()  # of these, what is not a matrix for each token
        self.slots, self.behind = ["head"], "head"  # those that are running; that of the backward pass
        self.storages = {parameter.untyped_storage() for parameter in parameters}
        self.bytes = self.most = 0
        self.begun: list[int] = []

    def leave_block(self, *_: object) -> None:
        self.most = max(self.most, self.bytes - self.begun.pop())

    def pack(self, tensor: Tensor) -> tuple[str, Tensor]:
        storage = tensor.untyped_storage()
        if storage not in self.storages:
            self.storages.add(storage)
            self.bytes += storage.nbytes()
        return self.slots[-1], tensor

    def unpack(self, packed: tuple[str, Tensor]) -> Tensor:
        self.behind, tensor = packed
        return tensor

    def record(self, operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        slot = self.slots[-1] if len(self.slots) > 1 else self.behind
        number = flop_registry[operation](*args, **kwargs, out_val=output)
        self.by_slot[slot] += number
        if operation not in OF_EACH_TOKEN:
            self.between_tokens[slot] += number


_plain: set[Any] = set()  # operations that are made of no others
_made: dict[Any, Any] = {}


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """`func(*args)`. On the meta device shapes are all there is, and a deep model asks the same of every layer: the
    output of an operation of the same form is made again, many times faster than torch infers it.
    """
    if func.is_view or func._schema.is_mutable:
        return func(*args, **kwargs)
    try:
        key = (func, _form(args), _form(tuple(kwargs.items())))
    except TypeError:  # a real tensor
        return func(*args, **kwargs)
    if key in _made:
        return _fresh(_made[key])
    output = func(*args, **kwargs)
    tensors = output if isinstance(output, tuple) else (output,)
    if all(isinstance(tensor, Tensor) and tensor.is_meta for tensor in tensors):
        _made[key] = _fresh(output)  # without the graph that the output becomes part of
    return output


def _form(value: Any) -> Any:
    """A value with its tensors as their forms; 1 and 1.0 make different types, so each number is kept with its type."""
    if isinstance(value, Tensor):
        if not value.is_meta:
            raise TypeError
        return Tensor, value.shape, value.stride(), value.dtype
    return tuple(map(_form, value)) if isinstance(value, tuple | list) else (type(value), value)


def _fresh(output: Any) -> Any:
    """A tensor of the same form, or several."""
    if isinstance(output, tuple):
        return tuple(map(_fresh, output))
    return torch.empty_strided(output.shape, output.stride(), dtype=output.dtype, device="meta")
