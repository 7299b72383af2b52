import platform
import subprocess
import sys

import pytest
import torch

from scaling.training.machine import flushed, flushes
from scaling.training.module import FamilyModule
from scaling.training.run import train
from tests.training.conftest import load, words

FAULTS = """
import resource
import torch
from scaling.training.machine import keep_freed

if {kept}:
    keep_freed()
faults = []
for _ in range(30):
    torch.ones(1 << 24)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
print(faults[-1] - faults[9])  # the first blocks find the heap too short
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the allocator is not glibc's")
def test_what_a_step_freed_is_not_cleared_again():
    def faults(kept: bool) -> int:
        code = FAULTS.format(kept=kept)
        return int(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True).stdout)

    assert faults(True) < 100 < 1000 < faults(False)


@pytest.fixture
def able():
    """A processor that can count subnormal numbers as zero."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor counts them always")
    torch.set_flush_denormal(False)


@pytest.mark.usefixtures("able")
def test_steps_count_subnormal_numbers_as_zero_and_what_follows_does_not(tmp_path, monkeypatch):
    seen, loss = [], FamilyModule._loss
    monkeypatch.setattr(FamilyModule, "_loss", lambda *given: (seen.append(flushes()), loss(*given))[1])
    train(load(words(tmp_path)))
    assert set(seen) == {True}
    assert not flushes()


@pytest.mark.usefixtures("able")
def test_whoever_flushed_before_flushes_after():
    with flushed():
        with flushed():
            pass
        assert flushes()
    assert not flushes()
