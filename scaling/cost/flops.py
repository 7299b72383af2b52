"""FLOPs by slot, counted as a model runs, with the formulas of `torch.utils.flop_counter`."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from scaling.model.parameters import parts

# One matrix for all tokens; the other products are between tokens, or between a token and what was summed over others.
OF_EACH_TOKEN = (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.convolution)


def flops(model: nn.Module, run: Callable[[], object]) -> Counter[str]:
    """The FLOPs of `run` by slot. What runs outside every slot's module is the head, whose loss is not a forward."""
    return counted(model, run).by_slot


def counted(model: nn.Module, run: Callable[[], object]) -> Flops:
    """The FLOPs of `run`."""
    counter = Flops()
    with ExitStack() as hooks, counter:
        for part in parts(model):
            if part.begins:
                hooks.callback(part.module.register_forward_pre_hook(partial(counter.enter, part.slot)).remove)
                hooks.callback(part.module.register_forward_hook(counter.leave, always_call=True).remove)
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
        kwargs = kwargs or {}
        operation = func._overloadpacket
        if operation in self.operations:
            output = _run(func, args, kwargs)
            self.record(operation, args, kwargs, output)
            return output
        if func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd):
            with self:  # what is made of other operations is counted as those
                return func.decompose(*args, **kwargs)
        return _run(func, args, kwargs)


class Flops(Watch):
    """Counts the FLOPs of what runs under it by slot, with the formulas of `torch.utils.flop_counter`.

    That module's own mode follows every module and imports torch's compiler, one second for each; this one asks only
    which slot is running. Backward nodes are numbered in the order in which forward made them, so a node belongs to
    the slot whose forward was running when its number was given.
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_slot: Counter[str] = Counter()
        self.between_tokens: Counter[str] = Counter()  # of these, what is not a matrix for each token
        self.slots = ["head"]
        self.numbers, self.owners = [0], ["head"]  # from this node's number on, that slot

    def enter(self, slot: str, *_: object) -> None:
        self._turn([*self.slots, slot])

    def leave(self, *_: object) -> None:
        self._turn(self.slots[:-1])

    def _turn(self, slots: list[str]) -> None:
        self.slots = slots
        self.numbers.append(torch.autograd._get_sequence_nr())
        self.owners.append(slots[-1])

    def _slot(self) -> str:
        node = torch._C._current_autograd_node()
        if node is None or len(self.slots) > 1:  # a block that is run again has slots inside the backward pass too
            return self.slots[-1]
        return self.owners[bisect_right(self.numbers, node._sequence_nr()) - 1]

    def record(self, operation: Any, args: Any, kwargs: Any, output: Any) -> None:
        slot, number = self._slot(), flop_registry[operation](*args, **kwargs, out_val=output)
        self.by_slot[slot] += number
        if operation not in OF_EACH_TOKEN:
            self.between_tokens[slot] += number


class _Form(NamedTuple):
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """`func(*args)`. On the meta device shapes are all there is, and a deep model asks the same of every layer: what an
    operation of the same form is built again, many times faster than torch infers it.
    """
    if func.is_view or func._schema.is_mutable:
        return func(*args, **kwargs)
    try:
        key = (func, _like(args), _like(tuple(kwargs.items())))
        shapes = _made.get(key)
    except TypeError:  # a real tensor
        return func(*args, **kwargs)
    if shapes is None:
        output = func(*args, **kwargs)
        if all(
            isinstance(tensor, Tensor) and tensor.is_meta
            for tensor in (output if isinstance(output, tuple) else (output,))
        ):
            _made[key] = _like(output)
        return output
    return _empty_like(shapes)


_made: dict[Any, Any] = {}


def _like(value: Any) -> Any:
    """A value with its tensors as their forms; 1 and 1.0 make different types, so each number is kept with its type."""
    if isinstance(value, Tensor):
        if not value.is_meta:
            raise TypeError
        return _Form(value.shape, value.stride(), value.dtype)
    return tuple(map(_like, value)) if isinstance(value, tuple | list) else (type(value), value)


def _empty_like(like: Any) -> Any:
    if isinstance(like, _Form):
        return torch.empty_strided(like.shape, like.stride, dtype=like.dtype, device="meta")
    return tuple(map(_empty_like, like))
