"""Check this machine: devices, threads, memory, disk, the ledger's folder, versions and W&B, on one screen.

scaling doctor
scaling doctor runs=/shared/runs      with the folder that is to hold the runs

The exit code is 1 where something is found that keeps runs from working.
"""

from __future__ import annotations

import argparse
import netrc
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from scaling.api.runs import RUNS
from scaling.command.gc import size
from scaling.errors import ScalingError, plural

PACKAGES = ("scaling", "torch", "lightning", "wandb", "datasets", "tokenizers", "numpy", "scipy", "pandas")
MALICIOUS = {"lightning": ("2.6.2", "2.6.3")}  # uploads that were not the project's own
LEAST_FREE = 2 * 10**9


@dataclass(frozen=True)
class Finding:
    """One line of the screen; `fix` where there is something to do."""

    topic: str
    state: Literal["good", "notice", "bad"]
    what: str
    fix: str | None = None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="runs=FOLDER", help="the folder that is to hold the runs")
    parser.add_argument("--json", action="store_true", help="one JSON document: a list of findings")


def run(arguments: argparse.Namespace) -> int:
    from scaling.ledger.document import text

    folder = RUNS
    for word in arguments.words:
        key, sign, folder = word.partition("=")
        if not sign or key.lstrip("-") != "runs":
            raise ScalingError("it takes runs=FOLDER and nothing else", value=word, key="word")
    findings = [*_versions(), *_processor(), *_devices(), *_folder(Path(folder)), *_wandb()]
    if arguments.json:
        print(text([vars(finding) for finding in findings]))
    else:
        marks = {"good": "✓", "notice": "!", "bad": "✗"}
        for finding in findings:
            fix = "" if finding.fix is None else f"; {finding.fix}"
            print(f"{marks[finding.state]} {finding.topic:<9} {finding.what}{fix}")
    return int(any(finding.state == "bad" for finding in findings))


def _versions() -> Iterator[Finding]:
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            yield Finding("versions", "bad", f"{package} is not installed", f"pip install {package}")
    listed = ", ".join(f"{package} {version}" for package, version in installed.items())
    yield Finding("versions", "good", f"Python {platform.python_version()}, {listed}")
    for package, versions in MALICIOUS.items():
        if installed.get(package) in versions:
            what = f"{package} {installed[package]} was a malicious upload"
            yield Finding("versions", "bad", what, "install another version and change every secret on this machine")


def _processor() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    what = f"{cores} cores for this process, {platform.machine()}, load {load:.1f}"
    if load > cores:
        yield Finding("processor", "notice", what, "others are at work: small runs slow down many times over")
    else:
        yield Finding("processor", "good", what)
    threads = os.environ.get("OMP_NUM_THREADS")
    if threads is None:
        yield Finding("threads", "good", "OMP_NUM_THREADS is not set: the size of a run's model decides")
    elif threads.isdecimal() and int(threads) <= cores:
        yield Finding("threads", "good", f"OMP_NUM_THREADS={threads}")
    else:
        yield Finding("threads", "notice", f"OMP_NUM_THREADS={threads!r} with {cores} cores", "more threads than cores")
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        page = os.sysconf("SC_PAGE_SIZE")
        yield Finding(
            "memory",
            "good",
            f"{size(os.sysconf('SC_PHYS_PAGES') * page)}, of which "
            f"{size(os.sysconf('SC_AVPHYS_PAGES') * page)} are free",
        )


def _devices() -> Iterator[Finding]:
    try:
        import torch
    except ImportError as error:
        yield Finding("devices", "bad", f"torch cannot be imported: {error}")
        return
    from scaling.kernel.compiled import absent

    if (why := absent()) is None:
        yield Finding("kernels", "good", "compiled for this processor")
    else:
        fix = "small models train slower on the CPU without them: see docs/install.md"
        yield Finding("kernels", "notice", why, fix)
    for number in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(number)
        yield Finding("devices", "good", f"cuda:{number} {device.name}, {size(device.total_memory)}")
    if torch.backends.mps.is_available():
        yield Finding("devices", "good", "mps")
    if not torch.cuda.device_count():
        lacks_cuda = shutil.which("nvidia-smi") is not None and torch.version.cuda is None
        fix = "this torch is built without CUDA; install one with it" if lacks_cuda else None
        what = f"the CPU alone, {torch.backends.cpu.get_cpu_capability()}"
        yield Finding("devices", "notice" if lacks_cuda else "good", what, fix)


def _folder(folder: Path) -> Iterator[Finding]:
    from scaling.ledger import Ledger
    from scaling.ledger.exclusive import probe

    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    try:
        means = probe(there)
    except ScalingError as error:
        yield Finding("runs", "bad", str(error))
        return
    free = shutil.disk_usage(there).free
    low = "runs stop with code 74 when it is full; `scaling gc` frees some" if free < LEAST_FREE else None
    yield Finding("disk", "good" if low is None else "notice", f"{size(free)} free at {there}", low)
    if means == "link":
        yield Finding("links", "good", "hard links work and are counted: claims are exclusive")
    else:
        yield Finding(
            "links", "notice", "no hard links here: claims are made by O_EXCL", "avoid old NFS servers for it"
        )
    if there == folder.absolute():
        try:
            yield Finding("runs", "good", f"{plural(len(Ledger.open(folder).runs()), 'run')} in {folder}")
        except ScalingError as error:
            yield Finding("runs", "notice", str(error))


def _wandb() -> Iterator[Finding]:
    mode = os.environ.get("WANDB_MODE", "online")
    if mode in ("offline", "disabled"):
        yield Finding("W&B", "good", f"{mode} by WANDB_MODE")
    elif os.environ.get("WANDB_API_KEY"):
        yield Finding("W&B", "good", "a key in the environment")
    elif _has_login():
        yield Finding("W&B", "good", "a key in ~/.netrc")
    else:
        yield Finding("W&B", "notice", "no key: runs are logged offline", "`wandb login` sets one")


def _has_login() -> bool:
    try:
        return any("wandb" in host for host in netrc.netrc().hosts)
    except (OSError, netrc.NetrcParseError):
        return False
