"""How the kernels are had: compiled once, by several at once, or not, and then torch stands in."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
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


def test_kernels_are_declined_by_a_variable_and_torch_stands_in(monkeypatch):
    model, batch = build("decoder", ""), Batch(tokens(2, 12), tokens(2, 12, 1))
    ours = model.loss(batch).total.item()
    monkeypatch.setenv("SCALING_KERNELS", "0")
    monkeypatch.setattr(compiled, "_outcome", compiled._outcome.__wrapped__)
    assert "SCALING_KERNELS" in str(compiled.absent())
    assert model.loss(batch).total.item() == pytest.approx(ours, rel=1e-4)


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


@COMPILER
def test_those_that_start_together_compile_beside_each_other_and_leave_one(cache):
    with ThreadPoolExecutor() as pool:
        assert [kernels.one() for kernels in pool.map(lambda _: outcome(), range(3))] == [1, 1, 1]
    assert len([*cache.iterdir()]) == 1


def test_a_malformed_compiler_is_one_line(cache, monkeypatch):
    compilers = {'"c++': "No closing quotation", "no-such-compiler -O1": "is not there", "true": "makes no library"}
    for given, why in compilers.items():
        monkeypatch.setenv("CXX", given)
        assert why in outcome()
        assert "\n" not in outcome()
        assert list(cache.glob("*")) == []


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
