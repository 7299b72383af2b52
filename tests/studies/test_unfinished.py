"""A study that is not done says so: which runs it lacks, why, by which codes its workers ended; and how to go on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scaling.ledger import Ledger
from tests.disk import fill

# A study of runs that take a fraction of a second each.
SET = {
    "data": {"kind": "Synthetic", "symbols": 16, "order": 1, "validation": 512},
    "size": {"layers": 1, "width": 8, "heads": 1, "head_width": 8, "vocabulary": None, "length": 16},
    "train": {"batch": 8, "checkpoint_every": 4},
    "trainer": {"max_steps": 8},
    "schedule": {"warmup": 2},
    "evaluate": {"points": 1, "windows": 32},
    "log": {"wandb": "disabled", "every": 1},
}
STUDY = {"question": "Does it end?", "base": "decoder", "set": SET}


def write(folder: Path, **changes: object) -> Path:
    path = folder / "few.yaml"
    path.write_text(yaml.safe_dump({**STUDY, "grid": {"seed": [0, 1, 2]}, **changes}))
    return path


def scaling(*words: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "scaling", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def ended(process: subprocess.Popen[str], seconds: float = 300) -> tuple[int, str]:
    """Its code and what it wrote on standard error."""
    try:
        _, err = process.communicate(timeout=seconds)
    finally:
        process.kill()
    return process.returncode, err


def workers(runs: Path) -> Iterator[int]:
    """The processes of living workers of a ledger."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"work" in words and f"runs={runs}".encode() in words:
                yield int(path.parent.name)


def until(seen, process: subprocess.Popen[str], seconds: float = 120):
    end = time.monotonic() + seconds
    while not (found := seen()):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


def lacking(runs: Path) -> list[str]:
    ledger = Ledger.open(runs)
    return [run for run in ledger.runs() if ledger.result(run) is None]


# What every process imports when it starts.
BROKEN = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "scaling.training.module":
            return None
        spec = PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def loaded(module):
            load(module)
            before = module.FamilyModule.training_step

            def broken(self, batch, number):
                if self.experiment.seed == 1 and Path({flag!r}).exists():
                    raise ValueError("the piece broke")
                return before(self, batch, number)

            module.FamilyModule.training_step = broken

        spec.loader.exec_module = loaded
        return spec


sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """A file; while it is there, runs of seed 1 fail."""
    flag = tmp_path / "flag"
    flag.touch()
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(BROKEN.format(flag=str(flag)))
    monkeypatch.setenv("PYTHONPATH", str(site))
    return flag


@pytest.mark.slow
def test_failed_runs_are_named_with_their_reason_and_tried_again_when_asked(fragile, tmp_path):
    runs = tmp_path / "runs"
    words = ["study", write(tmp_path), f"runs={runs}", "--workers", "2"]
    code, err = ended(scaling(*words))
    assert code == 1, err
    (run,) = lacking(runs)
    assert "2 of 3 runs, 1 failed" in err
    assert "the study few is not done: 1 of 3 runs has no result" in err
    assert f"seed=1 (run {run}): failed: ValueError: the piece broke" in err
    assert "workers ended with 0, 0" in err
    assert "Traceback" not in err
    # The traceback is where one looks for it: in the workers' log, and in the attempt.
    log = (runs / "studies" / "few" / "workers.log").read_text()
    records = Ledger.open(runs).attempts(run)
    # A worker may begin the run in the moment in which another's second try fails.
    assert len(records) in (2, 3)
    assert log.count("ValueError: the piece broke") == log.count("Traceback") == len(records)
    for record in records:
        assert record.end is not None
        assert record.end["outcome"] == "failed"
        assert 'raise ValueError("the piece broke")' in record.end["traceback"]
    fragile.unlink()
    # What failed too often is left alone until someone asks.
    code, err = ended(scaling(*words))
    assert code == 1
    assert "--retry-failed" in err
    assert len(Ledger.open(runs).attempts(run)) == len(records)
    code, err = ended(scaling(*words, "--retry-failed"))
    assert (code, lacking(runs)) == (0, []), err


@pytest.mark.slow
def test_a_full_disk_ends_a_study_with_74_and_what_it_lacks(small_disk, tmp_path):
    runs = small_disk / "runs"
    process = scaling("study", write(tmp_path, grid={"seed": list(range(8))}), f"runs={runs}", "--workers", "2")
    until(lambda: list(runs.glob("store/*/result.json")), process)
    fill(small_disk, 0)
    code, err = ended(process)
    missing = lacking(runs)
    assert missing
    assert code == 74, err
    assert f"{len(missing)} of 8 runs have no result" in err or "1 of 8 runs has no result" in err
    assert all(run in err for run in missing)
    assert "74 (the disk is full or failing)" in err
    assert "Traceback" not in err
    (small_disk / "filler").unlink()
    code, err = ended(scaling("study", tmp_path / "few.yaml", f"runs={runs}", "--workers", "2"))
    assert (code, lacking(runs)) == (0, []), err


@pytest.mark.slow
def test_killed_workers_are_replaced(tmp_path):
    runs = tmp_path / "runs"
    process = scaling("study", write(tmp_path, grid={"seed": list(range(6))}), f"runs={runs}", "--workers", "2")
    until(lambda: list(runs.glob("store/*/lock")), process)
    for worker in workers(runs.resolve()):
        os.kill(worker, signal.SIGKILL)
    code, err = ended(process)
    assert (code, lacking(runs)) == (0, []), err
    assert "a worker ended with -9 (killed by SIGKILL); another takes its place" in err


@pytest.mark.slow
def test_workers_that_always_die_are_given_up(tmp_path):
    runs = tmp_path / "runs"
    process = scaling("study", write(tmp_path), f"runs={runs}", "--workers", "2")
    deaths = 0
    while process.poll() is None:
        for worker in workers(runs.resolve()):
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)
                deaths += 1
        time.sleep(0.05)
    code, err = ended(process)
    assert code == 1
    assert "3 of 3 runs have no result" in err
    assert "-9 (killed by SIGKILL)" in err
    assert deaths >= 8


@pytest.mark.slow
def test_a_table_that_lacks_runs_says_so(fragile, tmp_path):
    table = tmp_path / "pair.yaml"
    table.write_text(
        yaml.safe_dump({"base": "model/decoder", "size": "tiny", "rows": {"A": {}, "B": {"optimizer.lr": 0.002}}})
    )
    own = [
        f"{section}.{key}={json.dumps(value)}"
        for section in ("size", "train", "data", "log", "evaluate", "schedule")
        for key, value in {**SET[section], **({"vocabulary": 17} if section == "size" else {})}.items()
    ]
    code, err = ended(
        scaling("table", table, "--train", "--workers", "2", f"runs={tmp_path / 'runs'}", "seeds=2", *own)
    )
    assert code == 1, err
    assert "the table is not done: 2 of 4 runs have no result" in err
    assert err.count("failed: ValueError: the piece broke") == 2
