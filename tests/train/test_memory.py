import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from scaling.train.memory import keep_freed

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
