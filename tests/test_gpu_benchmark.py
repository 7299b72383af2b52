"""`make gpu` without a device: it ends in one line, and its dry run goes through every section but the tests."""

import subprocess
import sys

import pytest
import torch

from benchmarks import gpu

SECTIONS = ["The peak", "Small runs side by side", "A run with its evaluations", "Training", "Attention"]
SECTIONS += ["The small table", "Several devices"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device_it_ends_in_one_line(tmp_path, capsys):
    assert gpu.main(["--out", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "no CUDA device" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_dry_run_writes_every_section_and_no_failure(tmp_path):
    # In a process of its own: here shapes are checked at each call, which torch does not compile.
    command = [sys.executable, str(gpu.__file__), "--dry", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (page,) = tmp_path.glob("*.md")
    text = page.read_text(encoding="utf-8")
    for section in SECTIONS:
        assert f"## {section}\n" in text
    assert "no measurement" in text
    assert "failed" not in text
    assert text.count("| scaling, bf16-true |") == 2  # as it is, and compiled
