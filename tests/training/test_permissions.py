"""Who may read and write what a run leaves behind: the umask and the folder say, as for any other program."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from scaling.interop import weights


@pytest.fixture(params=["002", "022", "077"])
def umask(request: pytest.FixtureRequest):
    number = int(request.param, 8)
    before = os.umask(number)
    yield number
    os.umask(before)


def test_every_file_of_a_run_follows_the_umask(umask: int, tmp_path: Path, run: Callable[..., dict[str, Any]]):
    run(runs=tmp_path / "runs", log__loggers="[csv]")
    paths = list((tmp_path / "runs").rglob("*"))
    assert {"weights.safetensors", "optimizer.safetensors", "log.jsonl", "result.json"} <= {path.name for path in paths}
    for path in paths:
        mode = (0o777 if path.is_dir() else 0o666) & ~umask
        assert stat.S_IMODE(path.stat().st_mode) & 0o777 == mode, path


def test_weights_belong_to_the_group_of_a_folder_that_hands_it_on(tmp_path: Path):
    groups = [group for group in os.getgroups() if group != os.getegid()] or ([12345] if os.geteuid() == 0 else [])
    if not groups:
        pytest.skip("the user is in one group alone")
    os.chown(tmp_path, -1, groups[0])
    tmp_path.chmod(0o2775)
    weights.write(tmp_path / "model.safetensors", {"table": torch.ones(2)})
    assert (tmp_path / "model.safetensors").stat().st_gid == groups[0]
