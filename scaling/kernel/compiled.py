"""The kernels as this machine's C++ compiler makes them: once for a processor and a source, and kept from then on.

Where they cannot be had, torch's operations stand in for them, and `absent` says why.
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
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

SOURCES = sorted(Path(__file__).parent.glob("*.cpp"))
HEADERS = sorted(Path(__file__).parent.glob("*.h"))

# Infinities and what is no number keep their meaning.
FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fPIC", "-fopenmp", "-w"),
    *("-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros"),
)
PATIENCE = 120.0  # seconds for a compiler


def library() -> ctypes.CDLL | None:
    """The kernels, compiled first if need be."""
    found = _found()
    return found if isinstance(found, ctypes.CDLL) else None


def absent() -> str | None:
    """Why there are none, where there are none."""
    found = _found()
    return found if isinstance(found, str) else None


@cache
def _found() -> ctypes.CDLL | str:
    if os.environ.get("SCALING_KERNELS") == "0":
        return "declined by SCALING_KERNELS=0"
    command = shlex.split(os.environ.get("CXX") or "c++")
    compiler = shutil.which(command[0])
    if compiler is None:
        return f"no C++ compiler: {command[0]} is not there"
    try:
        return ctypes.CDLL(str(_compiled([compiler, *command[1:]])))
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.decode(errors="replace").splitlines() if "error" in line]
        return f"{compiler} fails: {lines[0] if lines else f'exit code {error.returncode}'}"
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)


def _compiled(compiler: list[str]) -> Path:
    folder = _folder()
    path = folder / f"{_name(compiler)}.so"
    if not path.exists():
        with tempfile.TemporaryDirectory(dir=folder) as room:
            objects = [Path(room, source.with_suffix(".o").name) for source in SOURCES]
            with ThreadPoolExecutor() as pool:
                made = pool.map(lambda source, to: _run(*compiler, *FLAGS, "-c", source, "-o", to), SOURCES, objects)
                list(made)
            # Linked without OpenMP, whose names torch's own answers: two of them were two sets of threads on the cores.
            whole = Path(room, path.name)
            _run(*compiler, "-shared", *objects, "-o", whole)
            os.replace(whole, path)
    return path


def _run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=PATIENCE)


def _folder() -> Path:
    """Where the user's caches lie; nobody else may write there, for what lies there is run."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(home, "scaling", "kernels")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    told = folder.stat()
    if told.st_uid != os.getuid() or told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written by others, and what lies there is run")
    return folder


def _name(compiler: list[str]) -> str:
    """What decides about the machine code: sources, flags, the compiler and the processor."""
    told = hashlib.sha256()
    for path in (*SOURCES, *HEADERS):
        told.update(path.read_bytes())
    at = Path(compiler[0]).resolve()
    found = at.stat()
    told.update(repr((FLAGS, compiler[1:], str(at), found.st_size, found.st_mtime_ns, _processor())).encode())
    return told.hexdigest()[:24]


def _processor() -> str:
    """The processor's abilities, which `-march=native` compiles for."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line for line in lines if line.startswith(("flags", "Features"))), "")
