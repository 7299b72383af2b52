"""How the kernels are had: compiled once, by several processes at once, or not, and then torch stands in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

TOLD = """
import json, torch
from scaling.kernel.compiled import absent
from scaling.config import load
from scaling.batch import Batch
config = load("decoder", ["size=tiny"])
torch.manual_seed(0)
model = config.build("model", config["size"])
tokens = torch.arange(130).view(2, 65) % 50
loss = model.loss(Batch(tokens[:, :-1], tokens[:, 1:])).total
loss.backward()
norm = sum(parameter.grad.square().sum() for parameter in model.parameters() if parameter.grad is not None)
print(json.dumps([absent(), loss.item(), norm.item()]))
"""

COMPILER = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


def start(cache: Path | None = None, **around: str) -> subprocess.Popen[str]:
    """A process of its own; without a cache of its own it finds what was compiled before."""
    env = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {}), **around}
    return subprocess.Popen([sys.executable, "-c", TOLD], env=env, text=True, stdout=subprocess.PIPE)


def told(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


@COMPILER
def test_processes_at_once_compile_beside_each_other_and_leave_one(tmp_path):
    several = [told(process) for process in [start(tmp_path), start(tmp_path)]]
    assert several[0] == several[1]
    assert several[0][0] is None
    (made,) = (tmp_path / "scaling" / "kernels").iterdir()
    before = made.stat().st_mtime_ns
    assert told(start(tmp_path)) == several[0]
    assert made.stat().st_mtime_ns == before


@COMPILER
def test_torch_stands_in_with_the_same_loss():
    ours, without = start(), start(SCALING_KERNELS="0")
    _, loss, norm = told(ours)
    why, plain, plain_norm = told(without)
    assert "SCALING_KERNELS" in why
    assert loss == pytest.approx(plain, rel=1e-5)
    assert norm == pytest.approx(plain_norm, rel=1e-4)


def _flags() -> set[str]:
    """What the processor can, as Linux tells it."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else []
    return set(next((line for line in lines if line.startswith("flags")), "").split())


@COMPILER
@pytest.mark.parametrize("tests", ["test_kernels.py", pytest.param("test_inputs.py", marks=pytest.mark.slow)])
@pytest.mark.parametrize("without", ["avx512f", "avx2"])
def test_narrower_registers_compute_the_same(without, tests, tmp_path):
    """Every test of the kernels once more, as the compiler of an older processor makes them."""
    if without not in _flags():
        pytest.skip(f"this processor has no {without} to do without")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": f"c++ -mno-{without}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"]
    again = [*command, str(Path(__file__).with_name(tests))]
    found = subprocess.run(again, env=env, text=True, capture_output=True, timeout=600)
    assert found.returncode == 0, found.stdout[-3000:]
    assert "no kernels" not in found.stdout


def test_without_a_compiler_or_with_one_that_fails_torch_stands_in(tmp_path):
    none, failing = start(tmp_path, CXX="no-such-compiler"), start(tmp_path, CXX="false")
    assert "is not there" in told(none)[0]
    assert "fails" in told(failing)[0]


def test_a_folder_that_others_may_write_is_not_trusted(tmp_path):
    folder = tmp_path / "scaling" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert "written by others" in told(start(tmp_path))[0]
    assert not list(folder.iterdir())
