"""One thread a test worker: two busy threads on two cores are many times slower than one."""

import importlib
import inspect
import os
import pkgutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Before torch or numpy is imported by any test.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest  # noqa: E402
from beartype import beartype  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402
from jaxtyping import jaxtyped  # noqa: E402
from torch import nn  # noqa: E402

import scaling.model  # noqa: E402
from scaling.config import schema  # noqa: E402

# Every shape that a piece's `forward` promises is checked. Not by jaxtyping's hook on imports, which also wraps each
# function inside a function anew at every call of it: more than half of the time of a test of a model.
for info in pkgutil.walk_packages(scaling.model.__path__, "scaling.model."):
    for _, piece in inspect.getmembers(importlib.import_module(info.name), inspect.isclass):
        if issubclass(piece, nn.Module) and piece.__module__ == info.name and "forward" in vars(piece):
            piece.forward = jaxtyped(piece.forward, typechecker=beartype)

# No deadline: a test's outcome may not depend on how busy the machine is.
settings.register_profile("scaling", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("scaling")


def pytest_addoption(parser):
    parser.addoption("--golden", action="store_true", help="write golden files anew instead of comparing with them")


@pytest.fixture(autouse=True)
def only_shipped_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kinds that a test adds by a file of its own are gone after it."""
    monkeypatch.setattr(schema, "_joined", {})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small tmpfs needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)
