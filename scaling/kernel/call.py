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


def call(name: str, dtype: torch.dtype, *arguments: Argument) -> None:
    """Run a kernel on contiguous tensors, on as many threads as torch would."""
    _kernel(name, dtype)(*map(_handed, arguments), ctypes.c_int64(torch.get_num_threads()))


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
def _kernel(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    kernel = getattr(library(), f"{name}_{TYPES[dtype]}")
    kernel.restype = None
    return kernel
