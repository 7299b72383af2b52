"""Check this machine: devices, threads, memory, disk, the ledger's folder, versions and W&B."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from scaling.base import atomic
from scaling.base.errors import ScalingError, plural
from scaling.base.printing import byte_size
from scaling.ledger import Ledger
from scaling.ledger.document import disk
from scaling.training.wandb_settings import has_login
from scaling.verbs.verb import RUNS, Result, verb

PACKAGES = ("scaling", "torch", "lightning", "wandb", "datasets", "tokenizers", "numpy", "scipy", "pandas")
MALICIOUS = {"lightning": ("2.6.2", "2.6.3")}  # uploads that were not the project's own
LEAST_FREE = 2 * 10**9
MARKS = {"good": "✓", "notice": "!", "bad": "✗"}


def _found(topic: str, what: str, fix: str | None = None, *, bad: bool = False) -> dict[str, Any]:
    """One line of the screen; `fix` where there is something to do."""
    return {"topic": topic, "state": "bad" if bad else "notice" if fix else "good", "what": what, "fix": fix}


@verb
def doctor(*, runs: str | Path = RUNS) -> Result:
    """Check this machine: devices, threads, memory, disk, the ledger's folder, versions and W&B, on one screen.

        scaling doctor
        scaling doctor runs=/shared/runs      with the folder that is to hold the runs

    The exit code is 1 where something is found that keeps runs from working.
    """
    findings = [*_versions(), *_processor(), *_devices(), *_folder(Path(runs)), _wandb()]
    rows = [[MARKS[row["state"]], row["topic"], "; ".join(filter(None, (row["what"], row["fix"])))] for row in findings]
    is_bad = any(row["state"] == "bad" for row in findings)
    return Result(findings, [(["", "topic", "found"], rows)], code=int(is_bad))


def _versions() -> Iterator[dict[str, Any]]:
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield _found("versions", f"{package} is not installed", f"pip install {package}", bad=True)
    listed = ", ".join(f"{package} {version}" for package, version in installed.items())
    yield _found("versions", f"Python {platform.python_version()}, {listed}")
    for package, versions in MALICIOUS.items():
        if installed.get(package) in versions:
            what = f"{package} {installed[package]} was a malicious upload"
            yield _found("versions", what, "install another version and change every secret on this machine", bad=True)


def _processor() -> Iterator[dict[str, Any]]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load, threads = os.getloadavg()[0], os.environ.get("OMP_NUM_THREADS", "")
    what = f"{plural(cores, 'core')} for this process, {platform.machine()}, load {load:.1f}"
    fix = "others are at work: small runs slow down many times over" if load > cores else None
    yield _found("processor", what, fix)
    what = f"OMP_NUM_THREADS={threads}" if threads else "OMP_NUM_THREADS is not set: the size of a run's model decides"
    is_right = not threads or (threads.isdecimal() and int(threads) <= cores)
    yield _found("threads", what, None if is_right else f"set it to at most {plural(cores, 'core')}")
    if "SC_AVPHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        whole, free = (byte_size(os.sysconf(f"SC_{which}_PAGES") * page) for which in ("PHYS", "AVPHYS"))
        yield _found("memory", f"{whole}, of which {free} are free")


def _devices() -> Iterator[dict[str, Any]]:
    try:
        import torch
    except ImportError as error:
        yield _found("devices", f"torch cannot be imported: {error}", bad=True)
        return
    from scaling.kernels.compiled import absent

    why = absent()
    fix = why and "small models train slower on the CPU without them: see docs/install.md"
    yield _found("kernels", why or "compiled for this processor", fix)
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield _found("devices", f"cuda:{number} {device.name}, {byte_size(device.total_memory)}")
    if torch.backends.mps.is_available():
        yield _found("devices", "mps")
    if not torch.cuda.device_count():
        lacks_cuda = shutil.which("nvidia-smi") is not None and torch.version.cuda is None
        fix = "this torch is built without CUDA; install one with it" if lacks_cuda else None
        yield _found("devices", f"the CPU alone, {torch.backends.cpu.get_cpu_capability()}", fix)


def _folder(folder: Path) -> Iterator[dict[str, Any]]:
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    trial = atomic.temporary(there / "trial")
    try:
        with disk(f"cannot write in {there}"):
            trial.touch()
            trial.unlink()
    except ScalingError as error:
        yield _found("runs", str(error), bad=True)
        return
    free = shutil.disk_usage(there).free
    fix = "runs stop with code 74 when it is full; `scaling gc` frees some" if free < LEAST_FREE else None
    yield _found("disk", f"{byte_size(free)} free at {there}", fix)
    if there == folder.absolute():
        try:
            yield _found("runs", f"{plural(len(Ledger.open(folder).runs()), 'run')} in {folder}")
        except ScalingError as error:
            yield _found("runs", f"{folder}: {error.what}", error.fix)


def _wandb() -> dict[str, Any]:
    mode, has_key = os.environ.get("WANDB_MODE", "online"), bool(os.environ.get("WANDB_API_KEY"))
    if mode in ("offline", "disabled"):
        return _found("W&B", f"{mode} by WANDB_MODE")
    if has_key or has_login():
        return _found("W&B", f"a key in {'the environment' if has_key else '~/.netrc'}")
    return _found("W&B", "no key: runs are logged offline", "`wandb login` sets one")
