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

from scaling.kernels import compiled

TOLD = """
import json, torch
from scaling.kernels.compiled import absent
from scaling.config.compose import load
from scaling.base.batch import Batch
config = load("decoder", ["size=tiny"])
torch.manual_seed(0)
model = config.build("model", config["size"])
tokens = torch.arange(130).view(2, 65) % 50
loss = model.loss(Batch(tokens[:, :-1], tokens[:, 1:])).total
loss.backward()
norm = sum(parameter.grad.square().sum() for parameter in model.parameters() if parameter.grad is not None)
print(json.dumps([absent(), loss.item(), norm.item()]))
"""


@pytest.fixture(autouse=True)
def kernels_are_asked_for(monkeypatch):
    """What the tests run with, `make test ISA=sse` too, is not what they ask about."""
    monkeypatch.delenv("SCALING_KERNELS", raising=False)


COMPILER = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


def start(cache: Path | None = None, **around: str) -> subprocess.Popen[str]:
    """A process of its own; without a cache of its own it finds what was compiled before."""
    env = {**os.environ, **({"XDG_CACHE_HOME": str(cache)} if cache else {}), **around}
    return subprocess.Popen([sys.executable, "-c", TOLD], env=env, text=True, stdout=subprocess.PIPE)


def told(process: subprocess.Popen[str]) -> Any:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    return json.loads(out)


@pytest.mark.slow
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


@pytest.mark.slow
@COMPILER
@pytest.mark.parametrize("without", ["avx512f", "avx2"])
def test_narrower_registers_compute_the_same(without, tmp_path):
    """Every test of the kernels once more, as the compiler of an older processor makes them."""
    if without not in _flags():
        pytest.skip(f"this processor has no {without} to do without")
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "CXX": f"c++ -mno-{without}"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-rs"]
    again = [*command, str(Path(__file__).with_name("test_kernels.py"))]
    found = subprocess.run(again, env=env, text=True, capture_output=True, timeout=600)
    assert found.returncode == 0, found.stdout[-3000:]
    assert "no kernels" not in found.stdout


@pytest.mark.slow
def test_without_a_compiler_or_with_one_that_fails_torch_stands_in(tmp_path):
    none, failing = start(tmp_path, CXX="no-such-compiler"), start(tmp_path, CXX="false")
    assert "is not there" in told(none)[0]
    assert "fails" in told(failing)[0]


# What is asked of the cache alone: a source that compiles in no time, in this process.


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of the user's caches, where nothing is yet."""
    source = tmp_path / "one.cpp"
    source.write_text('extern "C" int one() { return 1; }\n')
    monkeypatch.setattr(compiled, "SOURCES", [source])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    return tmp_path / "cache" / "scaling" / "kernels"


def outcome() -> Any:
    """The kernels, or the one line that says why there are none, without what this process knows already."""
    kernels, why = compiled._outcome.__wrapped__()
    return kernels or why


DAMAGES = {
    "empty": lambda whole: b"",
    "cut by a byte": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"x",
    "another byte": lambda whole: whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:],
    "text": lambda whole: b"not a library",
}


@COMPILER
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_library_is_compiled_again_and_replaced_by_a_rename(damage, cache):
    def kept() -> Path:
        assert compiled._path(compiled._compiler()) in cache.iterdir()
        (path,) = cache.iterdir()
        return path

    path = kept()
    whole, file = path.read_bytes(), path.stat().st_ino
    with path.open("r+b") as handle:  # in place, as a disk does it
        handle.write(damage(whole))
        handle.truncate(len(damage(whole)))
        assert kept().stat().st_ino != file  # who has the old file loaded has it still
    assert kept().read_bytes() == whole
    healed = kept().stat().st_mtime_ns
    assert kept().stat().st_mtime_ns == healed
    assert outcome().one() == 1


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ('"c++', "CXX='\"c++' cannot be read: No closing quotation"),
        ("c++ '-O1", "cannot be read"),
        ("no-such-compiler -O1", "'no-such-compiler' is not there"),
        ("''", "'' is not there"),
        ("/", "'/' is not there"),
        ("true", "makes no library"),
        ("false", "fails: exit code 1"),
    ],
)
def test_a_malformed_compiler_is_one_line(given, why, cache, monkeypatch):
    monkeypatch.setenv("CXX", given)
    assert why in outcome()
    assert "\n" not in outcome()
    assert list(cache.glob("*")) == []


HOMELESS = "import os\nfrom scaling.kernels.compiled import absent\nos.setuid(54321)\nprint(absent())"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that nobody knows")
def test_without_a_home_the_reason_is_one_line():
    env = {key: value for key, value in os.environ.items() if key != "HOME"} | {"XDG_CACHE_HOME": "not/absolute"}
    run = subprocess.run([sys.executable, "-c", HOMELESS], env=env, text=True, capture_output=True, check=True)
    (line,) = run.stdout.splitlines()
    assert "home" in line
    assert "XDG_CACHE_HOME" in line


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o770])
def test_a_folder_that_others_may_write_is_not_trusted(mode, cache):
    cache.mkdir(parents=True)
    cache.chmod(mode)
    assert f"{cache} can be written by others" in outcome()
    assert not list(cache.iterdir())


@COMPILER
def test_what_it_makes_nobody_else_may_write_whatever_the_umask(cache):
    before = os.umask(0)
    try:
        assert outcome().one() == 1
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o022 for path in (cache.parent, cache)] == [0, 0]
