"""Calls of the compiled kernels: which tensors they take, and what is handed over."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from scaling.kernel.compiled import library

TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}
PLAIN = (Tensor, nn.Parameter)

Argument = Tensor | int | float | tuple[int, ...] | None


def serves(*tensors: Tensor | None) -> bool:
    """Whether the kernels take these tensors, None aside: plain ones of one type that they know, on the CPU."""
    given = [tensor for tensor in tensors if tensor is not None]
    dtype = given[0].dtype
    return (
        dtype in TYPES
        and all(type(x) in PLAIN and x.dtype is dtype and x.device.type == "cpu" for x in given)
        and not torch.compiler.is_compiling()
        and library() is not None
    )


def dense(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    """The tensors with their numbers one after another, None aside; another type is refused, not read as this one."""
    return [None if tensor is None else _of(dtype, tensor).contiguous() for tensor in tensors]


def in_rows(dtype: torch.dtype, *tensors: Tensor | None) -> list[Any]:
    """The same, where only the numbers of the last dimension have to be one after another."""
    return [x if x is None or _of(dtype, x).stride(-1) == 1 else x.contiguous() for x in tensors]


def _of(dtype: torch.dtype, tensor: Tensor) -> Tensor:
    if tensor.dtype is not dtype:
        raise TypeError(f"a kernel takes {dtype} here, not {tensor.dtype}")
    return tensor


def fitting(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    """A kernel reads as much memory as `shape` says, whatever the tensor has."""
    if tensor.shape != shape:
        raise ValueError(f"{name} is {list(shape)}, not {list(tensor.shape)}")


def call(name: str, dtype: torch.dtype, *arguments: Argument, returns: type | None = None) -> Any:
    """Run a kernel on tensors as `dense` or `in_rows` leave them, on as many threads as torch would."""
    return _kernel(name, dtype, returns)(*map(_handed, arguments), ctypes.c_int64(torch.get_num_threads()))


def _handed(argument: Argument) -> Any:
    """A tensor, or several whole numbers, as where its numbers lie; None is nowhere."""
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if isinstance(argument, tuple):
        return (ctypes.c_int64 * len(argument))(*argument)
    if isinstance(argument, float):
        return ctypes.c_float(argument)
    return argument if argument is None else ctypes.c_int64(argument)


@cache
def _kernel(name: str, dtype: torch.dtype, returns: type | None) -> Callable[..., Any]:
    if dtype not in TYPES:
        raise TypeError(f"no kernel takes {dtype}")
    kernel = getattr(library(), f"{name}_{TYPES[dtype]}")
    kernel.restype = returns
    return kernel
