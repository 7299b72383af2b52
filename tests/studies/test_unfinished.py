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


def training(runs: Path) -> Iterator[int]:
    """The processes that train a run of a ledger now."""
    for lock in runs.glob("store/*/lock"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            yield json.loads(lock.read_text())["pid"]


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
import os
import signal
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
                    if Path({flag!r}).read_text():
                        os.kill(os.getpid(), signal.SIGKILL)
                    raise ValueError("the piece broke")
                return before(self, batch, number)

            module.FamilyModule.training_step = broken

        spec.loader.exec_module = loaded
        return spec


sys.meta_path.insert(0, Finder())
"""


@pytest.fixture
def fragile(tmp_path, monkeypatch):
    """A file; while it is there, runs of seed 1 fail, and kill their process where something is written in it."""
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
    assert f"what the runs printed is in {runs}/studies/few/workers.log" in err
    assert "Traceback" not in err
    # The traceback is where one looks for it: in the workers' log, and in the attempt.
    log = (runs / "studies" / "few" / "workers.log").read_text()
    records = Ledger.open(runs).attempts(run)
    assert len(records) == 2
    assert log.count("ValueError: the piece broke") == log.count("Traceback") == 2
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
    assert "Traceback" not in err
    (small_disk / "filler").unlink()
    code, err = ended(scaling("study", tmp_path / "few.yaml", f"runs={runs}", "--workers", "2"))
    assert (code, lacking(runs)) == (0, []), err


@pytest.mark.slow
def test_killed_workers_are_replaced(tmp_path):
    runs = tmp_path / "runs"
    process = scaling("study", write(tmp_path, grid={"seed": list(range(6))}), f"runs={runs}", "--workers", "2")
    for worker in until(lambda: list(training(runs)), process):
        os.kill(worker, signal.SIGKILL)
    code, err = ended(process)
    assert (code, lacking(runs)) == (0, []), err
    assert "its process was killed by SIGKILL; it is tried again" in err


@pytest.mark.slow
def test_a_run_that_kills_its_process_is_given_up_and_the_others_are_trained(fragile, tmp_path):
    runs = tmp_path / "runs"
    fragile.write_text("kill")
    code, err = ended(scaling("study", write(tmp_path), f"runs={runs}", "--workers", "2"))
    assert code == 1, err
    (run,) = lacking(runs)
    assert f"seed=1 (run {run}): its process was killed by SIGKILL; tried 3 times" in err
    assert f"what the runs printed is in {runs}/studies/few/workers.log" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_plain_script_starts_a_study_and_is_not_run_again_by_its_workers(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        f"import scaling\nprint('once')\nscaling.study({str(write(tmp_path))!r}, runs={str(tmp_path)!r})\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "once\n"
    assert "once" not in (tmp_path / "studies" / "few" / "workers.log").read_text()
    assert lacking(tmp_path) == []


@pytest.mark.slow
def test_two_commands_share_a_study_and_end_alike(tmp_path):
    words = ("study", write(tmp_path, grid={"seed": list(range(12))}), f"runs={tmp_path / 'runs'}", "--workers", "1")
    both = [scaling(*words) for _ in range(2)]
    for process in both:
        code, err = ended(process)
        assert (code, lacking(tmp_path / "runs")) == (0, []), err
    ledger = Ledger.open(tmp_path / "runs")
    assert [len(ledger.attempts(run)) for run in ledger.runs()] == [1] * 12
