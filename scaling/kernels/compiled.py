"""The kernels as this machine's C++ compiler makes them: once for a processor and a source, and kept from then on.

The name of a kept library ends in the hash of its bytes: one that is truncated, empty or changed is not loaded, but
compiled again and put in its place by a rename, so that who has the old one loaded keeps it. Processes that start
together compile beside one another. Where there are no kernels, torch's operations replace them, and `absent` states
why in one line.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scaling.base import atomic

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))

# Infinities and what is not a number keep their meaning.
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-fopenmp", "-w"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
)
PATIENCE = 120.0  # seconds for a compiler
FIX = "set XDG_CACHE_HOME to a folder that only you can write to"
TYPES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def library() -> ctypes.CDLL | None:
    """The kernels, compiled first if need be."""
    return _outcome()[0]


def absent() -> str | None:
    """Why there are none, where there are none, in one line."""
    return _outcome()[1]


@cache
def _outcome() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get("SCALING_KERNELS") == "0":
        return None, "declined by SCALING_KERNELS=0"
    try:
        return ctypes.CDLL(str(_path(_compiler()))), None
    except OSError as error:
        return None, " ".join(str(error).split())


def _compiler() -> list[str]:
    """The C++ compiler and its own flags: `CXX`, or c++."""
    setting = os.environ.get("CXX", "").strip() or "c++"
    try:
        program, *flags = shlex.split(setting)
    except ValueError as error:
        raise OSError(f"no C++ compiler: CXX={setting!r} cannot be read: {error}") from error
    compiler = shutil.which(program)
    if compiler is None:
        raise OSError(f"no C++ compiler: {program!r} is not there")
    return [compiler, *flags]


def _path(compiler: list[str]) -> Path:
    """The library of these sources, flags, compiler and processor, kept from before or compiled now."""
    digest, folder, at = hashlib.sha256(), _folder(), Path(compiler[0]).resolve()
    for path in (*SOURCES, *HEADERS):
        digest.update(path.read_bytes())
    digest.update(repr((FLAGS, compiler[1:], str(at), at.stat().st_size, at.stat().st_mtime_ns, _processor())).encode())
    key = digest.hexdigest()[:24]
    for path in folder.glob(f"{key}-*.so"):
        if path.name == _name(key, path.read_bytes()):
            return path
    content = _compiled(compiler)
    path = folder / _name(key, content)
    atomic.write(path, content)
    for damaged in folder.glob(f"{key}-*.so"):
        if damaged != path:
            damaged.unlink(missing_ok=True)
    return path


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:24]}.so"


def _compiled(compiler: list[str]) -> bytes:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as room:
        objects = [Path(room, source.with_suffix(".o").name) for source in SOURCES]
        with ThreadPoolExecutor() as pool:
            list(pool.map(lambda source, to: _run(*compiler, *FLAGS, "-c", source, "-o", to), SOURCES, objects))
        # Linked without OpenMP, whose names torch's own answers: two of them were two sets of threads on the cores.
        linked = Path(room, "kernels.so")
        _run(*compiler, "-shared", *objects, "-o", linked)
        if not linked.is_file():
            raise OSError(f"{compiler[0]} fails: it makes no library")
        return linked.read_bytes()


def _run(*command: str | Path) -> None:
    try:
        subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=PATIENCE)
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode(errors="replace").splitlines() if "error" in line]
        raise OSError(f"{command[0]} fails: {lines[0] if lines else f'exit code {error.returncode}'}") from error
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{command[0]} fails: it takes more than {PATIENCE:.0f} seconds") from error


def _folder() -> Path:
    """The folder of the user's caches. No other user may write there: its files are executed."""
    setting = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        home = setting if setting.is_absolute() else Path.home() / ".cache"
    except RuntimeError as error:
        raise OSError(f"no folder to keep them in: {error}; {FIX}") from error
    folder = Path(home, "scaling", "kernels").resolve()
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise OSError(f"{folder} can be written by others, and what lies there is run; {FIX}, or chmod go-w {folder}")
    return folder


def _processor() -> str:
    """The processor's abilities, which `-march=native` compiles for."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")


def serves(*tensors: Tensor | None) -> bool:
    """Whether the kernels take these tensors, None aside: plain ones of one type that they know, on the CPU."""
    present = [tensor for tensor in tensors if tensor is not None]
    dtype = present[0].dtype
    return (
        dtype in TYPES
        and all(type(x) in (Tensor, nn.Parameter) and x.dtype is dtype and x.device.type == "cpu" for x in present)
        and not torch.compiler.is_compiling()
        and library() is not None
    )


def fitting(name: str, tensor: Tensor | None, shape: tuple[int, ...]) -> None:
    """A kernel reads as much memory as `shape` says, whatever the tensor has."""
    if tensor is not None and tensor.shape != shape:
        raise ValueError(f"{name} is {list(shape)}, not {list(tensor.shape)}")


def call(name: str, first: Tensor, *more: Tensor | int | float | tuple[int, ...] | None) -> Any:
    """Run the kernel of the first tensor's type on tensors whose numbers lie as it reads them, on as many threads as
    torch would.
    """
    kernel, arguments = _kernel(name, first.dtype), []
    for argument in (first, *more, torch.get_num_threads()):
        if isinstance(argument, Tensor):
            if argument.dtype not in (first.dtype, torch.float32, torch.int64):
                raise TypeError(f"a kernel takes {first.dtype} here, not {argument.dtype}")
            arguments.append(ctypes.c_void_p(argument.data_ptr()))
        elif isinstance(argument, tuple):
            arguments.append((ctypes.c_int64 * len(argument))(*argument))
        elif isinstance(argument, float):
            arguments.append(ctypes.c_float(argument))
        else:
            arguments.append(None if argument is None else ctypes.c_int64(argument))
    return kernel(*arguments)


@cache
def _kernel(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    if dtype not in TYPES:
        raise TypeError(f"no kernel takes {dtype}")
    # A norm returns how many of its sums overflow; the others return nothing.
    kernel = ctypes.CFUNCTYPE(ctypes.c_int64)
    return ctypes.cast(ctypes.c_void_p.in_dll(library(), f"{name}_{TYPES[dtype]}"), kernel)  # type: ignore[arg-type]
