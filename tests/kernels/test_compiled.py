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

from scaling.base.batch import Batch
from scaling.kernels import compiled
from tests.model.test_variants import build, tokens

COMPILER = pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")


@pytest.fixture(autouse=True)
def kernels_are_asked_for(monkeypatch):
    """What the tests run with, `make test ISA=sse` too, is not what they ask about."""
    monkeypatch.delenv("SCALING_KERNELS", raising=False)


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """The folder of the user's caches, where nothing is yet, for a source that compiles in no time."""
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


@COMPILER
def test_torch_stands_in_with_the_same_loss(monkeypatch):
    def losses() -> list[float]:
        model, batch = build("decoder", ""), Batch(tokens(2, 12), tokens(2, 12, 1))
        loss = model.loss(batch).total
        loss.backward()
        return [loss.item(), sum(float(p.grad.square().sum()) for p in model.parameters())]

    ours = losses()
    monkeypatch.setenv("SCALING_KERNELS", "0")
    assert "SCALING_KERNELS" in outcome()
    monkeypatch.setattr(compiled, "_outcome", compiled._outcome.__wrapped__)
    assert compiled.absent() is not None
    assert losses() == pytest.approx(ours, rel=1e-4)


TOLD = """
import json, torch
from scaling.kernels.compiled import absent
from scaling.kernels.operations import activated
print(json.dumps([absent(), activated("gelu", torch.ones(2)).tolist()]))
"""


@pytest.mark.slow
@COMPILER
def test_processes_at_once_compile_beside_each_other_and_leave_one(tmp_path):
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    command: Any = {"args": [sys.executable, "-c", TOLD], "env": env, "text": True, "stdout": subprocess.PIPE}
    several = [subprocess.Popen(**command) for _ in range(2)]
    output = [json.loads(process.communicate(timeout=120)[0]) for process in several]
    assert output[0] == output[1]
    assert output[0][0] is None
    (made,) = (tmp_path / "scaling" / "kernels").iterdir()
    before = made.stat().st_mtime_ns
    assert json.loads(subprocess.run(**command, check=True).stdout) == output[0]
    assert made.stat().st_mtime_ns == before


@COMPILER
@pytest.mark.parametrize("damage", [lambda whole: whole[:-1], lambda whole: b"not a library"])
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
        ("no-such-compiler -O1", "'no-such-compiler' is not there"),
        ("true", "makes no library"),
        ("false", "fails: exit code 1"),
    ],
)
def test_a_malformed_compiler_is_one_line(given, why, cache, monkeypatch):
    monkeypatch.setenv("CXX", given)
    assert why in outcome()
    assert "\n" not in outcome()
    assert list(cache.glob("*")) == []


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that nobody knows")
def test_without_a_home_the_reason_is_one_line(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.setuid(54321)
            os.write(write, str(outcome()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as output:
        (line,) = output.read().splitlines()
    assert "home" in line
    assert "XDG_CACHE_HOME" in line


@COMPILER
def test_a_folder_that_others_may_write_is_not_trusted_and_none_is_made(cache):
    before = os.umask(0)
    try:
        assert outcome().one() == 1
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o022 for path in (cache.parent, cache)] == [0, 0]
    for mode in (0o770, 0o757):
        cache.chmod(mode)
        assert f"{cache} can be written by others" in outcome()
