"""The wheel has what a command needs without the repository: code, sources of kernels, styles, configs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_wheel_has_code_and_configs(tmp_path):
    pytest.importorskip("hatchling")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path], cwd=ROOT, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}

    tracked = subprocess.check_output(["git", "ls-files", "scaling", "configs"], cwd=ROOT, text=True).splitlines()
    assert names == {
        name.replace("configs/", "scaling/_configs/") if name.startswith("configs/") else name for name in tracked
    }
